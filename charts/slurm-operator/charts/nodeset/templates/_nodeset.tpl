{{- define "nodeset.defaults" -}}
replicas: {{ if .root.Values.small }}1{{ else }}2{{ end }}
resources:
  requests: {cpu: 100m, memory: 128Mi}
propagatedNodeConditions: []
expectations.url: ""
expectations.caConfigMap: ""
expectations.caSecret: ""
{{- end -}}

{{- /* Sets `backend`, what coordinates batches, and who has the certificate of its authority. */ -}}
{{- define "nodeset.settings" -}}
{{- $expectations := .expectations -}}
{{- if eq (include "common.isUmbrella" .root) "true" -}}
{{- $service := dict -}}
{{- include "common.settings" (dict "root" .root "component" "expectations" "into" $service) -}}
{{- if and $service.enabled (not $expectations.url) -}}
{{- $_ := set $expectations "url" (printf "https://%s:%d" (last $service.tls.names) (int $service.port)) -}}
{{- if ne $service.tls.source "self-issued" -}}
{{- $_ := set $expectations "caSecret" (default $service.tls.secretName $expectations.caSecret) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set . "backend" (default "embedded" $expectations.url) -}}
{{- $_ = set . "elected" (eq .backend "embedded") -}}
{{- include "nodeset.checkRunning" . -}}
{{- end -}}

{{- /* Refuses to start nodeset-controllers beside those that the others do not know of, with and without the service. */ -}}
{{- define "nodeset.checkRunning" -}}
{{- $deployment := lookup "apps/v1" "Deployment" .namespace .name | default dict -}}
{{- $containers := dig "spec" "template" "spec" "containers" list $deployment -}}
{{- range $containers -}}
{{- $isEmbedded := has "--expectations=embedded" (default list .args) -}}
{{- if and $.enabled $.replicas (dig "status" "replicas" 0 $deployment) (ne $isEmbedded $.elected) -}}
{{- fail (printf "running nodeset-controllers coordinate their writes %s an expectations service, and new ones would %s: set %sreplicas=0 first, and wait until their pods are gone" (ternary "without" "with" $isEmbedded) (ternary "without" "with" $.elected) (index $.layers 0).prefix) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "nodeset.pod" -}}
args:
  - --expectations={{ .backend }}
  {{- with .propagatedNodeConditions }}
  - --propagated-node-conditions={{ join "," . }}
  {{- end }}
{{- if not .elected }}
volumes:
  {{- $configMap := default (printf "%s-expectations-ca" .prefix) .expectations.caConfigMap }}
  - {{ include "common.callerVolume" (dict "secret" .expectations.caSecret "configMap" $configMap) | nindent 4 | trim }}
{{- end }}
{{- end -}}

{{- define "nodeset.objects" }}{{ end -}}

{{- /* What nodeset-controller may do. */ -}}
{{- define "nodeset.rules" -}}
{{- if eq .scope "watched" }}
{{ include "common.rules.reconciled" (dict "resource" "nodesets") }}
# Finalizers and annotations.
- apiGroups: [slinky.slurm.net]
  resources: [nodesets]
  verbs: [patch]
# The Slurm cluster of a NodeSet, and its slurmrestd.
- apiGroups: [slinky.slurm.net]
  resources: [controllers, restapis]
  verbs: [list, watch]
# Signing keys and sssd.conf.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
# Worker pods: their owners, cordons, states in Slurm.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
# Volumes of workers, and their owners. `delete` and pods/finalizers: to change owners, which some API servers check.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/finalizers]
  verbs: [update]
# Child objects, some of which are owned by all NodeSets of a cluster. `delete`: to change owners, see above.
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
{{- else if eq .scope "cluster" }}
# Cordons, topology and features of Kubernetes nodes.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
{{- else if .elected }}
{{ include "common.rules.lease" . }}
{{- end }}
{{- end -}}
