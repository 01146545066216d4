format= names= listing= bad=0
while [ $# -gt 0 ]; do case $1 in
  -f|--showformat) format=$2; shift ;; -f=*) format=${1#-f=} ;; -f*) format=${1#-f} ;;
  --showformat=*) format=${1#--showformat=} ;;
  -W|--show|-s|--status) ;; -l|--list) listing=1 ;;
  -*) echo "dpkg-query $1: it is not known here" >&2; exit 2 ;; *) names="$names $1" ;;
esac; shift; done
[ -n "$names" ] || names=$(printf '%s\n' "$data" | awk '{print $1}')
for name in $names; do
  version=$(printf '%s\n' "$data" | awk -v name="$name" '$1 == name {print $2}')
  if [ -z "$version" ]; then echo "dpkg-query: no packages found matching $name" >&2; bad=1
  elif [ -n "$listing" ]; then echo "ii  $name  $version  amd64"
  elif [ -n "$format" ]; then
    printf '%b' "$(printf '%s' "$format" | awk -v n="$name" -v v="$version" '{
      gsub(/\$\{db:Status-Abbrev\}/, "ii "); gsub(/\$\{(db:)?Status\}/, "install ok installed")
      gsub(/\$\{db:Status-Status\}/, "installed"); gsub(/\$\{(binary:)?Package\}/, n); gsub(/\$\{Version\}/, v)
      print }')"
  else echo "$name $version"; fi
done
exit $bad
