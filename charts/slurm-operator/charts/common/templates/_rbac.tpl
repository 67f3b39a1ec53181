{{- /* Roles of a component. Its rules are those of `<component>.rules` for a `scope`:
- watched: namespaced objects, in the watched namespaces;
- cluster: objects without a namespace;
- process: objects of the process itself, in its own namespace. */ -}}
{{- define "common.rbac" -}}
{{- if .rbac.create -}}
{{- $watched := include "common.rules" (dict "settings" . "scope" "watched") -}}
{{- $cluster := include "common.rules" (dict "settings" . "scope" "cluster") -}}
{{- $process := include "common.rules" (dict "settings" . "scope" "process") -}}
{{- if eq .rbac.scope "namespace" -}}
{{- range .watched }}
{{ include "common.role" (dict "settings" $ "namespace" . "name" $.name "rules" $watched) }}
{{- end }}
{{ include "common.role" (dict "settings" . "name" .name "rules" $cluster) }}
{{- else }}
{{ include "common.role" (dict "settings" . "name" .name "rules" (printf "%s\n%s" $watched $cluster | trim)) }}
{{- end }}
{{ include "common.role" (dict "settings" . "namespace" .namespace "name" (printf "%s-process" .name) "rules" $process) }}
{{- end -}}
{{- end -}}

{{- define "common.rules" -}}
{{- include (printf "%s.rules" .settings.component) (merge (dict "scope" .scope) .settings) | trim -}}
{{- if and (eq .scope "cluster") .settings.metricsSecure }}
# Who may read metrics.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end -}}
{{- end -}}

{{- /* A Role and its RoleBinding, or a ClusterRole and its ClusterRoleBinding. Takes `settings`, `name`, `rules`, and `namespace`
for a Role. */ -}}
{{- define "common.role" -}}
{{- if .rules -}}
{{- $kind := .namespace | empty | ternary "ClusterRole" "Role" -}}
{{- $metadata := include "common.clusterMetadata" (merge (dict "objectName" .name) .settings) -}}
{{- with .namespace }}{{ $metadata = printf "namespace: %q\n%s" . $metadata }}{{ end -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  {{- $metadata | nindent 2 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  {{- $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ quote .name }}
subjects:
  - kind: ServiceAccount
    name: {{ quote .settings.serviceAccountName }}
    namespace: {{ quote .settings.namespace }}
{{- end -}}
{{- end -}}

{{- /* What a controller does with the kind that it reconciles. Takes `resource`. */ -}}
{{- define "common.rules.reconciled" -}}
# The objects that it reconciles.
- apiGroups: [slinky.slurm.net]
  resources: [{{ .resource }}]
  verbs: [get, list, watch]
# Their status.
- apiGroups: [slinky.slurm.net]
  resources: [{{ .resource }}/status]
  verbs: [patch]
# Child objects block the deletion of their owner, which some API servers check.
- apiGroups: [slinky.slurm.net]
  resources: [{{ .resource }}/finalizers]
  verbs: [update]
# Events about them, counted if they repeat.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- /* The Lease of a process. A name restricts lists and watches, too, but no creates. Takes `name`. */ -}}
{{- define "common.rules.lease" -}}
# The election of the process that is active, or that keeps the certificate.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ quote .name }}]
  verbs: [get, list, watch, update]
{{- end -}}

{{- /* The Secret with the certificate of a server. */ -}}
{{- define "common.rules.certificate" -}}
# The certificate, which is loaded again when it changes.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ quote .tls.secretName }}]
  verbs: [get, list, watch]
{{- if eq .tls.source "self-issued" }}
# The process makes and renews it.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ quote .tls.secretName }}]
  verbs: [update]
{{- end }}
{{- end -}}
