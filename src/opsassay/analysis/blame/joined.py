"""A run on one time axis: agent steps, actions, probes, depths D1 to D4, fault windows, causes; times in ns of UTC.

Sources: the trace (steps), the timeline (observations and probes), the truth (faults, onsets of the causal graph), the
recorded actions, phases and alerts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, get_args

from opsassay.core.schema.causal_graph import CausalGraph
from opsassay.core.schema.incident import Fault
from opsassay.core.schema.trajectory import Action, AlertReading, Depth, Phase, Timeline, Trace


@dataclass(frozen=True)
class ClockMark:
    """An interval on the time axis; *kind*: plain, action, fault, cause, good, bad or missed; *step*: its agent step."""

    text: str
    start_ns: int
    end_ns: int
    kind: str = "plain"
    step: int | None = None


@dataclass(frozen=True)
class ClockLane:
    """One row of the time axis, such as "actions"."""

    name: str
    marks: tuple[ClockMark, ...]


@dataclass(frozen=True)
class Break:
    """The moment at which availability fell below its limit while the agent worked, and the action before it.

    *at_ns* is UTC; *value* and *standing* (its value when the agent began) are shares of ready replicas; *step* is the
    agent step that decided on the action.
    """

    at_ns: int
    value: float
    standing: float
    action: Action | None
    step: int | None


def lanes(
    trace: Trace,
    *,
    actions: Sequence[Action] = (),
    timeline: Timeline | None = None,
    faults: Sequence[Fault] = (),
    graph: CausalGraph | None = None,
    phases: Sequence[Phase] = (),
    alerts: Sequence[AlertReading] = (),
) -> tuple[ClockLane, ...]:
    """Return the non-empty rows of a run's time axis: phases, steps, actions, probes, D1 to D4, alerts, faults, causes."""
    rows = [
        ClockLane("phases", tuple(ClockMark(p.phase.replace("_", " "), p.time_ns, p.time_ns) for p in phases)),
        ClockLane("agent steps", tuple(_marks_of_steps(trace))),
        ClockLane("actions", tuple(_marks_of_actions(trace, actions))),
        ClockLane("probes", tuple(_marks_of_probes(timeline))),
        *(ClockLane(depth, tuple(_marks_of_depth(timeline, depth))) for depth in get_args(Depth)),
        ClockLane("alerts", tuple(_marks_of_alerts(alerts))),
        ClockLane("faults", tuple(ClockMark(f"{f.type} on {f.place}", f.start_ns, f.end_ns, "fault") for f in faults)),
        ClockLane("causal graph", tuple(_marks_of_causes(graph))),
    ]
    return tuple(lane for lane in rows if lane.marks)


def first_break(
    timeline: Timeline, actions: Sequence[Action], trace: Trace, *, floor: float, started_ns: int, ended_ns: int
) -> Break | None:
    """Return the first D1 reading, while the agent worked, below *floor* and below the value at its start; else None.

    V_temporal: the share of ready replicas D1(t) >= min(floor, D1(start)) for start < t <= end; *floor* is a share,
    *started_ns* and *ended_ns* are UTC. Without a reading before the start D1(start) is 1. The blamed action is the
    last that had begun by then; its step is the one that it names, else the last that began before it. Source:
    "side-effects".
    """
    readings = sorted(_observations_of_depth(timeline, "D1"), key=lambda o: o.ended_ns)
    standing = next((o.value for o in reversed(readings) if o.ended_ns <= started_ns and o.value is not None), 1.0)
    limit = min(floor, standing)
    broken = next(
        (o for o in readings if started_ns < o.ended_ns <= ended_ns and o.value is not None and o.value < limit), None
    )
    if broken is None or broken.value is None:
        return None
    before = [action for action in actions if started_ns <= action.started_ns <= broken.ended_ns]
    action = max(before, key=lambda a: a.started_ns, default=None)
    return Break(broken.ended_ns, broken.value, standing, action, _find_step(action, trace) if action else None)


def _find_step(action: Action, trace: Trace) -> int | None:
    """Return the number of the step that took *action*: the stated one, else the last that began before it; or None."""
    if action.step_id is not None:
        return action.step_id
    begun = [step for step in trace.steps if step.started_at is not None and step.started_at <= action.started_ns]
    return begun[-1].step_id if begun else None


def _marks_of_steps(trace: Trace) -> Iterable[ClockMark]:
    """Yield a mark for each step of *trace* that has a time."""
    for step in trace.steps:
        if step.started_at is not None:
            tools = ", ".join(call.tool for call in step.tool_logs)
            text = f"step {step.step_id} by {step.agent_name}" + (f": {tools}" if tools else "")
            kind = "bad" if step.error else "plain"
            yield ClockMark(text, step.started_at, step.ended_at or step.started_at, kind, step.step_id)


def _marks_of_actions(trace: Trace, actions: Sequence[Action]) -> Iterable[ClockMark]:
    """Yield a mark for each action, naming the step that took it."""
    for action in actions:
        arguments = " ".join(map(str, action.arguments.values()))
        yield ClockMark(
            f"{action.tool} {arguments}".strip(),
            action.started_ns,
            action.ended_ns,
            "action",
            _find_step(action, trace),
        )


def _marks_of_probes(timeline: Timeline | None) -> Iterable[ClockMark]:
    """Yield a mark for each of the verifier's probes: good if it reached its target, else bad."""
    probes = {probe.id: probe for tick in (timeline.ticks if timeline else ()) for probe in tick.probes}
    for probe in probes.values():
        reached = f"{probe.latency_s:.2f} s" if probe.reachable else "not reachable"
        yield ClockMark(
            f"probe of {probe.target}: {reached}",
            probe.started_ns,
            probe.ended_ns,
            "good" if probe.reachable else "bad",
        )


def _marks_of_depth(timeline: Timeline | None, depth: Depth) -> Iterable[ClockMark]:
    """Yield a mark for each reading of *depth* (D1 to D4): good at 100%, bad below, or missed."""
    for reading in _observations_of_depth(timeline, depth):
        if reading.value is None:
            yield ClockMark(f"{depth} missed", reading.started_ns, reading.ended_ns, "missed")
        else:
            failing = f", failing: {', '.join(reading.failing)}" if reading.failing else ""
            kind = "good" if reading.value >= 1 else "bad"
            yield ClockMark(f"{depth} {reading.value:.0%}{failing}", reading.started_ns, reading.ended_ns, kind)


def _marks_of_alerts(readings: Sequence[AlertReading]) -> Iterable[ClockMark]:
    """Yield a mark for each interval in which the same alerts were firing."""
    for names, same in groupby(
        readings, key=lambda reading: sorted({f"{a.service} {a.signal}" for a in reading.firing})
    ):
        times = [reading.time_ns for reading in same]
        yield ClockMark(", ".join(names) or "all quiet", times[0], times[-1], "bad" if names else "good")


def _observations_of_depth(timeline: Timeline | None, depth: Depth) -> list[Any]:
    """Return the readings of *depth* (D1 to D4) in time order, [] without a timeline."""
    return [o for tick in (timeline.ticks if timeline else ()) for o in tick.observations if o.depth == depth]


def _marks_of_causes(graph: CausalGraph | None) -> Iterable[ClockMark]:
    """Yield a mark at the onset of each node of the causal *graph* that has one."""
    for node in graph.nodes if graph else ():
        if node.timestamp is not None:
            yield ClockMark(f"{node.component}: {', '.join(node.state)}", node.timestamp, node.timestamp, "cause")
