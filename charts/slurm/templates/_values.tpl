{{- /* Values: as text of configuration files, and merged. */ -}}

{{- /* A value as Slurm reads it: lists joined by commas, integers without exponent. */ -}}
{{- define "slurm.text" -}}
{{- if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . }}{{ $items = append $items (include "slurm.text" .) }}{{ end -}}
{{- join "," $items -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{- /* `key=value` for each entry of a map, in order. Empty values are left out: null, "" and empty lists, but not 0 and
false. Takes `map` and `separator`. */ -}}
{{- define "slurm.options" -}}
{{- $options := list -}}
{{- range $key, $value := .map -}}
{{- if not (or (kindIs "invalid" $value) (and (or (kindIs "string" $value) (kindIs "slice" $value)) (empty $value))) -}}
{{- $options = append $options (printf "%s=%s" $key (include "slurm.text" $value)) -}}
{{- end -}}
{{- end -}}
{{- join .separator $options -}}
{{- end -}}

{{- /* Merges the map `from` into the map `into`, which it changes: maps are merged recursively, anything else replaces what
is there, null and false included. With `byName`, lists are merged as well: items with the same `key` or `name` are merged, others
appended. */ -}}
{{- define "slurm.merge" -}}
{{- $into := .into -}}
{{- $byName := .byName -}}
{{- range $key, $value := .from -}}
{{- $old := get $into $key -}}
{{- if and (kindIs "map" $old) (kindIs "map" $value) -}}
{{- include "slurm.merge" (dict "into" $old "from" $value "byName" $byName) -}}
{{- else if and $byName (kindIs "slice" $old) (kindIs "slice" $value) -}}
{{- $_ := set $into $key (list) -}}
{{- include "slurm.mergeLists" (dict "into" $into "key" $key "old" $old "new" $value) -}}
{{- else -}}
{{- $_ := set $into $key (kindIs "map" $value | ternary (deepCopy (default dict $value)) $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Sets `key` of the map `into` to the items of `old` and `new`: first those with an id, then the others. */ -}}
{{- define "slurm.mergeLists" -}}
{{- $named := list -}}
{{- $unnamed := list -}}
{{- $byId := dict -}}
{{- range concat .old .new -}}
{{- $id := "" -}}
{{- if kindIs "map" . }}{{ $id = default .name .key }}{{ end -}}
{{- if not $id -}}
{{- $unnamed = append $unnamed . -}}
{{- else if hasKey $byId $id -}}
{{- include "slurm.merge" (dict "into" (get $byId $id) "from" . "byName" true) -}}
{{- else -}}
{{- $item := deepCopy . -}}
{{- $_ := set $byId $id $item -}}
{{- $named = append $named $item -}}
{{- end -}}
{{- end -}}
{{- $_ := set .into .key (concat $named $unnamed) -}}
{{- end -}}

{{- /* A reference to a key of a Secret or ConfigMap. Takes `ref`, and the default `name` and `key`. */ -}}
{{- define "slurm.keyRef" -}}
{{- $ref := default dict .ref -}}
name: {{ default .name $ref.name }}
key: {{ default .key $ref.key }}
{{- end -}}

{{- define "slurm.slurmKeyRef" -}}
{{- include "slurm.keyRef" (dict "ref" .Values.slurmKey.secretRef "name" (printf "%s-auth-slurm" (include "slurm.fullname" .)) "key" "slurm.key") -}}
{{- end -}}

{{- define "slurm.jwtKeyRef" -}}
{{- include "slurm.keyRef" (dict "ref" .Values.jwtKey.secretRef "name" (printf "%s-auth-jwt" (include "slurm.fullname" .)) "key" "jwt.key") -}}
{{- end -}}

{{- define "slurm.jwksKeyRef" -}}
{{- include "slurm.keyRef" (dict "ref" .Values.jwksKeys.configMapRef "name" (printf "%s-auth-jwks" (include "slurm.fullname" .)) "key" "jwks.json") -}}
{{- end -}}

{{- define "slurm.sssdConfRef" -}}
{{- include "slurm.keyRef" (dict "ref" .Values.sssd.secretRef "name" (printf "%s-sssd-conf" (include "slurm.fullname" .)) "key" "sssd.conf") -}}
{{- end -}}

{{- /* The references of Controller and Accounting to keys. */ -}}
{{- define "slurm.keyRefs" -}}
slurmKeyRef:
  {{- include "slurm.slurmKeyRef" . | nindent 2 }}
jwtKeyRef:
  {{- include "slurm.jwtKeyRef" . | nindent 2 }}
{{- if .Values.jwksKeys.enabled }}
jwksKeyRef:
  {{- include "slurm.jwksKeyRef" . | nindent 2 }}
{{- end }}
{{- end -}}
