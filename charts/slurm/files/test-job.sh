# Submits JOB to the slurmrestd at HOST:PORT, and waits until it has completed, for at most TIMEOUT seconds.
set -u

id=
said=

# Sends METHOD PATH BODY. Sets `status` to the HTTP status, empty without an answer, and `answer`, as one line. By nc, because
# wget of busybox cannot send DELETE, and hides what slurmrestd says about an error. The token is read anew: it is renewed.
request() {
    answer=$(
        {
            printf '%s /slurm/v0.0.44/%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n' "$1" "$2" "$HOST"
            printf 'X-SLURM-USER-TOKEN: %s\r\nContent-Type: application/json\r\n' "$(cat "$TOKEN_FILE")"
            printf 'Content-Length: %s\r\n\r\n%s' "${#3}" "$3"
        } | timeout 20 nc "$HOST" "$PORT" 2>&1 | tr '\r\n' '  '
    )
    status=$(find_in_answer 'HTTP/[0-9.]* \([0-9]*\) .*')
}

# The part of the answer that a pattern of the whole answer captures.
find_in_answer() { printf '%s\n' "$answer" | sed -n "s|^$1\$|\1|p"; }

# Why the last request failed.
problem() {
    text=$(printf '%s' "$answer" | grep -oE '"(description|error)": *"[^"]*"' | sed 's|^"[a-z]*": *||' | tr '\n' ' ')
    case $status in
    '') echo "no answer ${answer:+($answer)}" ;;
    401 | 511) echo "HTTP $status, the token is not accepted $text" ;;
    502 | 503 | 504) echo "HTTP $status, slurmctld does not answer $text" ;;
    *) echo "HTTP $status $text" ;;
    esac
}

# Prints a line, unless it is the same as before.
say() {
    [ "$1" = "$said" ] || echo "$1"
    said=$1
}

seconds_left() { echo $((end - $(date +%s))); }

# Cancels the job, unless it has ended.
fail() {
    echo "FAILED: $1"
    if [ -n "$id" ]; then
        request DELETE "job/$id" ''
        [ "$status" = 200 ] && echo "job $id was cancelled" || echo "job $id could not be cancelled: $(problem)"
    fi
    exit 1
}

trap 'fail "stopped"' TERM
end=$(($(date +%s) + TIMEOUT))

# Partitions, because slurmrestd answers a ping without slurmctld, too, and with any token.
while request GET partitions/ '' && [ "$status" != 200 ]; do
    say "waiting for $HOST:$PORT: $(problem)"
    [ "$(seconds_left)" -gt 0 ] || fail "slurmrestd was not ready within $TIMEOUT s: $(problem)"
    sleep 2
done

request POST job/submit "$JOB"
if [ "$status" != 200 ]; then
    # ESLURM_DEFAULT_PARTITION_NOT_SET
    printf '%s' "$answer" | grep -q '"error_number": *2001[^0-9]' && say "no default partition: set test.partition, or partitions.all.enabled"
    fail "Slurm refused the job: $(problem)"
fi
id=$(find_in_answer '.*"job_id": *\([0-9]*\).*')
echo "job $id is submitted"

while :; do
    request GET "job/$id" ''
    state=$(find_in_answer '.*"job_state": *\[\([^]]*\)\].*' | tr -d ' "')
    nodes=$(find_in_answer '.*"nodes": *"\([^"]*\)".*')
    reason=$(find_in_answer '.*"state_reason": *"\([^"]*\)".*')
    summary="job $id is $state (reason: $reason) on ${nodes:-no node}"
    case $status,$state in
    200,*PENDING* | 200,*RUNNING* | 200,*SUSPENDED*) ;;
    200,*COMPLETED*)
        echo "job $id is $state on $nodes"
        exit 0
        ;;
    200,*)
        id=
        fail "$summary"
        ;;
    404,*)
        forgotten=$id id=
        fail "Slurm no longer knows job $forgotten: $(problem)"
        ;;
    *) summary="waiting for $HOST:$PORT: $(problem)" ;;
    esac
    say "$summary"
    [ "$(seconds_left)" -gt 0 ] || fail "job $id did not complete within $TIMEOUT s: $summary"
    sleep 2
done
