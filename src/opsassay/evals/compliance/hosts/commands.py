"""Commands of a host that answer from what was recorded, as scripts of a shell: what it would print, and how it ends.

They answer the calls that read: of one name, of several, of all. Whatever would change something is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Rows = Iterable[Sequence[str]]

_HEAD = """\
#!/bin/sh
data=$(cat <<'END_OF_RECORD'
{data}
END_OF_RECORD
)
"""

_SYSCTL = """\
bare= all= names= bad=0
for word in "$@"; do case $word in
  -n|--values) bare=1 ;; -a|-A|-X|--all) all=1 ;; -e|-q|--ignore|--quiet) ;;
  -*|*=*) echo "sysctl: $word: it is not allowed here" >&2; exit 1 ;;
  *) names="$names $word" ;;
esac; done
show() { if [ -n "$bare" ]; then awk -F ' = ' '{print $2}'; else cat; fi; }
if [ -n "$all" ]; then printf '%s\\n' "$data" | show; exit 0; fi
for name in $names; do
  found=$(printf '%s\\n' "$data" | awk -F ' = ' -v name="$(echo "$name" | tr / .)" '$1 == name')
  if [ -n "$found" ]; then printf '%s\\n' "$found" | show
  else echo "sysctl: cannot stat /proc/sys/$(echo "$name" | tr . /): No such file or directory" >&2; bad=1; fi
done
exit $bad
"""

_SYSTEMCTL = """\
verb= names=
for word in "$@"; do case $word in
  -*) ;; *) if [ -z "$verb" ]; then verb=$word; else names="$names ${word%.service}"; fi ;;
esac; done
of() { printf '%s\\n' "$data" | awk -v name="$1" -v at="$2" '$1 == name {print $at}'; }
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
    echo 'UNIT FILE STATE PRESET'; printf '%s\\n' "$data" | awk '{print $1 ".service " $2 " enabled"}' ;;
  list-units|'')
    printf '%s\\n' "$data" | awk '{print $1 ".service loaded " $3 " " ($3 == "active" ? "running" : "dead") " " $1}' ;;
  *) echo "systemctl $verb: it is not allowed here" >&2; exit 1 ;;
esac
exit $bad
"""

_RPM = """\
names= all=
for word in "$@"; do case $word in
  -qa|-a|--all) all=1 ;; -q|--query|--quiet) ;;
  -*) echo "rpm $word: it is not known here" >&2; exit 1 ;; *) names="$names $word" ;;
esac; done
bad=0
if [ -n "$all" ]; then printf '%s\\n' "$data" | awk '{print $1 "-" $2}'; exit 0; fi
for name in $names; do
  printf '%s\\n' "$data" | awk -v name="$name" '$1 == name {print $1 "-" $2; found = 1} END {exit !found}' ||
    { echo "package $name is not installed"; bad=1; }
done
exit $bad
"""

_DPKG = """\
format= names= listing= bad=0
while [ $# -gt 0 ]; do case $1 in
  -f|--showformat) format=$2; shift ;; -f=*) format=${1#-f=} ;; -f*) format=${1#-f} ;;
  --showformat=*) format=${1#--showformat=} ;;
  -W|--show|-s|--status) ;; -l|--list) listing=1 ;;
  -*) echo "dpkg-query $1: it is not known here" >&2; exit 2 ;; *) names="$names $1" ;;
esac; shift; done
[ -n "$names" ] || names=$(printf '%s\\n' "$data" | awk '{print $1}')
for name in $names; do
  version=$(printf '%s\\n' "$data" | awk -v name="$name" '$1 == name {print $2}')
  if [ -z "$version" ]; then echo "dpkg-query: no packages found matching $name" >&2; bad=1
  elif [ -n "$listing" ]; then echo "ii  $name  $version  amd64"
  elif [ -n "$format" ]; then
    printf '%b' "$(printf '%s' "$format" | awk -v n="$name" -v v="$version" '{
      gsub(/\\$\\{db:Status-Abbrev\\}/, "ii "); gsub(/\\$\\{(db:)?Status\\}/, "install ok installed")
      gsub(/\\$\\{db:Status-Status\\}/, "installed"); gsub(/\\$\\{(binary:)?Package\\}/, n); gsub(/\\$\\{Version\\}/, v)
      print }')"
  else echo "$name $version"; fi
done
exit $bad
"""

_MOUNTS = """\
columns= head=1 target=
while [ $# -gt 0 ]; do case $1 in
  -o|--output) columns=$2; shift ;; --output=*) columns=${1#--output=} ;;
  -*o) columns=$2; head=; shift ;;
  --noheadings) head= ;; --*) ;; -*n*) head= ;; -*) ;; *) target=$1 ;;
esac; shift; done
[ -n "$head" ] && echo "${columns:-TARGET SOURCE FSTYPE OPTIONS}" | tr , ' '
printf '%s\\n' "$data" | awk -v target="$target" -v columns="${columns:-TARGET,SOURCE,FSTYPE,OPTIONS}" '
  BEGIN { count = split(toupper(columns), asked, ",")
    at["TARGET"] = 1; at["SOURCE"] = 2; at["FSTYPE"] = 3; at["OPTIONS"] = 4 }
  target == "" || $1 == target {
    line = ""; for (n = 1; n <= count; n++) line = line (n > 1 ? " " : "") $at[asked[n]]; print line; found = 1 }
  END { exit !found }'
"""

_MOUNT = """\
[ $# -gt 0 ] && [ "$1" != -l ] && { echo "mount: it is not allowed here" >&2; exit 1; }
printf '%s\\n' "$data" | awk '{print $2 " on " $1 " type " $3 " (" $4 ")"}'
"""

_PLAIN = "printf '%s\\n' \"$data\"\n"
_SUDO = """\
#!/bin/sh
# Whoever collects is the one that may read here.
while [ $# -gt 0 ]; do case $1 in -u|-g|-p) shift 2 ;; -*) shift ;; *=*) shift ;; *) break ;; esac; done
exec "$@"
"""
_MODPROBE = """\
for word in "$@"; do case $word in -*) ;; *) name=$word ;; esac; done
case " $* " in *" --showconfig "*|*" -c "*) printf '%s\\n' "$data"; exit 0 ;; esac
found=$(printf '%s\\n' "$data" | awk -v name="$name" '$1 == "install" && $2 == name { $2 = ""; print $1, $3, $4 }')
[ -n "$found" ] && echo "$found" || echo "insmod /lib/modules/kernel/$name.ko.xz"
"""


def _script(body: str, data: str) -> str:
    return _HEAD.format(data=data.rstrip("\n")) + body


def _table(rows: Rows, between: str = " ") -> str:
    return "\n".join(between.join(row) for row in rows)


def scripts(
    *,
    sysctl: Mapping[str, str],
    units: Mapping[str, tuple[str, str]],
    packages: Mapping[str, str],
    mounts: Rows,
    modules: Sequence[str],
    modprobe: str,
    sshd: str,
    ubuntu: bool,
) -> dict[str, str]:
    """Return the commands of a host by name.

    *units* are (enabled, active) by name, *packages* versions, *mounts* rows of target, source, type and options, *modules*
    those that are loaded, *modprobe* all lines about modules, *sshd* what ``sshd -T`` prints.
    """
    installed = _table(packages.items())
    loaded = "Module                  Size  Used by\n" + "\n".join(f"{name} 65536 0" for name in modules)
    found = {
        "sysctl": _script(_SYSCTL, _table(sysctl.items(), " = ")),
        "systemctl": _script(_SYSTEMCTL, _table((name, *states) for name, states in units.items())),
        "findmnt": _script(_MOUNTS, mounted := _table(mounts)),
        "mount": _script(_MOUNT, mounted),
        "lsmod": _script(_PLAIN, loaded),
        "modprobe": _script(_MODPROBE, modprobe),
        "sshd": _script(_PLAIN, sshd),
        "sudo": _SUDO,
    }
    if ubuntu:
        return found | {"dpkg-query": _script(_DPKG, installed), "dpkg": _script(_DPKG, installed)}
    return found | {"rpm": _script(_RPM, installed)}
