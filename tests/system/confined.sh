# Runs a command as a hardened service does: it may write to one folder alone, and has no capabilities.
# Usage: confined.sh FOLDER COMMAND...
set -eu
folder=$1
shift
mount --bind "$folder" "$folder"
for point in / /dev/shm; do mount -o remount,bind,ro "$point"; done
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
