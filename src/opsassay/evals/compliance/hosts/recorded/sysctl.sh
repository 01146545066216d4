bare= all= names= bad=0
for word in "$@"; do case $word in
  -n|--values) bare=1 ;; -a|-A|-X|--all) all=1 ;; -e|-q|--ignore|--quiet) ;;
  -*|*=*) echo "sysctl: $word: it is not allowed here" >&2; exit 1 ;;
  *) names="$names $word" ;;
esac; done
show() { if [ -n "$bare" ]; then awk -F ' = ' '{print $2}'; else cat; fi; }
if [ -n "$all" ]; then printf '%s\n' "$data" | show; exit 0; fi
for name in $names; do
  found=$(printf '%s\n' "$data" | awk -F ' = ' -v name="$(echo "$name" | tr / .)" '$1 == name')
  if [ -n "$found" ]; then printf '%s\n' "$found" | show
  else echo "sysctl: cannot stat /proc/sys/$(echo "$name" | tr . /): No such file or directory" >&2; bad=1; fi
done
exit $bad
