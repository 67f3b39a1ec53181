# Script of the Slurm operator: reconfigure
# Runs scontrol reconfigure whenever a configuration file changes, and logs the result.
set -euo pipefail

directory=/etc/slurm
port=6817
interval=2
retry=2
longest=60

log() {
	echo "$(date): $*"
}

# Hashes and paths of the files. The kubelet keeps the files in directories named ..something and
# links to them, so those directories are skipped and the links are followed.
contents() {
	cd "$directory"
	find . -path './..*' -prune -o \( -type f -o -type l \) "$@" -printf '%P\0' |
		LC_ALL=C sort -z |
		xargs -0 -r sha256sum --
}

# The name of the configuration in messages. Keys are excluded: the operator computes the same hash
# without reading them.
digest() {
	(contents ! -name '*.key') | sha256sum | cut -c 1-64
}

# Whether this pod may reconfigure. With standbys every pod runs this script, but only that of the
# slurmctld in control acts; a standby reads the files when it takes over, and then this reports it.
in_control() {
	local hosts status
	hosts="$(grep -ci '^SlurmctldHost=' "$directory/slurm.conf")" || :
	if [ "${hosts:-0}" -le 1 ]; then
		return
	fi
	status="$(
		exec 3<> "/dev/tcp/127.0.0.1/$port"
		printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
		read -r -t 2 line <&3
		echo "$line"
	)" 2> /dev/null && [[ "$status" == *' 204'* ]]
}

# Waits until slurmctld answers, and prints since when it runs: the time of its start or of its last reconfigure.
boot_time() {
	local config
	until config="$(scontrol show config 2> /dev/null)"; do
		sleep "$interval"
	done
	date +%s -d "$(sed -n 's/^BOOT_TIME *= *//p' <<< "$config")"
}

# What slurmctld runs with; empty if that is not known. It has read the files if it runs since a later second than that in
# which the kubelet linked to them; this container may have been restarted since.
applied=
files="$(contents)"
name="$(digest)"
linked="$(stat -c %Y "$directory/..data")"
if booted="$(boot_time)" && [ "$booted" -gt "$linked" ]; then
	applied="$files"
	log "Watching $directory, now $name"
fi
refused=
standby=
delay="$retry"
due=0

while :; do
	# A file may vanish while the kubelet updates the volume; the next iteration retries.
	if current="$(contents)" && [ "$current" != "$applied" ] &&
		{ [ "$current" != "$refused" ] || [ "$SECONDS" -ge "$due" ]; }; then
		name="$(digest)"
		if ! in_control; then
			if [ "$current" != "$standby" ]; then
				log "Not reconfiguring to $name: slurmctld in this pod is not in control"
				standby="$current"
			fi
			sleep "$interval"
			continue
		fi
		standby=
		if [ "$current" != "$refused" ]; then
			delay="$retry"
		fi
		if answer="$(scontrol reconfigure 2>&1)"; then
			log "Reconfigured to $name"
			applied="$current"
			refused=
		else
			log "Reconfigure to $name failed: ${answer//$'\n'/; }"
			# A revert is reported, too.
			applied=
			refused="$current"
			due=$((SECONDS + delay))
			delay=$((delay * 2 > longest ? longest : delay * 2))
		fi
	fi
	sleep "$interval"
done
