# Starts slurmctld with a configuration that is not in force yet, apart from the cluster, to see whether it would take
# it. Exit 0: it would, or this place is no judge. Exit 3: it would not; the reason is the termination message.
set -euo pipefail

candidate=/etc/slurm
running=/mnt/running
seconds=5

# What ties a configuration to its place: other hosts, the cluster's state, the log, the accounting database.
place='slurmctldhost|slurmctldaddr|slurmctldlogfile|slurmschedlogfile|slurmctldpidfile|statesavelocation|accountingstorage[a-z]*'

# Prints what slurmctld said; succeeds if it came up.
try() {
	local work
	work="$(mktemp -d)"
	cp -L "$candidate"/* "$work"
	if [ "$1" != "$candidate" ]; then
		cp -L "$1"/* "$work"
	fi
	chmod -R u+w "$work"
	sed -E -i "/^[[:space:]]*($place)[[:space:]]*=/Id" "$work/slurm.conf"
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

if said="$(try "$candidate")"; then
	echo "slurmctld takes the new configuration"
	exit 0
fi
echo "$said"
if ! try "$running" > /dev/null; then
	echo "slurmctld does not start here with the configuration that is in force either: this place is no judge"
	exit 0
fi
grep -E 'fatal|error' <<< "$said" |
	sed -E 's/^slurmctld: //; s/^\[[^]]*\] //' |
	awk '!seen[$0]++' |
	tail -n 5 |
	paste -s -d ';' |
	sed 's/;/; /g' > /dev/termination-log
exit 3
