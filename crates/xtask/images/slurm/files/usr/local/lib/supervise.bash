# How the entrypoints keep their daemons running. Sourced by them, below tini, which reaps what is orphaned.

# Running processes whose name begins with $1. Entrypoints must not be named after their daemon.
pids_of() {
    pgrep --runstates D,R,S "^$1"
}

# Receives what --systemd makes a daemon tell systemd. It insists on a socket, complains when nobody listens, and sends
# a file descriptor along to see that it is closed: plain recv never accepts one.
hear_notifications() {
    NOTIFY_SOCKET=$(mktemp --directory)/notify
    export NOTIFY_SOCKET
    perl -MSocket -e '
        socket(my $socket, AF_UNIX, SOCK_DGRAM, 0) or die "socket: $!";
        bind($socket, pack_sockaddr_un($ENV{NOTIFY_SOCKET})) or die "bind: $!";
        1 while defined recv($socket, my $message, 4096, 0);
    ' &
}

# Runs a Slurm daemon, given with its options, until it ends or this shell is told to stop; returns its status.
#
# With -D a daemon that is told to reconfigure executes itself anew in place, and is gone if the new configuration
# is bad. With --systemd it starts a successor, steps down once that one runs, and simply goes on if it fails. The
# successor is nobody's child, so it is followed by name, and there is always one before its predecessor ends.
run_daemon() {
    local name=$1 first stopping='' status=0
    shift
    hear_notifications
    "$name" --systemd "$@" &
    first=$!
    trap 'stopping=yes; kill -TERM "$first" $(pids_of "$name") 2>/dev/null || :' TERM INT
    # A signal interrupts wait.
    while kill -0 "$first" 2>/dev/null; do
        status=0
        wait "$first" || status=$?
    done
    if pids_of "$name" >/dev/null; then
        while pids_of "$name" >/dev/null; do sleep 0.5; done
        # Nobody but its parent learns how a process ended.
        [[ $stopping ]] && status=0 || status=1
    fi
    echo "$name has ended" >&2
    return "$status"
}

# Runs a command for ever: whatever it needs to run may yet come, and nothing else depends on it.
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
        # Keys that the pod brings are kept.
        ssh-keygen -A
        keep_running /usr/sbin/sshd -D -e "${sshd_options[@]}" &
    fi
    if [[ -e /etc/sssd/sssd.conf ]]; then
        keep_running sssd -i "${sssd_options[@]}" &
    fi
}
