"""Attribution for an operations agent, from its run folder and the truth, on one time axis.

Read from the run folder, as far as it is there: run.json, trace.jsonl, actions.jsonl, timeline.jsonl, phases.jsonl,
alerts.jsonl, diagnosis.json and the scenario; of the case, the true faults, the causal graph and the telemetry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from opsassay.analysis.blame.joined import Break, ClockLane, first_break, lanes
from opsassay.analysis.blame.patterns import PatternFinding, find_patterns
from opsassay.core.errors import UserError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.json_lines import read_nouns
from opsassay.core.schema.scenario import Verification
from opsassay.core.schema.trajectory import Action, AlertReading, Attribution, Phase, Timeline, Trace
from opsassay.telemetry.tree import Case, read_noun
from opsassay.testbed.recording.observer import read_timeline

_Line = TypeVar("_Line", bound=Noun)
FLOOR = float(Verification.model_fields["floor_availability"].default)
"""The availability floor of V_temporal for runs without a scenario."""


@dataclass(frozen=True)
class RunRecord:
    """The records of a run folder other than the trace."""

    actions: tuple[Action, ...] = ()
    timeline: Timeline | None = None
    phases: tuple[Phase, ...] = ()
    alerts: tuple[AlertReading, ...] = ()
    diagnosis: Diagnosis | None = None
    floor: float = FLOOR


@dataclass(frozen=True)
class Joined:
    """A run's time axis and the findings on it, in order of step."""

    lanes: tuple[ClockLane, ...] = ()
    findings: tuple[PatternFinding, ...] = field(default=())


def read_run(folder: Path) -> RunRecord:
    """Return the records in a run's *folder*, empty for missing files; raises UserError, DatapackError."""
    if not folder.is_dir():
        raise UserError(f"There is no run folder {folder}; it is runs/<cell>/<attempt> of a recorded run.")
    answer, timeline = folder / "diagnosis.json", folder / "timeline.jsonl"
    return RunRecord(
        actions=_read_lines(folder / "actions.jsonl", Action),
        timeline=read_timeline(timeline) if timeline.exists() else None,
        phases=_read_lines(folder / "phases.jsonl", Phase),
        alerts=_read_lines(folder / "alerts.jsonl", AlertReading),
        diagnosis=read_noun(Diagnosis, answer) if answer.exists() else None,
        floor=_availability_floor(folder),
    )


def join(trace: Trace, record: RunRecord, case: Case | None = None) -> Joined:
    """Return a run's time axis with findings: a fall of availability and, given *case*, patterns of missed true roots."""
    graph = case.annotation.graph if case and case.annotation else None
    clock = lanes(
        trace, actions=record.actions, timeline=record.timeline, phases=record.phases, alerts=record.alerts,
        faults=case.truth.faults if case and case.truth else (), graph=graph,
    )  # fmt: skip
    patterns = (
        find_patterns(trace, record.diagnosis, graph, case.datapack) if case and graph and record.diagnosis else []
    )
    broken = _find_break(trace, record)
    found = [*([_break_finding(broken)] if broken else []), *patterns]
    return Joined(clock, tuple(sorted(found, key=lambda f: (f.step is None, f.step or 0))))


def blame_run(trace: Trace, joined: Joined) -> Attribution:
    """Return the step that took availability below its floor, else the first with another finding; empty without one."""
    with_step = [finding for finding in joined.findings if finding.step is not None]
    chosen = next((f for f in with_step if f.name == BROKE), next(iter(with_step), None))
    if chosen is None:
        return Attribution(reason="neither an action that broke V_temporal nor a failure pattern at any step")
    at = next((step for step in trace.steps if step.step_id == chosen.step), None)
    name = at.agent_name if at else None
    return Attribution(agent_name=name, step_id=chosen.step, reason=f"{chosen.name}: {chosen.evidence}")


BROKE = "broke V_temporal"


def _find_break(trace: Trace, record: RunRecord) -> Break | None:
    """Return the first fall of availability in *record* during the agent's work; None without one or its times."""
    times = {phase.phase: phase.time_ns for phase in record.phases}
    starts = [step.started_at for step in trace.steps if step.started_at is not None]
    started = times.get("agent_started", min(starts, default=None))
    ends = [step.ended_at for step in trace.steps if step.ended_at is not None]
    ended = times.get("agent_ended", max(ends, default=None))
    if record.timeline is None or started is None or ended is None:
        return None
    return first_break(record.timeline, record.actions, trace, floor=record.floor, started_ns=started, ended_ns=ended)


def _break_finding(broken: Break) -> PatternFinding:
    """Return *broken*, a fall of availability, as a finding: how far it fell, and the action before it."""
    action = broken.action
    did = f"{action.tool} {' '.join(map(str, action.arguments.values()))}".strip() if action else ""
    after = f"after {did}" if did else "and no action of the agent came before it"
    return PatternFinding(
        BROKE,
        broken.step,
        f"availability (D1) fell to {broken.value:.0%}, from {broken.standing:.0%} when the agent began, {after}",
    )


def _read_lines(path: Path, noun: type[_Line]) -> tuple[_Line, ...]:
    """Return the records of type *noun* in the JSON lines file *path*, () when it is missing."""
    return tuple(read_nouns(path, noun)) if path.exists() else ()


def _availability_floor(folder: Path) -> float:
    """Return the tolerated availability (0 to 1) from the scenario in a run's *folder*, else the default."""
    found = next((path for name in ("scenario.yaml", "scenario.json") if (path := folder / name).exists()), None)
    if found is None:
        return FLOOR
    from opsassay.core.schema.files import load_yaml
    from opsassay.core.schema.scenario import Scenario

    scenario: Any = load_yaml(found, Scenario)
    return float(scenario.verification.floor_availability)
