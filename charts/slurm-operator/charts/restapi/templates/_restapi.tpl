{{- /* What restapi-controller may do. */ -}}
{{- define "restapi.rules" -}}
{{- if eq .scope "watched" }}
{{ include "common.rules.reconciled" (dict "resource" "restapis") }}
# The Slurm cluster of a RestApi.
- apiGroups: [slinky.slurm.net]
  resources: [controllers]
  verbs: [list, watch]
# Child objects. `delete`: to adopt one, which some API servers check.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
{{- else if and (eq .scope "process") .elected }}
{{ include "common.rules.lease" . }}
{{- end }}
{{- end -}}
