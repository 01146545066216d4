"""Whether a fault bites: signatures, measured against the moments before, from counters and not from telemetry.

A signature looks at what the processes count about themselves and returns (before, after, threshold); the fault bites
when *after* reaches *threshold*. A threshold is never within what chance alone would do to the moments before: times and
shares must exceed it by several standard errors. Here is what signatures of several families share.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from opsassay.core.schema.system import System
from opsassay.testbed.core.fleet import Counted, Replica, Samples, window_difference
from opsassay.testbed.core.injection import Injection, Measured

MIN_REQUESTS = 3
MIN_ERROR_SHARE = 0.25
MIN_DELAY_SHARE = 0.5
MIN_GROWTH_SHARE = 0.5
FULL_SHARE = 0.8
STANDARD_ERRORS = 4.0
SPIKE_LIMIT = 7.5
MIN_STRETCHES = 4
"""Fewer stretches of the moments before tell nothing about how times scatter."""

Times = tuple[float, float]
"""Start of the moments before, moment of application (monotonic seconds)."""
Window = tuple[float, float | None]
Reading = tuple[float, float, float]
Signature = Callable[[Injection[Measured], Times], Reading]
NOTHING: Reading = (math.nan, math.nan, math.nan)


def handling_fails(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before the fault, since it, threshold): the share of requests and messages that the target fails."""
    return failure_share([injection.replica], times, handling(injection))


def calls_fail(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before the fault, since it, threshold): the failed share of calls to the target's service.

    The threshold is lower the more replicas the service has; with a sidecar, what the target counts is read instead.
    """
    fleet, replica = injection.system.fleet, injection.replica
    if replica.spec.sidecar is not None or replica.service in fleet.system.seen_at():
        return handling_fails(injection, times)  # it counts what callers get, and not all of them send spans
    callers: list[Counted] = [r for c in callers_of(fleet.system, replica.service) for r in fleet.replicas_of(c)]
    before, after, slack = failures([*callers, fleet.load], times, [scoped(injection, f"call:{replica.service}")])
    return before, after, or_zero(before) + max(MIN_ERROR_SHARE / len(fleet.replicas_of(replica.service)), slack)


def handling_slow(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold): the mean ms that the target takes for a request or message."""
    return slowdown([injection.replica], times, handling(injection), injection.plan.parameters["delay_ms"])


def callers_of(system: System, service: str) -> list[str]:
    """Return the services that call *service*."""
    return sorted(caller for caller, callee in system.calls() if callee == service)


def windows(times: Times) -> tuple[Window, Window]:
    """Split *times* at the application of the fault: return (start, end) before it and (start, None) since it."""
    return (times[0], times[1]), (times[1], None)


def scoped(injection: Injection[Measured], activity: str) -> str:
    """Return the name of the counter *activity* ("server", "call:cart"), or that of the fault's operation alone."""
    operation = injection.plan.parameters.get("operation")
    return f"{activity} {operation}" if operation else activity


def handling(injection: Injection[Measured]) -> list[str]:
    """Return the names of the target's counters of messages and of requests (to the fault's operation, if any)."""
    return [scoped(injection, "server"), "consumer"]


def activities(replica: Replica, *prefixes: str) -> list[str]:
    """Return the counter names of *replica* that begin with one of *prefixes*, except those of single operations."""
    return sorted({a for _, stats in replica.history for a in stats if a.startswith(prefixes) and " " not in a})


def totals(processes: Sequence[Counted], window: Window, activities: list[str]) -> tuple[int, int, int]:
    """Return (count, errors, duration_ns) of *activities* in *window*, summed over *processes*."""
    rows = [window_difference(one, *window).get(a, (0, 0, 0)) for one in processes for a in activities]
    return sum(r[0] for r in rows), sum(r[1] for r in rows), sum(r[2] for r in rows)


def mean_ms(processes: Sequence[Counted], window: Window, activities: list[str]) -> float:
    """Return the mean time in ms of *activities* of *processes* in *window*; nan for fewer than MIN_REQUESTS."""
    count, _, duration_ns = totals(processes, window, activities)
    return duration_ns / count / 1e6 if count >= MIN_REQUESTS else math.nan


def slowdown(processes: Sequence[Counted], times: Times, activities: list[str], delay_ms: float) -> Reading:
    """Return (mean ms before the fault, mean ms since it, threshold) of *activities*.

    The threshold exceeds the mean before by half of *delay_ms*, or by `chance_ms` if that is more.
    """
    before, after = (mean_ms(processes, window, activities) for window in windows(times))
    least = max(MIN_DELAY_SHARE * float(delay_ms), chance_ms(processes, times, activities))
    return before, after, or_zero(before) + least


def chance_ms(processes: Sequence[Counted], times: Times, activities: list[str]) -> float:
    """Return by how many ms the mean since the fault may exceed the one before by chance, at four standard errors.

    The variance of single times is estimated from the means of the half-seconds before the fault, weighted by their
    counts (one-way analysis of variance), each at most SPIKE_LIMIT median deviations from the mean (winsorised). 0
    where there are fewer than MIN_STRETCHES of them.
    """
    stretches = _stretches(processes, times, activities)
    after, _, _ = totals(processes, (times[1], None), activities)
    before = sum(count for count, _ in stretches)
    if len(stretches) < MIN_STRETCHES or not after:
        return 0.0
    mean = sum(total for _, total in stretches) / before
    apart = [abs(total - mean * count) / math.sqrt(count) for count, total in stretches]
    most = SPIKE_LIMIT * statistics.median(apart)
    variance = sum(min(one, most) ** 2 for one in apart) / (len(stretches) - 1)
    return STANDARD_ERRORS * math.sqrt(variance * (1 / before + 1 / after))


def _stretches(processes: Sequence[Counted], times: Times, activities: list[str]) -> list[tuple[int, float]]:
    """Return (count, total ms) of *activities* of *processes* per half-second before the fault in which some ended."""
    rows = (one for counted in processes for one in _steps(counted.history, times, activities))
    return [(count, total_ns / 1e6) for count, total_ns in rows if count]


def _steps(history: Samples, times: Times, activities: list[str]) -> Iterator[tuple[int, int]]:
    """Yield (count, total ns) of *activities* between successive counter readings of one process before the fault."""
    readings = [sample for at, sample in history if times[0] <= at <= times[1]]
    for earlier, later in itertools.pairwise(readings):
        rows = [(earlier.get(name, [0, 0, 0]), later.get(name, [0, 0, 0])) for name in activities]
        if all(b[0] >= a[0] for a, b in rows):  # a counter that went back belongs to a new process
            yield sum(b[0] - a[0] for a, b in rows), sum(b[2] - a[2] for a, b in rows)


def failure_share(processes: Sequence[Counted], times: Times, activities: list[str]) -> Reading:
    """Return (failed share before the fault, failed share since it, threshold) of *activities* of *processes*."""
    before, after, slack = failures(processes, times, activities)
    return before, after, or_zero(before) + max(MIN_ERROR_SHARE, slack)


def failures(processes: Sequence[Counted], times: Times, activities: list[str]) -> tuple[float, float, float]:
    """Return (failed share before the fault, since it, what chance may add) of *activities* of *processes*."""
    counts, shares = [], []
    for window in windows(times):
        count, errors, _ = totals(processes, window, activities)
        counts.append(max(count, 1))
        shares.append(errors / count if count >= MIN_REQUESTS else math.nan)
    usual = or_zero(shares[0])
    return shares[0], shares[1], STANDARD_ERRORS * math.sqrt(usual * (1 - usual) * (1 / counts[0] + 1 / counts[1]))


def per_second(replica: Replica, gauge: str, window: Window) -> float:
    """Return the growth per second of *gauge* in *window*; nan when it fell (a new process) or was read once."""
    points = [(t, g[gauge]) for t, g in replica.gauges if t >= window[0] and (window[1] is None or t <= window[1])]
    if len(points) < 2 or points[-1][1] < points[0][1]:
        return math.nan
    return float((points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]))


def memory_mb(replica: Replica, times: Times) -> tuple[float, float]:
    """Return the last resident memory of *replica* before the fault and since it, in MiB; nan where it was not read."""
    points = [(t, g["memory_bytes"] / 2**20) for t, g in replica.gauges]
    before = [value for t, value in points if t <= times[1]]
    after = [value for t, value in points if t > times[1]]
    return before[-1] if before else math.nan, after[-1] if after else math.nan


def or_zero(value: float) -> float:
    """Return *value*, or 0 when it is nan."""
    return 0.0 if math.isnan(value) else value
