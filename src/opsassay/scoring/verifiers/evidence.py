"""A recorded run as columns: one series per depth, the probes, and the stretches of time that predicates range over.

Built once per run; every predicate and every setting of a sweep reads it without touching a tick again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import get_args

import numpy as np
import numpy.typing as npt

from opsassay.core.schema.trajectory import (
    Action,
    AlertReading,
    ControlPlaneReading,
    Depth,
    EnvironmentAction,
    Observation,
    OperatorDiagnosis,
    Phase,
    SettingsReading,
    Tick,
    Timeline,
)
from opsassay.scoring.verifiers.judgement import Judged, Judgement
from opsassay.scoring.verifiers.noise import without_noise
from opsassay.scoring.verifiers.users import Counts, counts_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

STANDING_S = 5.0
"""A failure stands before the fault when it is in every reading of the last five seconds before it, and in the last two."""
STANDING_READINGS = 2
"""A single reading may have had bad luck, as the first probe of a system that is still starting has: it excuses nobody."""

MISSED = "missed"
"""The recorder's word for a tick whose turn passed while the one before was still busy."""


@dataclass(frozen=True)
class RunRecording:
    """What a run left behind, as nouns; a timeline alone is a recording whose whole length is the agent's.

    *diagnoses* is None where the operator was not asked for one. *names* are those that the scenario leaves open, with what
    stood in their places, *noise* is what the environment did itself.
    """

    timeline: Timeline
    phases: tuple[Phase, ...] = ()
    actions: tuple[Action, ...] = ()
    alerts: tuple[AlertReading, ...] = ()
    probes_on: bool = True
    diagnoses: tuple[OperatorDiagnosis, ...] | None = None
    control_plane: tuple[ControlPlaneReading, ...] = ()
    settings: tuple[SettingsReading, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    noise: tuple[EnvironmentAction, ...] = ()


@dataclass(frozen=True)
class Series:
    """The readings of one depth in order of their start; *values* are shares in [0, 1], NaN where there is none.

    *failing* is a matrix (reading, name) over *names*; *missed* marks turns that the recorder missed, which say
    nothing, unlike readings that were tried and got no answer.
    *started* and *ended* are ns of UTC, *ticks* the indices of the ticks that a reading is of.
    """

    ticks: Ints
    started: Ints
    ended: Ints
    values: Floats
    missed: Flags
    names: tuple[str, ...]
    failing: Flags

    def __len__(self) -> int:
        return len(self.ticks)

    def select(self, rows: Flags | Ints) -> Series:
        """Return a copy with the readings in *rows* (mask or indices) only."""
        return replace(
            self, ticks=self.ticks[rows], started=self.started[rows], ended=self.ended[rows],
            values=self.values[rows], missed=self.missed[rows], failing=self.failing[rows],
        )  # fmt: skip

    @cached_property
    def read(self) -> Series:
        """The readings without those that the recorder missed; unanswered ones are kept."""
        return self.select(~self.missed) if self.missed.any() else self

    def failing_names(self, row: int) -> tuple[str, ...]:
        """Return the names that fail in reading number *row*."""
        return tuple(name for name, fails in zip(self.names, self.failing[row], strict=True) if fails)

    def without(self, names: frozenset[str]) -> Series:
        """Return the readings as if *names* did not fail: each gives back its share of what is missing.

        value = 1 - (1 - value) * |failing without *names*| / |failing|; where nothing fails by name it stays.
        """
        ours = np.array([name in names for name in self.names], dtype=bool)
        if not ours.any():
            return self
        all_failing = self.failing.sum(axis=1)
        kept = (self.failing & ~ours).sum(axis=1)
        share = np.divide(kept, all_failing, out=np.ones(len(self)), where=all_failing > 0)
        return replace(self, values=1 - (1 - self.values) * share, failing=self.failing & ~ours)


@dataclass(frozen=True)
class Probes:
    """All probes in order of their start; *started* and *ended* are ns of UTC."""

    ids: tuple[str, ...]
    targets: tuple[str, ...]
    ticks: Ints
    started: Ints
    ended: Ints
    latency_s: Floats
    reachable: Flags

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class RunEvidence:
    """A recording as columns, with the instants that matter, ns of UTC.

    *triggered* None when nobody says when the fault was applied; then nothing is subtracted. *first_change* is the start
    of the agent's first action that may have changed something. A reading that began before *final_from* (the agent's
    end, or its last change) is no evidence of how it ended. *control_plane*: D4 has something to watch. *committed* are
    readings over what the scenario commits as the whole, where that is known.
    """

    series: dict[Depth, Series]
    probes: Probes
    cadence_s: float
    triggered: int | None
    agent_started: int
    agent_ended: int
    ended: int
    first_change: int | None
    final_from: int
    standing: dict[Depth, frozenset[str]]
    recording: RunRecording
    control_plane: bool = True
    committed: Mapping[Depth, Series] = field(default_factory=dict)

    @cached_property
    def judged(self) -> dict[Depth, Series]:
        """The readings by depth as shares of the required total, without failures from before the fault."""
        return {**self.judged_present, **self.committed}

    @cached_property
    def judged_present(self) -> dict[Depth, Series]:
        """The readings by depth as shares of what was desired at the time, without failures from before the fault."""
        return {depth: one.read.without(self.standing[depth]) for depth, one in self.series.items()}

    def readings(self, depth: Depth, *, raw: bool) -> Series:
        """Return the readings of *depth* (D1 to D4), as recorded if *raw*, else without failures before the fault."""
        return self.series[depth].read if raw else self.judged[depth]

    def subtracted(self, *depths: Depth) -> tuple[str, ...]:
        """Return the sorted names that already failed before the fault at one of *depths*."""
        return tuple(sorted({name for depth in depths for name in self.standing[depth]}))

    def tick_at(self, time_ns: int) -> int | None:
        """Return the index of the last tick that had started by *time_ns*, None before the first tick."""
        ticks, began = self._tick_starts
        row = int(np.searchsorted(began, time_ns, side="right")) - 1
        return int(ticks[row]) if row >= 0 else None

    @property
    def slowdown(self) -> float:
        """The factor by which time limits are extended for the run's machine; 1 without a calibration."""
        found = self.recording.timeline.calibration
        return 1.0 if found is None else found.slowdown

    @cached_property
    def counts(self) -> Counts:
        """The load generator's counts of requests by kind."""
        return counts_of(self._timeline_ticks)

    @cached_property
    def _tick_starts(self) -> tuple[Ints, Ints]:
        """The index of each tick with observations, and the start of its first observation (ns of UTC)."""
        begun = {t.index: t.observations[0].started_ns for t in self._timeline_ticks if t.observations}
        return np.array(list(begun), dtype=np.int64), np.array(list(begun.values()), dtype=np.int64)

    @property
    def _timeline_ticks(self) -> tuple[Tick, ...]:
        """All ticks of the recording, in order."""
        return self.recording.timeline.ticks


def gather(recording: RunRecording, *, control_plane: bool = True) -> RunEvidence:
    """Return *recording* as columns for the verifiers; *control_plane* says whether it (D4) was read.

    Without phases the whole record is the agent's time and its last tick is the final state, as in the paper's listing.
    """
    recording = without_noise(recording)
    ticks = recording.timeline.ticks
    by_depth: dict[Depth, list[tuple[int, Observation]]] = {depth: [] for depth in get_args(Depth)}
    for tick in ticks:
        for one in tick.observations:
            by_depth[one.depth].append((tick.index, one))
    series = {depth: _build_series(found) for depth, found in by_depth.items()}
    times = {phase.phase: phase.time_ns for phase in recording.phases}
    first = min((int(s.started[0]) for s in series.values() if len(s)), default=0)
    last = max((int(s.ended[-1]) for s in series.values() if len(s)), default=0)
    triggered, agent_ended = times.get("triggered"), times.get("agent_ended", last)
    changes = [action for action in recording.actions if action.mutating]
    if recording.phases:
        final_from = max([agent_ended, *(action.ended_ns for action in changes)])
    else:
        final_from = min((o.started_ns for tick in ticks[-1:] for o in tick.observations), default=last)
    standing: dict[Depth, frozenset[str]] = {
        depth: _standing_failures(one, times.get("deployed", first), triggered) for depth, one in series.items()
    }
    return RunEvidence(
        series=series,
        probes=_collect_probes(ticks),
        cadence_s=recording.timeline.cadence_s,
        triggered=triggered,
        agent_started=times.get("agent_started", first),
        agent_ended=agent_ended,
        ended=max(last, times.get("ended", last)),
        first_change=min((action.started_ns for action in changes), default=None),
        final_from=final_from,
        standing=standing,
        recording=recording,
        control_plane=control_plane,
    )


def _build_series(observations: list[tuple[int, Observation]]) -> Series:
    """Return the (tick, observation) pairs of one depth as columns, sorted by time."""
    observations.sort(key=lambda pair: pair[1].started_ns)
    names = tuple(sorted({name for _, o in observations if o.failing for name in o.failing} - {MISSED}))
    column = {name: i for i, name in enumerate(names)}
    failing = np.zeros((len(observations), len(names)), dtype=bool)
    for row, (_, o) in enumerate(observations):
        if o.failing:
            failing[row, [column[name] for name in o.failing if name != MISSED]] = True
    return Series(
        ticks=np.array([index for index, _ in observations], dtype=np.int64),
        started=np.array([o.started_ns for _, o in observations], dtype=np.int64),
        ended=np.array([o.ended_ns for _, o in observations], dtype=np.int64),
        values=np.array([np.nan if o.value is None else o.value for _, o in observations], dtype=np.float64),
        missed=np.array([o.value is None and MISSED in o.failing for _, o in observations], dtype=bool),
        names=names,
        failing=failing,
    )


def _collect_probes(ticks: Sequence[Tick]) -> Probes:
    """Return all probes of *ticks* as columns, sorted by start and id."""
    found = [(tick.index, probe) for tick in ticks if tick.probes for probe in tick.probes]
    found.sort(key=lambda pair: (pair[1].started_ns, pair[1].id))
    return Probes(
        ids=tuple(p.id for _, p in found),
        targets=tuple(p.target for _, p in found),
        ticks=np.array([index for index, _ in found], dtype=np.int64),
        started=np.array([p.started_ns for _, p in found], dtype=np.int64),
        ended=np.array([p.ended_ns for _, p in found], dtype=np.int64),
        latency_s=np.array([p.latency_s for _, p in found], dtype=np.float64),
        reachable=np.array([p.reachable for _, p in found], dtype=bool),
    )


def _standing_failures(series: Series, deployed: int, triggered: int | None) -> frozenset[str]:
    """Return the names that failed in all readings of the last seconds before the fault, which began at *triggered*.

    Readings before *deployed* do not count; both are in ns.
    """
    if triggered is None:
        return frozenset()
    taken = series.read
    before = np.flatnonzero((taken.started >= deployed) & (taken.ended <= triggered))
    if len(before) < STANDING_READINGS:
        return frozenset()
    late = before[taken.started[before] >= triggered - int(STANDING_S * 1e9)]
    rows = late if len(late) >= STANDING_READINGS else before[-STANDING_READINGS:]
    always: Flags = np.logical_and.reduce(taken.failing[rows], axis=0)
    return frozenset(name for name, fails in zip(taken.names, always, strict=True) if fails)


def failed(evidence: RunEvidence, name: str, reason: str, time_ns: int | None = None) -> Judgement:
    """Return the judgement that predicate *name* fails for *reason*, at *time_ns* or, when None, the end of the run."""
    at = evidence.ended if time_ns is None else time_ns
    return Judgement(predicate=name, status=Judged.FAILED, reason=reason, tick=evidence.tick_at(at), time_ns=at)


def passed_judgement(evidence: RunEvidence, name: str, reason: str) -> Judgement:
    """Return the judgement that predicate *name* holds until the end of the run, with *reason*."""
    at = evidence.ended
    return Judgement(predicate=name, status=Judged.PASSED, reason=reason, tick=evidence.tick_at(at), time_ns=at)
