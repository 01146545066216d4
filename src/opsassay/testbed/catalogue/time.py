"""Faults of a process's clock."""

from __future__ import annotations

import math
from collections.abc import Iterator

from opsassay.core.errors import RefusedError
from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer
from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.catalogue.fault import INSIDE_A_PROCESS, SERVICE_POD, FamilyTraits, Objection, number, service_of
from opsassay.testbed.catalogue.measures import MIN_GROWTH_SHARE, Reading, Times
from opsassay.testbed.core.fleet import Fleet
from opsassay.testbed.core.injection import Injection, Measured

_FAMILY = FamilyTraits(
    Category.TIME, Layer.INFRASTRUCTURE, SERVICE_POD, Channel.VERTICAL, Actuator.RUNTIME_HOOK, INSIDE_A_PROCESS
)
LEAST_OF_PROGRAMS_MS = 10_000.0


def clock_apart(injection: Injection[Measured], _: Times) -> Reading:
    """Return (0, ms that the target's clock differs from the supervisor's, threshold); nan while it is unknown."""
    values = [gauges["clock_offset_ms"] for _, gauges in injection.replica.gauges]
    desired = abs(float(injection.plan.parameters["offset_ms"]))
    return 0.0, abs(values[-1]) if values else math.nan, MIN_GROWTH_SHARE * desired


def _can_be_read(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:
    """Yield an objection (plan field, error) when a program's clock, read to about a second, would not show the offset."""
    if service_of(fleet, fault).program is not None and abs(fault.parameters["offset_ms"]) < LEAST_OF_PROGRAMS_MS:
        words = (
            f"a program's clock is read to about a second: offset_ms is {LEAST_OF_PROGRAMS_MS:.0f} or more either way."
        )
        yield Objection("parameters.offset_ms", RefusedError(f"TimeSkew cannot be seen: {words}"))


FAMILY = (
    _FAMILY.fault(
        "TimeSkew",
        FaultKind.CLOCK_SKEW,
        number("offset_ms", -60_000.0, "added to the target's wall clock, milliseconds", None),
        aliases=("TimeChaos",),
        signature=clock_apart,
        hook="skew_clock",
        by_clock=True,
        objections=_can_be_read,
    ),
)
