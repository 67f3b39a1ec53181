{{- /* Changes of a NodeSet of A3 Mega machines: GPUs, and a daemon for their networks. Takes `root` and `name`. */ -}}
{{- define "slurm.a3mega.nodeset" -}}
{{- with include "slurm.google.machine" (dict "machines" .root.Values.vendor.google.a3mega "name" .name "type" "A3 Mega") | fromYaml -}}
slurmd:
  env:
    - name: LD_LIBRARY_PATH
      value: /usr/local/nvidia/lib64
    - name: NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY
      value: /dev/aperture_devices
  volumeMounts:
    - name: aperture-devices
      mountPath: /dev/aperture_devices
  resources:
    {{- include "slurm.google.resources" . | nindent 4 }}
extraConfMap:
  Gres: gpu:nvidia_h100_80gb_hbm3:8
metadata:
  annotations:
    devices.gke.io/container.tcpxo-daemon: |
      {{- range until 8 }}
      - path: /dev/nvidia{{ . }}
      {{- end }}
      - path: /dev/nvidiactl
      - path: /dev/nvidia-uvm
      - path: /dev/dmabuf_import_helper
    {{- include "slurm.google.interfaces" (dict "networks" .networks "numbers" (untilStep 0 9 1)) | nindent 4 }}
podSpec:
  nodeSelector:
    cloud.google.com/gke-nodepool: {{ .nodePool }}
  containers:
    - name: tcpxo-daemon
      image: us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.21
      imagePullPolicy: Always
      command: [/bin/sh, -c]
      args:
        - |
          set -ex
          chmod 755 /fts/entrypoint_rxdm_container.sh
          /fts/entrypoint_rxdm_container.sh --num_hops=2 --num_nics=8 --uid= --alsologtostderr
      securityContext:
        capabilities:
          add: [NET_ADMIN, NET_BIND_SERVICE]
      env:
        - name: LD_LIBRARY_PATH
          value: /usr/local/nvidia/lib64
      volumeMounts:
        - name: libraries
          mountPath: /usr/local/nvidia/lib64
        - name: sys
          mountPath: /hostsysfs
        - name: proc-sys
          mountPath: /hostprocsysfs
  volumes:
    - name: libraries
      hostPath: {path: /home/kubernetes/bin/nvidia/lib64}
    - name: sys
      hostPath: {path: /sys}
    - name: proc-sys
      hostPath: {path: /proc/sys}
    - name: aperture-devices
      hostPath: {path: /dev/aperture_devices}
{{- end -}}
{{- end -}}
