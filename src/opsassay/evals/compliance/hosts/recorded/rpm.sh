names= all=
for word in "$@"; do case $word in
  -qa|-a|--all) all=1 ;; -q|--query|--quiet) ;;
  -*) echo "rpm $word: it is not known here" >&2; exit 1 ;; *) names="$names $word" ;;
esac; done
bad=0
if [ -n "$all" ]; then printf '%s\n' "$data" | awk '{print $1 "-" $2}'; exit 0; fi
for name in $names; do
  printf '%s\n' "$data" | awk -v name="$name" '$1 == name {print $1 "-" $2; found = 1} END {exit !found}' ||
    { echo "package $name is not installed"; bad=1; }
done
exit $bad
