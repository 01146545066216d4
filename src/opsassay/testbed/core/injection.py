"""What a fault acts on and with: the system under test, the injection on its way, what a substrate can do to its systems.

`Injection` is generic over the system, so that what a substrate does is typed by the systems of that substrate.
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
    """One fault on its way through a system: the plan, the replicas that it hits, and what it can act with."""

    id: str
    plan: PlannedFault
    replicas: tuple[Replica, ...]
    pods: tuple[str, ...]  # as they were called when the fault began
    system: S_co
    notes: list[str] = field(default_factory=list)
    """What its actuator has to say for the record."""
    began_at: float | None = None
    """Monotonic time at which it began to act, where that takes a while to prepare; else it began when it was applied."""

    @property
    def replica(self) -> Replica:
        """The only replica that a fault on a service hits."""
        return self.replicas[0]

    @property
    def host(self) -> str | None:
        """The host that the fault targets, None for a fault on a service."""
        return self.plan.target.host if self.plan.target else None


class Intervention(Protocol):
    """Does something to a running system and takes it back.

    Whatever it starts or changes lives in processes of the system, so that the end of the system is the end of the fault.
    Several may act at once, also on the same replica: each adds its own and takes away its own.
    """

    async def apply(self) -> None:
        """Apply the fault; raises RefusedError, before any change, when it cannot be applied."""

    async def undo(self) -> None:
        """Undo the fault; does nothing when it was not applied or its target is gone."""


ACTUATORS = Registry("actuator", "opsassay.actuators", {})
"""Actuators that packages bring for a type on a substrate, by ``SUBSTRATE.TYPE``: from an injection to an intervention."""


@dataclass(frozen=True)
class Repertoire(Generic[S]):
    """What the *substrate* can do to its systems.

    *place* names where they run, for people; *actuators* maps fault types to what carries them out, *disturbances* the
    kinds of incidents without a fault to what makes them; *refusals* gives the reason, with the way out, for types that
    cannot be carried out here. Packages add actuators for types that it does not have.
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
"""Why a fault type cannot be carried out, None when it can."""
