{{/* Certificates for connections to a server, as keys of a service's configuration. Takes config (which it adds to), tls, prefix and dir. */}}
{{- define "lockstep.clientTLS" -}}
{{- if .tls.existingSecret -}}
{{- if .tls.caKey }}{{ $_ := set .config (printf "%sca_file" .prefix) (printf "%s/ca.crt" .dir) }}{{ end -}}
{{- if .tls.certKey -}}
{{- $_ := set .config (printf "%scert_file" .prefix) (printf "%s/tls.crt" .dir) -}}
{{- $_ := set .config (printf "%skey_file" .prefix) (printf "%s/tls.key" .dir) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The certificates for NATS and PostgreSQL, which every service has, and the layout of the streams, as keys of its configuration. Takes root and config. */}}
{{- define "lockstep.commonTLS" -}}
{{- include "lockstep.clientTLS" (dict "config" .config "tls" .root.Values.nats.tls "prefix" "nats_" "dir" "/etc/lockstep-tls/nats") -}}
{{- $config := .config -}}
{{- with .root.Values.nats.replicas }}{{ $_ := set $config "nats_replicas" (int .) }}{{ end -}}
{{- with .root.Values.nats.placementTags }}{{ $_ := set $config "nats_placement_tags" . }}{{ end -}}
{{- with .root.Values.nats.mirrorTags }}{{ $_ := set $config "nats_mirror_tags" . }}{{ end -}}
{{- include "lockstep.clientTLS" (dict "config" .config "tls" .root.Values.postgresql.tls "prefix" "database_" "dir" "/etc/lockstep-tls/postgresql") -}}
{{- end }}

{{/* What a service's pod has of the Secrets: a list of name, secret, and the keys of ca, cert and key, empty for none. Takes root, component, values. */}}
{{- define "lockstep.tlsFiles" -}}
{{- $files := list -}}
{{- range $name := list "nats" "postgresql" -}}
{{- $tls := (index $.root.Values $name).tls -}}
{{- if $tls.existingSecret -}}
{{- $files = append $files (dict "name" $name "secret" $tls.existingSecret "ca" $tls.caKey "cert" $tls.certKey "key" $tls.keyKey) -}}
{{- end -}}
{{- end -}}
{{- with (get .values "tls") -}}
{{- if .existingSecret -}}{{- $files = append $files (dict "name" "http" "secret" .existingSecret "ca" "" "cert" .certKey "key" .keyKey) -}}{{- end -}}
{{- end -}}
{{- with .root.Values.workflowTLS -}}
{{- if eq $.component "workflow" -}}
{{- if .existingSecret -}}{{- $files = append $files (dict "name" "grpc" "secret" .existingSecret "ca" "" "cert" .certKey "key" .keyKey) -}}{{- end -}}
{{- if .client.existingSecret -}}{{- $files = append $files (dict "name" "clients" "secret" .client.existingSecret "ca" .client.caKey "cert" "" "key" "") -}}{{- end -}}
{{- else if eq $.component "domain" -}}
{{- if and .existingSecret .caKey -}}{{- $files = append $files (dict "name" "workflow" "secret" .existingSecret "ca" .caKey "cert" "" "key" "") -}}{{- end -}}
{{- if .client.existingSecret -}}{{- $files = append $files (dict "name" "client" "secret" .client.existingSecret "ca" "" "cert" .client.certKey "key" .client.keyKey) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "files" $files) -}}
{{- end }}

{{/* Volumes of "lockstep.tlsFiles". The private keys are the group's to read, which is that of the pod. */}}
{{- define "lockstep.tlsVolumes" -}}
{{- range (fromJson (include "lockstep.tlsFiles" .)).files }}
- name: tls-{{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      {{- with .ca }}
      - {key: {{ . }}, path: ca.crt}
      {{- end }}
      {{- if .cert }}
      - {key: {{ .cert }}, path: tls.crt}
      - {key: {{ required (printf "found a certificate for %s without the key of its private key; set keyKey beside certKey" .name) .key }}, path: tls.key}
      {{- end }}
{{- end }}
{{- end }}

{{- define "lockstep.tlsMounts" -}}
{{- range (fromJson (include "lockstep.tlsFiles" .)).files }}
- {name: tls-{{ .name }}, mountPath: /etc/lockstep-tls/{{ .name }}, readOnly: true}
{{- end }}
{{- end }}

{{/* The scheme behind a component's Service: what ends TLS in front of it has to know. Takes values. */}}
{{- define "lockstep.scheme" -}}
{{- ternary "https" "http" (not (empty .values.tls.existingSecret)) -}}
{{- end }}

{{/* The certificate of a bundled server. Takes secret. */}}
{{- define "lockstep.bundledTLS" -}}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
{{- end }}
