{{- /* The job of each GPU for dcgm-exporter. */ -}}

{{- /* Changes of a NodeSet with GPUs: the directory of the mapping. Takes `root` and `nodeset`. */ -}}
{{- define "slurm.dcgm.nodeset" -}}
{{- $dcgm := .root.Values.vendor.nvidia.dcgm -}}
{{- $hasGpus := false -}}
{{- range list (default dict .nodeset.slurmd).resources (default dict .nodeset.podSpec).resources -}}
{{- with . -}}
{{- $hasGpus = or $hasGpus (hasKey (default dict .limits) "nvidia.com/gpu") (hasKey (default dict .requests) "nvidia.com/gpu") -}}
{{- end -}}
{{- end -}}
{{- if and $dcgm.enabled $hasGpus -}}
slurmd:
  volumeMounts:
    - name: dcgm-job-mapping
      mountPath: {{ $dcgm.jobMappingDir }}
podSpec:
  volumes:
    - name: dcgm-job-mapping
      hostPath:
        path: {{ $dcgm.jobMappingDir }}
        type: DirectoryOrCreate
{{- end -}}
{{- end -}}

{{- /* The ConfigMap of a script. Takes `root`, `kind` (prolog or epilog) and `script`. */ -}}
{{- define "slurm.dcgm.configMap" -}}
{{- $dcgm := .root.Values.vendor.nvidia.dcgm -}}
{{- if $dcgm.enabled -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "slurm.objectMetadata" (dict "root" .root "name" (printf "%s-%s-dcgm" (include "slurm.fullname" .root) .kind)) | nindent 2 }}
data:
  {{ printf "%s-%s-dcgm.sh" .kind (include "slurm.text" $dcgm.scriptPriority) }}: |
    #!/usr/bin/env bash
    # Every GPU has a file in this directory that holds the job it runs. A failure must not drain the node.
    dir={{ $dcgm.jobMappingDir | squote }}
    log() { echo "{{ .kind }} dcgm: $*" >&2; }
    if [ -z "${SLURM_JOB_GPUS:-}" ]; then
        log "the job has no GPUs"
        exit 0
    fi
    IFS=, read -r -a gpus <<<"$SLURM_JOB_GPUS"
    {{- .script | nindent 4 }}
    exit 0
{{- end -}}
{{- end -}}
