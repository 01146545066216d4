"""What happens in an incident in which nothing is broken: nothing, more load, or a restart that harms nobody."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from assay.errors import NotFoundError, OperationError, UserError
from assay.model.incident import FaultPlan
from assay.testbed.faults.effects import callers_of
from assay.testbed.local.fleet import Replica

if TYPE_CHECKING:
    from assay.testbed.local.supervisor import Supervisor

SURGE_FACTOR = 3.0
SURGE_FACTOR_LIMIT = 20.0
HANDOVER_TIMEOUT_S = 20.0
OVERLAP_S = 1.0


class Disturbance(Protocol):
    """Disturbs a system without breaking it, and takes that back."""

    def __init__(self, supervisor: Supervisor, plan: FaultPlan) -> None: ...

    async def apply(self) -> None:
        """Begin."""

    async def undo(self) -> None:
        """End; safe to call when it did not begin."""


class Quiet:
    """Nothing happens."""

    def __init__(self, supervisor: Supervisor, plan: FaultPlan) -> None: ...

    async def apply(self) -> None:
        """Do nothing."""

    async def undo(self) -> None:
        """Do nothing."""


class LoadSurge:
    """Users send ``factor`` times as many requests."""

    def __init__(self, supervisor: Supervisor, plan: FaultPlan) -> None:
        self._supervisor, self._factor = supervisor, float(plan.parameters.get("factor", SURGE_FACTOR))
        self._former_rps: float | None = None

    async def apply(self) -> None:
        """Raise the rate."""
        former = (await self._supervisor.channels.request("loadgenerator", "ping"))["rate_rps"]
        self._former_rps = former
        await self._supervisor.channels.request("loadgenerator", "rate", rate_rps=former * self._factor)

    async def undo(self) -> None:
        """Return to the former rate."""
        if self._former_rps is not None and "loadgenerator" in self._supervisor.channels.names():
            await self._supervisor.channels.request("loadgenerator", "rate", rate_rps=self._former_rps)


class HarmlessRestart:
    """One replica is replaced as a rolling update does it: its successor serves before it goes."""

    def __init__(self, supervisor: Supervisor, plan: FaultPlan) -> None:
        self._supervisor = supervisor
        services = supervisor.system.services
        if plan.target is not None and plan.target.service not in services:
            raise NotFoundError("service", plan.target.service, services)
        self._replica = self._least_missed() if plan.target is None else supervisor.fleet.of(plan.target.service)[0]
        self._former_pid: int | None = None

    def _least_missed(self) -> Replica:
        """Return a replica of a service that has another one; else of the one that has the fewest callers."""
        system = self._supervisor.system

        def missed(service: str) -> tuple[bool, int, str]:
            users = len(callers_of(system, service)) + (service in system.entries())
            return system.services[service].replicas == 1, users, service

        return self._supervisor.fleet.of(min(system.services, key=missed))[0]

    async def apply(self) -> None:
        """Hand over to a new pod, then let the former one finish what it has begun."""
        former = await self._supervisor.replace(self._replica, HANDOVER_TIMEOUT_S)
        if former is None:
            raise OperationError(f"The successor of {self._replica.id} was not ready in {HANDOVER_TIMEOUT_S:g} s.")
        self._former_pid = former
        await asyncio.sleep(OVERLAP_S)
        await self.undo()

    async def undo(self) -> None:
        """Ask the former process to end, once."""
        former, self._former_pid = self._former_pid, None
        if former is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(former, signal.SIGTERM)


DISTURBANCES: Mapping[str, type[Disturbance]] = {
    "quiet": Quiet,
    "load_surge": LoadSurge,
    "harmless_restart": HarmlessRestart,
}
"""The kinds of incidents without a fault, by the parameter ``disturbance``; ``load_surge`` takes a ``factor``."""


def disturbance(supervisor: Supervisor, plan: FaultPlan) -> Disturbance:
    """Return what *plan* wants to happen; raises UserError naming the parameter, NotFoundError."""
    parameters: dict[str, Any] = {"disturbance": "quiet", **plan.parameters}
    kind = parameters.pop("disturbance")
    if kind not in DISTURBANCES:
        raise NotFoundError("disturbance", str(kind), DISTURBANCES)
    for name in parameters:
        if (kind, name) != ("load_surge", "factor"):
            raise UserError(f"NoFault with disturbance {kind} has no parameter {name!r}; leave it out.")
    factor = parameters.get("factor", SURGE_FACTOR)
    number = isinstance(factor, int | float) and not isinstance(factor, bool) and math.isfinite(factor)
    if not number or not 1 < factor <= SURGE_FACTOR_LIMIT:
        raise UserError(f"NoFault: factor must be a number above 1 and at most {SURGE_FACTOR_LIMIT:g}, not {factor!r}.")
    return DISTURBANCES[kind](supervisor, plan)
