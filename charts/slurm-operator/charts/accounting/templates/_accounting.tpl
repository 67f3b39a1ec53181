{{- /* What accounting-controller may do. */ -}}
{{- define "accounting.rules" -}}
{{- if eq .scope "watched" }}
{{ include "common.rules.reconciled" (dict "resource" "accountings") }}
# Public keys of other issuers.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
# Keys and the password of the database; slurmdbd.conf.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch, delete]
# Child objects.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
{{- else if and (eq .scope "process") .elected }}
{{ include "common.rules.lease" . }}
{{- end }}
{{- end -}}
