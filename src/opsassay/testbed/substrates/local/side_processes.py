"""Processes of a system that are none of its replicas and stores: what holds a disk or a port, and how it is ended.

Each is forked by the template, which ends it with itself, whatever ends the system; what one holds is free again then.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.errors import NotFoundError, OperationError, RefusedError
from opsassay.testbed.core.fleet import Replica, sleep_until
from opsassay.testbed.kernel.namespaces import listening_ports
from opsassay.testbed.substrates.local.namespaced import NamespacedNetwork
from opsassay.testbed.workload.runtime.settings import PREVIEW_PORT, Settings, SettingsError

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor

START_S = 10.0
PREVIEW = "preview"
"""The process that PREVIEW_PORT asks for; it holds its port as long as the pod lives."""
NAME_LIMIT = 15
"""The kernel keeps so many characters of a process's name."""


@dataclass(frozen=True)
class SideProcess:
    """The *process*, by name and *pid*, that runs *at* a replica or store of *owner*; *about* says what it holds."""

    owner: str
    at: str
    process: str
    pid: int
    about: Mapping[str, Any]

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/comm").read_text(encoding="utf-8").strip() == self.process
        return False


class SideProcesses:
    """The further processes at replicas and stores of *supervisor*'s system."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._system = supervisor
        self._found: list[SideProcess] = []
        self._pods: dict[str, str] = {}

    def running_at(self, owner: str) -> Iterator[SideProcess]:
        """Yield those that run at the service or store *owner*."""
        self._found = [one for one in self._found if one.runs]
        yield from (one for one in self._found if one.owner == owner)

    def rows(self, owner: str) -> list[dict[str, Any]]:
        """Return where each at *owner* runs, its name, its pid and what it holds."""
        return [{"at": one.at, "process": one.process, "pid": one.pid, **one.about} for one in self.running_at(owner)]

    async def start(self, owner: str, at: str, process: str, about: Mapping[str, Any], **config: Any) -> None:
        """Start *process* *at* a replica or store of *owner*; *about* says what it will hold.

        Raises RefusedError for its name, OperationError when it does not start.
        """
        if not process.isascii() or not 0 < len(process) <= NAME_LIMIT:
            raise RefusedError(f"A process has a name of at most {NAME_LIMIT} characters here, not {process!r}.")
        pid = await self._system.template.spawn("side_process", f"{process}-{at}", {"process": process, **config})
        one = SideProcess(owner, at, process, pid, about)
        self._found.append(one)
        if not await sleep_until(lambda: one.runs, START_S, 0.01):
            raise OperationError(f"{process} has not started at {at}.")

    async def kill(self, target: str, process: str) -> dict[str, Any]:
        """End *process* wherever it runs at the service or store *target*; return where it ran; raises NotFoundError."""
        system = self._system.system
        if target not in {*system.services, *system.stores}:
            raise NotFoundError("service or store", target, [*system.services, *system.stores])
        here = list(self.running_at(target))
        ending = [one for one in here if one.process == process]
        if not ending:
            raise NotFoundError(f"process at {target}", process, {one.process for one in here})
        return {"ended": await self._end(ending)}

    async def _end(self, ending: Sequence[SideProcess]) -> list[str]:
        """Kill the processes *ending*, and return where they ran when they have ended."""
        for one in ending:
            self._system.unexpected_exits.expect(one.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        await sleep_until(lambda: not any(one.runs for one in ending), START_S, 0.01)
        return [one.at for one in ending]

    def require_ports(self, service: str, key: str) -> None:
        """Raise RefusedError if *key* of *service* asks for a port of its pod, and its pods have none of their own."""
        if key == PREVIEW_PORT and not isinstance(self._system.network, NamespacedNetwork):
            level = self._system.network.level
            raise RefusedError(
                f"A preview of {service} takes a port of its pod, and on the level {level} pods share the machine's; "
                f"take the level {NamespacedNetwork.level}."
            )

    async def begin_pod(self, replica: Replica) -> None:
        """Start the preview that the settings of *replica* ask for, if its pod is a new one; a crash makes none."""
        network = self._system.network
        if self._pods.get(replica.id) == replica.pod or not isinstance(network, NamespacedNetwork):
            return
        self._pods[replica.id] = replica.pod
        await self.end_pod(replica.id)
        with contextlib.suppress(SettingsError, OperationError):  # the replica says itself what is wrong
            if port := Settings(replica.settings).preview_port():
                namespace = network.place(replica.id).path
                about = {"listens_on": port}
                await self.start(replica.service, replica.id, PREVIEW, about, inside=namespace, port=port)
                await sleep_until(lambda: port in listening_ports(namespace), START_S, 0.02)

    async def end_pod(self, replica: str) -> None:
        """End the side processes of the replica with that id."""
        await self._end([one for one in self._found if one.at == replica])

    async def fill_disk(self, store: str, process: str) -> dict[str, Any]:
        """Start *process*, which keeps the disk of *store* full as long as it runs; return how much of it is free.

        Raises NotFoundError, RefusedError where the store has no disk of its own.
        """
        if store not in self._system.stores:
            raise NotFoundError("store", store, self._system.stores)
        running = self._system.stores[store]
        if (disk := running.disk()) is None:
            raise RefusedError(
                f"{store} has no disk of its own here: that takes a Valkey store and a root who may mount."
            )
        file = f"{process}.out"
        await self.start(store, store, process, {"writes_to": f"{file} (deleted)"}, file=str(disk / file))
        if not await sleep_until(lambda: not running.free_bytes(), START_S, 0.05):
            raise OperationError(f"The disk of {store} is not full after {START_S:g} s.")
        return running.disk_use()

    async def follow(self, store: str) -> None:
        """Have what filled the disk of *store* before its restart fill it again: a disk outlives a restart."""
        for one in list(self.running_at(store)):
            await self.kill(store, one.process)
            await self.fill_disk(store, one.process)
