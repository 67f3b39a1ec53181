{{- /* What loginset-controller may do. */ -}}
{{- define "loginset.rules" -}}
{{- if eq .scope "watched" }}
{{ include "common.rules.reconciled" (dict "resource" "loginsets") }}
# The Slurm cluster of a LoginSet.
- apiGroups: [slinky.slurm.net]
  resources: [controllers]
  verbs: [list, watch]
# Keys and sssd.conf; new ssh host keys.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create]
# Child objects. `delete`: to adopt one, which some API servers check.
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# The label with the name of a login pod.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
{{- else if and (eq .scope "process") .elected }}
{{ include "common.rules.lease" . }}
{{- end }}
{{- end -}}
