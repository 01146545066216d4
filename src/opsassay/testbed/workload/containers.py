"""Control groups of a system: one per host, and in it one per replica, with the limits of the system's YAML.

Where no group can be made, faults exert pressure from outside (see `runtime/pressure.py`).
"""

from __future__ import annotations

import secrets
from typing import Any

from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.core.state import SystemState, note_groups, remove_groups
from opsassay.testbed.kernel.cgroups import ACCOUNTING, CPU, MEMORY, Group, Groups, Usage, find_groups

LOAD_MEMORY_MB = 1024
"""The memory limit of a user's own load generator in MiB; its CPU is not limited."""


class Containers:
    """The control groups of the system in *state*, below one group that is recorded before it is made.

    Without *groups* there are none, and nothing is limited.
    """

    def __init__(self, state: SystemState, fleet: Fleet, groups: Groups | None) -> None:
        self._state, self._fleet, self._groups = state, fleet, groups
        self._top = f"opsassay-{state.name}-{secrets.token_hex(3)}"

    @property
    def there(self) -> bool:
        """Whether the system has control groups on this machine."""
        return self._groups is not None

    def make(self) -> None:
        """Make the control groups of the load, all hosts and all replicas, with the limits of the system's file."""
        if self._groups is None:
            return
        system = self._fleet.system
        self.make_load()
        for host in system.hosts:
            self._groups.make(self.of_host(host), system.host_cpu_limit, system.host_memory_limit_mb * 2**20)
            self._groups.make(self.beside_replicas(host))
        for replica in self._fleet.replicas.values():
            self.make_for(replica)

    def make_load(self) -> None:
        """Record the topmost control group, so that it is removed, and make that of a user's load generator."""
        if self._groups is not None:
            note_groups(self._state, self._groups.folders(self._top))
            if self._fleet.system.load.command:
                self._groups.make(self.of_load, memory_bytes=LOAD_MEMORY_MB * 2**20)

    @property
    def of_load(self) -> str:
        """The path of the control group for a user's load generator."""
        return f"{self._top}/load"

    def make_for(self, replica: Replica) -> None:
        """Make the control group of *replica* with its limits, or set the limits of an existing one."""
        if self._groups is not None:
            self._groups.make(self.group_of(replica), replica.spec.cpu_limit, replica.spec.memory_limit_mb * 2**20)

    def of_host(self, host: str) -> str:
        """Return the path of the control group of *host*."""
        return f"{self._top}/{host}"

    def beside_replicas(self, host: str) -> str:
        """Return the path of the control group on *host* for other processes than replicas, as those of faults."""
        return f"{self.of_host(host)}/other"

    def group_of(self, replica: Replica) -> str:
        """Return the path of the control group of *replica*."""
        return f"{self.of_host(replica.host)}/{replica.id}"

    def limit(self, controller: str) -> bool:
        """Return whether the resource of *controller* (cpu, memory) can be limited."""
        return self._groups is not None and controller in self._groups.versions

    def entrances(self, path: str, controller: str | None = None) -> list[str]:
        """Return the cgroup.procs files by which to enter the group *path*, in all hierarchies or *controller*'s."""
        if self._groups is None:
            return []
        desired = {CPU: {CPU, ACCOUNTING}, MEMORY: {MEMORY}, None: {CPU, ACCOUNTING, MEMORY}}[controller]
        parents = dict.fromkeys(parent for name, parent in self._groups.parents.items() if name in desired)
        folders = [parent / path for parent in parents]
        return [str(folder / "cgroup.procs") for folder in folders]

    def usage(self, path: str) -> Usage | None:
        """Return the resource usage of the group *path*, None without control groups."""
        return Group(path, self._groups).usage() if self._groups else None

    def threads(self, path: str) -> list[int]:
        """Return the ids of the threads directly in the group *path*, [] without control groups."""
        return Group(path, self._groups).threads() if self._groups else []

    def memory_share(self, replica: Replica, host: str | None) -> float | None:
        """Return the used share (0 to 1) of the memory limit of *host*, else of *replica*; None if unknown."""
        limit_mb = replica.spec.memory_limit_mb if host is None else self._fleet.system.host_memory_limit_mb
        usage = self.usage(self.group_of(replica) if host is None else self.of_host(host))
        return usage.memory_bytes / (limit_mb * 2**20) if usage and self.limit(MEMORY) else None

    def parameters(self, path: str, controller: str, enter_path: str | None = None) -> dict[str, Any]:
        """Return the settings for a process that enters *enter_path* (default *path*) and watches the group at *path*.

        It enters the hierarchy of *controller* only, where there are several; {} without control groups.
        """
        if self._groups is None:
            return {}
        parents = {controller: str(parent) for controller, parent in self._groups.parents.items()}
        return {
            "groups": self.entrances(enter_path or path, controller),
            "group": path,
            "parents": parents,
            "versions": self._groups.versions,
        }

    def remove(self) -> None:
        """Kill all processes in the system's control groups, and remove the groups."""
        remove_groups(self._state)


def containers_for(state: SystemState, fleet: Fleet, *, limited: bool) -> Containers:
    """Return the control groups of a system; they do nothing unless *limited* and this machine has some."""
    return Containers(state, fleet, find_groups() if limited else None)
