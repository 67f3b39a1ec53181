{{- /* A Secret with a generated key, which stays the same as long as the Secret exists. Takes `root`, `settings` and `ref`
(YAML). */ -}}
{{- define "slurm.generatedKey" -}}
{{- $root := .root -}}
{{- if and .settings.create (not $root.Values.controller.external) (not $root.Values.accounting.external) -}}
{{- $ref := fromYaml .ref -}}
{{- $existing := lookup "v1" "Secret" (include "slurm.namespace" $root) $ref.name | default dict -}}
apiVersion: v1
kind: Secret
metadata:
  {{- include "slurm.objectMetadata" (dict "root" $root "name" $ref.name) | nindent 2 }}
  {{- with .settings.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
type: Opaque
immutable: true
data:
  {{ $ref.key }}: {{ get (default dict $existing.data) $ref.key | default (randAscii 1024 | b64enc) }}
{{- end -}}
{{- end -}}
