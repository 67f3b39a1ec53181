{{- /* Changes of a NodeSet of A3 Ultra machines: GPUs, and libraries of the machine. Takes `root` and `name`. */ -}}
{{- define "slurm.a3ultra.nodeset" -}}
{{- with include "slurm.google.machine" (dict "machines" .root.Values.vendor.google.a3ultra "name" .name "type" "A3 Ultra") | fromYaml -}}
slurmd:
  env:
    - name: LD_LIBRARY_PATH
      value: /usr/local/nvidia/lib64
    - name: PATH
      value: /usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  volumeMounts:
    - name: library-dir-host
      mountPath: /usr/local/nvidia
    - name: gib
      mountPath: /usr/local/gib
  resources:
    {{- include "slurm.google.resources" . | nindent 4 }}
extraConfMap:
  gres: gpu:nvidia_h200:8
metadata:
  annotations:
    {{- include "slurm.google.interfaces" (dict "networks" .networks "numbers" (prepend (untilStep 2 10 1) 0)) | nindent 4 }}
podSpec:
  nodeSelector:
    cloud.google.com/gke-nodepool: {{ .nodePool }}
  volumes:
    - name: library-dir-host
      hostPath: {path: /home/kubernetes/bin/nvidia}
    - name: gib
      hostPath: {path: /home/kubernetes/bin/gib}
    - name: sys
      hostPath: {path: /sys}
    - name: proc-sys
      hostPath: {path: /proc/sys}
{{- end -}}
{{- end -}}
