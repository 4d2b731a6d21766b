{{- define "relay.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* What selects the relay's pod: never change it, selectors cannot be. */}}
{{- define "relay.selector" -}}
app.kubernetes.io/name: lockstep-relay
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: relay
{{- end }}

{{- define "relay.test" -}}
app.kubernetes.io/name: lockstep-relay
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end }}

{{- define "relay.common" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: lockstep
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "relay.labels" -}}
{{ include "relay.selector" . }}
{{ include "relay.common" . }}
{{- end }}

{{- define "relay.metadata" -}}
name: {{ include "relay.fullname" . | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "relay.labels" . | nindent 2 }}
{{- end }}

{{/* Takes root and image. */}}
{{- define "relay.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What the relay's Functions do to the cluster, and no more: docs/how-to/connect-a-cluster.md lists it. */}}
{{- define "relay.rules" -}}
# onboarding: are the controllers there?
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list]
# argo.check, argo.sync, argo.terminate, and the standing report of drift
- apiGroups: [argoproj.io]
  resources: [applications]
  verbs: [get, list, watch, create, patch]
# argo.check and argo.sync: what an Application may deploy
- apiGroups: [argoproj.io]
  resources: [appprojects]
  verbs: [get]
# argo.promote, argo.abort, argo.retry, k8s.watch, and the standing report of health
- apiGroups: [argoproj.io]
  resources: [rollouts]
  verbs: [get, list, watch]
- apiGroups: [argoproj.io]
  resources: [rollouts/status]
  verbs: [patch]
{{- if .Values.allow.workflowNamespaces }}
# workflow.submit, workflow.stop, workflow.terminate, workflow.logs, k8s.get and k8s.watch
- apiGroups: [argoproj.io]
  resources: [workflows]
  verbs: [get, list, watch, create, patch]
{{- end }}
{{- if .Values.allow.jobNamespaces }}
# job.run, job.stop, job.logs, k8s.get and k8s.watch
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch]
{{- end }}
{{- if .Values.allow.analysisNamespaces }}
# argo.analyze, argo.end_analysis and k8s.watch
- apiGroups: [argoproj.io]
  resources: [analysisruns]
  verbs: [get, list, watch, create, patch]
# argo.analyze
- apiGroups: [argoproj.io]
  resources: [analysistemplates, clusteranalysistemplates]
  verbs: [get]
{{- end }}
{{- if or .Values.allow.workflowNamespaces .Values.allow.jobNamespaces }}
# workflow.logs and job.logs
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- include "relay.objectRules" (dict "resources" .Values.allow.apply "verbs" "[create, delete, get, list, patch]" "for" "k8s.apply, with what it prunes") }}
{{- include "relay.objectRules" (dict "resources" .Values.allow.patch "verbs" "[get, patch]" "for" "k8s.patch") }}
{{- include "relay.objectRules" (dict "resources" .Values.allow.delete "verbs" "[delete, get]" "for" "k8s.delete") }}
{{- if .Values.allow.logs }}
# k8s.logs
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- with .Values.rbac.extraRules }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Takes resources, as deployments.apps, with the verbs that a Function needs for them. What a list excludes is excluded by the relay. */}}
{{- define "relay.objectRules" -}}
{{- $verbs := .verbs -}}
{{- range $i, $each := .resources -}}
{{- if not (hasPrefix "!" $each) -}}
{{- $parts := splitList "." $each -}}
{{- $resource := first $parts -}}
{{- $group := rest $parts | join "." -}}
{{- if and (contains "*" $resource) (ne $resource "*") -}}{{- fail (printf "found %q, expected a resource such as deployments.apps, * or *.apps: roles have no other patterns" $each) -}}{{- end -}}
{{- if contains "*" $group -}}{{- fail (printf "found %q, expected a resource such as deployments.apps, * or *.apps: roles have no other patterns" $each) -}}{{- end -}}
{{- if eq $each "*" -}}{{- $group = "*" -}}{{- end }}
# {{ $.for }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ $resource | quote }}]
  verbs: {{ $verbs }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "relay.config" -}}
{{- $own := dict "nats_url" (required "found no nats.url; expected the control plane's NATS, as tls://nats.example.com:4222" .Values.nats.url) "health_address" ":9090" -}}
{{- if eq .Values.agent.auth "nkey" -}}{{- $_ := set $own "nats_nkey_seed_file" "/etc/lockstep-agent/seed" -}}{{- end -}}
{{- if .Values.agent.caKey -}}{{- $_ := set $own "nats_ca_file" "/etc/lockstep-agent/ca.crt" -}}{{- end -}}
{{- if .Values.agent.certKey -}}
{{- $_ := set $own "nats_cert_file" "/etc/lockstep-agent/tls.crt" -}}
{{- $_ := set $own "nats_key_file" "/etc/lockstep-agent/tls.key" -}}
{{- end -}}
{{- with .Values.allow -}}
{{- $_ := set $own "allow_projects" .projects -}}
{{- $_ := set $own "allow_application_namespaces" .applicationNamespaces -}}
{{- $_ := set $own "allow_destination_namespaces" .destinationNamespaces -}}
{{- $_ := set $own "allow_destination_servers" .destinationServers -}}
{{- $_ := set $own "allow_repositories" .repositories -}}
{{- $_ := set $own "allow_cluster_kinds" .clusterKinds -}}
{{- with .workflowNamespaces -}}{{- $_ := set $own "allow_workflow_namespaces" . -}}{{- end -}}
{{- with .jobNamespaces -}}{{- $_ := set $own "allow_job_namespaces" . -}}{{- end -}}
{{- with .analysisNamespaces -}}{{- $_ := set $own "allow_analysis_namespaces" . -}}{{- end -}}
{{- $_ := set $own "allow_unauthorized_applications" .unauthorizedApplications -}}
{{- $_ := set $own "allow_apply" .apply -}}
{{- $_ := set $own "allow_patch" .patch -}}
{{- $_ := set $own "allow_delete" .delete -}}
{{- $_ := set $own "allow_objects" .objects -}}
{{- $_ := set $own "allow_logs" .logs -}}
{{- with .requests -}}{{- $_ := set $own "allow_requests" . -}}{{- end -}}
{{- end -}}
{{- toYaml (merge $own .Values.config) -}}
{{- end }}

{{/* Whether anything of the Secret is mounted: "true" or nothing. */}}
{{- define "relay.hasFiles" -}}
{{- if or (eq .Values.agent.auth "nkey") .Values.agent.caKey .Values.agent.certKey -}}true{{- end -}}
{{- end }}

{{- define "relay.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "relay.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "relay.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
