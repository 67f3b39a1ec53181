{{- /* Sets `components` of `into` to the settings of all enabled components. Takes `root`. */ -}}
{{- define "operator.components" -}}
{{- $components := list -}}
{{- range list "controller" "nodeset" "loginset" "accounting" "restapi" "token" "expectations" "webhook" -}}
{{- $settings := dict -}}
{{- include "common.settings" (dict "root" $.root "component" . "into" $settings) -}}
{{- if $settings.enabled }}{{ $components = append $components $settings }}{{ end -}}
{{- end -}}
{{- $_ := set .into "components" $components -}}
{{- end -}}

{{- /* The settings of `operator` that belong to no component. Takes `root` and `into`. */ -}}
{{- define "operator.settings" -}}
{{- include "common.settings" (dict "root" .root "component" "operator" "into" .into) -}}
{{- end -}}

{{- /* Name and labels of an object that belongs to no component. Takes the `settings` of `operator`, and a `suffix` of the name. */ -}}
{{- define "operator.metadata" -}}
name: "{{ .settings.prefix }}{{ .suffix }}"
labels:
  {{- include "common.chartLabels" .settings | nindent 2 }}
  {{- include "common.selectorLabels" (merge (dict "name" .settings.prefix) .settings) | nindent 2 }}
  app.kubernetes.io/part-of: slurm-operator
{{- end -}}
