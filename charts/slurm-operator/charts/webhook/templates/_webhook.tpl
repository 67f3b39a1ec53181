{{- define "webhook.defaults" -}}
replicas: {{ if .root.Values.small }}1{{ else }}2{{ end }}
metricsPort: 0
pdb.enabled: true
serverPort: 9443
timeoutSeconds: 10
podsBinding: false
evictions.enabled: true
validating.failurePolicy: Fail
validating.matchPolicy: Equivalent
validating.matchConditions: []
validating.namespaceSelector: {}
mutating.failurePolicy: Ignore
mutating.matchPolicy: Equivalent
mutating.matchConditions: []
caBundle: ""
check.enabled: true
check.timeout: 120s
{{ include "common.tlsDefaults" . }}
{{- end -}}

{{- /* Completes the certificate. Sets `keepsCaBundle`: whether one of the processes writes caBundle to the configurations. */ -}}
{{- define "webhook.settings" -}}
{{- $_ := set .tls "source" (default (ternary "cert-manager" "self-issued" .certManager.enabled) .tls.source) -}}
{{- if eq .tls.source "cert-manager" -}}
{{- $_ = set .tls "secretName" (coalesce .tls.secretName .certManager.secretName (printf "%s-ca" .name)) -}}
{{- else -}}
{{- $_ = set .tls "secretName" (coalesce .tls.secretName .certManager.secretName "") -}}
{{- end -}}
{{- include "common.tls" . -}}
{{- $_ = set . "keepsCaBundle" (or (eq .tls.source "self-issued") (and (eq .tls.source "secret") (not .caBundle))) -}}
{{- end -}}

{{- define "webhook.pod" -}}
args:
  - --server-addr=:{{ int .serverPort }}
  - --tls-secret={{ .tls.secretName }}
  - --tls-self-issued={{ eq .tls.source "self-issued" }}
  {{- if eq .tls.source "self-issued" }}
  - --tls-names={{ join "," .tls.names }}
  {{- end }}
  {{- if .keepsCaBundle }}
  - --webhook-configuration={{ .name }}
  {{- include "common.leaseArgs" . | nindent 2 }}
  {{- end }}
port: {name: https, port: {{ int .serverPort }}, servicePort: 443}
{{- end -}}

{{- define "webhook.objects" -}}
{{ include "common.certificates" . }}
{{ include "webhook.configurations" . }}
{{ include "webhook.check" . }}
{{- end -}}

{{- /* What the webhook may do. */ -}}
{{- define "webhook.rules" -}}
{{- if eq .scope "watched" }}
# Files and volumes that a Controller refers to.
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims]
  verbs: [get]
{{- if or .evictions.enabled .podsBinding }}
# The worker that is evicted or bound to a node{{ if .podsBinding }}, which gets the topology of the node{{ end }}; its NodeSet.
- apiGroups: [""]
  resources: [pods]
  verbs: [get{{ if .podsBinding }}, patch{{ end }}]
- apiGroups: [slinky.slurm.net]
  resources: [nodesets]
  verbs: [get]
{{- end }}
{{- if .evictions.enabled }}
# How to ask Slurm whether a worker runs a job: its cluster, its slurmrestd, the signing key.
- apiGroups: [slinky.slurm.net]
  resources: [controllers]
  verbs: [get]
- apiGroups: [slinky.slurm.net]
  resources: [restapis]
  verbs: [list]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}
{{- else if eq .scope "cluster" }}
{{- if .podsBinding }}
# The topology of a node.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- end }}
{{- if .keepsCaBundle }}
# The authorities of the certificate, for the API server.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations]
  resourceNames: [{{ quote .name }}]
  verbs: [get, list, watch, update]
{{- end }}
{{- else }}
{{ include "common.rules.certificate" . }}
{{- if .keepsCaBundle }}
{{ include "common.rules.lease" . }}
{{- end }}
{{- end }}
{{- end -}}
