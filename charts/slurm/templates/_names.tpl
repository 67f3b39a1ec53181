{{- /* Names, labels and metadata of objects. */ -}}

{{- define "slurm.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* The prefix of all names. The operator derives the names of Services and pods from it. */ -}}
{{- define "slurm.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $release := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $release .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "slurm.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "slurm.chartLabel" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" -}}
{{- end -}}

{{- /* Labels without versions: a new version of the chart must not replace pods. */ -}}
{{- define "slurm.podLabels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: slurm
{{- end -}}

{{- define "slurm.labels" -}}
helm.sh/chart: {{ include "slurm.chartLabel" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "slurm.podLabels" . }}
{{- end -}}

{{- /* Labels and annotations of a component over those of the chart. Takes `labels` (YAML) and `component`. */ -}}
{{- define "slurm.metadata" -}}
{{- $own := default dict .component.metadata -}}
labels:
  {{- mergeOverwrite (fromYaml .labels) (default dict $own.labels) | toYaml | nindent 2 }}
{{- with $own.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The metadata of a custom resource. Takes `root`, `name` and `component`. */ -}}
{{- define "slurm.resourceMetadata" -}}
name: {{ .name }}
namespace: {{ include "slurm.namespace" .root }}
{{ include "slurm.metadata" (dict "labels" (include "slurm.labels" .root) "component" .component) }}
{{- end -}}

{{- /* The metadata of another object. Takes `root` and `name`. */ -}}
{{- define "slurm.objectMetadata" -}}
name: {{ .name }}
namespace: {{ include "slurm.namespace" .root }}
labels:
  {{- include "slurm.labels" .root | nindent 2 }}
{{- end -}}
