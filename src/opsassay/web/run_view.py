"""What the page of a trial shows: lanes over one time axis, as positions in percent and words; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from opsassay.grading.verifiers import Judgement, RunRecording, TrajectoryVerdict, evidence_of
from opsassay.grading.verifiers.diagnosed import RIGHT, TIME
from opsassay.grading.verifiers.evidence import RunEvidence, Series
from opsassay.model.run import Run
from opsassay.model.scenario import Scenario
from opsassay.model.task import Arm
from opsassay.model.trajectory import Action, Phase, TraceStep
from opsassay.web.plain import plain

TRACK = 40.0
"""Height of the drawn part of a lane, pixels."""
MOST_WORDS = 600


@dataclass(frozen=True)
class Box:
    """A rectangle: *x* and *width* in percent of the axis, *y* and *height* in pixels."""

    x: float
    width: float
    y: float
    height: float
    kind: str
    words: str


@dataclass(frozen=True)
class Lane:
    """One row: its boxes, and dashed *limits* (y in pixels, words)."""

    name: str
    about: str
    boxes: tuple[Box, ...]
    limits: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Cut:
    """A vertical line: a predicate that failed there, or a phase that begins there."""

    x: float
    words: str
    short: str
    anchor: str = ""


@dataclass(frozen=True)
class StepRow:
    """One step of the agent beside the lanes."""

    number: int
    when: str
    agent: str
    tools: tuple[str, ...]
    said: str
    wrong: bool


@dataclass(frozen=True)
class TrialView:
    """Everything on the page, as text and numbers."""

    title: str
    facts: tuple[tuple[str, str], ...]
    state: str
    headline: str
    judgements: tuple[tuple[str, str, str, str], ...]
    lanes: tuple[Lane, ...]
    cuts: tuple[Cut, ...]
    phases: tuple[Cut, ...]
    shades: tuple[Box, ...]
    ticks: tuple[tuple[float, str], ...]
    steps: tuple[StepRow, ...]
    notes: tuple[str, ...] = field(default=())


PHASE_WORDS = {
    "deployed": "deployed",
    "triggered": "fault",
    "agent_started": "agent in",
    "agent_ended": "agent out",
}


def trial_view(
    run: Run, scenario: Scenario, recording: RunRecording, verdict: TrajectoryVerdict, steps: Sequence[TraceStep] = ()
) -> TrialView:
    """Return what the page of a trial shows."""
    evidence = evidence_of(recording, scenario)
    first = min((int(s.started[0]) for s in evidence.series.values() if len(s)), default=0)
    last = max(evidence.ended, first + 1)

    def at(time_ns: int) -> float:
        return round(min(100.0, max(0.0, 100 * (time_ns - first) / (last - first))), 3)

    def when(time_ns: int | None) -> str:
        return "–" if time_ns is None else f"{(time_ns - first) / 1e9:.1f} s"

    certificate = verdict.judgement("certificate")
    hidden = bool(verdict.metrics["hidden_failure"].value)
    state = "certified" if certificate.passed else "hidden" if hidden else "failed" if certificate.failed else "open"
    words = {
        "certified": "Certified: every committed predicate holds.",
        "hidden": _hidden_words(evidence, verdict),
        "failed": "Not certified.",
        "open": "Not judged.",
    }
    return TrialView(
        title=plain(scenario.title, 200),
        facts=_facts(run, scenario, verdict),
        state=state,
        headline=words[state],
        judgements=tuple(_judgement(j, when) for j in verdict.judgements),
        lanes=_lanes(evidence, scenario, at, when),
        cuts=tuple(
            Cut(at(j.time_ns), f"{j.predicate}: {plain(j.reason, 300)}", j.predicate, f"tick-{j.tick}")
            for j in verdict.judgements
            if j.failed and j.time_ns is not None and j.predicate != "certificate"
        ),
        phases=tuple(Cut(at(p.time_ns), f"{PHASE_WORDS[p.phase]} at {when(p.time_ns)}", PHASE_WORDS[p.phase])
                     for p in recording.phases if p.phase in PHASE_WORDS),
        shades=_shades(recording.phases, evidence, at),
        ticks=_axis(last - first),
        steps=tuple(_step(step, when) for step in steps),
        notes=(("A what-if: not what was committed before the run, and never ranked.",) if verdict.what_if else ()),
    )  # fmt: skip


def _hidden_words(evidence: RunEvidence, verdict: TrajectoryVerdict) -> str:
    """Return what a hidden failure hid: V_outcome passes, which sees replicas and critical parts alone."""
    amiss = []
    depth = verdict.judgement("v_depth")
    if depth.failed:
        amiss.append(plain(depth.reason, 200))
    for name in ("D2", "D3"):
        series = evidence.series[name].read
        if len(series) and not depth.failed and (not series.values[-1] >= 1 or series.named(len(series) - 1)):
            amiss.append(f"{name} is at {series.values[-1]:.1%}")
    readings = sorted(evidence.recording.alerts, key=lambda reading: reading.time_ns)
    if readings and (firing := len(readings[-1].firing)):
        amiss.append(f"{firing} alert{'s' if firing > 1 else ''} still fire{'' if firing > 1 else 's'}")
    if amiss:
        return f"Hidden failure: its replicas are ready at the end, but {'; '.join(amiss)}."
    return "Hidden failure: it looks healthy at the end, and the whole run does not hold."


def _facts(run: Run, scenario: Scenario, verdict: TrajectoryVerdict) -> tuple[tuple[str, str], ...]:
    committed = scenario.verification
    every_s = None if Arm.parse(run.arm).knob("probes") == "off" else committed.probe_every_s
    probes = "off but for the last" if every_s is None else f"every {every_s:g} s"
    return (
        ("agent", plain(run.solver.name, 200)),
        ("scenario", f"{scenario.id} ({scenario.category})"),
        ("system", f"{scenario.environment.system} on {scenario.environment.substrate}"),
        ("prompt arm", run.arm.partition("/")[0]),
        ("probes", probes),
        ("committed depth", f"{committed.committed_depth}; V_temporal over {committed.temporal_depth}"),
        ("profile", verdict.profile),
        ("commitment", f"{verdict.scenario_digest[:16]}"),
        *_diagnosis(verdict),
        ("alert", plain(scenario.alert.strip(), 800)),
        ("desired outcome", plain(scenario.desired_outcome, 400)),
    )


def _diagnosis(verdict: TrajectoryVerdict) -> tuple[tuple[str, str], ...]:
    """Return what came of the diagnosis that the operator was asked for, nothing where it was not."""
    right, after = verdict.metrics.get(RIGHT), verdict.metrics.get(TIME)
    if right is None or after is None:
        return ()
    after_s = f", after {after.value:.1f} s" if after.value is not None else ""
    return (("diagnosis", f"right{after_s}" if right.value else after.reason),)


def _judgement(judgement: Judgement, when: Callable[[int | None], str]) -> tuple[str, str, str, str]:
    reason = plain(judgement.reason, MOST_WORDS)
    if judgement.subtracted:
        reason += f" (stood before the fault and was subtracted: {plain(', '.join(judgement.subtracted), 200)})"
    where = "–" if judgement.tick is None else f"tick {judgement.tick}, {when(judgement.time_ns)}"
    return judgement.predicate, judgement.status.value, reason, where


def _lanes(
    evidence: RunEvidence, scenario: Scenario, at: Callable[[int], float], when: Callable[[int | None], str]
) -> tuple[Lane, ...]:
    """Return the lanes: what was done above, then the paper's four (Figure 1) from the controller to the user."""
    committed = scenario.verification
    floor = TRACK * (1 - committed.floor_availability)
    rows = [
        Lane("actions", "what the agent did; outlined ones only looked",
             tuple(_action(a, at, when) for a in evidence.recording.actions)),
        Lane("probes", "requests that the verifier itself sent", tuple(_probes(evidence, at, when))),
        Lane("controller · D4", "share of critical parts that answer", _course(evidence.series["D4"], at, when, "D4")),
        Lane("network · D2", "share of ready backends of protected services",
             _course(evidence.series["D2"], at, when, "D2")),
        Lane("network · D3", "end-to-end requests that answer", _course(evidence.series["D3"], at, when, "D3")),
        Lane("workload · D1", "share of ready replicas", _course(evidence.series["D1"], at, when, "D1"),
             ((round(floor, 1), f"floor {committed.floor_availability:.0%}"),)),
        Lane("user", "share of users' requests that fail", tuple(_users(evidence, at, when))),
    ]  # fmt: skip
    return tuple(row for row in rows if row.boxes)


def _course(
    series: Series, at: Callable[[int], float], when: Callable[[int | None], str], depth: str
) -> tuple[Box, ...]:
    """Return one box per stretch of equal readings: it hangs from the top as deep as something is missing."""
    boxes: list[Box] = []
    begun = 0
    for row in range(1, len(series) + 1):
        same = row < len(series) and _alike(series, begun, row)
        if same:
            continue
        start = int(series.started[begun])
        end = int(series.started[row]) if row < len(series) else int(series.ended[row - 1])
        value = float(series.values[begun])
        failing = series.named(begun)
        span = f"tick {series.ticks[begun]}" + (f" to {series.ticks[row - 1]}" if row - begun > 1 else "")
        if np.isnan(value):
            kind, words, depth_px = ("missed" if series.missed[begun] else "unknown"), "no reading", TRACK
        else:
            kind = "whole" if value >= 1 and not failing else "partly"
            words, depth_px = f"{value:.1%}", max(TRACK * (1 - value), 4.0 if failing else 2.0)
        named = f": {plain(', '.join(failing[:8]), 200)}" if failing else ""
        x = at(start)
        boxes.append(
            Box(x, max(at(end) - x, 0.15), 0, depth_px, kind, f"{depth} {words}{named}; {span}, from {when(start)}")
        )
        begun = row
    return tuple(boxes)


def _alike(series: Series, one: int, other: int) -> bool:
    a, b = series.values[one], series.values[other]
    equal = bool(a == b) or bool(np.isnan(a) and np.isnan(b))
    return equal and bool((series.failing[one] == series.failing[other]).all())


def _probes(evidence: RunEvidence, at: Callable[[int], float], when: Callable[[int | None], str]) -> Iterable[Box]:
    probes = evidence.probes
    for row in range(len(probes)):
        start, end = int(probes.started[row]), int(probes.ended[row])
        good = bool(probes.reachable[row])
        words = f"{plain(probes.ids[row], 60)} to {plain(probes.targets[row], 60)} at {when(start)}: " + (
            f"answered in {probes.latency_s[row]:.2f} s" if good else f"no answer, {probes.latency_s[row]:.2f} s"
        )
        x = at(start)
        yield Box(x, max(at(end) - x, 0.4), 8, TRACK - 16, "probe" if good else "dead", words)


def _action(action: Action, at: Callable[[int], float], when: Callable[[int | None], str]) -> Box:
    arguments = " ".join(f"{key}={value}" for key, value in action.arguments.items())
    words = f"{action.tool} {arguments}".strip() + f" at {when(action.started_ns)}, {action.status}"
    x = at(action.started_ns)
    kind = "change" if action.mutating else "look"
    return Box(x, max(at(action.ended_ns) - x, 0.4), 6, TRACK - 12, kind, plain(words, 300))


def _users(evidence: RunEvidence, at: Callable[[int], float], when: Callable[[int | None], str]) -> Iterable[Box]:
    counts = evidence.counts
    done, failed = counts.done.sum(axis=1), counts.failed.sum(axis=1)
    for row in range(len(done)):
        start, end = int(counts.times[row]), int(counts.times[row + 1])
        if done[row] <= 0:
            continue
        share = float(failed[row] / done[row])
        words = f"{failed[row]:.0f} of {done[row]:.0f} requests failed, from {when(start)}"
        x, height = at(start), max(TRACK * share, 2.0)
        kind = "partly" if failed[row] else "whole"
        yield Box(x, max(at(end) - x, 0.1), TRACK - height, height, kind, words)


def _shades(phases: Sequence[Phase], evidence: RunEvidence, at: Callable[[int], float]) -> tuple[Box, ...]:
    times = {phase.phase: phase.time_ns for phase in phases}
    spans = [("broken", times.get("triggered"), times.get("agent_started")),
             ("agent", times.get("agent_started"), times.get("agent_ended")),
             ("final", evidence.final_from, evidence.ended)]  # fmt: skip
    words = {
        "broken": "the fault alone", "agent": "the agent at work", "final": "the final state, all that V_outcome sees",
    }  # fmt: skip
    return tuple(
        Box(at(start), max(at(end) - at(start), 0.2), 0, TRACK, kind, words[kind])
        for kind, start, end in spans
        if start is not None and end is not None and end > start
    )


def _axis(length_ns: int) -> tuple[tuple[float, str], ...]:
    seconds = length_ns / 1e9
    step = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800) if seconds / s <= 10), 3600)
    marks = range(0, int(seconds) + 1, step)
    return tuple((round(100 * mark / seconds, 3), f"{mark} s") for mark in marks if mark / seconds < 0.97)


def _step(step: TraceStep, when: Callable[[int | None], str]) -> StepRow:
    tools = tuple(
        plain(f"{call.tool} {' '.join(f'{k}={v}' for k, v in call.arguments.items())}".strip(), 200)
        + ("" if call.status == "ok" else f" ({call.status})")
        for call in step.tool_logs
    )
    wrong = step.error is not None or any(call.status != "ok" for call in step.tool_logs)
    return StepRow(
        step.step_id, when(step.started_at), plain(step.agent_name, 80), tools,
        plain(step.output_content or step.error or "", MOST_WORDS), wrong,
    )  # fmt: skip
