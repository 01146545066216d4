"""A fault type: the processes of a service are halted most of the time, as by a hypervisor that is overbooked."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer
from opsassay.testbed.catalogue.fault import SERVICE_POD, FamilyTraits, number
from opsassay.testbed.catalogue.measures import Reading, Times, callers_of, slowdown
from opsassay.testbed.core.injection import Injection, Measured

PERIOD_S = 0.2

_FAMILY = FamilyTraits(
    Category.STRESS, Layer.INFRASTRUCTURE, SERVICE_POD, Channel.VERTICAL, Actuator.SIGNAL, "it halts one service"
)


def calls_wait(injection: Injection[Measured], times: Times) -> Reading:
    """Mean time that callers wait for the target, milliseconds: it cannot count what it does not even begin."""
    fleet, service = injection.system.fleet, injection.replica.service
    callers = [replica for name in callers_of(fleet.system, service) for replica in fleet.replicas_of(name)]
    halted_ms = PERIOD_S * injection.plan.parameters["halted_percent"] * 10
    return slowdown([*callers, fleet.load], times, [f"call:{service}"], halted_ms / 4)


FAMILY = (
    _FAMILY.fault(
        "ProcessStutter",
        FaultKind.CPU_STRESS,
        number("halted_percent", 70.0, "share of the time in which the processes are halted", 10, 90),
        signature=calls_wait,
        excludes_itself="halts {replica} already; choose another target",
    ),
)


class Stutter:
    """Halts the processes of the targets and lets them go on, again and again."""

    def __init__(self, injection: Injection[Measured]) -> None:
        self._injection = injection
        self._task: asyncio.Task[None] | None = None

    async def apply(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(self._injection.plan.parameters["halted_percent"] / 100))

    async def undo(self) -> None:
        """Stop, and let all of them go on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._send(signal.SIGCONT)

    async def _run(self, share: float) -> None:
        while True:
            self._send(signal.SIGSTOP)
            await asyncio.sleep(PERIOD_S * share)
            self._send(signal.SIGCONT)
            await asyncio.sleep(PERIOD_S * (1 - share))

    def _send(self, number: signal.Signals) -> None:
        for replica in self._injection.replicas:
            if replica.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(replica.pid, number)
