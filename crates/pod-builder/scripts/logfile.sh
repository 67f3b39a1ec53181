# Script of the Slurm operator: logfile
# Relays a daemon's log: the daemon writes into a FIFO, this container prints what comes out.
set -eu

fifo="${SOCKET:-/tmp/logfile.log}"

trap 'exit 0' TERM
trap 'exit 1' INT HUP

mkdir -p "$(dirname "$fifo")"
if [ ! -p "$fifo" ]; then
	rm -f "$fifo"
	mkfifo -m 777 "$fifo"
fi

# Reading ends whenever the last writer closes the FIFO. In the background, because a shell
# handles signals only between commands, and a read may wait for ever.
while :; do
	cat "$fifo" 2>/dev/null &
	wait $! || :
	sleep 1 &
	wait $! || :
done
