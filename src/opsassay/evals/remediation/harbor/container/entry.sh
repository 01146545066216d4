#!/bin/sh
# Starts the trial as the user whose folder `private` is, beside whatever the container is to run.
as= folder=$(cd "$(dirname "$0")" && pwd) && owner=$(stat -c %u "$folder/private") || exit
set -- "$folder" "$@"
if [ "$owner" != "$(id -u)" ]; then as="setpriv --reuid=$owner --regid=$owner --clear-groups"; fi
HOME="$folder/private" OPSASSAY_STATE="$folder/private/state" XDG_CACHE_HOME="$folder/private/cache" \
  $as python3 -m opsassay.evals.remediation.harbor.trial perform "$1" > "$folder/private/trial.log" 2>&1 < /dev/null &
shift
exec "$@"
