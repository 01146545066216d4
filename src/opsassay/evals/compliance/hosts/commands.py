"""Shell scripts that imitate a host's commands: they print recorded output, with the right exit code.

They answer read-only calls for one name, several or all; other calls are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

Rows = Iterable[Sequence[str]]

_RECORDED = files(__package__).joinpath("recorded")

_HEAD = """\
#!/bin/sh
data=$(cat <<'END_OF_RECORD'
{data}
END_OF_RECORD
)
"""

_PLAIN = "printf '%s\\n' \"$data\"\n"


def _script_body(name: str) -> str:
    """Return the packaged shell script that imitates the command *name*; it prints from the variable ``data``."""
    return _RECORDED.joinpath(f"{name}.sh").read_text(encoding="utf-8")


def _format_script(body: str, data: str) -> str:
    """Return a complete shell script: the variable ``data`` is set to *data*, then *body* runs."""
    return _HEAD.format(data=data.rstrip("\n")) + body


def _format_table(rows: Rows, separator: str = " ") -> str:
    """Return a line per row, its cells joined by *separator*."""
    return "\n".join(separator.join(row) for row in rows)


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
    """Return shell scripts that imitate a host's commands, by name, as on Ubuntu (*ubuntu*) or RHEL.

    *units* are (enabled, active) by name, *packages* versions by name, *mounts* rows of target, source, type and
    options, *modules* the loaded ones, *modprobe* all lines of its configuration, *sshd* the output of ``sshd -T``.
    """
    installed = _format_table(packages.items())
    loaded = "Module                  Size  Used by\n" + "\n".join(f"{name} 65536 0" for name in modules)
    found = {
        "sysctl": _format_script(_script_body("sysctl"), _format_table(sysctl.items(), " = ")),
        "systemctl": _format_script(
            _script_body("systemctl"), _format_table((name, *states) for name, states in units.items())
        ),
        "findmnt": _format_script(_script_body("findmnt"), mounted := _format_table(mounts)),
        "mount": _format_script(_script_body("mount"), mounted),
        "lsmod": _format_script(_PLAIN, loaded),
        "modprobe": _format_script(_script_body("modprobe"), modprobe),
        "sshd": _format_script(_PLAIN, sshd),
        "sudo": _script_body("sudo"),
    }
    if ubuntu:
        return found | dict.fromkeys(("dpkg-query", "dpkg"), _format_script(_script_body("dpkg-query"), installed))
    return found | {"rpm": _format_script(_script_body("rpm"), installed)}
