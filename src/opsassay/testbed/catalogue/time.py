"""Faults of a process's clock."""

from __future__ import annotations

import math

from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer
from opsassay.testbed.catalogue.fault import INSIDE_A_PROCESS, SERVICE_POD, FamilyTraits, number
from opsassay.testbed.catalogue.measures import MIN_GROWTH_SHARE, Reading, Times
from opsassay.testbed.core.injection import Injection, Measured

_FAMILY = FamilyTraits(
    Category.TIME, Layer.INFRASTRUCTURE, SERVICE_POD, Channel.VERTICAL, Actuator.RUNTIME_HOOK, INSIDE_A_PROCESS
)


def clock_apart(injection: Injection[Measured], _: Times) -> Reading:
    """Return (0, ms that the target's clock differs from the supervisor's, threshold); nan while it is unknown."""
    values = [gauges["clock_offset_ms"] for _, gauges in injection.replica.gauges]
    desired = abs(float(injection.plan.parameters["offset_ms"]))
    return 0.0, abs(values[-1]) if values else math.nan, MIN_GROWTH_SHARE * desired


FAMILY = (
    _FAMILY.fault(
        "TimeSkew",
        FaultKind.CLOCK_SKEW,
        number("offset_ms", -60_000.0, "added to the target's wall clock, milliseconds", None),
        aliases=("TimeChaos",),
        signature=clock_apart,
        hook="skew_clock",
    ),
)
