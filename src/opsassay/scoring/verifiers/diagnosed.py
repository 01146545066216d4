"""Whether an operator said what is wrong while it worked, and how soon (ITBench, C.6.3)."""

from __future__ import annotations

from opsassay.core.schema.scenario import Scenario
from opsassay.scoring.metrics import Metrics, not_applicable, scored
from opsassay.scoring.profiles import PROFILES
from opsassay.scoring.verifiers.evidence import RunRecording

RIGHT, TIME = "diagnosis_right", "time_to_diagnosis_s"


def diagnosis_metrics(recording: RunRecording, scenario: Scenario) -> Metrics:
    """Return diagnosis_right and time_to_diagnosis_s; {} when the agent was not asked for a diagnosis.

    Right is the last submitted diagnosis when it names exactly the root causes, in the normal form of the profile
    `default`, or none where nothing is broken; without a diagnosis it is not. Its time counts from the agent's start;
    not applicable (infinite in the paper) when it is not right. Both are not applicable where the scenario does not
    name the cause.
    """
    if recording.diagnoses is None:
        return {}
    true = scenario.true_causes()
    if not true and not scenario.no_fault:
        return not_applicable((RIGHT, TIME), "the scenario names no root cause")
    last = recording.diagnoses[-1] if recording.diagnoses else None
    normal = PROFILES["default"].service
    right = last is not None and set(map(normal, last.root_causes)) == set(map(normal, true))
    began_ns = next((phase.time_ns for phase in recording.phases if phase.phase == "agent_started"), None)
    if last is None or not right:
        why = "no diagnosis was handed in" if last is None else "the diagnosis was not right"
        return {RIGHT: scored(0.0), **not_applicable((TIME,), why)}
    if began_ns is None:
        return {RIGHT: scored(1.0), **not_applicable((TIME,), "the record does not say when the operator was let in")}
    return {RIGHT: scored(1.0), TIME: scored((last.time_ns - began_ns) / 1e9)}
