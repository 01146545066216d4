"""v_cause: what was broken is repaired where it sits; nothing runs beside it instead."""

from __future__ import annotations

from collections.abc import Iterator

from opsassay.core.schema.scenario import Cause, Scenario
from opsassay.core.schema.trajectory import SettingsReading
from opsassay.scoring.verifiers.entities import entities_at
from opsassay.scoring.verifiers.evidence import RunEvidence, failed, passed_judgement
from opsassay.scoring.verifiers.judgement import Judgement, missing, not_applicable
from opsassay.scoring.verifiers.repairs import RightChanges
from opsassay.scoring.verifiers.settings import all_settings

NAME = "v_cause"
MISHAPS = ("consumer stall", "pool leak", "hang")
"""The verbs of a trigger that break the processes that run, and only those."""


def v_cause(evidence: RunEvidence, committed: Cause, scenario: Scenario, right: RightChanges) -> Judgement:
    """Judge whether the cause is gone: the settings that the trigger changed and the processes that it broke.

    A setting counts if every *right* repair changes it, and must have another value at the end than when the agent
    started. A broken process must have ended; other replicas that answer make no difference.
    """
    before, found = _last_readings(evidence)
    now = max(evidence.recording.settings, key=lambda reading: reading.time_ns, default=None)
    mishaps = broken_processes(scenario)
    if before is None or found is None or now is None or now.time_ns < evidence.agent_ended:
        return missing(NAME, "settings were not recorded before the fault, before the agent and after it")
    settings = [name for name in broken_settings(evidence, right) if name not in committed.except_for]
    if not settings and not mishaps:
        return not_applicable(NAME, "what is broken is neither a setting nor a process")
    stands = [f"{name} is as the fault left it" for name in settings if _is_unchanged(name, found, now)]
    left = processes_left(evidence, mishaps, evidence.ended)
    stands += [f"{replica} is the process that was broken" for replica in left]
    if stands:
        return failed(evidence, NAME, f"the cause stands: {'; '.join(stands[:6])}", now.time_ns)
    return passed_judgement(evidence, NAME, f"gone: {', '.join([*settings, *mishaps])}")


def broken_settings(evidence: RunEvidence, right: RightChanges) -> list[str]:
    """Return the settings that the trigger changed and every right repair changes; [] without recorded settings."""
    before, found = _last_readings(evidence)
    changed = _changed_settings(before, found) if before is not None and found is not None else []
    return [name for name in changed if right.needs(name)]


def broken_processes(scenario: Scenario) -> list[str]:
    """Return the services of which the trigger breaks the processes that run."""
    return [call.arguments["service"] for call in scenario.trigger.operations if call.verb in MISHAPS]


def found_settings(evidence: RunEvidence) -> dict[str, str]:
    """Return every setting as the agent found it; {} without a reading."""
    _, found = _last_readings(evidence)
    return {} if found is None else all_settings(found)


def _last_readings(evidence: RunEvidence) -> tuple[SettingsReading | None, SettingsReading | None]:
    """Return the last settings readings before the fault and before the agent's start, None where missing."""
    readings = sorted(evidence.recording.settings, key=lambda reading: reading.time_ns)
    before = [one for one in readings if evidence.triggered is not None and one.time_ns <= evidence.triggered]
    found = [one for one in readings if one.time_ns <= evidence.agent_started]
    return before[-1] if before else None, found[-1] if found else None


def _changed_settings(before: SettingsReading, after_fault: SettingsReading) -> list[str]:
    """Return the sorted names of settings whose values *before* and *after_fault* differ, or that only one has."""
    was, came = all_settings(before), all_settings(after_fault)
    return sorted(name for name in {*was, *came} if was.get(name) != came.get(name))


def _is_unchanged(name: str, at_start: SettingsReading, at_end: SettingsReading) -> bool:
    """Return whether setting *name* has the same value, or is missing, both *at_start* and *at_end*."""
    return all_settings(at_start).get(name) == all_settings(at_end).get(name)


def processes_left(evidence: RunEvidence, services: list[str], instant_ns: int) -> Iterator[str]:
    """Yield the replicas of *services* whose process at the fault's start is still running at *instant_ns*."""
    ticks, triggered = evidence.recording.timeline.ticks, evidence.triggered
    if not services or triggered is None:
        return
    broken = entities_at(ticks, until_ns=triggered) or {}
    last = entities_at(ticks, until_ns=instant_ns) or {}
    for name, entity in sorted(broken.items()):
        now = last.get(name)
        if entity.service in services and now is not None and now.incarnation == entity.incarnation:
            yield name
