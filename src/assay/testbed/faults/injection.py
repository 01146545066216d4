"""What every fault has in common: the injection on its way, the protocol of an actuator, the callers' account."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.model.incident import FaultPlan
from assay.testbed.local.fleet import Replica

if TYPE_CHECKING:
    from assay.testbed.local.supervisor import Supervisor


@dataclass
class Injection:
    """One fault on its way through a system: the plan, the replica that it hits, and who can act."""

    id: str
    plan: FaultPlan
    replica: Replica
    pod: str  # as it was called when the fault began
    supervisor: Supervisor


class Actuator(Protocol):
    """Applies a fault and takes it back.

    Whatever it starts or changes lives in processes of the system, so that the end of the system is the end of the fault.
    """

    def __init__(self, injection: Injection) -> None: ...

    async def apply(self) -> None:
        """Make the fault act; raises RefusedError, before anything was changed, when it cannot."""

    async def undo(self) -> None:
        """Take the fault back; safe to call when it was not applied or its target is gone."""


async def watch(injection: Injection, *, on: bool, own: Sequence[str] = ()) -> None:
    """Have callers of the target enter what its fault costs them into the ledger; the target what *own* callees cost it.

    ``*`` stands for every callee and store.
    """
    target, supervisor = injection.replica, injection.supervisor
    callers = {a for a, b in supervisor.fleet.links() if b == target.id} & set(supervisor.fleet.replicas)
    for name in sorted({*callers, target.id}):
        replica = supervisor.fleet.replicas[name]
        wanted = [target.service] if replica is not target else list(own)
        replica.watch = wanted if on else []
        await push(injection, replica)


async def push(injection: Injection, replica: Replica) -> None:
    """Make the process of *replica* run the hooks that are wanted for it."""
    if replica.port is not None:
        with contextlib.suppress(ConnectionError):  # it has just ended; its successor asks for its hooks itself
            await injection.supervisor.push_hooks(replica)
