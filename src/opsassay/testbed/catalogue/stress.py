"""Resource pressure on a container or host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer
from opsassay.testbed.catalogue.fault import INSIDE_A_PROCESS, SERVICE_POD, FamilyTraits, number, whole
from opsassay.testbed.catalogue.measures import FULL_SHARE, Reading, Times, chance_ms, mean_ms, memory_mb, windows
from opsassay.testbed.core.injection import Injection, Measured

MIN_SLOWDOWN = 2.0

_FAMILY = FamilyTraits(
    Category.STRESS, Layer.INFRASTRUCTURE, SERVICE_POD, Channel.VERTICAL, Actuator.CGROUP, INSIDE_A_PROCESS
)


def starved(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold): mean ms of a request or message at the targets; it has to double at least."""
    who, what = injection.replicas, ["server", "consumer"]
    before, after = (mean_ms(who, window, what) for window in windows(times))
    return before, after, max(MIN_SLOWDOWN * before, before + chance_ms(who, times, what))


def memory_full(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before or nan, since, threshold): used share of the target's memory limit, by the fault's process too."""
    if (share := injection.system.memory_share(injection.replica, injection.host)) is not None:
        return math.nan, share, FULL_SHARE
    readings = [memory_mb(replica, times) for replica in injection.replicas]
    before, after = (sum(reading[i] for reading in readings) for i in (0, 1))
    companion = injection.system.companions_memory_mb(injection.host or injection.replica.id)
    limit = sum(replica.spec.memory_limit_mb for replica in injection.replicas)
    return before / limit, (after + companion) / limit, FULL_SHARE


def burner_count(parameters: Mapping[str, Any], cpu_limit: float) -> int:
    """Return how many CPU-burning processes to start: the parameter ``cores``, else more than *cpu_limit* cores."""
    return int(parameters.get("cores") or math.ceil(cpu_limit) + 1)


def allocated_bytes(parameters: Mapping[str, Any], limit_mb: float) -> int:
    """Return how many bytes to allocate at most: the parameter ``size_mb``, else the whole limit *limit_mb* (MiB)."""
    return int(parameters.get("size_mb") or limit_mb) * 2**20


FAMILY = (
    _FAMILY.fault(
        "CPUStress",
        FaultKind.CPU_STRESS,
        whole("cores", None, "cores' worth of burners; without it more than the target's limit"),
        number("load_percent", 95.0, "share of the pod's CPU that the burners take", 1, 100),
        signature=starved,
        on_hosts=True,
    ),
    _FAMILY.fault(
        "MemoryStress",
        FaultKind.MEM_STRESS,
        whole(
            "size_mb", None, "memory that is allocated and touched, MiB; without it all that the target's limit leaves"
        ),
        signature=memory_full,
        on_hosts=True,
        hook="short_of_memory",
    ),
)
