{{- /* All objects of a component. Takes `root`, the context of the chart, and `component`. The chart of a component renders
nothing where the chart slurm-operator renders all components. */ -}}
{{- define "common.component" -}}
{{- if not (and (eq .root.Chart.Name .component) (eq (include "common.isUmbrella" .root) "true")) -}}
{{- $settings := dict -}}
{{- include "common.settings" (dict "root" .root "component" .component "into" $settings) -}}
{{- if $settings.enabled -}}
{{- include "common.serviceAccount" $settings }}
{{ include "common.rbac" $settings }}
{{ include "common.part" (dict "component" .component "part" "objects" "context" $settings) }}
{{ include "common.deployment" $settings }}
{{ include "common.service" $settings }}
{{ include "common.pdb" $settings }}
{{ include "common.networkPolicy" $settings }}
{{ include "common.serviceMonitor" $settings }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Labels that select the pods of a component. */ -}}
{{- define "common.selectorLabels" -}}
app.kubernetes.io/name: {{ quote .name }}
app.kubernetes.io/instance: {{ quote .root.Release.Name }}
{{- end -}}

{{- /* Labels of pods. They have no version: a new version of the chart alone must not replace pods. */ -}}
{{- define "common.podLabels" -}}
{{ include "common.selectorLabels" . }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: slurm-operator
{{- if .isController }}
slinky.slurm.net/operator: "true"
{{- end }}
{{- end -}}

{{- /* Labels of an object of the chart. Takes `root`. */ -}}
{{- define "common.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{- /* Name and labels of an object of a component without a namespace. The default of `objectName` is `name`. */ -}}
{{- define "common.clusterMetadata" -}}
name: {{ default .name .objectName | quote }}
labels:
  {{- include "common.chartLabels" . | nindent 2 }}
  {{- include "common.podLabels" . | nindent 2 }}
{{- end -}}

{{- /* Name, namespace and labels of an object of a component. */ -}}
{{- define "common.metadata" -}}
namespace: {{ quote .namespace }}
{{ include "common.clusterMetadata" . }}
{{- end -}}

{{- define "common.serviceAccount" -}}
{{- if .serviceAccount.create -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "common.metadata" (merge (dict "objectName" .serviceAccountName) .) | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{- define "common.service" -}}
{{- $pod := fromYaml (include "common.part" (dict "component" .component "part" "pod" "context" .)) -}}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "common.metadata" . | nindent 2 }}
spec:
  {{- if ne .component "webhook" }}
  clusterIP: None
  {{- end }}
  {{- if eq .component "expectations" }}
  # Callers ask every pod, and use the one that leads.
  publishNotReadyAddresses: true
  {{- end }}
  selector:
    {{- include "common.selectorLabels" . | nindent 4 }}
  ports:
    {{- with $pod.port }}
    - {name: {{ .name }}, port: {{ .servicePort }}, targetPort: {{ .name }}}
    {{- end }}
    {{- include "common.adminPorts" . | nindent 4 }}
{{- end -}}

{{- /* The ports of a Service for metrics and health. */ -}}
{{- define "common.adminPorts" -}}
{{- if .metricsPort -}}
- {name: metrics, port: {{ .metricsPort }}, targetPort: metrics}
{{ end -}}
- {name: health, port: {{ int .healthPort }}, targetPort: health}
{{- end -}}

{{- define "common.pdb" -}}
{{- if and .pdb.enabled (gt (int .replicas) 1) -}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "common.metadata" . | nindent 2 }}
spec:
  {{- if not (kindIs "invalid" .pdb.maxUnavailable) }}
  maxUnavailable: {{ .pdb.maxUnavailable }}
  {{- else }}
  minAvailable: {{ .pdb.minAvailable }}
  {{- end }}
  # A pod that does not work must not block the drain of its node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "common.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{- define "common.networkPolicy" -}}
{{- if .networkPolicy.enabled -}}
{{- $pod := fromYaml (include "common.part" (dict "component" .component "part" "pod" "context" .)) -}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "common.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "common.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    # kubelet
    - ports: [{port: health}]
    {{- if .metricsPort }}
    - ports: [{port: metrics}]
      {{- with .networkPolicy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- with $pod.port }}
    - ports: [{port: {{ .name }}}]
      {{- with .from }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
{{- end -}}
{{- end -}}

{{- define "common.serviceMonitor" -}}
{{- $monitor := .metrics.serviceMonitor -}}
{{- if and $monitor.enabled .metricsPort -}}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "common.metadata" . | nindent 2 }}
  {{- with $monitor.labels }}
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "common.selectorLabels" . | nindent 6 }}
  endpoints:
    - port: metrics
      interval: {{ quote $monitor.interval }}
      # `namespace` is that of the Slurm cluster, not of the operator.
      honorLabels: true
      {{- if .metricsSecure }}
      scheme: https
      tlsConfig: {insecureSkipVerify: true}
      bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
      {{- end }}
{{- end -}}
{{- end -}}
