{{- define "expectations.defaults" -}}
enabled: {{ not .root.Values.small }}
replicas: 2
port: 8443
serviceAccounts: []
{{ include "common.tlsDefaults" . }}
{{- end -}}

{{- define "expectations.settings" -}}
{{- $_ := set .tls "source" (default "self-issued" .tls.source) -}}
{{- include "common.tls" . -}}
{{- end -}}

{{- define "expectations.pod" -}}
{{- $callers := list (printf "%s/%s" .namespace .serviceAccountName) -}}
{{- if eq (include "common.isUmbrella" .root) "true" -}}
{{- $nodeset := dict -}}
{{- include "common.settings" (dict "root" .root "component" "nodeset" "into" $nodeset) -}}
{{- $callers = append $callers (printf "%s/%s" $nodeset.namespace $nodeset.serviceAccountName) -}}
{{- else -}}
{{- $callers = append $callers (printf "%s/%s-nodeset" .namespace .prefix) -}}
{{- end -}}
args:
  - --listen-addr=:{{ int .port }}
  - --service-accounts={{ concat $callers (default list .serviceAccounts) | uniq | join "," }}
  - --tls-secret={{ .tls.secretName }}
  - --tls-self-issued={{ eq .tls.source "self-issued" }}
  {{- if eq .tls.source "self-issued" }}
  - --tls-names={{ join "," .tls.names }},localhost,127.0.0.1,::1
  - --tls-config-map={{ .name }}-ca
  {{- end }}
  {{- include "common.leaseArgs" . | nindent 2 }}
# For the subcommand `status`.
env:
  - {name: EXPECTATIONS, value: "https://{{ last .tls.names }}:{{ int .port }}"}
volumes:
  {{- $secret := eq .tls.source "self-issued" | ternary "" .tls.secretName }}
  - {{ include "common.callerVolume" (dict "secret" $secret "configMap" (printf "%s-ca" .name) "optional" true) | nindent 4 | trim }}
port: {name: grpc, port: {{ int .port }}, servicePort: {{ int .port }}, from: [{podSelector: {matchLabels: {app.kubernetes.io/part-of: slurm-operator}}}]}
# A process that stands by is not ready by /readyz: a rollout would wait for it until the leader stops.
readinessPath: /livez
{{- end -}}

{{- define "expectations.objects" -}}
{{- include "common.certificates" . -}}
{{- end -}}

{{- /* What the service may do. */ -}}
{{- define "expectations.rules" -}}
{{- if eq .scope "cluster" }}
# Who calls.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- else if eq .scope "process" }}
{{ include "common.rules.lease" . }}
{{ include "common.rules.certificate" . }}
{{- if eq .tls.source "self-issued" }}
# The certificates of its authorities, for callers.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: ["{{ .name }}-ca"]
  verbs: [get, list, watch, update]
{{- end }}
{{- end }}
{{- end -}}
