"""Whether a fault bites: its own signature, measured against the moments before, from counters and not from telemetry.

A signature looks at the replica's counters in two windows and returns (before, after, threshold); the fault bites when
*after* reaches *threshold*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from assay.model.system import System
from assay.testbed.local.fleet import Fleet, Replica, window_difference

MIN_REQUESTS = 3
MIN_ERROR_SHARE = 0.25
MIN_SLOWDOWN = 2.0
MIN_DELAY_SHARE = 0.5

Reading = tuple[float, float, float]
Signature = Callable[[Fleet, Replica, dict[str, Any], tuple[float, float]], Reading]
"""(fleet, replica, parameters, (start of the moments before, moment of application)) -> (before, after, threshold)."""


def replica_gone(_: Fleet, replica: Replica, __: dict[str, Any], times: tuple[float, float]) -> Reading:
    """Ready backends of the target went from one to none, or its process is younger than the fault."""
    gone = not replica.ready or replica.started_at > times[1]
    return 0.0, float(gone), 1.0


def server_errors(_: Fleet, replica: Replica, __: dict[str, Any], times: tuple[float, float]) -> Reading:
    """Share of failed responses of the target."""
    return _share([replica], times, ["server"])


def statement_errors(_: Fleet, replica: Replica, __: dict[str, Any], times: tuple[float, float]) -> Reading:
    """Share of failed database calls of the target."""
    return _share([replica], times, _activities(replica, "sql:"))


def server_slow(_: Fleet, replica: Replica, parameters: dict[str, Any], times: tuple[float, float]) -> Reading:
    """Mean response time of the target, milliseconds."""
    before, after = (_mean_ms([replica], window, ["server"]) for window in _windows(times))
    return before, after, before + MIN_DELAY_SHARE * float(parameters["delay_ms"])


def cpu_starved(_: Fleet, replica: Replica, __: dict[str, Any], times: tuple[float, float]) -> Reading:
    """Mean time that the target takes for a request or message, milliseconds."""
    before, after = (_mean_ms([replica], window, ["server", "consumer"]) for window in _windows(times))
    return before, after, MIN_SLOWDOWN * before


def links_slow(fleet: Fleet, replica: Replica, parameters: dict[str, Any], times: tuple[float, float]) -> Reading:
    """Mean time that calls over the target's links take, milliseconds: the link that slowed most."""
    readings = []
    callers = callers_of(fleet.system, replica.service)
    for who, activities in [(fleet.of(c), [f"call:{replica.service}"]) for c in callers] + [
        ([replica], [activity]) for activity in _activities(replica, "call:", "sql:", "cache:")
    ]:
        readings.append(tuple(_mean_ms(who, window, activities) for window in _windows(times)))
    before, after = max(readings, key=lambda r: r[1] - r[0], default=(math.nan, math.nan))
    return before, after, before + MIN_DELAY_SHARE * float(parameters["delay_ms"])


def callers_of(system: System, service: str) -> list[str]:
    """Return the services that call *service*."""
    return sorted(caller for caller, callee in system.calls() if callee == service)


def _windows(times: tuple[float, float]) -> tuple[tuple[float, float | None], tuple[float, float | None]]:
    return (times[0], times[1]), (times[1], None)


def _activities(replica: Replica, *prefixes: str) -> list[str]:
    return sorted({a for _, stats in replica.history for a in stats if a.startswith(prefixes)})


def _totals(
    replicas: Iterable[Replica], window: tuple[float, float | None], activities: list[str]
) -> tuple[int, int, int]:
    rows = [window_difference(replica, *window).get(a, (0, 0, 0)) for replica in replicas for a in activities]
    return sum(r[0] for r in rows), sum(r[1] for r in rows), sum(r[2] for r in rows)


def _mean_ms(replicas: list[Replica], window: tuple[float, float | None], activities: list[str]) -> float:
    count, _, duration_ns = _totals(replicas, window, activities)
    return duration_ns / count / 1e6 if count >= MIN_REQUESTS else math.nan


def _share(replicas: list[Replica], times: tuple[float, float], activities: list[str]) -> Reading:
    shares = []
    for window in _windows(times):
        count, errors, _ = _totals(replicas, window, activities)
        shares.append(errors / count if count >= MIN_REQUESTS else math.nan)
    return shares[0], shares[1], (0.0 if math.isnan(shares[0]) else shares[0]) + MIN_ERROR_SHARE
