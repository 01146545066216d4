"""What users lost, from the load generator's cumulative counts per kind of request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.grading.verifiers.evidence import Evidence, Floats, Ints
from assay.model.scenario import Impact
from assay.model.trajectory import Tick


@dataclass(frozen=True)
class Loss:
    """Weighted losses with their course: *times* ns, and what had been lost by then."""

    done: float
    user_minutes: float
    failed: float
    times: Ints
    minutes_by: Floats
    failed_by: Floats

    def when(self, words: str, limit: float) -> int | None:
        """Return the instant at which *limit* of user-minutes or failed requests was crossed."""
        course = self.minutes_by if words == "user-minutes" else self.failed_by
        crossed = np.flatnonzero(course > limit)
        return int(self.times[crossed[0]]) if len(crossed) else None


def loss_between(evidence: Evidence, committed: Impact, start_ns: int, end_ns: int) -> Loss | None:
    """Return what users lost between two instants, None when the load was not recorded.

    In every stretch between two readings the share of weighted requests that failed is the share of *users* who wait.
    What failed already before the fault is subtracted kind by kind, as a share.
    """
    ticks = evidence.recording.timeline.ticks
    kinds, times, done, failed = _counts(ticks)
    if not kinds:
        return None
    weights = np.array([committed.weights.get(kind, 1.0) for kind in kinds])
    usual = np.zeros(len(kinds))
    if evidence.triggered is not None:
        before = requests_between(ticks, 0, evidence.triggered)
        usual = np.array([before[k][1] / before[k][0] if before.get(k, (0, 0))[0] else 0.0 for k in kinds])
    inside = (times[1:] > start_ns) & (times[:-1] < end_ns)
    asked = _steps(done)[inside]
    lost = np.maximum(_steps(failed)[inside] - asked * usual, 0.0)
    lengths = np.diff(times)[inside] / 60e9
    weighted = asked @ weights
    share = np.divide(lost @ weights, weighted, out=np.zeros(len(weighted)), where=weighted > 0)
    minutes = np.cumsum(share * lengths * committed.users)
    lost_by = np.cumsum(lost @ weights)
    return Loss(
        done=float(asked.sum()),
        user_minutes=float(minutes[-1]) if len(minutes) else 0.0,
        failed=float(lost_by[-1]) if len(lost_by) else 0.0,
        times=times[1:][inside],
        minutes_by=minutes,
        failed_by=lost_by,
    )


def requests_between(ticks: Sequence[Tick], start_ns: int, end_ns: int) -> dict[str, tuple[float, float]]:
    """Return kind of request to (done, failed) between two instants."""
    kinds, times, done, failed = _counts(ticks)
    if not kinds:
        return {}
    inside = (times[:-1] >= start_ns) & (times[1:] <= end_ns)
    asked, lost = _steps(done)[inside].sum(axis=0), _steps(failed)[inside].sum(axis=0)
    return {kind: (float(a), float(b)) for kind, a, b in zip(kinds, asked, lost, strict=True)}


def _counts(ticks: Sequence[Tick]) -> tuple[list[str], Ints, Floats, Floats]:
    """Return kinds, times of the readings, and cumulative done and failed as matrices (reading, kind)."""
    kinds = sorted({count.request for tick in ticks for count in tick.load})
    column = {kind: i for i, kind in enumerate(kinds)}
    rows = [tick for tick in ticks if any(o.depth == "D1" and o.value is not None for o in tick.observations)]
    done, failed = np.zeros((len(rows), len(kinds))), np.zeros((len(rows), len(kinds)))
    times = np.zeros(len(rows), dtype=np.int64)
    for row, tick in enumerate(rows):
        times[row] = next(o.started_ns for o in tick.observations if o.depth == "D1")
        if row:
            done[row], failed[row] = done[row - 1], failed[row - 1]
        for count in tick.load:
            done[row, column[count.request]], failed[row, column[count.request]] = count.done, count.failed
    return kinds, times, done, failed


def _steps(cumulative: Floats) -> Floats:
    """Return what each stretch added; a counter that went back belongs to a new generator and counts from zero."""
    steps = np.diff(cumulative, axis=0)
    return np.where(steps < 0, cumulative[1:], steps)
