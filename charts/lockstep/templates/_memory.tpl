{{/* A quantity of memory, such as 512Mi or 1.5G, in bytes. Takes quantity and path, for the message. */}}
{{- define "lockstep.bytes" -}}
{{- $quantity := toString .quantity -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $quantity -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := trimPrefix $number $quantity -}}
{{- if or (not $number) (not (hasKey $units $unit)) -}}
{{- fail (printf "found %s %q; expected a quantity of memory such as 512Mi or 1Gi" .path $quantity) -}}
{{- end -}}
{{- mulf (float64 $number) (float64 (get $units $unit)) | int64 -}}
{{- end }}

{{/* What children take of a container's memory: those of the workflow service that run programs (sandbox_total_memory, in MiB). Takes values and component. */}}
{{- define "lockstep.childMemory" -}}
{{- if or (ne .component "workflow") (dig "trust_programs" false .values.config) -}}0
{{- else -}}
{{- mul (int64 (dig "sandbox_total_memory" 512 .values.config)) 1048576 -}}
{{- end -}}
{{- end }}

{{/*
GOMEMLIMIT, so that Go collects garbage before the kernel ends the process: nine tenths of what children leave of the memory limit, unless extraEnv has it.
Takes values and component.
*/}}
{{- define "lockstep.memoryLimitEnv" -}}
{{- $own := list -}}{{- range .values.extraEnv }}{{ $own = append $own .name }}{{ end -}}
{{- if not (has "GOMEMLIMIT" $own) -}}
{{- with dig "limits" "memory" "" .values.resources -}}
{{- $bytes := include "lockstep.bytes" (dict "quantity" . "path" (printf "%s.resources.limits.memory" $.component)) -}}
{{- $left := sub (int64 $bytes) (int64 (include "lockstep.childMemory" $)) -}}
{{- if le (int64 $left) 0 -}}
{{- fail (printf "found %s.resources.limits.memory %s, which sandbox_total_memory alone takes; expected more, or a lower %s.config.sandbox_total_memory" $.component . $.component) -}}
{{- end }}
- {name: GOMEMLIMIT, value: "{{ div (mul $left 9) 10 }}"}
{{- end -}}
{{- end -}}
{{- end }}
