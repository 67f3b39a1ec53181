{{- /* How the API server calls the webhook. */ -}}

{{- define "webhook.configurations" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  {{- include "webhook.configurationMetadata" . | nindent 2 }}
webhooks:
  {{- range $resource := list "accounting" "controller" "loginset" "nodeset" "restapi" "token" }}
  - name: {{ $resource }}-v1beta1.kb.io
    rules:
      - apiGroups: [slinky.slurm.net]
        apiVersions: [v1beta1]
        operations: [CREATE, UPDATE]
        resources: [{{ $resource }}s]
        scope: Namespaced
    {{- include "webhook.clientConfig" (dict "settings" $ "path" (printf "/validate-slinky-slurm-net-v1beta1-%s" $resource)) | nindent 4 }}
    {{- $conditions := concat (fromYamlArray (include "webhook.conditions" $)) (default list $.validating.matchConditions) }}
    {{- include "webhook.policies" (set (omit $.validating "matchConditions") "matchConditions" $conditions) | nindent 4 }}
    {{- include "webhook.timeout" $ | nindent 4 }}
    {{- include "webhook.validatedNamespaces" $ | nindent 4 }}
    sideEffects: None
    admissionReviewVersions: [v1, v1beta1]
  {{- end }}
  {{- if .evictions.enabled }}
  - name: podseviction-v1.kb.io
    rules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE]
        resources: [pods/eviction]
        scope: Namespaced
    {{- include "webhook.clientConfig" (dict "settings" . "path" "/validate--v1-pod-eviction") | nindent 4 }}
    {{- include "webhook.policies" (dict "failurePolicy" "Ignore" "matchPolicy" "Equivalent") | nindent 4 }}
    {{- include "webhook.timeout" . | nindent 4 }}
    {{- include "webhook.validatedNamespaces" . | nindent 4 }}
    sideEffects: None
    admissionReviewVersions: [v1, v1beta1]
  {{- end }}
{{- if .podsBinding }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  {{- include "webhook.configurationMetadata" . | nindent 2 }}
webhooks:
  - name: podsbinding-v1.kb.io
    rules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE]
        resources: [pods/binding]
    {{- include "webhook.clientConfig" (dict "settings" . "path" "/mutate--v1-binding") | nindent 4 }}
    {{- include "webhook.policies" .mutating | nindent 4 }}
    {{- include "webhook.timeout" . | nindent 4 }}
    namespaceSelector:
      {{- include "webhook.namespaceSelector" (dict "watched" .watched "excluded" .namespace) | nindent 6 }}
    sideEffects: NoneOnDryRun
    admissionReviewVersions: [v1]
{{- end }}
{{- end -}}

{{- define "webhook.configurationMetadata" -}}
{{ include "common.clusterMetadata" . }}
{{- if eq .tls.source "cert-manager" }}
annotations:
  cert-manager.io/inject-ca-from: "{{ .namespace }}/{{ .tls.secretName }}"
  certmanager.k8s.io/inject-ca-from: "{{ .namespace }}/{{ .tls.secretName }}"
{{- end }}
{{- end -}}

{{- /* Takes `settings` and `path`. caBundle is PEM or base64; the process or cert-manager writes it, if it is not known. */ -}}
{{- define "webhook.clientConfig" -}}
clientConfig:
  service: {name: {{ quote .settings.name }}, namespace: {{ quote .settings.namespace }}, path: {{ .path }}}
  {{- with and (eq .settings.tls.source "secret") .settings.caBundle }}
  caBundle: {{ contains "-----BEGIN" . | ternary (b64enc .) . }}
  {{- end }}
{{- end -}}

{{- define "webhook.policies" -}}
failurePolicy: {{ .failurePolicy }}
matchPolicy: {{ .matchPolicy }}
{{- with .matchConditions }}
matchConditions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Updates of metadata and of objects that are being deleted need no validation: without the webhook they still succeed. */ -}}
{{- define "webhook.conditions" -}}
- name: not-deleted
  expression: "!has(object.metadata.deletionTimestamp)"
- name: spec-changed
  expression: oldObject == null || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec
{{- end -}}

{{- define "webhook.timeout" -}}
{{- with int .timeoutSeconds }}timeoutSeconds: {{ . }}{{ end -}}
{{- end -}}

{{- define "webhook.validatedNamespaces" -}}
namespaceSelector:
  {{- with .validating.namespaceSelector }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  {{- include "webhook.namespaceSelector" (dict "watched" .watched) | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* Namespaces whose requests the webhook never gets. */ -}}
{{- define "webhook.systemNamespaces" -}}
["kube-system", "kube-public", "kube-node-lease"]
{{- end -}}

{{- /* Takes the `watched` namespaces, and one that is `excluded`. */ -}}
{{- define "webhook.namespaceSelector" -}}
matchExpressions:
  {{- with .watched }}
  - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
  {{- end }}
  {{- $excluded := concat (fromJsonArray (include "webhook.systemNamespaces" .)) (compact (list .excluded)) }}
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ toJson $excluded }}}
{{- end -}}
