{{- /* Whether the custom resource definitions exist, or are part of the release. Takes the context of the chart. */ -}}
{{- define "webhook.hasCrds" -}}
{{- or (.Capabilities.APIVersions.Has "slinky.slurm.net/v1beta1/NodeSet") (dig "enabled" false (default dict .Values.crds)) -}}
{{- end -}}

{{- /* The namespace that the check sends a NodeSet to: that of the webhook, or else the first one that it is limited to. It
is empty if none is known to be validated, or if there is nothing to check. */ -}}
{{- define "webhook.checkedNamespace" -}}
{{- if and .check.enabled (empty .validating.namespaceSelector) (eq (include "webhook.hasCrds" .root) "true") -}}
{{- $candidates := list .namespace -}}
{{- if and .watched (not (has .namespace .watched)) -}}
{{- $candidates = eq .rbac.scope "namespace" | ternary .watched list -}}
{{- end -}}
{{- $system := fromJsonArray (include "webhook.systemNamespaces" .) -}}
{{- $found := "" -}}
{{- range reverse $candidates }}{{ if not (has . $system) }}{{ $found = . }}{{ end }}{{ end -}}
{{- $found -}}
{{- end -}}
{{- end -}}

{{- /* A Job that waits until the webhook denies an invalid NodeSet: after an installation or upgrade, and by `helm test`. */ -}}
{{- define "webhook.check" -}}
{{- $checked := include "webhook.checkedNamespace" . -}}
{{- if $checked -}}
{{- $name := printf "%s-check" .name -}}
{{- $settings := merge (dict "name" $name "serviceAccountName" $name) . -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "webhook.checkMetadata" (merge (dict "weight" -1) $settings) | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "webhook.checkMetadata" (merge (dict "weight" -1 "namespace" $checked) $settings) | nindent 2 }}
rules:
  # The invalid NodeSet.
  - apiGroups: [slinky.slurm.net]
    resources: [nodesets]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "webhook.checkMetadata" (merge (dict "weight" -1 "namespace" $checked) $settings) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ quote $name }}
subjects:
  - {kind: ServiceAccount, name: {{ quote $name }}, namespace: {{ quote .namespace }}}
---
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "webhook.checkMetadata" (merge (dict "weight" 0) $settings) | nindent 2 }}
spec:
  backoffLimit: 0
  template:
    metadata:
      labels:
        {{- include "common.podLabels" $settings | nindent 8 }}
    spec:
      serviceAccountName: {{ quote $name }}
      automountServiceAccountToken: true
      restartPolicy: Never
      {{- with include "common.podFields" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      containers:
        - name: check
          {{- include "common.containerFields" . | nindent 10 }}
          args: [check, "--namespace={{ $checked }}", "--timeout={{ .check.timeout }}"]
          {{- with .resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
{{- end -}}
{{- end -}}

{{- define "webhook.checkMetadata" -}}
{{ include "common.metadata" . }}
annotations:
  helm.sh/hook: post-install,post-upgrade,test
  helm.sh/hook-weight: "{{ .weight }}"
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
