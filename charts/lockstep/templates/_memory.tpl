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

{{/* GOMEMLIMIT, so that Go collects garbage before the kernel ends the process: nine tenths of the memory limit, unless extraEnv has it. Takes values and component. */}}
{{- define "lockstep.memoryLimitEnv" -}}
{{- $own := list -}}{{- range .values.extraEnv }}{{ $own = append $own .name }}{{ end -}}
{{- if not (has "GOMEMLIMIT" $own) -}}
{{- with dig "limits" "memory" "" .values.resources -}}
{{- $bytes := include "lockstep.bytes" (dict "quantity" . "path" (printf "%s.resources.limits.memory" $.component)) -}}
- {name: GOMEMLIMIT, value: "{{ div (mul (int64 $bytes) 9) 10 }}"}
{{- end -}}
{{- end -}}
{{- end }}
