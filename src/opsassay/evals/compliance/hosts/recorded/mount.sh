[ $# -gt 0 ] && [ "$1" != -l ] && { echo "mount: it is not allowed here" >&2; exit 1; }
printf '%s\n' "$data" | awk '{print $2 " on " $1 " type " $3 " (" $4 ")"}'
