# Script of the Slurm operator: reconfigure
# Tells slurmctld to read its configuration again whenever a file of it changes.
set -euo pipefail

directory=/etc/slurm
interval=5
retry=2

say() {
	echo "$(date): $*"
}

# One hash over paths and contents. The kubelet swaps whole directories named ..something behind
# symbolic links, so those are passed over and the links followed.
fingerprint() {
	find "$directory" -path '*/..*' -prune -o \( -type f -o -type l \) -print0 |
		sort -z |
		xargs -0 -r sha256sum |
		sha256sum
}

applied="$(fingerprint)"
say "Watching $directory"

while :; do
	# A file may vanish under our hands while the kubelet swaps; the next look tells.
	if current="$(fingerprint)" && [ "$current" != "$applied" ]; then
		say "Configuration changed"
		until scontrol reconfigure; do
			say "Reconfigure failed, trying again in $retry s"
			sleep "$retry"
		done
		say "Reconfigured"
		applied="$current"
	fi
	sleep "$interval"
done
