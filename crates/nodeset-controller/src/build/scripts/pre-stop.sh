# Script of the Slurm operator: pre-stop
# Takes the Slurm node of this pod down before its slurmd ends, so that it gets no more jobs.
# A drained node gets none anyway, and the reason of its drain may be that of a person: it stays as it is.
set -eu

seconds=5

# A slurmctld that does not answer must not hold up the end of the pod.
ask() {
	if command -v timeout > /dev/null; then
		timeout "$seconds" scontrol "$@"
	else
		scontrol "$@"
	fi
}

node="$(hostname)"
record="$(ask --oneliner show node "$node")"
state="${record#* State=}"
case "${state%% *}" in
*+DRAIN*) ;;
*) ask update nodename="$node" state=down reason='slurm-operator: Pod is terminating' ;;
esac
