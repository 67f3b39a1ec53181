# Starts slurmctld with a configuration that is not in force yet, isolated from the cluster. Exit 0: slurmctld accepts the
# configuration, or the check is inconclusive. Exit 3: slurmctld refuses it; the reason is the termination message.
set -euo pipefail

candidate=/etc/slurm
running=/mnt/running
seconds=5

# Options that tie a configuration to its cluster: hosts, state, logs, the accounting database.
cluster_options='slurmctldhost|slurmctldaddr|slurmctldlogfile|slurmschedlogfile|slurmctldpidfile|statesavelocation|accountingstorage[a-z]*'

# Prints the output of slurmctld; succeeds if it became primary.
try() {
	local work
	work="$(mktemp -d)"
	cp -L "$candidate"/* "$work"
	if [ "$1" != "$candidate" ]; then
		cp -L "$1"/* "$work"
	fi
	chmod -R u+w "$work"
	sed -E -i "/^[[:space:]]*($cluster_options)[[:space:]]*=/Id" "$work/slurm.conf"
	mkdir "$work/state"
	cat >> "$work/slurm.conf" <<-END

		SlurmctldHost=$(hostname)
		SlurmctldPidFile=$work/slurmctld.pid
		StateSaveLocation=$work/state
	END
	timeout --preserve-status --signal=KILL "$seconds" \
		slurmctld -D -c -f "$work/slurm.conf" > "$work/log" 2>&1 &
	local daemon=$!
	while kill -0 "$daemon" 2> /dev/null; do
		if grep -q 'Running as primary controller' "$work/log"; then
			kill -KILL "$daemon" 2> /dev/null || :
			break
		fi
		sleep 0.05
	done
	wait "$daemon" 2> /dev/null || :
	cat "$work/log"
	grep -q 'Running as primary controller' "$work/log"
}

if output="$(try "$candidate")"; then
	echo "slurmctld accepts the new configuration"
	exit 0
fi
echo "$output"
if ! try "$running" > /dev/null; then
	echo "slurmctld does not start in this pod with the configuration in force either: the check is inconclusive"
	exit 0
fi
grep -E 'fatal|error' <<< "$output" |
	sed -E 's/^slurmctld: //; s/^\[[^]]*\] //' |
	awk '!seen[$0]++' |
	tail -n 5 |
	paste -s -d ';' |
	sed 's/;/; /g' > /dev/termination-log
exit 3
