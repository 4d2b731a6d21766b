{{/* The Role with which a component reads Secrets. Its name has the release's namespace in it: releases of one name in two namespaces may read in a third. */}}
{{- define "lockstep.secretsName" -}}
{{- printf "%s-%s-%s-secrets" .root.Release.Namespace (include "lockstep.fullname" .root) .component | quote -}}
{{- end }}

{{/* Takes args, those of "lockstep.parts", and namespace. */}}
{{- define "lockstep.secretsMetadata" -}}
name: {{ include "lockstep.secretsName" .args }}
namespace: {{ .namespace | quote }}
labels:
  {{- include "lockstep.labels" .args | nindent 2 }}
{{- end }}

{{/* What every service has beside its workload. Takes root, component, values, kind of the workload and config, the text of its file. */}}
{{- define "lockstep.parts" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
  {{- with .values.serviceAccountAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- $args := . }}
{{- range .values.kubernetesSecrets }}
---
# The Secrets that references of this service lead to, by name: it may read these and cannot list any.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "lockstep.secretsMetadata" (dict "args" $args "namespace" .namespace) | nindent 2 }}
rules:
  - apiGroups: [""]
    resources: [secrets]
    resourceNames:
      {{- toYaml .names | nindent 6 }}
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "lockstep.secretsMetadata" (dict "args" $args "namespace" .namespace) | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ include "lockstep.secretsName" $args }}}
subjects:
  - {kind: ServiceAccount, name: {{ include "lockstep.fullname" $args.root }}-{{ $args.component }}, namespace: {{ $args.root.Release.Namespace | quote }}}
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
data:
  config.yaml: |
    {{- .config | nindent 4 }}
{{- $replicas := .values.replicas }}
{{- if .values.autoscaling.enabled }}
{{- $replicas = .values.autoscaling.minReplicas }}
{{- if gt (int .values.autoscaling.minReplicas) (int .values.autoscaling.maxReplicas) }}
{{- fail (printf "found %s.autoscaling.minReplicas %v above maxReplicas %v; expected no more" .component .values.autoscaling.minReplicas .values.autoscaling.maxReplicas) }}
{{- end }}
---
{{ include (ternary "lockstep.scaledObject" "lockstep.horizontalPodAutoscaler" .values.autoscaling.keda.enabled) . }}
{{- else if .values.autoscaling.keda.enabled }}
{{- fail (printf "found %s.autoscaling.keda.enabled without %s.autoscaling.enabled; set both" .component .component) }}
{{- end }}
{{- if and .values.pdb.enabled (gt (int $replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "lockstep.selector" . | nindent 6 }}
{{- end }}
{{- if and .root.Values.metrics.serviceMonitor.enabled (.root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor") }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
    {{- with .root.Values.metrics.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "lockstep.selector" . | nindent 6 }}
  endpoints:
    - port: health
      path: /metrics
      interval: {{ .root.Values.metrics.serviceMonitor.interval }}
{{- end }}
{{- end }}

{{/* Ingress and HTTPRoute. Takes root, component, values. */}}
{{- define "lockstep.routes" -}}
{{- if .values.ingress.enabled }}
{{- $host := required (printf "found no %s.ingress.host; expected the host name under which it is reached" .component) .values.ingress.host }}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
  {{- with .values.ingress.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .values.ingress.className }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- with .values.ingress.tlsSecret }}
  tls:
    - hosts: [{{ $host | quote }}]
      secretName: {{ . }}
  {{- end }}
  rules:
    - host: {{ $host | quote }}
      http:
        paths:
          - path: /
            pathType: Prefix
            backend:
              service:
                name: {{ include "lockstep.fullname" .root }}-{{ .component }}
                port: {name: http}
{{- end }}
{{- if .values.httpRoute.enabled }}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
  {{- with .values.httpRoute.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  parentRefs:
    {{- toYaml .values.httpRoute.parentRefs | nindent 4 }}
  {{- with .values.httpRoute.hostnames }}
  hostnames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - backendRefs:
        - name: {{ include "lockstep.fullname" .root }}-{{ .component }}
          port: {{ .values.service.port }}
{{- end }}
{{- end }}

{{/* The Service of a component that is reached over HTTP, and the Deployment behind it. Takes root, component, values, port, env. */}}
{{- define "lockstep.httpService" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
  {{- with .values.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .values.service.type }}
  selector:
    {{- include "lockstep.selector" . | nindent 4 }}
  ports:
    - {name: http, port: {{ .values.service.port }}, targetPort: http, appProtocol: {{ include "lockstep.scheme" . }}}
---
# Health and metrics have a Service of their own: the other one may be reached from outside.
apiVersion: v1
kind: Service
metadata:
  {{- include "lockstep.metadata" (merge (dict "name" (printf "%s-health" .component)) .) | nindent 2 }}
spec:
  selector:
    {{- include "lockstep.selector" . | nindent 4 }}
  ports:
    - {name: health, port: 9090, targetPort: health, appProtocol: http}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
spec:
  {{- if not .values.autoscaling.enabled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: {{ .values.revisionHistoryLimit }}
  strategy:
    {{- with .values.strategy }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    # A new pod is ready before an old one stops, so that every call is answered.
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
    {{- end }}
  selector:
    matchLabels:
      {{- include "lockstep.selector" . | nindent 6 }}
  template:
    {{- include "lockstep.pod" (merge (dict "ports" (dict "http" .port "health" 9090)) .) | nindent 4 }}
{{- end }}
