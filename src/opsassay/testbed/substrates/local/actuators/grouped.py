"""Resource pressure inside a control group: the kernel's own limits, shared by the replicas and a companion process."""

from __future__ import annotations

from typing import Any, ClassVar

from opsassay.testbed.catalogue.stress import allocated_bytes, burner_count
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.kernel.cgroups import CPU, MEMORY
from opsassay.testbed.substrates.local.actuators.pressure import Companion, CpuPressure, MemoryPressure
from opsassay.testbed.substrates.local.actuators.under_test import LocalUnderTest


class GroupPressure(Companion):
    """The companion runs in the replica's own group, or in one beside the replicas of the host."""

    controller: ClassVar[str]

    def group(self) -> dict[str, Any]:
        """Return the companion process's settings on control groups: the one to enter, and the one to exhaust."""
        containers, host = self._injection.system.containers, self._injection.host
        if host is None:
            return containers.parameters(containers.group_of(self._injection.replica), self.controller)
        return containers.parameters(
            containers.of_host(host), self.controller, enter_path=containers.beside_replicas(host)
        )

    async def follow(self, pids: list[int]) -> None:
        """Do nothing: pressure in a control group acts on all of its processes."""

    def release(self) -> None:
        """Do nothing: the pressure in the control group ends with the companion."""


class GroupCpuPressure(GroupPressure):
    """Burners use up the CPU time that the group may have in a period; then all of it stands still."""

    role, controller = "burner", CPU

    def order(self) -> dict[str, Any]:
        """Return the settings of the companion, the process that burns CPU: control group and number of burners."""
        parameters, host = self._injection.plan.parameters, self._injection.host
        limit = self._injection.replica.spec.cpu_limit if host is None else self._injection.system.system.host_cpu_limit
        cores = burner_count(parameters, limit)
        return {**self.group(), "cores": cores, "load_percent": parameters["load_percent"]}


class GroupMemoryPressure(GroupPressure):
    """The companion fills the group; whoever needs more than the rest is killed for it by the kernel."""

    role, controller = "allocator", MEMORY

    def order(self) -> dict[str, Any]:
        """Return the settings of the companion, the process that allocates: control group, its limit, size in bytes."""
        system, host = self._injection.system.system, self._injection.host
        limit_mb = self._injection.replica.spec.memory_limit_mb if host is None else system.host_memory_limit_mb
        size_bytes = allocated_bytes(self._injection.plan.parameters, limit_mb)
        return {**self.group(), "limit_bytes": limit_mb * 2**20, "size_bytes": size_bytes}


def cpu_pressure(injection: Injection[LocalUnderTest]) -> Companion:
    """Return CPU pressure by a control group if the system has them, else by stopping processes."""
    return GroupCpuPressure(injection) if injection.system.containers.limit(CPU) else CpuPressure(injection)


def memory_pressure(injection: Injection[LocalUnderTest]) -> Companion:
    """Return memory pressure by a control group if the system has them, else by limits of processes."""
    return GroupMemoryPressure(injection) if injection.system.containers.limit(MEMORY) else MemoryPressure(injection)
