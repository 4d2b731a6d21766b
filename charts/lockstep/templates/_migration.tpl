{{/*
The Job that brings a service's tables up to date before an installation and an upgrade, and what it needs by then: hooks run before everything else of
a release. Takes root, component, values, config, env, and files: volumes and mounts. Sidecars are left out, since the Job would wait for them for ever; init
containers with restartPolicy Always are not.
*/}}
{{- define "lockstep.migration" -}}
{{- if .root.Values.migrations.job.enabled }}
{{- if .root.Values.postgresql.bundled.enabled }}
{{- fail "found migrations.job.enabled together with postgresql.bundled.enabled; expected a PostgreSQL that exists before the release, since the Jobs run before it" }}
{{- end }}
{{- $job := .root.Values.migrations.job }}
{{- $of := dict "root" .root "component" "migrate" "name" (printf "%s-migrate" .component) }}
{{- $name := printf "%s-%s-migrate" (include "lockstep.fullname" .root) .component }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "lockstep.metadata" $of | nindent 2 }}
  annotations:
    {{- include "lockstep.migrationHook" "-20" | nindent 4 }}
    {{- with .values.serviceAccountAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
automountServiceAccountToken: false
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "lockstep.metadata" $of | nindent 2 }}
  annotations:
    {{- include "lockstep.migrationHook" "-20" | nindent 4 }}
data:
  config.yaml: |
    {{- .config | nindent 4 }}
---
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "lockstep.metadata" $of | nindent 2 }}
  annotations:
    {{- include "lockstep.migrationHook" "-10" | nindent 4 }}
spec:
  backoffLimit: {{ $job.backoffLimit }}
  activeDeadlineSeconds: {{ $job.activeDeadlineSeconds }}
  template:
    metadata:
      labels:
        {{- include "lockstep.labels" $of | nindent 8 }}
        {{- with .values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      securityContext:
        {{- include "lockstep.podSecurity" 65532 | nindent 8 }}
      {{- with include "lockstep.pullSecrets" .root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with include "lockstep.placement" .values | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with .values.initContainers }}
      initContainers:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: migrate
          image: {{ include "lockstep.image" (dict "root" .root "component" .component "image" .values.image) }}
          imagePullPolicy: {{ .root.Values.global.imagePullPolicy }}
          args: [migrate, --config, /etc/lockstep/config.yaml]
          {{- with .values.extraEnvFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          env:
            {{- .env | nindent 12 }}
            {{- with .values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          resources:
            {{- toYaml $job.resources | nindent 12 }}
          securityContext:
            {{- include "lockstep.containerSecurity" . | nindent 12 }}
          volumeMounts:
            {{- include "lockstep.serviceMounts" . | nindent 12 }}
      volumes:
        {{- include "lockstep.serviceVolumes" (merge (dict "configMap" $name) .) | nindent 8 }}
{{- end }}
{{- end }}

{{/* Before an installation and an upgrade, in the order of the weight that is given. Kept after a failure, to be looked at. */}}
{{- define "lockstep.migrationHook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
