# Script of the Slurm operator: initconf
# Copies configuration and keys into a volume where they belong to the Slurm user.
# Ids are numbers, so that the image needs no such user.
set -eu

owner=401:401
from=/mnt/slurm
to=/mnt/etc/slurm

# Runs a command on each regular file of a directory that matches. Projected volumes show files
# through symbolic links; the files themselves lie deeper.
each() {
	directory="$1" pattern="$2"
	shift 2
	find "$directory" -type f -name "$pattern" -print0 | xargs -0 -r -I '{}' "$@"
}

mkdir -p "$to"
each "$from" '*.conf' cp -v '{}' "$to/"
each "$from" '*.key' cp -v '{}' "$to/"

each "$to" '*' chown "$owner" '{}'
each "$to" '*.conf' chmod 644 '{}'
each "$to" slurmdbd.conf chmod 600 '{}'
each "$to" '*.key' chmod 600 '{}'

ls -laF "$to"
