{{- /* Machines of Google Cloud with eight GPUs and nine networks. */ -}}

{{- /* The configuration of the machines of a NodeSet, as YAML; the last one wins. Takes `machines`, `name` of the NodeSet
and `type`. */ -}}
{{- define "slurm.google.machine" -}}
{{- $found := dict -}}
{{- range default list .machines -}}
{{- $count := len (default list .networks) -}}
{{- if ne $count 9 -}}
{{- fail (printf "Google Cloud GKE %s requires exactly 9 networks, but %d were specified." $.type $count) -}}
{{- end -}}
{{- if eq .targetNodeSet $.name -}}
{{- $found = . -}}
{{- end -}}
{{- end -}}
{{- with $found }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* "true" if these machines need a gres.conf: the user has none. Takes `root` and `machines`. */ -}}
{{- define "slurm.google.needsGres" -}}
{{- if and .machines (not (hasKey (default dict .root.Values.configFiles) "gres.conf")) -}}
true
{{- end -}}
{{- end -}}

{{- /* The ConfigMap of gres.conf. Takes `root`, `machines` and `type`. */ -}}
{{- define "slurm.google.gresConfigMap" -}}
{{- if include "slurm.google.needsGres" . -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "slurm.objectMetadata" (dict "root" .root "name" (printf "%s-config-%s" (include "slurm.fullname" .root) .type)) | nindent 2 }}
data:
  gres.conf: |
    AutoDetect=nvidia
{{- end -}}
{{- end -}}

{{- /* Resources for all GPUs of a machine. */ -}}
{{- define "slurm.google.resources" -}}
requests:
  nvidia.com/gpu: 8
limits:
  nvidia.com/gpu: 8
{{- end -}}

{{- /* The annotation that lists network interfaces. Takes `networks`, and `numbers` of the interfaces. */ -}}
{{- define "slurm.google.interfaces" -}}
{{- $numbers := .numbers -}}
{{- $lines := list -}}
{{- range $index, $network := .networks -}}
{{- $lines = append $lines (printf "  {\"interfaceName\":\"eth%d\",\"network\":\"%s\"}" (index $numbers $index) $network) -}}
{{- end -}}
networking.gke.io/default-interface: eth0
networking.gke.io/interfaces: |
  [
  {{- join ",\n" $lines | nindent 2 }}
  ]
{{- end -}}
