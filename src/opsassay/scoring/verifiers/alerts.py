"""alerts_cleared, ITBench's success of a mitigation (C.6): what had fired before the agent began is quiet, and stays so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opsassay.core.schema.scenario import AlertRule as TriggeringRule
from opsassay.core.schema.scenario import AlertsCleared
from opsassay.core.schema.trajectory import AlertReading
from opsassay.scoring.verifiers.evidence import RunEvidence, failed
from opsassay.scoring.verifiers.judgement import Judged, Judgement, missing, not_applicable

NAME = "alerts_cleared"

LONGEST_GAP_S = 10.0
"""A longer stretch without a reading is no evidence, unless the hold itself is longer."""

AlertRule = tuple[str, str]
"""Service and signal of an alert."""


@dataclass(frozen=True)
class _Firing:
    """Readings in time order and the rules that fired in each; *rules* are those that must clear."""

    readings: Sequence[AlertReading]
    fired: Sequence[set[AlertRule]]
    rules: set[AlertRule]

    @property
    def last(self) -> int:
        """The index of the last reading in which one of *rules* fired; raises ValueError when none did."""
        return max(i for i, firing in enumerate(self.fired) if firing & self.rules)


def alerts_cleared(evidence: RunEvidence, committed: AlertsCleared) -> tuple[Judgement, float | None]:
    """Judge whether the alerts of the agent's start cleared and stayed clear; return also the time to repair, s.

    The hold of `hold_s` seconds counts from the later of the last firing and the agent's last change: earlier readings
    do not show its effect. Time to repair is from the agent's start to the first quiet reading.
    """
    rules = awaited(committed, probes_on=evidence.recording.probes_on)
    if committed.triggering and not rules:
        return not_applicable(NAME, "its alerts are those of probes, and none were sent"), None
    committed = committed.model_copy(update={"triggering": rules})
    firing = _required_rules(evidence, committed)
    if isinstance(firing, str):
        return missing(NAME, f"{firing} fired before the agent was let in"), None
    last = firing.last
    if last == len(firing.readings) - 1:
        still = sorted(firing.fired[last] & firing.rules)
        return failed(
            evidence, NAME, f"{_format_rule(still[0])} still fires at the end", firing.readings[last].time_ns
        ), None
    cleared_ns = firing.readings[last + 1].time_ns
    times = np.array([reading.time_ns for reading in firing.readings[last + 1 :]])
    if reason := _why_not_held(evidence, times, committed.hold_s):
        return missing(NAME, reason), None
    repair_s = max(0.0, (cleared_ns - evidence.agent_started) / 1e9)
    cleared = ", ".join(map(_format_rule, sorted(firing.rules)))
    judgement = Judgement(
        predicate=NAME,
        status=Judged.PASSED,
        reason=f"{cleared} cleared {repair_s:.0f} s after the agent's start and stayed so",
        value=repair_s,
        limit=committed.hold_s,
        tick=evidence.tick_at(cleared_ns),
        time_ns=cleared_ns,
    )
    return judgement, repair_s


def awaited(committed: AlertsCleared, *, probes_on: bool) -> tuple[TriggeringRule, ...]:
    """Return the alert rules that must fire before a trial starts; those about probes only if *probes_on*."""
    return tuple(rule for rule in committed.triggering if probes_on or rule.signal != "probe_failed")


def _required_rules(evidence: RunEvidence, committed: AlertsCleared) -> _Firing | str:
    """Return the alert readings with the rules that must clear: committed, else all that fired; or what is missing."""
    readings = sorted(evidence.recording.alerts, key=lambda reading: reading.time_ns)
    fired = [{(alert.service, alert.signal) for alert in reading.firing} for reading in readings]
    since = evidence.triggered or 0
    early = [rules for r, rules in zip(readings, fired, strict=True) if since <= r.time_ns <= evidence.agent_started]
    had_fired: set[AlertRule] = set().union(*early)
    required = set[AlertRule]() if committed.triggering else had_fired
    for rule in committed.triggering:
        meant = {one for one in had_fired if one[1] == rule.signal and rule.service in ("", one[0])}
        if not meant:
            return f"{_format_rule((rule.service, rule.signal))} had not"
        required |= meant
    return _Firing(readings, fired, required) if required else "no alert had"


def _why_not_held(evidence: RunEvidence, times: NDArray[np.int64], hold_s: float) -> str:
    """Return why the readings without alerts at *times* (ns) do not cover *hold_s* seconds, '' when they do."""
    cleared_ns = int(times[0])
    held_from = max(cleared_ns, evidence.final_from if evidence.first_change is not None else cleared_ns)
    held_s = (int(times[-1]) - held_from) / 1e9
    if held_s < hold_s:
        return f"quiet for {max(held_s, 0):.0f} s of the {hold_s:g} s hold when the record ends"
    in_hold = times[:-1] < held_from + hold_s * 1e9
    longest = float(np.diff(times)[in_hold].max(initial=0)) / 1e9
    return (
        f"the alert rules were not evaluated for {longest:.0f} s of the hold"
        if longest > max(hold_s, LONGEST_GAP_S)
        else ""
    )


def _format_rule(rule: AlertRule) -> str:
    """Return the rule as "name subject", or the name alone."""
    return f"{rule[0]} {rule[1]}".strip()
