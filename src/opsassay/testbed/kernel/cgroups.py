"""Control groups of version 1, version 2 or a hybrid: limits on CPU and memory, and their usage.

Groups are made below the group of this process, or at the top of a hierarchy where that is not allowed; outside them only
the switch that enables controllers in version 2 is changed.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

CPU, MEMORY, ACCOUNTING = "cpu", "memory", "cpuacct"
CONTROLLERS = (CPU, MEMORY)
LIMITS = {CPU: ("cpu.max", "cpu.cfs_quota_us"), MEMORY: ("memory.max", "memory.limit_in_bytes")}
PERIOD_US = 100_000
UNLIMITED_V1 = -1
TASKS = 8
"""The CPU weight of a system's group in threads: enough for its twenty processes, not more than its observer can bear."""
REMOVE_WITHIN_S = 2.0
TRY_AGAIN_AFTER_S = 0.01


class Usage(NamedTuple):
    """What a group has used: CPU time, present memory, and the time for which its CPU limit throttled it."""

    cpu_s: float
    memory_bytes: int
    throttled_s: float


@dataclass(frozen=True)
class Groups:
    """Where groups can be made: the folder and the version (1 or 2) of each controller."""

    parents: dict[str, Path]
    versions: dict[str, int]

    def folders(self, path: str) -> tuple[Path, ...]:
        """Return the folders of the control group *path*, one per hierarchy, whether or not they exist yet."""
        return tuple(dict.fromkeys(parent / path for parent in self.parents.values()))

    def make(self, path: str, cpu_cores: float | None = None, memory_bytes: int | None = None) -> Group:
        """Make and return the control group *path* ("a/b/c"), its parents too; *cpu_cores*, *memory_bytes* limit it.

        None is no limit. The topmost group of a nested path gets the CPU weight of `TASKS` threads.
        """
        versions = {parent: self.versions[controller] for controller, parent in self.parents.items()}
        for parent, version in versions.items():
            folder = parent
            for name in Path(path).parts:
                if version == 2:
                    _delegate(folder)
                folder /= name
                folder.mkdir(exist_ok=True)
        group = Group(path, self)
        if len(Path(path).parts) > 1:
            Group(Path(path).parts[0], self).set_weight(TASKS)
        group.set_limits(cpu_cores=cpu_cores, memory_bytes=memory_bytes)
        return group


@dataclass(frozen=True)
class Group:
    """One control group, made by `Groups.make`."""

    path: str
    groups: Groups

    def add(self, pid: int) -> None:
        """Move process *pid* into the group; children that it starts later are in the group too."""
        for folder in self.groups.folders(self.path):
            _enrol_process(folder, pid)

    def set_limits(self, *, cpu_cores: float | None = None, memory_bytes: int | None = None) -> None:
        """Limit the group to *cpu_cores* and *memory_bytes*; None removes a limit."""
        quota_us = None if cpu_cores is None else max(1000, round(cpu_cores * PERIOD_US))
        if CPU in self.groups.versions:
            if self.groups.versions[CPU] == 2:
                self._write_file(CPU, "cpu.max", f"{quota_us or 'max'} {PERIOD_US}")
            else:
                self._write_file(CPU, "cpu.cfs_period_us", PERIOD_US)
                self._write_file(CPU, "cpu.cfs_quota_us", quota_us or UNLIMITED_V1)
        if MEMORY in self.groups.versions:
            if self.groups.versions[MEMORY] == 2:
                self._write_file(MEMORY, "memory.max", memory_bytes or "max")
                self._write_file(MEMORY, "memory.swap.max", 0 if memory_bytes else "max", optional=True)
            else:
                self._write_memory_v1(memory_bytes or UNLIMITED_V1)

    def set_weight(self, tasks: int) -> None:
        """Set the group's share of contended CPU to that of *tasks* threads outside of it."""
        if CPU in self.groups.versions:
            name, one = ("cpu.weight", 100) if self.groups.versions[CPU] == 2 else ("cpu.shares", 1024)
            self._write_file(CPU, name, one * tasks, optional=True)

    def usage(self) -> Usage:
        """Return CPU seconds, memory bytes and throttled seconds of this group and those below; 0 where not counted."""
        memory = 0
        if MEMORY in self.groups.versions:
            name = "memory.current" if self.groups.versions[MEMORY] == 2 else "memory.usage_in_bytes"
            memory = int(self._folder_of(MEMORY).joinpath(name).read_text(encoding="utf-8"))
        if CPU not in self.groups.versions:
            return Usage(0.0, memory, 0.0)
        counters = _read_counters(self._folder_of(CPU) / "cpu.stat")
        if self.groups.versions[CPU] == 2:
            return Usage(counters["usage_usec"] / 1e6, memory, counters.get("throttled_usec", 0) / 1e6)
        throttled_s = counters["throttled_time"] / 1e9
        if ACCOUNTING not in self.groups.parents:
            return Usage(0.0, memory, throttled_s)
        used_ns = int(self._folder_of(ACCOUNTING).joinpath("cpuacct.usage").read_text(encoding="utf-8"))
        return Usage(used_ns / 1e9, memory, throttled_s)

    def threads(self) -> list[int]:
        """Return the ids of the threads directly in the group, [] where no CPU controller is available."""
        if CPU not in self.groups.versions:
            return []
        name = "cgroup.threads" if self.groups.versions[CPU] == 2 else "tasks"
        return [int(thread) for thread in self._folder_of(CPU).joinpath(name).read_text(encoding="utf-8").split()]

    def remove(self) -> None:
        """Remove the group and the groups below it; raises OSError (EBUSY) when processes in it do not end in time."""
        for folder in self.groups.folders(self.path):
            _remove_tree(folder, kill=False)

    def _folder_of(self, controller: str) -> Path:
        """Return this group's folder in the hierarchy of *controller* (cpu, memory, cpuacct)."""
        return self.groups.parents[controller] / self.path

    def _write_file(self, controller: str, name: str, value: int | str, *, optional: bool = False) -> None:
        """Write *value* into this group's file *name* of *controller*; if *optional*, a missing file is ignored."""
        try:
            (self._folder_of(controller) / name).write_text(str(value), encoding="utf-8")
        except FileNotFoundError:
            if not optional:
                raise

    def _write_memory_v1(self, limit: int) -> None:
        """Set the limits of memory and of memory with swap to *limit* bytes, in the order that the kernel accepts."""
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        present = int(self._folder_of(MEMORY).joinpath(names[0]).read_text(encoding="utf-8"))
        if limit == UNLIMITED_V1 or limit > present:
            names.reverse()
        for name in names:
            self._write_file(MEMORY, name, limit, optional="memsw" in name)
        if limit != UNLIMITED_V1:
            self._write_file(MEMORY, "memory.swappiness", 0, optional=True)


def remove_below(folder: Path) -> None:
    """Kill the processes in the control group *folder* and below it, and remove these groups, if they exist."""
    _remove_tree(folder, kill=True)


def find_groups() -> Groups | None:
    """Return the hierarchies in which this process can make limited control groups, None when it can make none."""
    return search()[0]


def mounted_groups() -> Groups | None:
    """Return the mounted control group hierarchies, for reading groups that others made; None without any."""
    mounted = mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    parents: dict[str, Path] = {}
    versions: dict[str, int] = {}
    for controller in (*CONTROLLERS, ACCOUNTING):
        if controller in mounted:
            parents[controller], versions[controller] = mounted[controller].point, 1
        elif "" in mounted and controller != ACCOUNTING:
            parents[controller], versions[controller] = mounted[""].point, 2
    return Groups(parents, versions) if parents else None


def search() -> tuple[Groups | None, dict[str, str]]:
    """Return (hierarchies with a controller for groups, or None, {controller: why not, and remedy} for the others)."""
    mounted = mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    own = memberships(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    parents: dict[str, Path] = {}
    versions: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for controller in (*CONTROLLERS, ACCOUNTING):
        version = 1 if controller in mounted else 2
        mount = mounted.get(controller) or mounted.get("")
        if controller == ACCOUNTING and version == 2:
            continue  # version 2 counts CPU time with the limit
        reasons[controller] = "no cgroup hierarchy is mounted; mount cgroup2 on /sys/fs/cgroup"
        for parent in _candidates(mount, own.get(controller if version == 1 else "", "/")) if mount else ():
            reason = _why_not(parent, controller, version)
            if reason is None:
                parents[controller], versions[controller] = parent, version
                del reasons[controller]
                break
            reasons[controller] = reason
    limits = [controller for controller in CONTROLLERS if controller in parents]
    return (Groups(parents, versions) if limits else None), reasons


class Mount(NamedTuple):
    """A mounted hierarchy: *root* is the group that is visible at *point*."""

    root: str
    point: Path


def mounts(mountinfo: str) -> dict[str, Mount]:
    """Return {controller: mount} of version 1, and version 2 under "", from *mountinfo*, the text of proc(5)."""
    found: dict[str, Mount] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, point = before.split(" ")[3:5]
        if kind == "cgroup2":
            found.setdefault("", Mount(root, Path(point)))
        elif kind == "cgroup":
            for controller in (*CONTROLLERS, ACCOUNTING):
                if controller in options.split(","):
                    found.setdefault(controller, Mount(root, Path(point)))
    return found


def memberships(cgroup_file: str) -> dict[str, str]:
    """Return {controller: group path} of version 1, version 2 under "", by *cgroup_file*, text of /proc/PID/cgroup."""
    rows = (line.split(":", 2) for line in cgroup_file.splitlines())
    return {controller: path for _, controllers, path in rows for controller in controllers.split(",")}


def _candidates(mount: Mount, own_group: str) -> list[Path]:
    """Return folders of *mount* to try to make groups in: that of *own_group*, then each parent to the mount point."""
    inner = Path("/" + os.path.relpath(own_group, mount.root)) if own_group.startswith(mount.root) else Path("/")
    return [mount.point / path.relative_to("/") for path in (inner, *inner.parents)]


def _why_not(parent: Path, controller: str, version: int) -> str | None:
    """Try to make a group of *controller* (cgroup *version*) in *parent*; return why it fails and a remedy, or None."""
    trial = parent / f"opsassay-probe-{os.getpid()}"
    try:
        if version == 2:
            if controller not in parent.joinpath("cgroup.controllers").read_text(encoding="utf-8").split():
                return f"cgroup v2 has no {controller} controller here; boot with the unified hierarchy or delegate it"
            _delegate(parent)
        trial.mkdir()
    except OSError as error:
        way_out = "run as root or delegate a group (systemd-run --user --scope -p Delegate=yes)"
        return f"{parent} takes no group with {controller} ({error.strerror}); {way_out}"
    try:
        if controller in LIMITS and not any(trial.joinpath(name).exists() for name in LIMITS[controller]):
            return f"groups below {parent} have no {controller} limit; enable CONFIG_CFS_BANDWIDTH and CONFIG_MEMCG"
        _enrol_child(trial)
    except OSError as error:
        return (
            f"no process can be moved to groups below {parent} ({error.strerror}); run as root or in a delegated group"
        )
    finally:
        _remove_tree(trial, kill=True)
    return None


def _enrol_child(folder: Path) -> None:
    """Check that a process can join the group *folder*: fork a child into it, and end the child."""
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        _enrol_process(folder, child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _enrol_process(folder: Path, pid: int) -> None:
    """Move the process *pid* into the group *folder*."""
    folder.joinpath("cgroup.procs").write_text(str(pid), encoding="utf-8")


def _delegate(folder: Path) -> None:
    """Enable OpsAssay's controllers for the children of the version-2 group *folder*, as far as it has them."""
    has = folder.joinpath("cgroup.controllers").read_text(encoding="utf-8").split()
    gives = folder.joinpath("cgroup.subtree_control").read_text(encoding="utf-8").split()
    missing = [f"+{controller}" for controller in CONTROLLERS if controller in has and controller not in gives]
    if missing:
        folder.joinpath("cgroup.subtree_control").write_text(" ".join(missing), encoding="utf-8")


def _remove_tree(folder: Path, *, kill: bool) -> None:
    """Remove *folder* and the groups below it, deepest first, until late; with *kill* their processes are killed."""
    give_up = time.monotonic() + REMOVE_WITHIN_S
    for below in sorted(_groups_below(folder), key=lambda path: len(path.parts), reverse=True):
        while True:
            if kill:
                _kill_group(below)
            try:
                below.rmdir()
            except FileNotFoundError:
                break
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > give_up:
                    raise
                time.sleep(TRY_AGAIN_AFTER_S)
            else:
                break


def _groups_below(folder: Path) -> list[Path]:
    """Return *folder* and all groups below it, parents before their children."""
    return [Path(path) for path, _, _ in os.walk(folder)]


def _kill_group(group: Path) -> None:
    """Send SIGKILL to each process directly in *group*."""
    try:
        pids = group.joinpath("cgroup.procs").read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return
    for pid in map(int, pids):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _read_counters(file: Path) -> dict[str, int]:
    """Return {name: number} of the "name number" lines in *file*."""
    rows = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2}
