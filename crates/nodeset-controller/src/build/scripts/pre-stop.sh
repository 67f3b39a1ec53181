# Script of the Slurm operator: pre-stop
# Takes the Slurm node of this pod down before its slurmd ends, so that it gets no more jobs.
# A node that somebody drained or took down gets none anyway and stays as it is. What somebody else said of a node in
# service is kept behind words of ours: by these it is known that the next pod may put the node back to work.
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
state="${state%% *}"
# What somebody else said of the node; who said it and when follows in brackets, and then perhaps a comment.
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
