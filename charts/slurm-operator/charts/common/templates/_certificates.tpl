{{- /* The certificate of a server by cert-manager: an authority of its own, and what it signs. */ -}}
{{- define "common.certificates" -}}
{{- if eq .tls.source "cert-manager" -}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  {{- include "common.metadata" (merge (dict "objectName" (printf "%s-self-issuer" .name)) .) | nindent 2 }}
spec:
  selfSigned: {}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "common.metadata" (merge (dict "objectName" (printf "%s-root-ca" .name)) .) | nindent 2 }}
spec:
  isCA: true
  commonName: "{{ .name }}-root-ca"
  secretName: "{{ .name }}-root-ca"
  duration: {{ quote .certManager.duration }}
  renewBefore: {{ quote .certManager.renewBefore }}
  issuerRef: {kind: Issuer, name: "{{ .name }}-self-issuer"}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  {{- include "common.metadata" (merge (dict "objectName" (printf "%s-root-issuer" .name)) .) | nindent 2 }}
spec:
  ca: {secretName: "{{ .name }}-root-ca"}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "common.metadata" (merge (dict "objectName" .tls.secretName) .) | nindent 2 }}
spec:
  commonName: "{{ .name }}-self-ca"
  dnsNames:
    {{- toYaml .tls.names | nindent 4 }}
  secretName: {{ quote .tls.secretName }}
  duration: {{ quote .certManager.duration }}
  renewBefore: {{ quote .certManager.renewBefore }}
  issuerRef: {kind: Issuer, name: "{{ .name }}-root-issuer"}
{{- end -}}
{{- end -}}
