{{- /* What token-controller may do. */ -}}
{{- define "token.rules" -}}
{{- if eq .scope "watched" }}
{{ include "common.rules.reconciled" (dict "resource" "tokens") }}
# Signing keys; the Secrets of Tokens, which are replaced if they are immutable.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch, delete]
{{- else if and (eq .scope "process") .elected }}
{{ include "common.rules.lease" . }}
{{- end }}
{{- end -}}
