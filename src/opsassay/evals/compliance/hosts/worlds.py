"""Test hosts that comply with a control, or violate it at one place: files, and imitated commands.

All but the control is drawn alike for both. The place of the setting rotates over those that checks forget: drop-ins,
other case, a second line, a file that the running system ignores, units of every state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from opsassay.evals.compliance.hosts.commands import scripts
from opsassay.evals.compliance.hosts.controls import HostControl, host_controls
from opsassay.evals.runner.draws import Draws

BIN = "opt/opsassay-host/bin"
"""Folder of a test host's imitated commands in its file tree."""
_REPLACED = ("usr/bin", "usr/sbin")
_SSHD = {
    "AllowAgentForwarding": ("yes", "no"),
    "ClientAliveInterval": ("0", "15", "300"),
    "GSSAPIAuthentication": ("yes", "no"),
    "LogLevel": ("INFO", "VERBOSE"),
    "MaxSessions": ("10", "4"),
    "PrintMotd": ("no", "yes"),
    "UseDNS": ("no", "yes"),
}
_SYSCTL = {
    "fs.suid_dumpable": ("0", "2"),
    "kernel.dmesg_restrict": ("0", "1"),
    "net.ipv4.conf.all.log_martians": ("0", "1"),
    "net.ipv4.conf.default.accept_redirects": ("0", "1"),
    "net.ipv6.conf.all.forwarding": ("0", "1"),
    "vm.swappiness": ("30", "60"),
}
_UNITS = ("auditd", "chronyd", "crond", "rsyslog", "systemd-journald", "bluetooth", "cups")
_PACKAGES = {
    "audit": "3.1.5-1",
    "bash": "5.1.8-9",
    "chrony": "4.5-1",
    "libnftnl": "1.2.6-4",
    "openssh-server": "8.7p1-43",
    "python3-nftables": "1.0.9-3",
    "sudo": "1.9.5p2-10",
}
_SETTINGS: Mapping[str, tuple[str, str, Mapping[str, tuple[str, ...]]]] = {
    "/etc/dnf/dnf.conf": ("[main]", "={}", {"installonly_limit": ("3", "5"), "best": ("True", "False")}),
    "/etc/security/faillock.conf": ("", " = {}", {"unlock_time": ("900", "600"), "fail_interval": ("900",)}),
    "/etc/login.defs": ("", "\t{}", {"PASS_MIN_DAYS": ("0", "1"), "PASS_WARN_AGE": ("7",), "UMASK": ("022", "077")}),
}
"""File to (its first line, format of a value, further settings)."""
STATES = (("disabled", "inactive"), ("enabled", "inactive"), ("disabled", "active"), ("masked", "inactive"))
VARIANTS = 4


@dataclass(frozen=True)
class HostWorld:
    """The *files* of a test host by path in its tree, and whether it complies."""

    files: dict[str, str]
    compliant: bool


@dataclass
class _HostState:
    """The state of a host before its files are written."""

    sysctl: dict[str, str]
    units: dict[str, tuple[str, str]]
    packages: dict[str, str]
    mounts: dict[str, list[str]]
    modules: list[str]
    sshd: list[tuple[str, str]]
    drop_in: list[tuple[str, str]] = field(default_factory=list)
    modprobe: list[str] = field(default_factory=list)
    settings: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _HostDraft:
    """A test host whose label is open."""

    control: HostControl
    seed: int
    purpose: str
    number: int

    def make_world(self, *, compliant: bool) -> HostWorld:
        """Return the compliant or the violating version of the test host; all but the control's setting is the same."""
        draws = Draws(self.seed, "host", self.purpose, str(self.number))
        state = _draw_host(draws)
        chance = draws.integer(0, 719)
        _APPLIED[self.control.kind](state, self.control, _Choice(self.number % VARIANTS, chance, compliant))
        return HostWorld(_write_host_files(state, self.control, draws), compliant)


@dataclass(frozen=True)
class _Choice:
    """How a control is set: at the place *variant*, to a value by *chance*, so that the host is *compliant* or not."""

    variant: int
    chance: int
    compliant: bool

    def value(self, control: HostControl) -> str | None:
        """Return the effective value of the control's setting, compliant or violating; None when it is not set."""
        values = control.compliant if self.compliant else control.violating
        return values[self.chance % len(values)]

    def other(self, control: HostControl) -> str:
        """Return a value with the opposite effect, which decoys such as comments and overridden lines show."""
        values = [one for one in (control.violating if self.compliant else control.compliant) if one is not None]
        return values[self.chance % len(values)]


def _draw_host(draws: Draws) -> _HostState:
    """Return a random host state; the control's own setting is added afterwards."""
    known = {one.name for one in host_controls().values() if one.kind == "sysctl"}
    sysctl = {name: draws.choice(values) for name, values in _SYSCTL.items()}
    sysctl |= {name: draws.choice(("0", "1", "2")) for name in sorted(known)}
    units = {name: draws.choice((("enabled", "active"), *STATES)) for name in _UNITS}
    options = [one for one in ("nosuid", "nodev", "noexec") if draws.integer(0, 1)]
    mounts = {
        "/": ["/dev/vda3", "xfs", "rw", "relatime", "attr2"],
        "/boot": ["/dev/vda2", "xfs", "rw", "nosuid", "nodev", "noexec", "relatime"],
        "/var/tmp": ["/dev/vda4", "xfs", "rw", *options, "relatime"],  # noqa: S108 - of a host that is drawn
    }
    sshd = [(name, draws.choice(values)) for name, values in _SSHD.items() if draws.integer(0, 2)]
    modules = draws.sample(("xfs", "virtio_net", "nf_tables", "sunrpc", "loop", "fuse"), 3)
    settings = {
        file: [head, *(key + form.format(draws.choice(values)) for key, values in keys.items())]
        for file, (head, form, keys) in _SETTINGS.items()
    }
    return _HostState(
        sysctl, units, dict(_PACKAGES), mounts, modules, sshd, settings=settings,
        modprobe=[f"options {one} debug=0" for one in modules[:2]],
    )  # fmt: skip


def _set_in_sshd(state: _HostState, control: HostControl, choice: _Choice) -> None:
    """Add the control's option to the sshd files of *state*, as *choice* says, with decoys; no value: a comment only."""
    value = choice.value(control)
    if value is None:
        state.sshd.append((f"#{control.name}", choice.other(control)))
        return
    at = choice.chance % (len(state.sshd) + 1)
    line, opposite = (control.name, value), (control.name, choice.other(control))
    if choice.variant == 0:
        state.sshd.insert(at, line)
    elif choice.variant == 1:  # what is obtained first counts, and drop-ins are read first
        state.drop_in.append(line)
        state.sshd.insert(at, opposite)
    elif choice.variant == 2:
        state.sshd[at:at] = [(f"#{control.name}", opposite[1]), (control.name.lower(), value)]
    else:
        state.sshd.insert(at, line)
        state.sshd.append(opposite)


def _set_in_sysctl(state: _HostState, control: HostControl, choice: _Choice) -> None:
    """Set the kernel parameter of *state* to the value of *choice*, and add a sysctl.d file that may contradict it."""
    state.sysctl[control.name] = choice.value(control) or ""
    said = {0: control.compliant[0], 1: control.violating[0]}.get(choice.variant)
    state.notes["etc/sysctl.d/60-site.conf"] = f"{control.name} = {said}\n" if said else "# nothing yet\n"


def _set_service(state: _HostState, control: HostControl, choice: _Choice) -> None:
    """Set the control's systemd unit in *state*: enabled and active if *choice* complies, else a violating state."""
    state.units[control.name] = ("enabled", "active") if choice.compliant else STATES[choice.variant]


def _set_package(state: _HostState, control: HostControl, choice: _Choice) -> None:
    """Add the control's package to the installed ones of *state* when the value of *choice* is set."""
    if choice.value(control):
        state.packages[control.name] = "1.0.9-3"


def _set_mount(state: _HostState, control: HostControl, choice: _Choice) -> None:
    """Mount the control's file system in *state*, with its option unless *choice* violates; fstab may say otherwise."""
    assert control.option is not None
    kept = [one for one in ("nosuid", "nodev", "noexec") if one != control.option and choice.chance % 3]
    said = ["rw", control.option, *kept, "relatime"]
    if choice.compliant or choice.variant != 3:
        options = said if choice.compliant else [one for one in said if one != control.option]
        state.mounts[control.name] = ["tmpfs", "tmpfs", *options]
    listed = said if choice.variant % 2 else ["defaults"]
    state.notes["etc/fstab"] = f"tmpfs {control.name} tmpfs {','.join(listed)} 0 0\n"


def _set_in_file(state: _HostState, control: HostControl, choice: _Choice) -> None:
    """Insert the control's line with the value of *choice* into its file, next to a comment with the opposite value."""
    assert control.file is not None
    form, value = _SETTINGS[control.file][1], choice.value(control)
    lines = [f"# {control.name}{form.format(choice.other(control))}"]
    if value is not None:
        lines.append(control.name + form.format(value))
    at = 1 + choice.chance % len(state.settings[control.file])
    state.settings[control.file][at:at] = lines


def _set_module(state: _HostState, control: HostControl, choice: _Choice) -> None:
    """Disable the kernel module by two modprobe lines; if *choice* violates, one is missing or the module loaded."""
    name = control.name
    install = f"install {name} {('/bin/false', '/bin/true')[choice.chance % 2]}"
    lines = {"install": install, "blacklist": f"blacklist {name}"}
    if not choice.compliant:
        if choice.variant == 3:
            state.modules.append(name.replace("-", "_"))
        elif choice.variant == 2:
            lines["install"] = f"# {install}"
        else:
            del lines[("install", "blacklist")[choice.variant]]
    state.modprobe += lines.values()


_APPLIED = {
    "sshd": _set_in_sshd,
    "sysctl": _set_in_sysctl,
    "service": _set_service,
    "package": _set_package,
    "mount": _set_mount,
    "setting": _set_in_file,
    "module": _set_module,
}


def _write_host_files(state: _HostState, control: HostControl, draws: Draws) -> dict[str, str]:
    """Return the file system of the host *state* as content by path, with scripts that imitate its commands."""
    ubuntu = control.system == "ubuntu"
    release = (
        'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n'
        if ubuntu
        else 'NAME="Red Hat Enterprise Linux"\nID="rhel"\nID_LIKE="fedora"\nVERSION_ID="9.4"\n'
    )
    host = f"{draws.choice(('web', 'db', 'queue', 'login'))}-{draws.integer(10, 99)}"
    parted = {name: [*mount[:2], ",".join(mount[2:])] for name, mount in state.mounts.items()}
    tables = "".join(f"{source} {name} {kind} {options} 0 0\n" for name, (source, kind, options) in parted.items())
    commands = scripts(
        sysctl=state.sysctl, units=state.units, packages=state.packages, modules=state.modules, sshd=_effective_sshd(state),
        mounts=[(name, *row) for name, row in parted.items()], modprobe="\n".join(state.modprobe), ubuntu=ubuntu,
    )  # fmt: skip
    files = {
        "etc/os-release": release,
        "etc/hostname": f"{host}\n",
        "etc/passwd": "root:x:0:0::/root:/bin/bash\nagent:x:1000:1000::/work:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
        "etc/mtab": tables,
        "etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\n" + _format_lines(state.sshd),
        "etc/ssh/sshd_config.d/50-site.conf": "# What this site sets.\n" + _format_lines(state.drop_in),
        "etc/modprobe.d/site.conf": "".join(f"{line}\n" for line in state.modprobe),
        **{file.lstrip("/"): "".join(f"{line}\n" for line in lines) for file, lines in state.settings.items()},
        **{f"proc/sys/{name.replace('.', '/')}": f"{value}\n" for name, value in state.sysctl.items()},
        **state.notes,
        **({} if ubuntu else {"etc/redhat-release": "Red Hat Enterprise Linux release 9.4 (Plow)\n"}),
    }
    for name, script in commands.items():
        files |= {f"{folder}/{name}": script for folder in (BIN, *_REPLACED)}
    return files


def _format_lines(settings: list[tuple[str, str]]) -> str:
    """Return a line "name value" for each (name, value) of *settings*."""
    return "".join(f"{name} {value}\n" for name, value in settings)


def _effective_sshd(state: _HostState) -> str:
    """Return the output of ``sshd -T``: the first value of each keyword, drop-ins before the main file."""
    found: dict[str, str] = {}
    for name, value in (*state.drop_in, *state.sshd):
        if not name.startswith("#"):
            found.setdefault(name.lower(), value)
    for one in host_controls().values():
        if one.kind == "sshd":
            found.setdefault(one.name.lower(), one.default or "")
    return "".join(f"{name} {value}\n" for name, value in sorted(found.items()))


def shown_files(world: HostWorld) -> dict[str, str]:
    """Return the files of test host *world* that agents see, by path; its imitated commands are in ``commands/``."""
    kept = {path: text for path, text in world.files.items() if not path.startswith(_REPLACED)}
    return {path.replace(BIN, "commands"): text for path, text in kept.items()}


def host_worlds(control: HostControl, seed: int, purpose: str, count: int) -> list[HostWorld]:
    """Return *count* violating, then *count* compliant hosts for *control*, drawn by *seed* and a *purpose* (text)."""
    drafts = [_HostDraft(control, seed, purpose, n) for n in range(2 * count)]
    return [draft.make_world(compliant=n >= count) for n, draft in enumerate(drafts)]


def host_mutants(control: HostControl, seed: int, purpose: str, count: int) -> Iterator[HostWorld]:
    """Yield for each host of `host_worlds` with the same arguments its counterpart: the violation added or removed."""
    for n in range(2 * count):
        yield _HostDraft(control, seed, purpose, n).make_world(compliant=n < count)
