"""Whether a fault bites: its own signature, measured against the moments before, from counters and not from telemetry.

A signature looks at what the processes count about themselves and returns (before, after, threshold); the fault bites
when *after* reaches *threshold*. A threshold is never within what chance alone would do to the moments before: times and
shares must exceed it by several standard errors.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from opsassay.model.system import System
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Counted, Replica, Samples, window_difference
from opsassay.testbed.core.injection import Injection, Measured
from opsassay.testbed.core.links import touched

MIN_REQUESTS = 3
MIN_ERROR_SHARE = 0.25
MIN_SLOWDOWN = 2.0
MIN_DELAY_SHARE = 0.5
MIN_RESEND_MS = 100.0
MIN_PAUSE_SHARE = 0.15
MIN_DUPLICATES_PER_S = 0.5
MIN_BUSY_CORES = 0.25
MIN_GROWTH_SHARE = 0.5
FULL_SHARE = 0.8
FIRST_RESEND_MS = 200.0
STANDARD_ERRORS = 4.0
SPIKE_LIMIT = 7.5
MIN_STRETCHES = 4
"""Fewer stretches of the moments before tell nothing about how times scatter."""

Times = tuple[float, float]
"""Start of the moments before, moment of application (monotonic seconds)."""
Window = tuple[float, float | None]
Reading = tuple[float, float, float]
Signature = Callable[[Injection[Measured], Times], Reading]


def replica_gone(injection: Injection[Measured], times: Times) -> Reading:
    """Share of the target's processes that are not ready, or younger than the fault."""
    gone = [not replica.ready or replica.started_at > times[1] for replica in injection.replicas]
    return 0.0, sum(gone) / len(gone), 1.0


def handling_fails(injection: Injection[Measured], times: Times) -> Reading:
    """Share of requests and messages that the target fails."""
    return _share([injection.replica], times, _handling(injection))


def statements_fail(injection: Injection[Measured], times: Times) -> Reading:
    """Share of failed database calls of the target."""
    return _share([injection.replica], times, _activities(injection.replica, "sql:"))


def lookups_fail(injection: Injection[Measured], times: Times) -> Reading:
    """Share of failed calls of the target to the services that it looks up."""
    name = injection.plan.parameters.get("hostname")
    return _share([injection.replica], times, [f"call:{name}"] if name else _activities(injection.replica, "call:"))


def calls_fail(injection: Injection[Measured], times: Times) -> Reading:
    """Share of failed calls to the target, by services and users; scaled to its share of the service's replicas."""
    fleet, replica = injection.system.fleet, injection.replica
    callers: list[Counted] = [r for c in callers_of(fleet.system, replica.service) for r in fleet.of(c)]
    before, after, slack = _failures([*callers, fleet.load], times, [_scoped(injection, f"call:{replica.service}")])
    return before, after, _or_zero(before) + max(MIN_ERROR_SHARE / len(fleet.of(replica.service)), slack)


def links_fail(injection: Injection[Measured], times: Times) -> Reading:
    """Share of failed calls over the links that the fault touches: the link that fails most."""
    readings = [_share(who, times, activities) for who, activities in _over_links(injection)]
    return max((r for r in readings if not math.isnan(r[1])), key=lambda r: r[1] - r[2], default=_NOTHING)


def handling_slow(injection: Injection[Measured], times: Times) -> Reading:
    """Mean time that the target takes for a request or message, milliseconds."""
    return _slower([injection.replica], times, _handling(injection), injection.plan.parameters["delay_ms"])


def statements_slow(injection: Injection[Measured], times: Times) -> Reading:
    """Mean time of the target's database calls, milliseconds."""
    activities = _activities(injection.replica, "sql:")
    return _slower([injection.replica], times, activities, injection.plan.parameters["delay_ms"])


def starved(injection: Injection[Measured], times: Times) -> Reading:
    """Mean time that the target takes for a request or message, milliseconds, against a multiple of the usual."""
    who, what = injection.replicas, ["server", "consumer"]
    before, after = (_mean_ms(who, window, what) for window in _windows(times))
    return before, after, max(MIN_SLOWDOWN * before, before + _chance_ms(who, times, what))


def links_slow(injection: Injection[Measured], times: Times) -> Reading:
    """Mean time that calls over the links that the fault touches take, milliseconds: the link that slowed most."""
    return _slowest_link(injection, times, injection.plan.parameters["delay_ms"])


def links_resend(injection: Injection[Measured], times: Times) -> Reading:
    """Mean time that calls over touched links take, milliseconds, against the time that resending must cost."""
    parameters = injection.plan.parameters
    share = parameters.get("loss_percent", parameters.get("corrupt_percent", 0.0)) / 100
    return _slowest_link(injection, times, share * FIRST_RESEND_MS)


def links_narrow(injection: Injection[Measured], times: Times) -> Reading:
    """Mean time that calls over touched links take, milliseconds, against what queueing costs."""
    return _slowest_link(injection, times, MIN_RESEND_MS)


def segments_twice(injection: Injection[Measured], times: Times) -> Reading:
    """Segments per second that reached the target, or what it sends to, a second time, as TCP's receivers report."""
    before, after = (
        sum(_or_zero(_per_second(replica, "duplicate_segments", window)) for replica in injection.replicas)
        for window in _windows(times)
    )
    return before, after, before + MIN_DUPLICATES_PER_S


def clock_apart(injection: Injection[Measured], _: Times) -> Reading:
    """Distance of the target's clock from the supervisor's, milliseconds."""
    values = [gauges["clock_offset_ms"] for _, gauges in injection.replica.gauges]
    wanted = abs(float(injection.plan.parameters["offset_ms"]))
    return 0.0, abs(values[-1]) if values else math.nan, MIN_GROWTH_SHARE * wanted


def collector_pauses(injection: Injection[Measured], times: Times) -> Reading:
    """Share of time that the target's process stands still to collect garbage."""
    before, after = (_per_second(injection.replica, "gc_s", window) for window in _windows(times))
    return before, after, _or_zero(before) + MIN_PAUSE_SHARE


def threads_busy(injection: Injection[Measured], times: Times) -> Reading:
    """Cores that the target's process uses."""
    before, after = (_per_second(injection.replica, "cpu_s", window) for window in _windows(times))
    return before, after, _or_zero(before) + MIN_BUSY_CORES


def heap_grows(injection: Injection[Measured], times: Times) -> Reading:
    """Resident memory of the target's process, MiB, against half of the growth or nearly its limit."""
    before, after = _memory_mb(injection.replica, times)
    grown = before + MIN_GROWTH_SHARE * injection.plan.parameters["size_mb"]
    return before, after, min(grown, FULL_SHARE * injection.replica.spec.memory_limit_mb)


def memory_full(injection: Injection[Measured], times: Times) -> Reading:
    """Share of the memory limit of the target that is used, the companion's part included."""
    if (share := injection.system.memory_share(injection.replica, injection.host)) is not None:
        return math.nan, share, FULL_SHARE
    readings = [_memory_mb(replica, times) for replica in injection.replicas]
    before, after = (sum(reading[i] for reading in readings) for i in (0, 1))
    companion = injection.system.companions_memory_mb(injection.host or injection.replica.id)
    limit = sum(replica.spec.memory_limit_mb for replica in injection.replicas)
    return before / limit, (after + companion) / limit, FULL_SHARE


SIGNATURES: Mapping[str, Signature] = {
    "PodKill": replica_gone,
    "PodFailure": replica_gone,
    "ContainerKill": replica_gone,
    "CPUStress": starved,
    "MemoryStress": memory_full,
    "HTTPRequestAbort": handling_fails,
    "HTTPResponseAbort": handling_fails,
    "HTTPRequestDelay": handling_slow,
    "HTTPResponseDelay": handling_slow,
    "HTTPResponseReplaceBody": calls_fail,
    "HTTPResponsePatchBody": calls_fail,
    "HTTPRequestReplacePath": calls_fail,
    "HTTPRequestReplaceMethod": calls_fail,
    "HTTPResponseReplaceCode": calls_fail,
    "DNSError": lookups_fail,
    "DNSRandom": lookups_fail,
    "NetworkDelay": links_slow,
    "NetworkLoss": links_resend,
    "NetworkDuplicate": segments_twice,
    "NetworkCorrupt": links_resend,
    "NetworkBandwidth": links_narrow,
    "NetworkPartition": links_fail,
    "TimeSkew": clock_apart,
    "JVMLatency": handling_slow,
    "JVMReturn": calls_fail,
    "JVMException": handling_fails,
    "JVMGarbageCollector": collector_pauses,
    "JVMCPUStress": threads_busy,
    "JVMMemoryStress": heap_grows,
    "JVMMySQLLatency": statements_slow,
    "JVMMySQLException": statements_fail,
}
"""The signature of every type that a local system can take."""

_NOTHING: Reading = (math.nan, math.nan, math.nan)


def callers_of(system: System, service: str) -> list[str]:
    """Return the services that call *service*."""
    return sorted(caller for caller, callee in system.calls() if callee == service)


def _windows(times: Times) -> tuple[Window, Window]:
    return (times[0], times[1]), (times[1], None)


def _scoped(injection: Injection[Measured], activity: str) -> str:
    """Return the counter of the faulted operation alone when the fault names one."""
    operation = injection.plan.parameters.get("operation")
    return f"{activity} {operation}" if operation else activity


def _handling(injection: Injection[Measured]) -> list[str]:
    return [_scoped(injection, "server"), "consumer"]


def _activities(replica: Replica, *prefixes: str) -> list[str]:
    """Return the counters that begin with a prefix; those of single operations, which have a blank, are left out."""
    return sorted({a for _, stats in replica.history for a in stats if a.startswith(prefixes) and " " not in a})


def _over_links(injection: Injection[Measured]) -> list[tuple[list[Counted], list[str]]]:
    """Return (who counts, what) for calls over the links that the fault touches: one entry per caller and callee."""
    fleet, targets = injection.system.fleet, {replica.id for replica in injection.replicas}
    users: dict[tuple[str, str], list[Counted]] = {}
    for source, destination, _ in sorted(set(touched(fleet, targets, injection.plan.parameters))):
        called = fleet.replicas.get(destination)
        activity = f"call:{called.service}" if called else _store_activity(fleet.system, destination)
        caller = fleet.replicas.get(source)
        who = users.setdefault((caller.service if caller else LOAD_GENERATOR, activity), [])
        if (counted := caller or fleet.load) not in who:
            who.append(counted)
    return [(who, [activity]) for (_, activity), who in users.items()]


def _store_activity(system: System, store: str) -> str:
    """Return the counter of commands to *store*; what is published is not counted."""
    return {"postgresql": "sql:", "valkey": "cache:", "nats": "queue:"}[system.stores[store].engine] + store


def _totals(who: Sequence[Counted], window: Window, activities: list[str]) -> tuple[int, int, int]:
    rows = [window_difference(one, *window).get(a, (0, 0, 0)) for one in who for a in activities]
    return sum(r[0] for r in rows), sum(r[1] for r in rows), sum(r[2] for r in rows)


def _mean_ms(who: Sequence[Counted], window: Window, activities: list[str]) -> float:
    count, _, duration_ns = _totals(who, window, activities)
    return duration_ns / count / 1e6 if count >= MIN_REQUESTS else math.nan


def _slower(who: Sequence[Counted], times: Times, activities: list[str], delay_ms: float) -> Reading:
    before, after = (_mean_ms(who, window, activities) for window in _windows(times))
    least = max(MIN_DELAY_SHARE * float(delay_ms), _chance_ms(who, times, activities))
    return before, after, _or_zero(before) + least


def _chance_ms(who: Sequence[Counted], times: Times, activities: list[str]) -> float:
    """Return by how much the mean since the fault may differ from the one before by chance, milliseconds.

    The scatter of single times follows from that of the means of the short stretches before, each with its count
    (one-way analysis of variance); 0 where there are too few of them. A stall of the machine does not make everything else
    invisible: a stretch counts as at most SPIKE_LIMIT median deviations away (winsorised).
    """
    stretches = _stretches(who, times, activities)
    after, _, _ = _totals(who, (times[1], None), activities)
    before = sum(count for count, _ in stretches)
    if len(stretches) < MIN_STRETCHES or not after:
        return 0.0
    mean = sum(total for _, total in stretches) / before
    apart = [abs(total - mean * count) / math.sqrt(count) for count, total in stretches]
    most = SPIKE_LIMIT * statistics.median(apart)
    variance = sum(min(one, most) ** 2 for one in apart) / (len(stretches) - 1)
    return STANDARD_ERRORS * math.sqrt(variance * (1 / before + 1 / after))


def _stretches(who: Sequence[Counted], times: Times, activities: list[str]) -> list[tuple[int, float]]:
    """Return (count, total milliseconds) of each half-second before the fault in which something was counted."""
    rows = (one for counted in who for one in _steps(counted.history, times, activities))
    return [(count, total_ns / 1e6) for count, total_ns in rows if count]


def _steps(history: Samples, times: Times, activities: list[str]) -> Iterator[tuple[int, int]]:
    """Yield (count, nanoseconds) between any two readings of a process in the moments before."""
    readings = [sample for at, sample in history if times[0] <= at <= times[1]]
    for earlier, later in itertools.pairwise(readings):
        rows = [(earlier.get(name, [0, 0, 0]), later.get(name, [0, 0, 0])) for name in activities]
        if all(b[0] >= a[0] for a, b in rows):  # a counter that went back belongs to a new process
            yield sum(b[0] - a[0] for a, b in rows), sum(b[2] - a[2] for a, b in rows)


def _slowest_link(injection: Injection[Measured], times: Times, delay_ms: float) -> Reading:
    readings = [_slower(who, times, activities, delay_ms) for who, activities in _over_links(injection)]
    told = (r for r in readings if not (math.isnan(r[0]) or math.isnan(r[1])))  # without a before nothing can be slower
    return max(told, key=lambda r: r[1] - r[2], default=_NOTHING)


def _share(who: Sequence[Counted], times: Times, activities: list[str]) -> Reading:
    before, after, slack = _failures(who, times, activities)
    return before, after, _or_zero(before) + max(MIN_ERROR_SHARE, slack)


def _failures(who: Sequence[Counted], times: Times, activities: list[str]) -> tuple[float, float, float]:
    """Return the share of failures before and after, and by how much they may differ by chance."""
    counts, shares = [], []
    for window in _windows(times):
        count, errors, _ = _totals(who, window, activities)
        counts.append(max(count, 1))
        shares.append(errors / count if count >= MIN_REQUESTS else math.nan)
    usual = _or_zero(shares[0])
    return shares[0], shares[1], STANDARD_ERRORS * math.sqrt(usual * (1 - usual) * (1 / counts[0] + 1 / counts[1]))


def _per_second(replica: Replica, gauge: str, window: Window) -> float:
    """Return how fast a growing *gauge* grew in *window*; a value that went back belongs to a new process."""
    points = [(t, g[gauge]) for t, g in replica.gauges if t >= window[0] and (window[1] is None or t <= window[1])]
    if len(points) < 2 or points[-1][1] < points[0][1]:
        return math.nan
    return float((points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]))


def _memory_mb(replica: Replica, times: Times) -> tuple[float, float]:
    points = [(t, g["memory_bytes"] / 2**20) for t, g in replica.gauges]
    before = [value for t, value in points if t <= times[1]]
    after = [value for t, value in points if t > times[1]]
    return before[-1] if before else math.nan, after[-1] if after else math.nan


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
