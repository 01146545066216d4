verb= names=
for word in "$@"; do case $word in
  -*) ;; *) if [ -z "$verb" ]; then verb=$word; else names="$names ${word%.service}"; fi ;;
esac; done
of() { printf '%s\n' "$data" | awk -v name="$1" -v at="$2" '$1 == name {print $at}'; }
bad=0
case $verb in
  is-enabled|is-active)
    for name in $names; do
      state=$(of "$name" "$([ $verb = is-enabled ] && echo 2 || echo 3)")
      if [ -z "$state" ] && [ $verb = is-enabled ]; then
        echo "Failed to get unit file state for $name.service: No such file or directory" >&2; bad=4
      else
        echo "${state:-inactive}"
        case $state in enabled|active|static) ;; *) [ $verb = is-active ] && bad=3 || bad=1 ;; esac
      fi
    done ;;
  show|status)
    for name in $names; do
      enabled=$(of "$name" 2) active=$(of "$name" 3)
      echo "Id=$name.service"; echo "LoadState=$([ -n "$enabled" ] && echo loaded || echo not-found)"
      echo "ActiveState=${active:-inactive}"; echo "UnitFileState=$enabled"
    done ;;
  list-unit-files)
    echo 'UNIT FILE STATE PRESET'; printf '%s\n' "$data" | awk '{print $1 ".service " $2 " enabled"}' ;;
  list-units|'')
    printf '%s\n' "$data" | awk '{print $1 ".service loaded " $3 " " ($3 == "active" ? "running" : "dead") " " $1}' ;;
  *) echo "systemctl $verb: it is not allowed here" >&2; exit 1 ;;
esac
exit $bad
