# Script of the Slurm operator: reconfigure
# Tells slurmctld to read its configuration again whenever a file of it changes, and says what came of it.
set -euo pipefail

directory=/etc/slurm
interval=2
retry=2
longest=60

say() {
	echo "$(date): $*"
}

# Paths and contents of the files. The kubelet swaps whole directories named ..something behind
# symbolic links, so those are passed over and the links followed.
contents() {
	cd "$directory"
	find . -path './..*' -prune -o \( -type f -o -type l \) "$@" -printf '%P\0' |
		LC_ALL=C sort -z |
		xargs -0 -r sha256sum --
}

# What the configuration is called in messages. Keys are not part of it: nobody else may read them.
digest() {
	(contents ! -name '*.key') | sha256sum | cut -c 1-64
}

applied="$(contents)"
refused=
delay="$retry"
due=0
say "Watching $directory, now $(digest)"

while :; do
	# A file may vanish under our hands while the kubelet swaps; the next look tells.
	if current="$(contents)" && [ "$current" != "$applied" ] &&
		{ [ "$current" != "$refused" ] || [ "$SECONDS" -ge "$due" ]; }; then
		name="$(digest)"
		if [ "$current" != "$refused" ]; then
			delay="$retry"
		fi
		if answer="$(scontrol reconfigure 2>&1)"; then
			say "Reconfigured to $name"
			applied="$current"
			refused=
		else
			say "Reconfigure to $name failed: ${answer//$'\n'/; }"
			refused="$current"
			due=$((SECONDS + delay))
			delay=$((delay * 2 > longest ? longest : delay * 2))
		fi
	fi
	sleep "$interval"
done
