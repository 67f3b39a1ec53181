{{- /* The settings of a component: one dict from which all its objects are rendered. */ -}}

{{- /* The defaults of all components, by path. A component may have others, and more: `<component>.defaults`. */ -}}
{{- define "common.defaults" -}}
nameOverride: ""
fullnameOverride: ""
namespaceOverride: ""
replicas: 1
imagePullPolicy: IfNotPresent
imagePullSecrets: []
priorityClassName: ""
serviceAccount.create: true
serviceAccount.name: ""
rbac.create: true
rbac.scope: ""
logLevel: info
healthPort: 8081
metricsPort: 8080
metricsSecure: false
namespaces: ""
leaderElection: true
workers: 4
nodeSelector: {}
affinity: {}
tolerations: []
topologySpreadConstraints: []
podSecurityContext:
  runAsNonRoot: true
  runAsUser: 65532
  seccompProfile: {type: RuntimeDefault}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources:
  requests: {cpu: 10m, memory: 64Mi}
pdb.enabled: false
pdb.minAvailable: 1
pdb.maxUnavailable: null
extraArgs: []
extraEnv: []
networkPolicy.enabled: false
networkPolicy.metricsFrom: []
metrics.serviceMonitor.enabled: false
metrics.serviceMonitor.interval: 30s
metrics.serviceMonitor.labels: {}
{{- end -}}

{{- /* The defaults of certificates. */ -}}
{{- define "common.tlsDefaults" -}}
tls.source: ""
tls.secretName: ""
certManager.enabled: false
certManager.secretName: ""
certManager.duration: 43800h0m0s
certManager.renewBefore: 8760h0m0s
{{- end -}}

{{- /* A part that only some components have: `defaults`, `settings`, `pod` or `objects`. Takes `component`, `part` and the
`context` of the part. */ -}}
{{- define "common.part" -}}
{{- if has .component (list "nodeset" "expectations" "webhook") }}{{ include (printf "%s.%s" .component .part) .context }}{{ end -}}
{{- end -}}

{{- /* Sets `path` of `into` to `value`. */ -}}
{{- define "common.set" -}}
{{- $keys := splitList "." .path -}}
{{- $map := .into -}}
{{- range initial $keys -}}
{{- if not (hasKey $map .) }}{{ $_ := set $map . dict }}{{ end -}}
{{- $map = index $map . -}}
{{- end -}}
{{- $_ := set $map (last $keys) .value -}}
{{- end -}}

{{- /* Writes the settings of a component into `into`. Takes `root`, the context of the chart, and `component`.

A setting is that of the first layer that has one: the component's values, in the chart slurm-operator then those of
`operator` (unless it is the webhook), `global` and the top level; else the default. */ -}}
{{- define "common.settings" -}}
{{- $component := .component -}}
{{- $into := .into -}}
{{- $values := .root.Values -}}
{{- $global := default dict $values.global -}}
{{- $isUmbrella := eq (include "common.isUmbrella" .root) "true" -}}
{{- $isController := has $component (list "controller" "nodeset" "loginset" "accounting" "restapi" "token") -}}

{{- $layers := list (dict "prefix" "" "values" $values) (dict "prefix" "global." "values" $global) -}}
{{- if $isUmbrella -}}
{{- $layers = list (dict "prefix" (printf "%s." $component) "values" (default dict (index $values $component))) -}}
{{- if ne $component "webhook" }}{{ $layers = append $layers (dict "prefix" "operator." "values" (default dict $values.operator)) }}{{ end -}}
{{- $shared := pick $values "nameOverride" "fullnameOverride" "namespaceOverride" "imagePullSecrets" "imagePullPolicy"
  "priorityClassName" "rbac" "certManager" "propagatedNodeConditions" -}}
{{- $layers = append $layers (dict "prefix" "global." "values" $global) -}}
{{- $layers = append $layers (dict "prefix" "" "values" $shared) -}}
{{- end -}}

{{- $defaults := fromYaml (include "common.defaults" .) -}}
{{- range $path, $value := fromYaml (include "common.part" (dict "component" $component "part" "defaults" "context" .)) -}}
{{- $_ := set $defaults $path $value -}}
{{- end -}}
{{- $aliases := dict "replicas" "replicaCount" "workers" (printf "%sWorkers" $component) -}}
{{- $origins := dict -}}
{{- range $path, $default := $defaults -}}
{{- $_ := set $origins $path (index $layers (and $isUmbrella (ne $component "webhook") | ternary 1 0)).prefix -}}
{{- $value := $default -}}
{{- range reverse $layers -}}
{{- $layer := . -}}
{{- range compact (list (index $aliases $path) $path) -}}
{{- $found := $layer.values -}}
{{- range splitList "." . }}{{ $found = index (kindIs "map" $found | ternary $found dict) . }}{{ end -}}
{{- if not (kindIs "invalid" $found) -}}
{{- $value = $found -}}
{{- $_ := set $origins $path $layer.prefix -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "common.set" (dict "into" $into "path" $path "value" $value) -}}
{{- end -}}

{{- $prefix := default (default "slurm-operator" $into.nameOverride) $into.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- range $key, $value := dict
  "root" .root
  "component" $component
  "enabled" (eq (include "common.isEnabled" (dict "layers" $layers "default" (dig "enabled" true $defaults))) "true")
  "isController" $isController
  "elected" (and $isController $into.leaderElection)
  "layers" $layers
  "origins" $origins
  "prefix" $prefix
  "name" (printf "%s-%s" $prefix $component)
  "namespace" (default .root.Release.Namespace $into.namespaceOverride)
  "watched" (compact (splitList "," (nospace $into.namespaces))) -}}
{{- $_ := set $into $key $value -}}
{{- end -}}
{{- include "common.validate" $into -}}
{{- $_ := set $into "image" (include "common.image" $into) -}}
{{- $_ := set $into "serviceAccountName" (include "common.serviceAccountName" $into) -}}
{{- include "common.part" (dict "component" $component "part" "settings" "context" $into) -}}
{{- end -}}

{{- /* Whether all components are rendered from one chart. */ -}}
{{- define "common.isUmbrella" -}}
{{- default dict .Values.global | dig "umbrella" false -}}
{{- end -}}

{{- /* Whether a component is enabled, by its own values and those of `operator`. Takes `layers` and `default`. */ -}}
{{- define "common.isEnabled" -}}
{{- $own := (index .layers 0).values.enabled -}}
{{- $isEnabled := kindIs "bool" $own | ternary $own .default -}}
{{- range .layers -}}
{{- if and (eq .prefix "operator.") (eq (toString .values.enabled) "false") }}{{ $isEnabled = false }}{{ end -}}
{{- end -}}
{{- $isEnabled -}}
{{- end -}}

{{- /* Refuses settings that contradict each other or the API. */ -}}
{{- define "common.validate" -}}
{{- $metricsPort := printf "%smetricsPort" .origins.metricsPort -}}
{{- if not (regexMatch "^(0|[1-9][0-9]{0,4})$" (toString .metricsPort)) }}{{ fail (printf "%s must be an integer between 0 and 65535" $metricsPort) }}{{ end -}}
{{- if gt (int .metricsPort) 65535 }}{{ fail (printf "%s must be an integer between 0 and 65535" $metricsPort) }}{{ end -}}
{{- $_ := set . "metricsPort" (int .metricsPort) -}}
{{- if and .metricsSecure (not .metricsPort) -}}
{{- fail (printf "%smetricsSecure requires %s to be non-zero" .origins.metricsSecure $metricsPort) -}}
{{- end -}}
{{- if not .rbac.scope }}{{ $_ := set .rbac "scope" (empty .watched | ternary "cluster" "namespace") }}{{ end -}}
{{- if and (eq .rbac.scope "namespace") (empty .watched) -}}
{{- $prefix := index .origins "rbac.scope" -}}
{{- fail (printf "%srbac.scope=namespace requires %snamespaces" $prefix $prefix) -}}
{{- end -}}
{{- end -}}

{{- /* The image of a component, from its own `image` and that of the other layers. */ -}}
{{- define "common.image" -}}
{{- $own := index .layers 0 -}}
{{- if kindIs "string" $own.values.image -}}
{{- required "image is required" $own.values.image -}}
{{- else -}}
{{- $parts := dict "repository" "slurm-operator" -}}
{{- range rest .layers | reverse -}}
{{- include "common.sharedImage" (dict "layer" . "into" $parts) -}}
{{- end -}}
{{- $_ := set $parts "repository" (printf "%s-%s" (required "image repository is required" $parts.repository) .component) -}}
{{- range $key, $value := default dict $own.values.image -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $parts $key $value }}{{ end -}}
{{- end -}}
{{- $repository := required "image repository is required" $parts.repository -}}
{{- with default (default dict .root.Values.global).imageRegistry $parts.registry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") -}}
{{- end -}}
{{- if $parts.digest -}}
{{- printf "%s@%s" $repository $parts.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion $parts.tag | toString) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Copies the parts of an image that several components share into `into`. A digest names one image only. */ -}}
{{- define "common.sharedImage" -}}
{{- $image := .layer.values.image -}}
{{- if kindIs "string" $image -}}
{{- $text := required "image is required" $image -}}
{{- $digest := regexFind "@.*$" $text -}}
{{- $tag := regexFind ":[^:/]*$" (trimSuffix $digest $text) -}}
{{- $image = dict "digest" $digest "repository" (trimSuffix (print $tag $digest) $text) "tag" (trimPrefix ":" $tag) -}}
{{- end -}}
{{- range $key, $value := default dict $image -}}
{{- if and (eq $key "digest") $value -}}
{{- fail (printf "%simage.digest cannot name the images of several components: set <component>.image.digest, such as nodeset.image.digest" $.layer.prefix) -}}
{{- end -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $.into $key $value }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* The ServiceAccount of a component. A name that several components share is a prefix if they create their accounts. */ -}}
{{- define "common.serviceAccountName" -}}
{{- $name := .serviceAccount.name -}}
{{- $isOwn := eq (index .origins "serviceAccount.name") (index .layers 0).prefix -}}
{{- if and $name (or $isOwn (not .serviceAccount.create)) -}}
{{- $name -}}
{{- else if .serviceAccount.create -}}
{{- printf "%s-%s" (default .prefix $name) .component -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{- /* Completes the settings of a certificate. */ -}}
{{- define "common.tls" -}}
{{- $sources := list "self-issued" "secret" "cert-manager" -}}
{{- if not (has .tls.source $sources) -}}
{{- fail (printf "%stls.source must be one of %s" (index .layers 0).prefix (join ", " $sources)) -}}
{{- end -}}
{{- if and (eq .tls.source "secret") (not .tls.secretName) -}}
{{- fail (printf "%stls.source=secret requires %[1]stls.secretName" (index .layers 0).prefix) -}}
{{- end -}}
{{- $_ := set .tls "secretName" (default (printf "%s-tls" .name) .tls.secretName) -}}
{{- $_ = set .tls "names" (list .name (printf "%s.%s" .name .namespace) (printf "%s.%s.svc" .name .namespace)) -}}
{{- end -}}
