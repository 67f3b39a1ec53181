# Functions of the entrypoints that run daemons. tini runs the entrypoints and reaps orphaned processes.

# The ids of processes whose name begins with $1 and that have not ended; stopped ones have not. Entrypoints must not be named
# after their daemon.
pids_of() {
    pgrep --runstates D,R,S,T "^$1"
}

# Receives the notifications that a daemon with --systemd sends to systemd. The daemon needs a socket, logs an error if no
# process listens, and passes a file descriptor, which it expects to be closed: plain recv never accepts one.
receive_notifications() {
    NOTIFY_SOCKET=$(mktemp --directory)/notify
    export NOTIFY_SOCKET
    perl -MSocket -e '
        socket(my $socket, AF_UNIX, SOCK_DGRAM, 0) or die "socket: $!";
        bind($socket, pack_sockaddr_un($ENV{NOTIFY_SOCKET})) or die "bind: $!";
        1 while defined recv($socket, my $message, 4096, 0);
    ' &
}

# Runs a Slurm daemon with its options until it ends or this shell gets a signal; returns its exit status.
#
# With -D a daemon re-executes itself to reconfigure, and ends if the new configuration is invalid. With --systemd it
# starts a successor, exits once the successor runs, and keeps running if the successor fails. The successor is not a
# child of this shell, so it is found by name; it always exists before its predecessor ends.
run_daemon() {
    local name=$1 first stopping='' status=0
    shift
    receive_notifications
    "$name" --systemd "$@" &
    first=$!
    trap 'stopping=yes; kill -TERM "$first" $(pids_of "$name") 2>/dev/null || :' TERM INT
    # A signal interrupts wait, which then has to be repeated.
    while kill -0 "$first" 2>/dev/null; do
        status=0
        wait "$first" || status=$?
    done
    if pids_of "$name" >/dev/null; then
        while pids_of "$name" >/dev/null; do sleep 0.5; done
        # Only the parent of a process gets its exit status.
        [[ $stopping ]] && status=0 || status=1
    fi
    echo "$name has ended" >&2
    return "$status"
}

# Restarts a command for ever: its dependencies may become available later, and no other process depends on it.
keep_running() {
    local status
    while :; do
        status=0
        "$@" || status=$?
        echo "Status $status of $*, starting it again in 5 s" >&2
        sleep 5
    done
}

# Runs sshd and sssd beside the daemon, each if it has a configuration.
run_login_services() {
    local sshd_options sssd_options
    eval "sshd_options=(${SSHD_OPTIONS-}) sssd_options=(${SSSD_OPTIONS-})"
    if [[ -e /etc/ssh/sshd_config ]]; then
        install --directory --mode=0755 /run/sshd
        # Existing keys of the pod are kept.
        ssh-keygen -A
        keep_running /usr/sbin/sshd -D -e "${sshd_options[@]}" &
    fi
    if [[ -e /etc/sssd/sssd.conf ]]; then
        keep_running sssd -i "${sssd_options[@]}" &
    fi
}
