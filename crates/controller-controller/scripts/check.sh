# Starts slurmctld with a configuration that is not in force yet, isolated from the cluster.
# Exit 0: slurmctld accepts it. Exit 3: slurmctld refuses it. Exit 4: that cannot be told. The termination message has the
# reason of 3 and 4.
set -euo pipefail

candidate=/etc/slurm
running=/mnt/running
message=/dev/termination-log
port=6817
# How long slurmctld may take to become ready, and how long it must keep running after that.
longest=20
settled=1

# Options that tie a configuration to its cluster: hosts, state, logs, messages to slurmds.
cluster='slurmctld(host|addr|port|logfile|pidfile|debug|syslogdebug)|slurmschedlogfile|statesavelocation|debugflags|slurmdtimeout|healthcheck[a-z]+'
# Programs that slurmctld runs without a job: when it takes over, and to power nodes up and down.
programs='slurmctldprimary(on|off)prog|(suspend|resume|resumefail|reboot)program'
# Plugins that change other services as soon as they are loaded.
effects='jobcomptype[[:space:]]*=[[:space:]]*"?jobcomp/(elasticsearch|kafka|mysql)|burstbuffertype[[:space:]]*=[[:space:]]*"?burst_buffer/(datawarp|lua)'
is='[[:space:]]*[+-]?='

# slurm.conf and the files that it includes, all in directory $1.
conf_files() {
	echo "$1/slurm.conf"
	sed -nE 's#^[[:space:]]*include[[:space:]]+(.*/)?([^/[:space:]]+)[[:space:]]*$#\2#Ip' "$1"/* 2> /dev/null |
		sort -u | while read -r file; do
		[ ! -f "$1/$file" ] || echo "$1/$file"
	done
}

# Replaces the lines that begin with $1 by $2 in the files $3...
replace() {
	local line="$1" text="$2"
	shift 2
	sed -E -i "s%^[[:space:]]*($line).*%$text%I" "$@"
}

# slurmctld refuses TRES that only slurmdbd can define, and no slurmdbd is here. In weights a TRES of AccountingStorageTRES
# becomes one that Slurm always has; any other name stays, and slurmctld refuses it.
without_slurmdbd() {
	local names name
	grep -qiE 'accountingstoragetype[[:space:]]*=[[:space:]]*"?accounting_storage/slurmdbd' "$@" || return 0
	names="$(sed -nE "s/^[[:space:]]*accountingstoragetres$is//Ip" "$@" | tr ',"' '  ')"
	for name in $names; do
		for name in "$name" "${name%%:*}"; do
			sed -E -i "/priorityweighttres|tresbillingweights/I s,${name//./\\.}[[:space:]]*=,node=,Ig" "$@"
		done
	done
	replace "accountingstor[a-z]+$is" '' "$@"
}

# Writes a copy of the configuration in directory $1 that is not tied to the cluster to directory $2, with the keys of the
# candidate: they are not part of a configuration.
isolate() {
	local from="$1" to="$2" files
	mkdir "$to" "$to/state"
	cp -L "$from"/* "$to"
	cp -L "$candidate"/*.key "$to"
	chmod -R u+w "$to"
	mapfile -t files < <(conf_files "$to")
	sed -i "s#$candidate/#$to/#g" "${files[@]}"
	without_slurmdbd "${files[@]}"
	replace "($cluster)$is" '' "${files[@]}"
	replace "($programs)$is" "\2=$(type -P true)" "${files[@]}"
	replace "$effects" '' "${files[@]}"
	sed -E -i '/slurmctldparameters/I s/,?reconfig_on_restart//I' "${files[@]}"
	cat >> "$to/slurm.conf" <<-END

		SlurmctldHost=$(hostname)
		SlurmctldPort=$port
		SlurmctldPidFile=$to/slurmctld.pid
		StateSaveLocation=$to/state
		SlurmctldDebug=info
		SlurmdTimeout=0
	END
}

is_ready() {
	local answer
	answer="$( (exec 3<> "/dev/tcp/127.0.0.1/$port" && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 &&
		timeout 2 head -n 1 <&3) 2> /dev/null)" && [[ "$answer" == *' 20'[04]* ]]
}

# Starts slurmctld with the configuration in directory $1, and writes its output to $2. Returns 0 if slurmctld becomes ready
# and keeps running, 1 if it ends, 2 if it does neither in time.
try() {
	local work daemon end verdict=2
	# Errors that the isolated copy does not have any more.
	if ! SLURM_CONF="$1/slurm.conf" scontrol show hostnames x > "$2" 2>&1; then
		return 1
	fi
	work="$(mktemp -d -p "$copies")"
	isolate "$1" "$work/etc"
	slurmctld -D -c -f "$work/etc/slurm.conf" > "$2" 2>&1 &
	daemon=$!
	end=$((SECONDS + longest))
	while [ "$SECONDS" -lt "$end" ]; do
		if ! kill -0 "$daemon" 2> /dev/null; then
			verdict=1
			break
		fi
		if is_ready; then
			sleep "$settled"
			verdict=1
			! kill -0 "$daemon" 2> /dev/null || verdict=0
			break
		fi
		sleep 0.05
	done
	kill -KILL "$daemon" 2> /dev/null || :
	wait "$daemon" 2> /dev/null || :
	return "$verdict"
}

# The errors in a log, in one line; its last line if it has none.
reason() {
	local lines
	lines="$(grep -E 'fatal|error' "$1" || tail -n 1 "$1")"
	sed -E "s/^(slurmctld|scontrol): //; s/^\[[^]]*\] //; s#$copies/[^/]*/etc/#$candidate/#g" <<< "$lines" | awk '!seen[$0]++' | tail -n 5 |
		paste -s -d ';' | sed 's/;/; /g'
}

copies="$(mktemp -d)"
log="$copies/log"
verdict=0
try "$candidate" "$log" || verdict=$?
cat "$log"
if [ "$verdict" -eq 0 ]; then
	echo 'slurmctld accepts the new configuration'
	exit 0
fi
if [ "$verdict" -eq 2 ]; then
	echo "slurmctld neither became ready nor ended within $longest s in the check pod" > "$message"
	exit 4
fi
reason "$log" > "$message"
if ! try "$running" "$log"; then
	echo "slurmctld does not start in the check pod with the configuration in force either: $(reason "$log")" > "$message"
	exit 4
fi
exit 3
