"""Whether a fault bites: its own signature, measured against the moments before, from counters and not from telemetry.

A signature looks at what the processes count about themselves and returns (before, after, threshold); the fault bites
when *after* reaches *threshold*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import psutil

from assay.testbed.faults.injection import Injection
from assay.testbed.local.fleet import Counted, Replica, window_difference

if TYPE_CHECKING:
    from assay.model.system import System

MIN_REQUESTS = 3
MIN_ERROR_SHARE = 0.25
MIN_SLOWDOWN = 2.0
MIN_DELAY_SHARE = 0.5
MIN_RESEND_MS = 100.0
MIN_PAUSE_SHARE = 0.15
MIN_BUSY_CORES = 0.25
MIN_GROWTH_SHARE = 0.5
FULL_SHARE = 0.8
FIRST_RESEND_MS = 200.0

Times = tuple[float, float]
"""Start of the moments before, moment of application (monotonic seconds)."""
Window = tuple[float, float | None]
Reading = tuple[float, float, float]
Signature = Callable[[Injection, Times], Reading]


def replica_gone(injection: Injection, times: Times) -> Reading:
    """Ready backends of the target went from one to none, or its process is younger than the fault."""
    replica = injection.replica
    return 0.0, float(not replica.ready or replica.started_at > times[1]), 1.0


def handling_fails(injection: Injection, times: Times) -> Reading:
    """Share of requests and messages that the target fails."""
    return _share([injection.replica], times, _handling(injection))


def statements_fail(injection: Injection, times: Times) -> Reading:
    """Share of failed database calls of the target."""
    return _share([injection.replica], times, _activities(injection.replica, "sql:"))


def lookups_fail(injection: Injection, times: Times) -> Reading:
    """Share of failed calls of the target to the services that it looks up."""
    name = injection.plan.parameters.get("hostname")
    return _share([injection.replica], times, [f"call:{name}"] if name else _activities(injection.replica, "call:"))


def calls_fail(injection: Injection, times: Times) -> Reading:
    """Share of failed calls to the target, by services and users; scaled to its share of the service's replicas."""
    fleet, replica = injection.supervisor.fleet, injection.replica
    callers: list[Counted] = [r for c in callers_of(fleet.system, replica.service) for r in fleet.of(c)]
    before, after, _ = _share([*callers, fleet.load], times, [_scoped(injection, f"call:{replica.service}")])
    return before, after, _or_zero(before) + MIN_ERROR_SHARE / len(fleet.of(replica.service))


def links_fail(injection: Injection, times: Times) -> Reading:
    """Share of failed calls over the target's links: the link that fails most."""
    readings = [_share(who, times, activities) for who, activities in _over_links(injection)]
    return max((r for r in readings if not math.isnan(r[1])), key=lambda r: r[1] - r[2], default=_NOTHING)


def handling_slow(injection: Injection, times: Times) -> Reading:
    """Mean time that the target takes for a request or message, milliseconds."""
    return _slower([injection.replica], times, _handling(injection), injection.plan.parameters["delay_ms"])


def statements_slow(injection: Injection, times: Times) -> Reading:
    """Mean time of the target's database calls, milliseconds."""
    activities = _activities(injection.replica, "sql:")
    return _slower([injection.replica], times, activities, injection.plan.parameters["delay_ms"])


def starved(injection: Injection, times: Times) -> Reading:
    """Mean time that the target takes for a request or message, milliseconds, against a multiple of the usual."""
    before, after = (_mean_ms([injection.replica], window, ["server", "consumer"]) for window in _windows(times))
    return before, after, MIN_SLOWDOWN * before


def links_slow(injection: Injection, times: Times) -> Reading:
    """Mean time that calls over the target's links take, milliseconds: the link that slowed most."""
    return _slowest_link(injection, times, injection.plan.parameters["delay_ms"])


def links_resend(injection: Injection, times: Times) -> Reading:
    """Mean time that calls over the target's links take, milliseconds, against the time that resending must cost."""
    parameters = injection.plan.parameters
    share = parameters.get("loss_percent", parameters.get("corrupt_percent", 0.0)) / 100
    return _slowest_link(injection, times, share * FIRST_RESEND_MS)


def links_narrow(injection: Injection, times: Times) -> Reading:
    """Mean time that calls over the target's links take, milliseconds, against what queueing costs."""
    return _slowest_link(injection, times, MIN_RESEND_MS)


def clock_apart(injection: Injection, _: Times) -> Reading:
    """Distance of the target's clock from the supervisor's, milliseconds."""
    values = [gauges["clock_offset_ms"] for _, gauges in injection.replica.gauges]
    wanted = abs(float(injection.plan.parameters["offset_ms"]))
    return 0.0, abs(values[-1]) if values else math.nan, MIN_GROWTH_SHARE * wanted


def collector_pauses(injection: Injection, times: Times) -> Reading:
    """Share of time that the target's process stands still to collect garbage."""
    before, after = (_per_second(injection.replica, "gc_s", window) for window in _windows(times))
    return before, after, _or_zero(before) + MIN_PAUSE_SHARE


def threads_busy(injection: Injection, times: Times) -> Reading:
    """Cores that the target's process uses."""
    before, after = (_per_second(injection.replica, "cpu_s", window) for window in _windows(times))
    return before, after, _or_zero(before) + MIN_BUSY_CORES


def heap_grows(injection: Injection, times: Times) -> Reading:
    """Resident memory of the target's process, MiB, against half of the growth or nearly its limit."""
    before, after = _memory_mb(injection.replica, times)
    grown = before + MIN_GROWTH_SHARE * injection.plan.parameters["size_mb"]
    return before, after, min(grown, FULL_SHARE * injection.replica.spec.memory_limit_mb)


def memory_full(injection: Injection, times: Times) -> Reading:
    """Share of the target's memory limit that is used, the companion's part included."""
    before, after = _memory_mb(injection.replica, times)
    companion = 0.0
    if (pid := injection.supervisor.companions.get(injection.replica.id)) is not None:
        try:
            companion = psutil.Process(pid).memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            companion = 0.0  # ended by whoever ended the fault
    limit = injection.replica.spec.memory_limit_mb
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


def _scoped(injection: Injection, activity: str) -> str:
    """Return the counter of the faulted operation alone when the fault names one."""
    operation = injection.plan.parameters.get("operation")
    return f"{activity} {operation}" if operation else activity


def _handling(injection: Injection) -> list[str]:
    return [_scoped(injection, "server"), "consumer"]


def _activities(replica: Replica, *prefixes: str) -> list[str]:
    """Return the counters that begin with a prefix; those of single operations, which have a blank, are left out."""
    return sorted({a for _, stats in replica.history for a in stats if a.startswith(prefixes) and " " not in a})


def _over_links(injection: Injection) -> list[tuple[list[Counted], list[str]]]:
    """Return (who counts, what) for calls over the target's links: its callers', and its own ones."""
    fleet, replica = injection.supervisor.fleet, injection.replica
    callers = [list[Counted](fleet.of(c)) for c in callers_of(fleet.system, replica.service)] + [[fleet.load]]
    own = _activities(replica, "call:", "sql:", "cache:")
    return [(who, [f"call:{replica.service}"]) for who in callers] + [([replica], [activity]) for activity in own]


def _totals(who: Iterable[Counted], window: Window, activities: list[str]) -> tuple[int, int, int]:
    rows = [window_difference(one, *window).get(a, (0, 0, 0)) for one in who for a in activities]
    return sum(r[0] for r in rows), sum(r[1] for r in rows), sum(r[2] for r in rows)


def _mean_ms(who: Iterable[Counted], window: Window, activities: list[str]) -> float:
    count, _, duration_ns = _totals(who, window, activities)
    return duration_ns / count / 1e6 if count >= MIN_REQUESTS else math.nan


def _slower(who: Iterable[Counted], times: Times, activities: list[str], delay_ms: float) -> Reading:
    before, after = (_mean_ms(who, window, activities) for window in _windows(times))
    return before, after, _or_zero(before) + MIN_DELAY_SHARE * float(delay_ms)


def _slowest_link(injection: Injection, times: Times, delay_ms: float) -> Reading:
    readings = [_slower(who, times, activities, delay_ms) for who, activities in _over_links(injection)]
    return max((r for r in readings if not math.isnan(r[1])), key=lambda r: r[1] - r[2], default=_NOTHING)


def _share(who: Iterable[Counted], times: Times, activities: list[str]) -> Reading:
    shares = []
    for window in _windows(times):
        count, errors, _ = _totals(who, window, activities)
        shares.append(errors / count if count >= MIN_REQUESTS else math.nan)
    return shares[0], shares[1], _or_zero(shares[0]) + MIN_ERROR_SHARE


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
