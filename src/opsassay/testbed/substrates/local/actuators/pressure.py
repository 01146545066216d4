"""Resource pressure on a replica's container, or on a whole host, by a companion process that counts to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import psutil

from opsassay.core.errors import OperationError
from opsassay.testbed.catalogue.stress import allocated_bytes, burner_count
from opsassay.testbed.core.fleet import Replica, sleep_until
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.injection.under_test import Account, hook
from opsassay.testbed.substrates.local.actuators.processes import kill
from opsassay.testbed.substrates.local.actuators.under_test import LocalUnderTest

ALLOCATION_TIMEOUT_S = 30.0
REST_READINGS, REST_EVERY_S = 12, 0.04
FOLLOW_EVERY_S = 0.1
END_TIMEOUT_S = 5.0
USED_OVER_S = 10.0


class Companion(ABC):
    """A companion process in the container of the replica, or beside all replicas of the host.

    It follows its targets: a process that comes up while the fault lasts is under pressure too.
    """

    role: ClassVar[str]

    def __init__(self, injection: Injection[LocalUnderTest]) -> None:
        self._injection = injection
        self._name = f"pressure-{injection.id}"
        self._place = injection.host or injection.replica.id
        self._pid: int | None = None
        self._account = Account(injection)
        self._ended = asyncio.Event()

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """Return the settings of the companion, a process that takes CPU or memory within the targets' limits."""

    @abstractmethod
    async def follow(self, pids: list[int]) -> None:
        """Apply the pressure to the processes *pids* of the targets."""

    async def apply(self) -> None:
        """Start the companion process, and wait until the pressure has built up; raises OperationError when late."""
        system = self._injection.system
        config = {
            "id": self._name,
            "management": str(system.state.management_socket),
            "ledger": str(system.state.ledger_dir / f"{self._name}.jsonl"),
            **self.order(),
        }
        await self._account.open()
        self._pid = await system.template.spawn(self.role, self._name, config)
        system.companions.setdefault(self._place, set()).add(self._pid)
        if not await sleep_until(lambda: self._name in system.channels.names(), ALLOCATION_TIMEOUT_S):
            raise OperationError(f"The pressure on {self._place} did not build up in {ALLOCATION_TIMEOUT_S:g} s.")
        pids = self.pids()
        await self.follow(pids)  # whoever looks for the effect finds all of it
        system.spawn(self._keep_following(pids))

    async def undo(self) -> None:
        """End the companion process and its effect on the targets."""
        self._ended.set()
        if (pid := self._pid) is not None:
            kill(self._injection, pid)
            # Until it is really gone it may stop a target once more, behind our back.
            await sleep_until(lambda: _is_gone(pid), END_TIMEOUT_S, 0.005)
            self._injection.system.companions.get(self._place, set()).discard(pid)
        self.release()
        await self._account.close()

    def pids(self) -> list[int]:
        """Return the pids of the targets' present processes."""
        return [r.pid for r in self._injection.replicas if r.pid is not None and r.port is not None]

    @abstractmethod
    def release(self) -> None:
        """Restore the targets' processes, after the companion has ended."""

    async def _keep_following(self, followed: list[int]) -> None:
        """Apply the pressure to restarted targets too, until its end; *followed* are the pids that have it already."""
        while not self._ended.is_set():
            if self._name not in self._injection.system.channels.names():
                self.release()  # somebody killed it; the supervisor notes whose end was a surprise
                return
            if (pids := self.pids()) != followed:
                with contextlib.suppress(ConnectionError, TimeoutError):  # gone, or busy: the next look tells
                    await self.follow(pids)
                    followed = pids
            await asyncio.sleep(FOLLOW_EVERY_S)


class CpuPressure(Companion):
    """The companion burns CPU inside the limit and stops the targets for the time that it takes."""

    role = "pressure"

    def order(self) -> dict[str, Any]:
        """Return the settings of the companion process: targets' CPU limits and use, cores to burn, load percent."""
        parameters = self._injection.plan.parameters
        limits = [replica.spec.cpu_limit for replica in self._injection.replicas]
        return {
            "cpu_limits": limits,
            "cores": burner_count(parameters, sum(limits)),
            "load_percent": parameters["load_percent"],
            "used_cores": sum(map(_used_cores, self._injection.replicas)),
        }

    async def follow(self, pids: list[int]) -> None:
        """Make the companion process stop and continue the processes *pids* in turn, as CPU throttling does."""
        await self._injection.system.channels.request(self._name, "targets", pids=pids)

    def release(self) -> None:
        """Continue (SIGCONT) the processes of the targets."""
        for replica in self._injection.replicas:
            if replica.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(replica.pid, signal.SIGCONT)


class MemoryPressure(Companion):
    """The companion fills the memory limit; what the targets need beyond the rest, they do not get.

    Without a cgroup the kernel knows no common limit: the address space of each target is limited to what it has and what
    the companion left, so that its next larger allocation fails as it would in a full container or on a full host.
    """

    role = "allocator"

    def __init__(self, injection: Injection[LocalUnderTest]) -> None:
        super().__init__(injection)
        self._limit_bytes = sum(replica.spec.memory_limit_mb for replica in injection.replicas) * 2**20
        self._resident_bytes = 0
        self._left_bytes = 0
        self._squeezed: dict[int, tuple[psutil.Process, tuple[int, int]]] = {}

    def order(self) -> dict[str, Any]:
        """Return the companion process's settings in bytes: size to allocate, targets' limit, resident memory."""
        return {
            "size_bytes": allocated_bytes(self._injection.plan.parameters, self._limit_bytes / 2**20),
            "limit_bytes": self._limit_bytes,
            "resident_bytes": self._resident_bytes,
        }

    async def apply(self) -> None:
        """Start the companion process, which allocates the memory, then limit the targets to the rest."""
        sizes = await asyncio.gather(*(asyncio.to_thread(_at_rest, pid) for pid in self.pids()))
        self._resident_bytes = sum(resident for resident, _ in sizes)
        await hook(self._injection, on=True)
        await super().apply()

    async def follow(self, pids: list[int]) -> None:
        """Limit the address space of the processes *pids* to what they have and what is left of the limit."""
        with contextlib.suppress(psutil.NoSuchProcess):  # it was killed: then there is nothing to share
            companion_bytes = psutil.Process(self._pid).memory_full_info().uss
            self._left_bytes = max(0, self._limit_bytes - self._resident_bytes - companion_bytes)
        for pid in set(pids) - self._squeezed.keys():
            with contextlib.suppress(psutil.NoSuchProcess):  # it died of it: its successor comes next
                process = psutil.Process(pid)
                _, virtual_bytes = await asyncio.to_thread(_at_rest, pid)
                soft, hard = process.rlimit(psutil.RLIMIT_AS)
                self._squeezed[pid] = process, (soft, hard)
                if not self._ended.is_set():
                    process.rlimit(psutil.RLIMIT_AS, (virtual_bytes + self._left_bytes, hard))

    def release(self) -> None:
        """Restore the address space limits of the targets' processes."""
        for process, limits in self._squeezed.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.rlimit(psutil.RLIMIT_AS, limits)

    async def undo(self) -> None:
        """End the companion process, restore the targets' memory limits, and end the effect in their processes."""
        await super().undo()
        await hook(self._injection, on=False)


def _is_gone(pid: int) -> bool:
    """Return whether the process *pid* has ended or is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _used_cores(replica: Replica) -> float:
    """Return the CPU cores that *replica* used in the last USED_OVER_S seconds, 0 if unknown."""
    points = [(t, gauges["cpu_s"]) for t, gauges in replica.gauges if t > time.monotonic() - USED_OVER_S]
    return max(0.0, points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]) if len(points) > 1 else 0.0


def _at_rest(pid: int) -> tuple[int, int]:
    """Return the least (resident, virtual) size in bytes of several readings of *pid*; blocks meanwhile."""
    process, readings = psutil.Process(pid), []
    for _ in range(REST_READINGS):
        used = process.memory_info()
        readings.append((used.rss, used.vms))
        time.sleep(REST_EVERY_S)
    return min(readings)
