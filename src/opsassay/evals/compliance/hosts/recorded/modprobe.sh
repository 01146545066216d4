for word in "$@"; do case $word in -*) ;; *) name=$word ;; esac; done
case " $* " in *" --showconfig "*|*" -c "*) printf '%s\n' "$data"; exit 0 ;; esac
found=$(printf '%s\n' "$data" | awk -v name="$name" '$1 == "install" && $2 == name { $2 = ""; print $1, $3, $4 }')
[ -n "$found" ] && echo "$found" || echo "insmod /lib/modules/kernel/$name.ko.xz"
