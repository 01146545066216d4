columns= head=1 target=
while [ $# -gt 0 ]; do case $1 in
  -o|--output) columns=$2; shift ;; --output=*) columns=${1#--output=} ;;
  -*o) columns=$2; head=; shift ;;
  --noheadings) head= ;; --*) ;; -*n*) head= ;; -*) ;; *) target=$1 ;;
esac; shift; done
[ -n "$head" ] && echo "${columns:-TARGET SOURCE FSTYPE OPTIONS}" | tr , ' '
printf '%s\n' "$data" | awk -v target="$target" -v columns="${columns:-TARGET,SOURCE,FSTYPE,OPTIONS}" '
  BEGIN { count = split(toupper(columns), asked, ",")
    at["TARGET"] = 1; at["SOURCE"] = 2; at["FSTYPE"] = 3; at["OPTIONS"] = 4 }
  target == "" || $1 == target {
    line = ""; for (n = 1; n <= count; n++) line = line (n > 1 ? " " : "") $at[asked[n]]; print line; found = 1 }
  END { exit !found }'
