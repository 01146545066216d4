"""What happens to a local system in an incident in which nothing is broken: more load, or a restart that harms nobody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from opsassay.core.errors import OperationError
from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Replica
from opsassay.testbed.core.links import affected
from opsassay.testbed.injection.disturbances import least_missed
from opsassay.testbed.substrates.local.actuators.under_test import LocalUnderTest

HANDOVER_TIMEOUT_S = 20.0
OVERLAP_S = 1.0


class LoadSurge:
    """Users send ``factor`` times as many requests."""

    def __init__(self, system: LocalUnderTest, plan: PlannedFault) -> None:
        self._system, self._factor = system, float(plan.parameters["factor"])
        self._former_rps: float | None = None

    async def apply(self) -> None:
        """Multiply the rate of the load by the plan's factor."""
        former = (await self._system.channels.request(LOAD_GENERATOR, "ping"))["rate_rps"]
        self._former_rps = former
        await self._system.channels.request(LOAD_GENERATOR, "rate", rate_rps=former * self._factor)

    async def undo(self) -> None:
        """Restore the former rate of the load."""
        if self._former_rps is not None and LOAD_GENERATOR in self._system.channels.names():
            await self._system.channels.request(LOAD_GENERATOR, "rate", rate_rps=self._former_rps)


class HarmlessRestart:
    """One replica is replaced as a rolling update does it: its successor serves before it goes."""

    def __init__(self, system: LocalUnderTest, plan: PlannedFault) -> None:
        self._system = system
        self._replica: Replica = (
            system.fleet.replicas_of(least_missed(system))[0]
            if plan.target is None
            else affected(system.fleet, plan)[0]
        )
        self._former_pid: int | None = None

    async def apply(self) -> None:
        """Replace a replica by a new pod, and end the former one once that is ready; OperationError when late."""
        former = await self._system.replace(self._replica, HANDOVER_TIMEOUT_S)
        if former is None:
            raise OperationError(f"The successor of {self._replica.id} was not ready in {HANDOVER_TIMEOUT_S:g} s.")
        self._former_pid = former
        await asyncio.sleep(OVERLAP_S)
        await self.undo()

    async def undo(self) -> None:
        """Send SIGTERM to the former process, if that was not done yet."""
        former, self._former_pid = self._former_pid, None
        if former is not None:
            self._system.unexpected_exits.expect(former)
            with contextlib.suppress(ProcessLookupError):
                os.kill(former, signal.SIGTERM)
