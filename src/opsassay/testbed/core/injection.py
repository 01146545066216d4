"""The parts of a fault's injection: system under test, injection in progress, faults that a substrate can apply.

`Injection` is generic over the system, so that a substrate's code is typed by its own systems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from opsassay.core.registry import Registry
from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.core.fleet import Fleet, Replica


class Measured(Protocol):
    """A running system as effect checks read it."""

    fleet: Fleet

    def memory_share(self, replica: Replica, host: str | None) -> float | None:
        """Return the used share (0 to 1) of the memory limit of *host*, else of *replica*; None if unknown."""

    def companions_memory_mb(self, name: str) -> float:
        """Return the memory in MiB of processes that faults run within the limit of the replica or host *name*."""


S = TypeVar("S", bound=Measured)
S_co = TypeVar("S_co", bound=Measured, covariant=True)


@dataclass
class Injection(Generic[S_co]):
    """One fault in progress: its id, plan, affected replicas, and the system that it acts on."""

    id: str
    plan: PlannedFault
    replicas: tuple[Replica, ...]
    pods: tuple[str, ...]  # as they were called when the fault began
    system: S_co
    notes: list[str] = field(default_factory=list)
    """Sentences of its actuator for the record."""
    began_at: float | None = None
    """Monotonic time at which the fault began to act, None if that is when it was applied."""

    @property
    def replica(self) -> Replica:
        """The only replica that a fault on a service hits."""
        return self.replicas[0]

    @property
    def host(self) -> str | None:
        """The host that the fault targets, None for a fault on a service."""
        return self.plan.target.host if self.plan.target else None


class Intervention(Protocol):
    """Applies something to a running system and undoes it.

    Its processes and changes belong to processes of the system, so that the end of the system ends the fault. Several may
    act at once, also on one replica: each undoes only its own part.
    """

    async def apply(self) -> None:
        """Apply the fault; raises RefusedError, before any change, when it cannot be applied."""

    async def undo(self) -> None:
        """Undo the fault; does nothing when it was not applied or its target is gone."""


ACTUATORS = Registry("actuator", "opsassay.actuators", {})
"""Actuators of packages, by ``SUBSTRATE.TYPE``: functions from an injection to an intervention."""


@dataclass(frozen=True)
class Repertoire(Generic[S]):
    """The faults that the *substrate* can apply to its systems.

    *place* names, in messages, where they run; *actuators* maps fault types to functions that make the intervention,
    *disturbances* does so for kinds of incidents without a fault; *refusals* has the reason, with a remedy, for types that
    are impossible here. Packages add actuators for further types.
    """

    substrate: str
    place: str
    actuators: Mapping[str, Callable[[Injection[S]], Intervention]]
    disturbances: Mapping[str, Callable[[S, PlannedFault], Intervention]]
    refusals: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, fault: str) -> str | None:
        """Return why this substrate cannot inject the fault type *fault*, None when it can."""
        if fault in self.refusals:
            return self.refusals[fault]
        return None if self.actuator(fault) is not None else f"nothing carries it out on {self.place}"

    def actuator(self, fault: str) -> Callable[[Injection[S]], Intervention] | None:
        """Return the function, built in or a plug-in's, that makes the intervention for *fault*, a type; else None."""
        if fault in self.actuators:
            return self.actuators[fault]
        name = f"{self.substrate}.{fault}"
        return ACTUATORS.load(name) if name in ACTUATORS.names() else None


Refusal = Callable[[str], str | None]
"""Function from a fault type to the reason why it is impossible, None when it is possible."""
