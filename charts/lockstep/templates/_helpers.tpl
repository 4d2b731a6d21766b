{{- define "lockstep.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* What selects the pods of a component: never change it, selectors cannot be. Takes root and component. */}}
{{- define "lockstep.selector" -}}
app.kubernetes.io/name: lockstep
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The labels of an object. Takes root and component. */}}
{{- define "lockstep.labels" -}}
{{ include "lockstep.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: lockstep
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.global.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Name, namespace and labels. Takes root, component, and name where it is not the component's. */}}
{{- define "lockstep.metadata" -}}
name: {{ printf "%s-%s" (include "lockstep.fullname" .root) (get . "name" | default .component) }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "lockstep.labels" . | nindent 2 }}
{{- end }}

{{/* Takes root, component and image. */}}
{{- define "lockstep.image" -}}
{{- $repository := .image.repository | default (printf "%s/%s" .root.Values.global.imageRegistry .component) -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ .image.tag | default .root.Values.global.imageTag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* A variable out of a Secret. Takes root, env, credential (existingSecret, key) and path, for the message. */}}
{{- define "lockstep.secretEnv" -}}
- name: {{ .env }}
  valueFrom:
    secretKeyRef:
      name: {{ .credential.existingSecret | default .root.Values.credentials.existingSecret | required (printf "found no Secret for %s; set credentials.existingSecret, or %s.existingSecret" .path .path) }}
      key: {{ .credential.key }}
{{- end }}

{{/* LOCKSTEP_<SERVICE>_DATABASE_URL. Takes root and component. */}}
{{- define "lockstep.databaseEnv" -}}
{{- $variable := printf "LOCKSTEP_%s_DATABASE_URL" (upper .component) -}}
{{- if .root.Values.postgresql.bundled.enabled -}}
{{ include "lockstep.secretEnv" (dict "root" .root "env" "POSTGRES_PASSWORD" "credential" .root.Values.postgresql.bundled "path" "postgresql.bundled") }}
- name: {{ $variable }}
  value: postgres://lockstep:$(POSTGRES_PASSWORD)@{{ include "lockstep.fullname" .root }}-postgresql:5432/lockstep{{ if not .root.Values.postgresql.tls.existingSecret }}?sslmode=disable{{ end }}
{{- else -}}
{{- $database := index .root.Values.postgresql .component -}}
{{ include "lockstep.secretEnv" (dict "root" .root "env" $variable "credential" $database "path" (printf "postgresql.%s" .component)) }}
{{- if get $database "standbyKey" }}
{{ include "lockstep.secretEnv" (dict "root" .root "env" (printf "LOCKSTEP_%s_DATABASE_STANDBY_URL" (upper .component)) "credential" (dict "existingSecret" $database.existingSecret "key" (get $database "standbyKey")) "path" (printf "postgresql.%s" .component)) }}
{{- end }}
{{- if $database.directKey }}
{{ include "lockstep.secretEnv" (dict "root" .root "env" (printf "LOCKSTEP_%s_DATABASE_DIRECT_URL" (upper .component)) "credential" (dict "existingSecret" $database.existingSecret "key" $database.directKey) "path" (printf "postgresql.%s" .component)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "lockstep.natsEnv" -}}
{{ include "lockstep.secretEnv" (dict "root" .root "env" (printf "LOCKSTEP_%s_NATS_PASSWORD" (upper .component)) "credential" (index .root.Values.nats .component) "path" (printf "nats.%s" .component)) }}
{{- end }}

{{- define "lockstep.natsURL" -}}
{{- if and .Values.nats.bundled.enabled .Values.nats.url -}}
{{- fail "found both nats.url and nats.bundled.enabled; set one of them: services and relays would be at different ones" -}}
{{- else if .Values.nats.bundled.enabled -}}
{{ ternary "tls" "nats" (not (empty .Values.nats.bundled.tlsSecret)) }}://{{ include "lockstep.fullname" . }}-nats:4222
{{- else -}}
{{- required "found no nats.url; set it to your NATS, as nats://nats.example.com:4222, or nats.bundled.enabled=true to try Lockstep" .Values.nats.url -}}
{{- end -}}
{{- end }}

{{/* The restricted Pod Security Standard, for a user of an image without one. Takes user. */}}
{{- define "lockstep.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "lockstep.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Everything of a service's pod but its own. Takes root, component, values, ports (name to number), env, and files: volumes and mounts. */}}
{{- define "lockstep.pod" -}}
metadata:
  labels:
    {{- include "lockstep.labels" . | nindent 4 }}
    {{- with .values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include (printf "lockstep.config.%s" .component) .root | sha256sum }}
    {{- with .values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "lockstep.fullname" .root }}-{{ .component }}
  automountServiceAccountToken: {{ not (empty .values.kubernetesSecrets) }}
  enableServiceLinks: false
  # By default preStop, then the fifteen seconds that a service gives its parts.
  terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "lockstep.podSecurity" 65532 | nindent 4 }}
  {{- with include "lockstep.pullSecrets" .root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with include "lockstep.placement" .values | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  topologySpreadConstraints:
    {{- with .values.topologySpreadConstraints }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    {{- $selector := include "lockstep.selector" . }}
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- $selector | nindent 10 }}
    {{- end }}
    {{- end }}
  {{- with .values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "lockstep.image" (dict "root" .root "component" .component "image" .values.image) }}
      imagePullPolicy: {{ .root.Values.global.imagePullPolicy }}
      args: [--config, /etc/lockstep/config.yaml]
      {{- with .values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      env:
        {{- .env | nindent 8 }}
        {{- with include "lockstep.memoryLimitEnv" . | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- if .root.Values.tracing.endpoint }}
        - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .root.Values.tracing.endpoint | quote }}}
        - {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
        - {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .root.Values.tracing.ratio | quote }}}
        {{- end }}
        {{- with .values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        {{- range $name, $port := .ports }}
        - {name: {{ $name }}, containerPort: {{ $port }}}
        {{- end }}
      # Tables are brought up to date before anything listens.
      startupProbe:
        httpGet: {path: /healthz, port: health}
        periodSeconds: 2
        failureThreshold: 150
      livenessProbe:
        httpGet: {path: /healthz, port: health}
        periodSeconds: 10
        timeoutSeconds: 3
      readinessProbe:
        httpGet: {path: /readyz, port: health}
        periodSeconds: 5
        timeoutSeconds: 3
      lifecycle:
        {{- with .values.lifecycle }}
        {{- toYaml . | nindent 8 }}
        {{- else }}
        # Load balancers stop sending requests here; SIGTERM then ends what is in progress.
        preStop: {sleep: {seconds: 8}}
        {{- end }}
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      securityContext:
        {{- include "lockstep.containerSecurity" . | nindent 8 }}
      volumeMounts:
        {{- include "lockstep.serviceMounts" . | nindent 8 }}
    {{- with .values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "lockstep.serviceVolumes" (merge (dict "configMap" (printf "%s-%s" (include "lockstep.fullname" .root) .component)) .) | nindent 4 }}
{{- end }}

{{/* Where the container of a service, or of its migration, finds its files. Takes what "lockstep.pod" takes. */}}
{{- define "lockstep.serviceMounts" -}}
- {name: config, mountPath: /etc/lockstep, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- with include "lockstep.tlsMounts" . | trim }}
{{ . }}
{{- end }}
{{- with get . "mounts" }}
{{ toYaml . }}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The volumes of "lockstep.serviceMounts". Takes configMap, the name of the configuration, as well. */}}
{{- define "lockstep.serviceVolumes" -}}
- name: config
  configMap: {name: {{ .configMap }}}
- name: tmp
  emptyDir: {}
{{- with include "lockstep.tlsVolumes" . | trim }}
{{ . }}
{{- end }}
{{- with get . "volumes" }}
{{ toYaml . }}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The Secrets with which a pod's images are pulled. Takes the root. */}}
{{- define "lockstep.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Where and how a pod runs: everything here is empty by default. Takes the values of its component. */}}
{{- define "lockstep.placement" -}}
{{- range $option := list "priorityClassName" "runtimeClassName" "hostAliases" "dnsPolicy" "dnsConfig" "nodeSelector" "tolerations" "affinity" }}
{{- with get $ $option }}
{{ toYaml (dict $option .) }}
{{- end }}
{{- end }}
{{- end }}
