"""Controls of hosts: how each is set and read, its values, and the reference collector and policy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import Field

from opsassay.core.schema.base import Written
from opsassay.core.schema.files import parse_yaml

Kind = Literal["sshd", "sysctl", "service", "package", "mount", "setting", "module"]


class HostControl(Written):
    """One control of *controls.yaml*."""

    section: str = Field(description="of a CIS benchmark, which is named")
    goal: str
    kind: Kind
    name: str = Field(description="of the keyword, parameter, unit, package, mount or module")
    system: Literal["rhel", "ubuntu"] = "rhel"
    file: str | None = Field(default=None, description="where a setting stands")
    option: str | None = Field(default=None, description="of a mount")
    default: str | None = Field(default=None, description="what holds of a keyword that is absent")
    compliant: tuple[str | None, ...] = ()
    violating: tuple[str | None, ...] = ()

    @property
    def command(self) -> str:
        """The shell command whose output tells a compliant host from a violating one."""
        package = f"dpkg-query -W -f='${{db:Status-Abbrev}}' {self.name}"
        return {
            "sshd": "sshd -T",
            "sysctl": f"sysctl -n {self.name}",
            "service": f"systemctl is-enabled {self.name}; systemctl is-active {self.name}",
            "package": package if self.system == "ubuntu" else f"rpm -q {self.name}",
            "mount": f"findmnt -kn -o OPTIONS {self.name}",
            "setting": f"cat {self.file}",
            "module": "cat /etc/modprobe.d/*.conf; lsmod",
        }[self.kind]

    @property
    def condition(self) -> str:
        """The body of a Rego rule that is true for the output lines of `command` on a compliant host."""
        values = "{" + ", ".join(f'"{value}"' for value in self.compliant if value is not None) + "}"
        loaded = self.name.replace("-", "_")
        return {
            "sshd": f'some line in input.lines\n    words := split(line, " ")\n    words[0] == "{self.name.lower()}"\n'
            f"    words[1] in {values}",
            "sysctl": f"input.lines[0] in {values}",
            "service": 'array.slice(input.lines, 0, 2) == ["enabled", "active"]',
            "package": f'startswith(input.lines[0], "{"ii" if self.system == "ubuntu" else self.name + "-"}")',
            "mount": f'some line in input.lines\n    "{self.option}" in split(line, ",")',
            "setting": "some line in input.lines\n    words := regex.split(`[ \\t=]+`, trim_space(line))\n"
            f'    words[0] == "{self.name}"\n    words[1] in {values}',
            "module": f'some line in input.lines\n    line in {{"install {self.name} /bin/false", "install {self.name} '
            f'/bin/true"}}\n    "blacklist {self.name}" in input.lines\n    loaded := [1 | some other in input.lines; '
            f'startswith(other, "{loaded} ")]\n    count(loaded) == 0',
        }[self.kind]

    def playbook(self) -> str:
        """Return the reference Ansible playbook, which collects the output lines of `command` and the host name."""
        return _read_packaged_text("playbook.yml").replace("COMMAND", self.command)

    def policy(self) -> str:
        """Return the reference Rego policy, which judges the evidence of `playbook`."""
        return _read_packaged_text("policy.rego").replace("CONDITION", self.condition)


def _read_packaged_text(name: str) -> str:
    """Return the content of the text file *name* of this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


class _HostControlFile(Written):
    controls: dict[str, HostControl]


@cache
def host_controls() -> Mapping[str, HostControl]:
    """Return every control that ships for hosts, by name."""
    indented = "controls:\n" + "".join(f"  {line}\n" for line in _read_packaged_text("controls.yaml").splitlines())
    return parse_yaml(indented, _HostControlFile, "hosts/controls.yaml").controls
