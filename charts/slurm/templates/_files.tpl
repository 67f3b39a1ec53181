{{- /* Configuration files and scripts of slurmctld and slurmd. */ -}}

{{- /* A ConfigMap of scripts. Takes `root`, `scripts` and `kind`, such as `prolog`, which begins the names of all files: the
daemons look for it. */ -}}
{{- define "slurm.scripts" -}}
{{- $kind := .kind -}}
{{- if .scripts -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "slurm.objectMetadata" (dict "root" .root "name" (printf "%s-%s-scripts" (include "slurm.fullname" .root) $kind)) | nindent 2 }}
data:
  {{- range $name, $script := .scripts }}
  {{ printf "%s-%s" $kind $name }}: {{ toJson $script }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- /* Sets the field `key` of the map `into` to those `refs` that exist: all without `if`, and those with a true one. */ -}}
{{- define "slurm.setRefs" -}}
{{- $refs := list -}}
{{- range .refs -}}
{{- if or (not (hasKey . "if")) (get . "if") -}}
{{- $refs = append $refs (omit . "if") -}}
{{- end -}}
{{- end -}}
{{- if $refs -}}
{{- $_ := set .into .key $refs -}}
{{- end -}}
{{- end -}}

{{- /* All references of the Controller to ConfigMaps. Scripts of several ConfigMaps run in this order. */ -}}
{{- define "slurm.fileRefs" -}}
{{- $name := include "slurm.fullname" . -}}
{{- $values := .Values -}}
{{- $google := $values.vendor.google -}}
{{- $dcgm := $values.vendor.nvidia.dcgm.enabled -}}
{{- $extra := dict "name" (printf "%s-config-extra" $name) "if" $values.configFiles -}}
{{- $a3mega := dict "name" (printf "%s-config-a3mega" $name) "if" (include "slurm.google.needsGres" (dict "root" . "machines" $google.a3mega)) -}}
{{- $a3ultra := dict "name" (printf "%s-config-a3ultra" $name) "if" (include "slurm.google.needsGres" (dict "root" . "machines" $google.a3ultra)) -}}
{{- $prolog := dict "name" (printf "%s-prolog-scripts" $name) "if" $values.prologScripts -}}
{{- $epilog := dict "name" (printf "%s-epilog-scripts" $name) "if" $values.epilogScripts -}}
{{- $prologSlurmctld := dict "name" (printf "%s-prolog-slurmctld-scripts" $name) "if" $values.prologSlurmctldScripts -}}
{{- $epilogSlurmctld := dict "name" (printf "%s-epilog-slurmctld-scripts" $name) "if" $values.epilogSlurmctldScripts -}}
{{- $prologDcgm := dict "name" (printf "%s-prolog-dcgm" $name) "if" $dcgm -}}
{{- $epilogDcgm := dict "name" (printf "%s-epilog-dcgm" $name) "if" $dcgm -}}
{{- $prologRefs := default list $values.prologScriptRefs -}}
{{- $epilogRefs := default list $values.epilogScriptRefs -}}
{{- $prologSlurmctldRefs := default list $values.prologSlurmctldScriptRefs -}}
{{- $epilogSlurmctldRefs := default list $values.epilogSlurmctldScriptRefs -}}
{{- $fields := dict -}}
{{- include "slurm.setRefs" (dict "into" $fields "key" "configFileRefs" "refs" (list $extra $a3mega $a3ultra)) -}}
{{- include "slurm.setRefs" (dict "into" $fields "key" "prologScriptRefs" "refs" (concat (list $prolog) $prologRefs (list $prologDcgm))) -}}
{{- include "slurm.setRefs" (dict "into" $fields "key" "epilogScriptRefs" "refs" (concat $epilogRefs (list $epilog $epilogDcgm))) -}}
{{- include "slurm.setRefs" (dict "into" $fields "key" "prologSlurmctldScriptRefs" "refs" (append $prologSlurmctldRefs $prologSlurmctld)) -}}
{{- include "slurm.setRefs" (dict "into" $fields "key" "epilogSlurmctldScriptRefs" "refs" (append $epilogSlurmctldRefs $epilogSlurmctld)) -}}
{{- with $fields }}{{ toYaml . }}{{ end -}}
{{- end -}}
