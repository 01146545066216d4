"""Faults of pods as a whole: killed, kept down."""

from __future__ import annotations

from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer, Level
from opsassay.testbed.catalogue.fault import SERVICE_POD, FamilyTraits
from opsassay.testbed.catalogue.measures import Reading, Times
from opsassay.testbed.core.injection import Injection, Measured

_FAMILY = FamilyTraits(
    Category.POD,
    Layer.INFRASTRUCTURE,
    SERVICE_POD,
    Channel.VERTICAL,
    Actuator.SIGNAL,
    "it kills one pod; use PodFailure for a host that is down, or name a service",
)


def replica_gone(injection: Injection[Measured], times: Times) -> Reading:
    """Return (0, share of the target's processes that are not ready or newer than the fault, threshold 1)."""
    gone = [not replica.ready or replica.started_at > times[1] for replica in injection.replicas]
    return 0.0, sum(gone) / len(gone), 1.0


FAMILY = (
    _FAMILY.fault("PodKill", FaultKind.POD_FAILURE, signature=replica_gone, recovered_when_ready=True),
    _FAMILY.fault(
        "PodFailure",
        FaultKind.POD_UNAVAILABLE,
        signature=replica_gone,
        recovered_when_ready=True,
        on_hosts=True,
        excludes_others="keeps {replica} down, where nothing else can be seen; choose another target",
    ),
    _FAMILY.fault(
        "ContainerKill",
        FaultKind.POD_FAILURE,
        levels=(*SERVICE_POD, Level.CONTAINER),
        signature=replica_gone,
        recovered_when_ready=True,
    ),
)
