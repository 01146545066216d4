"""The lanes of a run over one time axis, agent and system, as positions in percent and texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from opsassay.ui.plain import plain

TRACK = 40.0
"""Height of the drawn part of a lane in pixels."""
MOST_BOXES = 1_000
"""Most boxes of a lane that are drawn."""


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
    """One row of a timeline: its boxes, and dashed horizontal *limits* (y in pixels, text)."""

    name: str
    about: str
    boxes: tuple[Box, ...]
    limits: tuple[tuple[float, str], ...] = ()

    def bounded(self) -> Lane:
        """Return the row with at most `MOST_BOXES` boxes; its text says how many are left out."""
        over = len(self.boxes) - MOST_BOXES
        if over <= 0:
            return self
        return replace(self, about=f"{self.about}; {over:,} later ones are left out", boxes=self.boxes[:MOST_BOXES])


@dataclass(frozen=True)
class Cut:
    """A vertical line at *x* percent: a predicate that failed then, or a phase that began."""

    x: float
    words: str
    short: str


@dataclass(frozen=True)
class Span:
    """The time axis, from *first_ns* to *last_ns* of UTC."""

    first_ns: int
    last_ns: int

    @property
    def seconds(self) -> float:
        """The length of the axis in seconds."""
        return round((self.last_ns - self.first_ns) / 1e9, 3)

    def x(self, time_ns: int) -> float:
        """Return the position of *time_ns* on the axis, 0 to 100 percent."""
        return round(min(100.0, max(0.0, 100 * (time_ns - self.first_ns) / (self.last_ns - self.first_ns))), 3)

    def seconds_of(self, time_ns: int | None) -> float | None:
        """Return the seconds from the start of the axis to *time_ns*, None for None."""
        return None if time_ns is None else round((time_ns - self.first_ns) / 1e9, 1)

    def when(self, time_ns: int | None) -> str:
        """Return *time_ns* as seconds from the start of the axis, such as "3.2 s"; a dash for None."""
        return "–" if time_ns is None else f"{(time_ns - self.first_ns) / 1e9:.1f} s"

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Return the tick marks of the axis: (position in percent, text)."""
        seconds = (self.last_ns - self.first_ns) / 1e9
        step = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800) if seconds / s <= 10), 3600)
        return tuple(
            (round(100 * mark / seconds, 3), f"{mark} s")
            for mark in range(0, int(seconds) + 1, max(step, int(seconds / 10)))
            if mark / seconds < 0.97
        )


@dataclass(frozen=True)
class RunClock:
    """The timeline of a run: all lanes over its *span*."""

    span: Span
    lanes: tuple[Lane, ...]
    cuts: tuple[Cut, ...] = ()
    phases: tuple[Cut, ...] = ()
    shades: tuple[Box, ...] = ()

    def as_item(self) -> dict[str, Any]:
        """Return the timeline as JSON-ready data for the page script."""
        item = asdict(self)
        return {**item, "seconds": self.span.seconds, "ticks": self.span.ticks()}


def agent_clock(
    actions: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]], seconds: float = 0
) -> RunClock | None:
    """Return the timeline of an agent's *steps* and *actions*, at least *seconds* long; None without any time."""
    done = [(one, at) for one in actions if (at := _read_times(one, "started_ns", "ended_ns"))]
    said = [(one, at) for one in steps if (at := _read_times(one, "started_at", "ended_at"))]
    times = [at for _, at in (*done, *said)]
    if not times:
        return None
    first = min(start for start, _ in times)
    span = Span(first, max(*(end for _, end in times), first + int(seconds * 1e9), first + 1))
    return RunClock(span, agent_lanes(done, said, span))


Timed = tuple[Mapping[str, Any], tuple[int, int]]


def agent_lanes(actions: Iterable[Timed], steps: Iterable[Timed], span: Span) -> tuple[Lane, ...]:
    """Return the rows of a timeline for an agent's steps and actions, without empty ones."""
    lanes = (
        Lane("steps", "calls of a model; dashed ones failed", tuple(_step_box(one, at, span) for one, at in steps)),
        Lane("actions", "what the agent did; outlined ones only looked",
             tuple(_action_box(one, at, span) for one, at in actions)),
    )  # fmt: skip
    return tuple(lane.bounded() for lane in lanes if lane.boxes)


def timed(lines: Iterable[Mapping[str, Any]], start: str, end: str) -> list[Timed]:
    """Return (line, (start, end) in ns) of each of *lines* that has times under the keys *start* and *end*."""
    return [(one, at) for one in lines if (at := _read_times(one, start, end))]


def _read_times(line: Mapping[str, Any], start: str, end: str) -> tuple[int, int] | None:
    """Return (start, end) in ns under these keys of *line*, end at least start; None without a start."""
    began, ended = line.get(start), line.get(end)
    if not isinstance(began, int) or not 0 < began < 2**63:
        return None
    return began, max(began, ended) if isinstance(ended, int) and ended < 2**63 else began


def _step_box(step: Mapping[str, Any], interval: tuple[int, int], span: Span) -> Box:
    """Return the timeline box of the agent's *step*, drawn from *interval* (start, end in ns) on *span*."""
    calls = step.get("tool_logs")
    tools = (
        ", ".join(str(call.get("tool")) for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ""
    )
    words = f"step {step.get('step_id')} by {step.get('agent_name')} at {span.when(interval[0])}" + (
        f": {tools}" if tools else ""
    )
    kind = "wrong-step" if step.get("error") else "step"
    return _make_box(interval, span, kind, words)


def _action_box(action: Mapping[str, Any], interval: tuple[int, int], span: Span) -> Box:
    """Return the box of *action* at *interval* (ns) of a timeline; one that changes the system has its own kind."""
    given = action.get("arguments")
    arguments = (
        " ".join(f"{key}={value}" for key, value in given.items()) if isinstance(given, dict) else str(given or "")
    )
    words = f"{action.get('tool')} {arguments}".strip() + f" at {span.when(interval[0])}, {action.get('status')}"
    return _make_box(interval, span, "change" if action.get("mutating") else "look", words)


def _make_box(interval: tuple[int, int], span: Span, kind: str, words: str) -> Box:
    """Return a box at *interval* (ns), at least 0.4 percent wide; *kind* is its CSS class, *words* its tooltip."""
    x = span.x(interval[0])
    return Box(x, max(span.x(interval[1]) - x, 0.4), 6, TRACK - 12, kind, plain(words, 300))
