"""Resource pressure on a replica's container by a companion process that counts to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import psutil

from assay.errors import OperationError
from assay.testbed.faults.injection import Injection, push, watch
from assay.testbed.local.fleet import sleep_until

ALLOCATION_TIMEOUT_S = 10.0
REST_READINGS, REST_EVERY_S = 12, 0.04


class Companion(ABC):
    """A companion process in the replica's container."""

    role: ClassVar[str]

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self._name = f"pressure-{injection.replica.id}"
        self._pid: int | None = None

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """Return what the companion is told beside the common part."""

    async def apply(self) -> None:
        """Start the companion."""
        replica, supervisor = self._injection.replica, self._injection.supervisor
        config = {
            "id": self._name,
            "management": str(supervisor.state.management_socket),
            "pid": replica.pid,
            "ledger": str(supervisor.state.ledger_dir / f"{self._name}.jsonl"),
            **self.order(),
        }
        await watch(self._injection, on=True)
        self._pid = await supervisor.template.spawn(self.role, self._name, config)
        supervisor.companions[replica.id] = self._pid

    async def undo(self) -> None:
        """End the companion."""
        self._injection.supervisor.companions.pop(self._injection.replica.id, None)
        _signal(self._pid, signal.SIGKILL)
        await watch(self._injection, on=False)


class CpuPressure(Companion):
    """The companion burns CPU inside the replica's limit and stops the replica for the time that it takes."""

    role = "pressure"

    def order(self) -> dict[str, Any]:
        """Return the limit and the burners."""
        parameters = self._injection.plan.parameters
        return {
            "cpu_limit": self._injection.replica.spec.cpu_limit,
            "cores": parameters["cores"],
            "load_percent": parameters["load_percent"],
        }

    async def undo(self) -> None:
        """End the companion and let the replica run."""
        _signal(self._pid, signal.SIGKILL)
        _signal(self._injection.replica.pid, signal.SIGCONT)
        await super().undo()


class MemoryPressure(Companion):
    """The companion fills the replica's memory limit; what the replica needs beyond the rest, it does not get.

    Without a cgroup the kernel knows no common limit: the replica's address space is limited to what it has and what the
    companion left of the container's memory, so that its next larger allocation fails as it would in a full container.
    """

    role = "allocator"

    def __init__(self, injection: Injection) -> None:
        super().__init__(injection)
        self._resident_bytes = 0
        self._squeezed: tuple[psutil.Process, tuple[int, int]] | None = None

    def order(self) -> dict[str, Any]:
        """Return the limit and the size."""
        size_mb, limit_mb = self._injection.plan.parameters["size_mb"], self._injection.replica.spec.memory_limit_mb
        return {
            "size_bytes": size_mb * 2**20,
            "limit_bytes": limit_mb * 2**20,
            "resident_bytes": self._resident_bytes,
        }

    async def apply(self) -> None:
        """Start the companion; when it has its memory, limit the replica to the rest."""
        replica, supervisor = self._injection.replica, self._injection.supervisor
        target = psutil.Process(replica.pid)
        resident_bytes, virtual_bytes = await asyncio.to_thread(_at_rest, target)
        self._resident_bytes = resident_bytes
        await super().apply()
        if not await sleep_until(lambda: self._name in supervisor.channels.names(), ALLOCATION_TIMEOUT_S):
            raise OperationError(f"The memory of {replica.id} could not be filled in {ALLOCATION_TIMEOUT_S:g} s.")
        replica.hooks = [{"type": self._injection.plan.fault, "parameters": {}}]
        await push(self._injection, replica)
        try:
            companion = psutil.Process(self._pid).memory_info()
            left = max(0, replica.spec.memory_limit_mb * 2**20 - resident_bytes - companion.rss)
            soft, hard = target.rlimit(psutil.RLIMIT_AS)
            self._squeezed = target, (soft, hard)
            target.rlimit(psutil.RLIMIT_AS, (virtual_bytes + left, hard))
        except psutil.NoSuchProcess:
            return  # it died of it: its successor starts without a limit

    async def undo(self) -> None:
        """Give the replica its limit back and end the companion."""
        if self._squeezed is not None:
            process, limits = self._squeezed
            with contextlib.suppress(psutil.NoSuchProcess):
                process.rlimit(psutil.RLIMIT_AS, limits)
        self._injection.replica.hooks = []
        await super().undo()  # which tells the replica that it has no hooks any more


def _at_rest(process: psutil.Process) -> tuple[int, int]:
    """Return resident and virtual size of *process*, bytes, between two requests: when it has least."""
    readings = []
    for _ in range(REST_READINGS):
        used = process.memory_info()
        readings.append((used.rss, used.vms))
        time.sleep(REST_EVERY_S)
    return min(readings)


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
