{{- /* NodeSets, LoginSets and partitions: maps of names to what differs from the defaults. */ -}}

{{- /* Adds the enabled sets, with defaults applied, to the map `into`. Takes `root`, `kind` (nodeset or loginset) and
`into`. */ -}}
{{- define "slurm.enabledSets" -}}
{{- $into := .into -}}
{{- $kind := .kind -}}
{{- $defaults := index .root.Values (printf "%sDefaults" $kind) -}}
{{- range $name, $overrides := index .root.Values (printf "%ss" $kind) -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%ss.%s: the name must consist of lower case letters, digits and dashes" $kind $name) -}}
{{- end -}}
{{- $set := deepCopy $defaults -}}
{{- include "slurm.merge" (dict "into" $set "from" (default dict $overrides)) -}}
{{- if $set.enabled -}}
{{- $_ := set $into $name $set -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Adds the enabled NodeSets to the map `into`, with settings of vendors. Takes `root` and `into`. */ -}}
{{- define "slurm.nodesets" -}}
{{- $root := .root -}}
{{- include "slurm.enabledSets" (dict "root" $root "kind" "nodeset" "into" .into) -}}
{{- range $name, $nodeset := .into -}}
{{- $patches := list -}}
{{- range list "slurm.dcgm.nodeset" "slurm.a3mega.nodeset" "slurm.a3ultra.nodeset" -}}
{{- $patches = append $patches (include . (dict "root" $root "name" $name "nodeset" $nodeset) | fromYaml) -}}
{{- end -}}
{{- range $patches -}}
{{- include "slurm.merge" (dict "into" $nodeset "from" . "byName" true) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Adds the enabled LoginSets to the map `into`. Takes `root` and `into`. */ -}}
{{- define "slurm.loginsets" -}}
{{- include "slurm.enabledSets" (dict "root" .root "kind" "loginset" "into" .into) -}}
{{- end -}}

{{- /* Lines of slurm.conf for the partitions. */ -}}
{{- define "slurm.partitions" -}}
{{- $nodesets := dict -}}
{{- include "slurm.enabledSets" (dict "root" . "kind" "nodeset" "into" $nodesets) -}}
{{- $lines := list -}}
{{- range $name, $partition := .Values.partitions -}}
{{- if and $partition $partition.enabled -}}
{{- $members := default list $partition.nodesets | uniq | sortAlpha -}}
{{- if not $members -}}
{{- fail (printf "partition `%s` must contain at least one NodeSet (or ALL)." $name) -}}
{{- end -}}
{{- range $members -}}
{{- if not (or (eq . "ALL") (hasKey $nodesets .)) -}}
{{- fail (printf "partition `%s` is referencing nodeset `%s` that does not exist or is disabled." $name .) -}}
{{- end -}}
{{- end -}}
{{- $options := default (include "slurm.options" (dict "map" $partition.configMap "separator" " ")) $partition.config -}}
{{- $lines = append $lines (printf "PartitionName=%s Nodes=%s %s" $name (join "," $members) $options) -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}
