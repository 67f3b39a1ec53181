{{- /* Images, containers and pod templates. */ -}}

{{- /* An image: a string, or a map of `registry`, `repository`, `tag` and `digest`. Takes `root` and `image`. */ -}}
{{- define "slurm.image" -}}
{{- if kindIs "string" .image -}}
{{- required "image is required" .image -}}
{{- else -}}
{{- $image := default dict .image -}}
{{- $repository := required "image repository is required" $image.repository -}}
{{- $global := default dict .root.Values.global -}}
{{- with default $global.imageRegistry $image.registry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (required "image tag is required" $image.tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A container: its values with a formatted image and a pull policy. Takes `root` and `container`. */ -}}
{{- define "slurm.container" -}}
{{- $container := deepCopy (default dict .container) -}}
{{- $_ := set $container "image" (include "slurm.image" (dict "root" .root "image" $container.image)) -}}
{{- $_ = set $container "imagePullPolicy" (default .root.Values.imagePullPolicy $container.imagePullPolicy) -}}
{{- toYaml $container -}}
{{- end -}}

{{- define "slurm.priorityClass" -}}
{{- default "slurm-priority-critical" .Values.priorityClass.name -}}
{{- end -}}

{{- /* A pod template. Takes `root`, `component` and, for workers, `hostname`. */ -}}
{{- define "slurm.podTemplate" -}}
{{- $spec := deepCopy (default dict .component.podSpec) -}}
{{- with concat (default list $spec.imagePullSecrets) (default list .root.Values.imagePullSecrets) -}}
{{- $_ := set $spec "imagePullSecrets" . -}}
{{- end -}}
{{- if and .root.Values.priorityClass.enabled (not $spec.priorityClassName) -}}
{{- $_ := set $spec "priorityClassName" (include "slurm.priorityClass" .root) -}}
{{- end -}}
{{- with .hostname -}}
{{- $_ := set $spec "hostname" . -}}
{{- end -}}
metadata:
  {{- include "slurm.metadata" (dict "labels" (include "slurm.podLabels" .root) "component" .component) | nindent 2 }}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end -}}
