"""The interface of a system under injection, and parts that actuators of all substrates share."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.system import System
from opsassay.testbed.catalogue.fault import catalogued
from opsassay.testbed.core.fleet import Replica
from opsassay.testbed.core.injection import Injection, Measured
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.injection.journal import Journal
from opsassay.testbed.injection.unexpected_exits import UnexpectedExits


class SystemUnderTest(Measured, Protocol):
    """A running system that faults are injected into, such as the supervisor of a local system."""

    state: SystemState
    system: System
    journal: Journal
    unexpected_exits: UnexpectedExits
    injection: str | None
    """The faults or operations in progress as text, None without any."""
    quiet_since: float
    """Monotonic time at which the last fault ended."""

    async def push_hooks(self, replica: Replica) -> None:
        """Send the process of *replica* the faults that it carries out itself (its hooks); raises ConnectionError."""

    async def lost_ledger_lines(self) -> int:
        """Return how many ledger lines, records of what faults caused, the running processes failed to write."""

    def give_up(self, failure: OpsAssayError) -> None:
        """End the system because of *failure*; if OpsAssay did not start it, only fail the injection."""


class Account:
    """Makes callers of the targets record in the ledger what a fault costs them, and the targets what their callees do."""

    def __init__(self, injection: Injection[SystemUnderTest], own: Sequence[str] = ()) -> None:
        """*own* names the callees and stores that the targets watch; ``*`` stands for all."""
        self._injection = injection
        fleet, targets = injection.system.fleet, {replica.id for replica in injection.replicas}
        self._watched: dict[str, list[str]] = {name: list(own) for name in targets}
        for source, destination in fleet.links():
            if destination in targets and source in fleet.replicas and source not in targets:
                self._watched.setdefault(source, []).append(fleet.replicas[destination].service)
        self._open = False

    async def open(self) -> None:
        """Start to record in the ledger what this fault costs callers: delays, errors, failed calls."""
        self._open = True
        for name, watched in sorted(self._watched.items()):
            replica = self._injection.system.fleet.replicas[name]
            replica.watch = [*replica.watch, *watched]
            await push(self._injection, replica)

    async def close(self) -> None:
        """Stop recording what this fault costs callers; the records of other faults continue."""
        if not self._open:
            return
        self._open = False
        for name, watched in sorted(self._watched.items()):
            replica = self._injection.system.fleet.replicas[name]
            rest = list(replica.watch)
            for service in watched:
                rest.remove(service)
            replica.watch = rest
            await push(self._injection, replica)


async def hook(injection: Injection[SystemUnderTest], *, on: bool, parameters: dict[str, Any] | None = None) -> None:
    """Switch the fault of *injection* with *parameters* *on* or off in its replicas' processes, present and later."""
    for replica in injection.replicas:
        others = [one for one in replica.hooks if one["injection"] != injection.id]
        own = {"injection": injection.id, "type": catalogued(injection.plan.fault).hook, "parameters": parameters or {}}
        if injection.plan.ends_with_pod:
            own["pod"] = replica.pod
        replica.hooks = [*others, own] if on else others
        await push(injection, replica)


async def push(injection: Injection[SystemUnderTest], replica: Replica) -> None:
    """Send the process of *replica*, if it runs, the faults that it carries out itself (its hooks)."""
    if replica.port is not None:
        with contextlib.suppress(ConnectionError):  # it has just ended; its successor asks for its hooks itself
            await injection.system.push_hooks(replica)
