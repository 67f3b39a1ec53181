{{- define "common.deployment" -}}
{{- $pod := fromYaml (include "common.part" (dict "component" .component "part" "pod" "context" .)) -}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "common.metadata" . | nindent 2 }}
spec:
  replicas: {{ int .replicas }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels:
      {{- include "common.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "common.podLabels" . | nindent 8 }}
    spec:
      serviceAccountName: {{ quote .serviceAccountName }}
      automountServiceAccountToken: true
      {{- with include "common.podFields" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      # A process takes 20 s at most to stop in good order, and then releases its Lease.
      terminationGracePeriodSeconds: 30
      {{- with .topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- range . }}
        {{- $selector := dict "labelSelector" (dict "matchLabels" (fromYaml (include "common.selectorLabels" $))) }}
        - {{ toYaml (merge (deepCopy .) $selector) | nindent 10 | trim }}
        {{- end }}
      {{- end }}
      containers:
        - name: {{ .component }}
          {{- include "common.containerFields" . | nindent 10 }}
          args:
            {{- include "common.args" . | nindent 12 }}
            {{- with concat (default list $pod.args) (default list .extraArgs) }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            # The process that takes over a Lease from its predecessor in this pod need not wait.
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: POD_UID
              valueFrom: {fieldRef: {fieldPath: metadata.uid}}
            {{- with concat (default list $pod.env) (default list .extraEnv) }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- with $pod.port }}
            - {name: {{ .name }}, containerPort: {{ .port }}}
            {{- end }}
            {{- if .metricsPort }}
            - {name: metrics, containerPort: {{ .metricsPort }}}
            {{- end }}
            - {name: health, containerPort: {{ int .healthPort }}}
          livenessProbe:
            httpGet: {path: /livez, port: health}
          readinessProbe:
            httpGet: {path: {{ default "/readyz" $pod.readinessPath }}, port: health}
          {{- with .resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $pod.volumes }}
          volumeMounts:
            {{- range . }}
            - {name: {{ .name }}, mountPath: {{ .mountPath }}, readOnly: true}
            {{- end }}
          {{- end }}
      {{- with $pod.volumes }}
      volumes:
        {{- range . }}
        - {{ toYaml (omit . "mountPath") | nindent 10 | trim }}
        {{- end }}
      {{- end }}
{{- end -}}

{{- /* Fields of the pods of a component. */ -}}
{{- define "common.podFields" -}}
{{- $fields := pick . "imagePullSecrets" "priorityClassName" "nodeSelector" "affinity" "tolerations" -}}
{{- $_ := set $fields "securityContext" .podSecurityContext -}}
{{- range $name, $value := $fields }}
{{- with $value }}
{{ $name }}:{{ kindIs "string" . | ternary (quote . | print " ") (toYaml . | nindent 2) }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Fields of the containers of a component. */ -}}
{{- define "common.containerFields" -}}
image: {{ quote .image }}
imagePullPolicy: {{ default "IfNotPresent" .imagePullPolicy }}
{{- with .securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Flags that several binaries have. */ -}}
{{- define "common.args" -}}
- --log-level={{ default "info" .logLevel }}
- --health-addr=:{{ int .healthPort }}
- --metrics-addr={{ if .metricsPort }}:{{ .metricsPort }}{{ else }}0{{ end }}
{{- if .metricsSecure }}
- --metrics-secure
{{- end }}
{{- if ne .component "expectations" }}
{{- with .watched }}
- --namespaces={{ join "," . }}
{{- end }}
{{- end }}
{{- if .isController }}
- --workers={{ int .workers }}
- --leader-elect={{ .elected }}
{{- end }}
{{- if .elected }}
{{ include "common.leaseArgs" . }}
{{- end }}
{{- end -}}

{{- define "common.leaseArgs" -}}
- --leader-elect-namespace={{ .namespace }}
- --leader-elect-lease={{ .name }}
{{- end -}}

{{- /* The volume with what a caller of the expectations service needs: its token, and the authorities of the service from
`secret` or else `configMap`, which has to exist unless it is `optional`. */ -}}
{{- define "common.callerVolume" -}}
name: expectations
mountPath: /var/run/secrets/expectations
projected:
  sources:
    - serviceAccountToken: {path: token, audience: expectations.slinky.slurm.net}
    {{- if .secret }}
    - secret: {name: {{ quote .secret }}, items: [{key: ca.crt, path: ca.crt}]}
    {{- else }}
    - configMap: {name: {{ quote .configMap }}, items: [{key: ca.crt, path: ca.crt}], optional: {{ default false .optional }}}
    {{- end }}
{{- end -}}
