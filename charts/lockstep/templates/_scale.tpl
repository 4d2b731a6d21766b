{{/* The autoscaler by processor, memory and metrics of one's own. Takes root, component, values and kind of the workload. */}}
{{- define "lockstep.horizontalPodAutoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: {{ .kind }}
    name: {{ include "lockstep.fullname" .root }}-{{ .component }}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  {{- with .values.autoscaling.behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .values.autoscaling.targetCPU }}}
    {{- with .values.autoscaling.targetMemory }}
    - type: Resource
      resource:
        name: memory
        target: {type: Utilization, averageUtilization: {{ . }}}
    {{- end }}
    {{- with .values.autoscaling.metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The autoscaler by queue depth, which KEDA makes a HorizontalPodAutoscaler of. Takes what "lockstep.horizontalPodAutoscaler" takes. */}}
{{- define "lockstep.scaledObject" -}}
{{- $keda := .values.autoscaling.keda -}}
{{- if .values.autoscaling.metrics -}}
{{- fail (printf "found %s.autoscaling.metrics beside keda.enabled; expected %s.autoscaling.keda.triggers" .component .component) -}}
{{- end -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "lockstep.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: {{ .kind }}
    name: {{ include "lockstep.fullname" .root }}-{{ .component }}
  minReplicaCount: {{ .values.autoscaling.minReplicas }}
  maxReplicaCount: {{ .values.autoscaling.maxReplicas }}
  pollingInterval: {{ $keda.pollingInterval }}
  cooldownPeriod: {{ $keda.cooldownPeriod }}
  # While Prometheus cannot be read, pods stay as they are.
  fallback: {failureThreshold: 3, replicas: {{ .values.autoscaling.minReplicas }}, behavior: currentReplicasIfHigher}
  {{- with .values.autoscaling.behavior }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- toYaml . | nindent 8 }}
  {{- end }}
  triggers:
    - type: prometheus
      metadata:
        serverAddress: {{ required (printf "found no %s.autoscaling.keda.prometheusAddress; expected the address of the Prometheus that reads Lockstep's metrics" .component) $keda.prometheusAddress | quote }}
        query: {{ $keda.query | quote }}
        threshold: {{ $keda.threshold | quote }}
    - type: cpu
      metricType: Utilization
      metadata: {value: {{ .values.autoscaling.targetCPU | quote }}}
    {{- with .values.autoscaling.targetMemory }}
    - type: memory
      metricType: Utilization
      metadata: {value: {{ . | quote }}}
    {{- end }}
    {{- with $keda.triggers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
