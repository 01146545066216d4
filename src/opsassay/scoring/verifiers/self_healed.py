"""Whether a fault ended by itself before the agent changed anything: then nobody repaired it, and nothing is certified."""

from __future__ import annotations

import numpy as np

from opsassay.core.schema.scenario import Scenario
from opsassay.scoring.verifiers.evidence import RunEvidence

QUIET_S = 10.0
"""For so long before the agent's first change no sign of the fault was left."""


def fault_ended(evidence: RunEvidence, scenario: Scenario) -> str:
    """Return why the fault is assumed to have ended before the agent changed anything, '' when it is not.

    Signs of a fault are failures and alerts at the agent's start. An agent that changed nothing repaired nothing, even
    if they ended.
    """
    if scenario.no_fault or scenario.verification.settling is None or scenario.verification.profile == "paper":
        return ""
    if evidence.first_change is None:
        return "the agent changed nothing"
    begins, until = evidence.agent_started, evidence.first_change - int(QUIET_S * 1e9)
    last = [_last_failure_ns(evidence, depth, begins, evidence.first_change) for depth in ("D1", "D4")]
    last += [_last_failed_probe_ns(evidence, begins), _last_alert_ns(evidence, begins)]
    seen = [time_ns for time_ns in last if time_ns is not None]
    if not seen or max(seen) > until:
        return ""
    quiet_s = (evidence.first_change - max(seen)) / 1e9
    return f"no sign of the fault was left for {quiet_s:.0f} s before the agent's first change"


def _last_failure_ns(evidence: RunEvidence, depth: str, agent_started: int, end: int) -> int | None:
    """Return the time (ns) until *end* of the last failure in *depth* of what failed at *agent_started*, or None."""
    series = evidence.judged[depth]  # type: ignore[index]
    rows = np.flatnonzero(series.ended <= agent_started)
    if not len(rows) or not series.failing[rows[-1]].any():
        return None
    known = series.failing[rows[-1]]
    failing = (series.failing & known).any(axis=1) & (series.started <= end)
    return int(series.ended[failing][-1])


def _last_failed_probe_ns(evidence: RunEvidence, agent_started: int) -> int | None:
    """Return the time (ns) of the last failed probe of a service that was down at *agent_started*, else None."""
    probes, dead = evidence.probes, set[str]()
    for row, target in enumerate(probes.targets):
        if probes.ended[row] <= agent_started:
            (dead.discard if probes.reachable[row] else dead.add)(target)
    times = [
        int(probes.ended[row])
        for row, target in enumerate(probes.targets)
        if target in dead - evidence.standing["D3"]
        and not probes.reachable[row]
        and (evidence.first_change is None or probes.started[row] <= evidence.first_change)
    ]
    return max(times, default=None)


def _last_alert_ns(evidence: RunEvidence, agent_started: int) -> int | None:
    """Return the time (ns) at which an alert that was firing at *agent_started* fired last, else None."""
    since, first = evidence.triggered or 0, evidence.first_change or evidence.ended
    readings = sorted(
        (one for one in evidence.recording.alerts if since <= one.time_ns <= first), key=lambda one: one.time_ns
    )
    early = [one for one in readings if one.time_ns <= agent_started]
    if not early or not early[-1].firing:
        return None
    known = {(alert.service, alert.signal) for alert in early[-1].firing}
    times = [one.time_ns for one in readings if known & {(alert.service, alert.signal) for alert in one.firing}]
    return max(times, default=None)
