"""What every fault has in common: the system it acts on, the injection on its way, the protocol of an actuator."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from opsassay.errors import OpsAssayError
from opsassay.model.incident import PlannedFault
from opsassay.model.system import System
from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.core.networks import Network
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.injection.journal import Journal
from opsassay.testbed.injection.unexpected_exits import Surprises
from opsassay.testbed.workload.containers import Containers
from opsassay.testbed.workload.names import NameServer
from opsassay.testbed.workload.processes import Channels, Template
from opsassay.testbed.workload.runtime.ledger import LedgerWriter


class SystemUnderTest(Protocol):
    """What a fault needs of the running system that it acts on; a local supervisor is one."""

    state: SystemState
    system: System
    fleet: Fleet
    channels: Channels
    template: Template
    names: NameServer
    network: Network
    containers: Containers
    journal: Journal
    ledger: LedgerWriter
    companions: dict[str, set[int]]
    """Processes that count to a container or host, by replica id or host name."""
    surprises: Surprises
    """Processes that ended by a signal that nobody here sent."""
    injection: str | None
    """What is going on, None when nothing is."""
    quiet_since: float
    """Monotonic time at which the last fault was over."""

    def status(self) -> dict[str, Any]:
        """Return what is known of the system, its isolation level included."""

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run *coroutine* as a task; its failure ends the system rather than pass unseen."""

    async def push_hooks(self, replica: Replica) -> None:
        """Make the replica's process run the hooks that are wanted for it."""

    async def replace(self, replica: Replica, timeout_s: float) -> int | None:
        """Start a successor of the replica's process and hand over; return the former pid, None if it did not come."""

    def give_up(self, failure: OpsAssayError) -> None:
        """End the system for *failure*, or where it is not ours to end say that the injection failed."""


@dataclass
class Injection:
    """One fault on its way through a system: the plan, the replicas that it hits, and what it can act with."""

    id: str
    plan: PlannedFault
    replicas: tuple[Replica, ...]
    pods: tuple[str, ...]  # as they were called when the fault began
    system: SystemUnderTest
    notes: list[str] = field(default_factory=list)
    """What its actuator has to say for the record."""
    began_at: float | None = None
    """Monotonic time at which it began to act, where that takes a while to prepare; else it began when it was applied."""

    @property
    def replica(self) -> Replica:
        """The one replica that a fault on a service hits."""
        return self.replicas[0]

    @property
    def place(self) -> str:
        """The service or host that it is aimed at."""
        return self.plan.target.name if self.plan.target else ""

    @property
    def host(self) -> str | None:
        """The host that it is aimed at, None for a fault on a service."""
        return self.plan.target.host if self.plan.target else None


class Actuator(Protocol):
    """Applies a fault and takes it back.

    Whatever it starts or changes lives in processes of the system, so that the end of the system is the end of the fault.
    Several may act at once, also on the same replica: each adds its own and takes away its own.
    """

    def __init__(self, injection: Injection) -> None: ...

    async def apply(self) -> None:
        """Make the fault act; raises RefusedError, before anything was changed, when it cannot."""

    async def undo(self) -> None:
        """Take the fault back; safe to call when it was not applied or its target is gone."""


class Account:
    """Has callers of the targets enter what a fault costs them into the ledger, and the targets what their callees do."""

    def __init__(self, injection: Injection, own: Sequence[str] = ()) -> None:
        """*own* names the callees and stores that the targets watch; ``*`` stands for all."""
        self._injection = injection
        fleet, targets = injection.system.fleet, {replica.id for replica in injection.replicas}
        self._wanted: dict[str, list[str]] = {name: list(own) for name in targets}
        for source, destination in fleet.links():
            if destination in targets and source in fleet.replicas and source not in targets:
                self._wanted.setdefault(source, []).append(fleet.replicas[destination].service)
        self._open = False

    async def open(self) -> None:
        """Begin to keep account."""
        self._open = True
        for name, watched in sorted(self._wanted.items()):
            replica = self._injection.system.fleet.replicas[name]
            replica.watch = [*replica.watch, *watched]
            await push(self._injection, replica)

    async def close(self) -> None:
        """Stop keeping account; other faults' accounts go on."""
        if not self._open:
            return
        self._open = False
        for name, watched in sorted(self._wanted.items()):
            replica = self._injection.system.fleet.replicas[name]
            rest = list(replica.watch)
            for service in watched:
                rest.remove(service)
            replica.watch = rest
            await push(self._injection, replica)


async def hook(injection: Injection, *, on: bool, parameters: dict[str, Any] | None = None) -> None:
    """Switch the injection's hook in the processes of its replicas; a restarted process gets it again."""
    for replica in injection.replicas:
        others = [one for one in replica.hooks if one["injection"] != injection.id]
        own = {"injection": injection.id, "type": injection.plan.fault, "parameters": parameters or {}}
        replica.hooks = [*others, own] if on else others
        await push(injection, replica)


async def push(injection: Injection, replica: Replica) -> None:
    """Make the process of *replica* run the hooks that are wanted for it."""
    if replica.port is not None:
        with contextlib.suppress(ConnectionError):  # it has just ended; its successor asks for its hooks itself
            await injection.system.push_hooks(replica)
