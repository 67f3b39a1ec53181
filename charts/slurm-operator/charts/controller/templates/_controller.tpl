{{- /* What controller-controller may do. */ -}}
{{- define "controller.rules" -}}
{{- if eq .scope "watched" }}
{{ include "common.rules.reconciled" (dict "resource" "controllers") }}
# What slurm.conf is made of.
- apiGroups: [slinky.slurm.net]
  resources: [accountings, nodesets]
  verbs: [list, watch]
# Keys that the Controller refers to.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
# The volume that several slurmctld pods share.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
# Files that the Controller refers to; slurm.conf; the files of a check.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
# Child objects.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors]
  verbs: [get, list, watch, create, patch, delete]
# The pod that checks a configuration; label of the active slurmctld; pods of an old revision that do not start.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
# What `scontrol reconfigure` reported, and why a container ended.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- else if and (eq .scope "process") .elected }}
{{ include "common.rules.lease" . }}
{{- end }}
{{- end -}}
