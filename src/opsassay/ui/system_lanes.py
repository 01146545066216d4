"""The states of a system during a remediation run as lanes, and the drops in availability after each change.

The lanes are those of Figure 1 of "side-effects", from the controller to the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from opsassay.core.schema.metric_words import word
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import Depth, Phase, TraceStep
from opsassay.scoring.verifiers import TrajectoryVerdict
from opsassay.scoring.verifiers.evidence import RunEvidence, Series
from opsassay.ui.clock import TRACK, Box, Cut, Lane, RunClock, Span, agent_lanes, timed
from opsassay.ui.plain import plain

PHASE_WORDS = {"deployed": "deployed", "triggered": "fault", "agent_started": "agent in", "agent_ended": "agent out"}
LANE_WORDS: dict[Depth, str] = {
    "D4": "critical parts that answer",
    "D3": "end-to-end requests that answer",
    "D2": "ready backends",
    "D1": "ready replicas",
}


@dataclass(frozen=True)
class Dip:
    """A change, *at_s* seconds into the run, and texts on the readings that *fell* before the next change."""

    at_s: float
    change: str
    fell: tuple[str, ...]


def span_of(evidence: RunEvidence, seconds: float = 0) -> Span:
    """Return the time axis of a remediation run, first reading to end, at least *seconds* long."""
    first = min((int(s.started[0]) for s in evidence.series.values() if len(s)), default=0)
    return Span(first, max(evidence.ended, first + int(seconds * 1e9), first + 1))


def trial_clock(
    evidence: RunEvidence, scenario: Scenario, verdict: TrajectoryVerdict, span: Span, steps: Sequence[TraceStep] = ()
) -> RunClock:
    """Return the timeline of a remediation run: rows, phases and the times that decided the verdict."""
    return RunClock(
        span,
        _make_lanes(evidence, scenario, span, steps),
        cuts=tuple(
            Cut(span.x(j.time_ns), f"{word(j.predicate).title}: {plain(j.reason, 300)}", word(j.predicate).title)
            for j in verdict.judgements
            if j.failed and j.time_ns is not None and j.predicate != "certificate"
        ),
        phases=tuple(
            Cut(span.x(p.time_ns), f"{PHASE_WORDS[p.phase]} at {span.when(p.time_ns)}", PHASE_WORDS[p.phase])
            for p in evidence.recording.phases
            if p.phase in PHASE_WORDS
        ),
        shades=_phase_shades(evidence.recording.phases, evidence, span),
    )


def dips_of(evidence: RunEvidence, span: Span) -> tuple[Dip, ...]:
    """Return for each action that changed the system which readings fell before the next one, and how far."""
    changes = sorted((a for a in evidence.recording.actions if a.mutating), key=lambda a: a.started_ns)
    ends = [a.started_ns for a in changes][1:] + [span.last_ns + 1] * bool(changes)
    found = []
    for change, end in zip(changes, ends, strict=True):
        fell = (_describe_fall(evidence.series[depth].read, words, change.started_ns, end)
                for depth, words in LANE_WORDS.items() if depth in evidence.series)  # fmt: skip
        arguments = " ".join(f"{key}={value}" for key, value in change.arguments.items())
        words = plain(f"{change.tool} {arguments}".strip(), 200)
        found.append(Dip((change.started_ns - span.first_ns) / 1e9, words, tuple(filter(None, fell))))
    return tuple(found)


def _describe_fall(series: Series, words: str, start: int, end: int) -> str:
    """Return how far and how soon after *start* *series* (called *words*) fell until *end*, ns; '' if not."""
    known = series.select(~np.isnan(series.values))
    before = known.values[known.ended <= start]
    after = known.select((known.started >= start) & (known.started < end))
    if not len(before) or not len(after) or after.values.min() >= before[-1]:
        return ""
    row = int(after.values.argmin())
    seconds = (int(after.started[row]) - start) / 1e9
    return f"{words} fell from {before[-1]:.0%} to {after.values[row]:.0%}, {seconds:.1f} s later"


def _make_lanes(evidence: RunEvidence, scenario: Scenario, span: Span, steps: Sequence[TraceStep]) -> tuple[Lane, ...]:
    """Return the timeline's rows: the agent's actions, then readings from controller to user (Figure 1)."""
    committed = scenario.verification
    floor = TRACK * (1 - committed.floor_availability)
    rows = [
        *agent_lanes(
            timed((a.model_dump() for a in evidence.recording.actions), "started_ns", "ended_ns"),
            timed((s.model_dump() for s in steps), "started_at", "ended_at"), span,
        ),
        Lane("probes", "requests that the verifier itself sent", tuple(_probe_boxes(evidence, span))),
        Lane("controller · D4", "share of critical parts that answer", _reading_boxes(evidence.series["D4"], span, "D4")),
        Lane("network · D2", "share of ready backends of protected services",
             _reading_boxes(evidence.series["D2"], span, "D2")),
        Lane("network · D3", "end-to-end requests that answer", _reading_boxes(evidence.series["D3"], span, "D3")),
        Lane("workload · D1", "share of ready replicas", _reading_boxes(evidence.series["D1"], span, "D1"),
             ((round(floor, 1), f"floor {committed.floor_availability:.0%}"),)),
        Lane("user", "share of users' requests that fail", tuple(_user_boxes(evidence, span))),
    ]  # fmt: skip
    return tuple(row.bounded() for row in rows if row.boxes)


def _reading_boxes(series: Series, span: Span, depth: Depth) -> tuple[Box, ...]:
    """Return a box per sequence of equal readings of *depth* (D1 to D4); its height is the share that is missing."""
    boxes: list[Box] = []
    begun = 0
    for row in range(1, len(series) + 1):
        same = row < len(series) and _are_alike(series, begun, row)
        if same:
            continue
        start = int(series.started[begun])
        end = int(series.started[row]) if row < len(series) else int(series.ended[row - 1])
        value = float(series.values[begun])
        failing = series.failing_names(begun)
        ticks = f"tick {series.ticks[begun]}" + (f" to {series.ticks[row - 1]}" if row - begun > 1 else "")
        if np.isnan(value):
            kind, words, depth_px = ("missed" if series.missed[begun] else "unknown"), "no reading", TRACK
        else:
            kind = "whole" if value >= 1 and not failing else "partly"
            words, depth_px = f"{value:.1%}", max(TRACK * (1 - value), 4.0 if failing else 2.0)
        named = f": {plain(', '.join(failing[:8]), 200)}" if failing else ""
        x = span.x(start)
        said = f"{LANE_WORDS[depth]} {words}{named}; {ticks}, from {span.when(start)}"
        boxes.append(Box(x, max(span.x(end) - x, 0.15), 0, depth_px, kind, said))
        begun = row
    return tuple(boxes)


def _are_alike(series: Series, first: int, second: int) -> bool:
    """Whether the readings with indices *first* and *second* have the same value and failing names."""
    a, b = series.values[first], series.values[second]
    equal = bool(a == b) or bool(np.isnan(a) and np.isnan(b))
    return equal and bool((series.failing[first] == series.failing[second]).all())


def _probe_boxes(evidence: RunEvidence, span: Span) -> Iterable[Box]:
    """Yield a timeline box for each probe in *evidence*, from its start to its response."""
    probes = evidence.probes
    for row in range(len(probes)):
        start, end = int(probes.started[row]), int(probes.ended[row])
        good = bool(probes.reachable[row])
        words = f"{plain(probes.ids[row], 60)} to {plain(probes.targets[row], 60)} at {span.when(start)}: " + (
            f"answered in {probes.latency_s[row]:.2f} s" if good else f"no answer, {probes.latency_s[row]:.2f} s"
        )
        x = span.x(start)
        yield Box(x, max(span.x(end) - x, 0.4), 8, TRACK - 16, "probe" if good else "dead", words)


def _user_boxes(evidence: RunEvidence, span: Span) -> Iterable[Box]:
    """Yield a box per interval with user requests; its height is the share that failed."""
    counts = evidence.counts
    done, failed = counts.done.sum(axis=1), counts.failed.sum(axis=1)
    for row in range(len(done)):
        start, end = int(counts.times[row]), int(counts.times[row + 1])
        if done[row] <= 0:
            continue
        share = float(failed[row] / done[row])
        words = f"{failed[row]:.0f} of {done[row]:.0f} requests failed, from {span.when(start)}"
        x, height = span.x(start), max(TRACK * share, 2.0)
        kind = "partly" if failed[row] else "whole"
        yield Box(x, max(span.x(end) - x, 0.1), TRACK - height, height, kind, words)


def _phase_shades(phases: Sequence[Phase], evidence: RunEvidence, span: Span) -> tuple[Box, ...]:
    """Return timeline boxes that shade *phases*: fault alone, agent at work, final state."""
    times = {phase.phase: phase.time_ns for phase in phases}
    spans = [("broken", times.get("triggered"), times.get("agent_started")),
             ("agent", times.get("agent_started"), times.get("agent_ended")),
             ("final", evidence.final_from, evidence.ended)]  # fmt: skip
    words = {
        "broken": "the fault alone", "agent": "the agent at work", "final": "the final state",
    }  # fmt: skip
    return tuple(
        Box(span.x(start), max(span.x(end) - span.x(start), 0.2), 0, TRACK, kind, words[kind])
        for kind, start, end in spans
        if start is not None and end is not None and end > start
    )
