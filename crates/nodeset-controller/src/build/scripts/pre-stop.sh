# Script of the Slurm operator: pre-stop
# Takes the Slurm node of this pod down before its slurmd ends, so that it gets no more jobs.
# A node that is drained, or that an administrator set down, gets no jobs anyway and stays unchanged. The reason of an
# administrator on a node in service is kept after our prefix; by that prefix the operator knows that it may resume the
# node for the next pod.
set -eu

seconds=5

# A slurmctld that does not answer must not delay the termination of the pod.
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
state="${state%% *}"
# The reason, unless it is ours. User and time follow in brackets, and possibly a comment.
theirs="${record#* Reason=}"
case "$theirs" in
"$record" | 'slurm-operator: '*) theirs= ;;
*) theirs="${theirs% \[*@*}" ;;
esac
case "$state" in
*+DRAIN*) exit 0 ;;
DOWN*) [ -z "$theirs" ] || exit 0 ;;
esac
ask update nodename="$node" state=down reason="slurm-operator: Pod is terminating${theirs:+ ($theirs)}"
