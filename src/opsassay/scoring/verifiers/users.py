"""What users lost, from the load generator's cumulative counts per kind of request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsassay.core.schema.scenario import Impact
from opsassay.core.schema.trajectory import LoadCounts, Tick

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SERVED_SHARE = 0.1
"""Users are served when of no kind of request more than this share fails beyond the usual."""


@dataclass(frozen=True)
class UserLoss:
    """Losses with their course: *done* requests, *user_minutes* and *failed* requests, the last two weighted by kind.

    *times* (ns of UTC) are the ends of the stretches, *minutes_by* and *failed_by* what had been lost by then.
    """

    done: float
    user_minutes: float
    failed: float
    times: Ints
    minutes_by: Floats
    failed_by: Floats

    def when(self, unit: str, limit: float) -> int | None:
        """Return the time (ns) when *limit* was exceeded or None; *unit*: "user-minutes", else failed requests."""
        course = self.minutes_by if unit == "user-minutes" else self.failed_by
        crossed = np.flatnonzero(course > limit)
        return int(self.times[crossed[0]]) if len(crossed) else None


@dataclass(frozen=True)
class Counts:
    """The load generator's counts: *times* of the readings, ns, and per stretch between two of them what was added.

    *done*, *failed* and *seconds*, what the requests took in all, are matrices (stretch, kind); *seconds* is NaN where it
    was not recorded. A counter that went back belongs to a new generator and counts from zero.
    """

    kinds: tuple[str, ...]
    times: Ints
    done: Floats
    failed: Floats
    seconds: Floats

    def between(self, start_ns: int, end_ns: int) -> dict[str, tuple[float, float]]:
        """Return (done, failed) by kind of request, over the intervals wholly from *start_ns* to *end_ns*."""
        inside = (self.times[:-1] >= start_ns) & (self.times[1:] <= end_ns)
        asked, lost = self.done[inside].sum(axis=0), self.failed[inside].sum(axis=0)
        return {kind: (float(a), float(b)) for kind, a, b in zip(self.kinds, asked, lost, strict=True)}


def counts_of(ticks: Sequence[Tick]) -> Counts:
    """Return the load generator's counts of *ticks* as columns; ticks without an answered reading are left out."""
    kinds = tuple(sorted({kind for tick in ticks for kind in tick.load}))
    present: dict[str, LoadCounts] = dict.fromkeys(kinds, (0, 0, 0))
    times, rows = [], []
    for tick in ticks:
        first = tick.observations[0] if tick.observations else None
        if first is None or first.depth != "D1" or first.value is None:
            continue
        present.update(tick.load)
        times.append(first.started_ns)
        rows.append([(*counts[:2], counts[2] / 1e9 if len(counts) == 3 else np.nan) for counts in present.values()])
    cumulative = np.array(rows, dtype=np.float64).reshape(len(rows), len(kinds), 3)
    steps = np.diff(cumulative, axis=0)
    steps = np.where(steps < 0, cumulative[1:], steps)
    return Counts(kinds, np.array(times, dtype=np.int64), steps[:, :, 0], steps[:, :, 1], steps[:, :, 2])


def loss_between(
    counts: Counts, committed: Impact, *, start_ns: int, end_ns: int, triggered_ns: int | None
) -> UserLoss | None:
    """Return what users lost from *start_ns* to *end_ns*, None when the load was not recorded.

    In every stretch between two readings the share of weighted requests that failed is the share of *users* who wait.
    What failed already before the fault is subtracted kind by kind, as a share. Of stretch i, kind k and weight w_k,
    with u_k the share of k that failed before *triggered_ns* (0 where that is None):
        lost_ik      = max(failed_ik - done_ik u_k, 0)
        user_minutes = users * sum over i of minutes_i * (sum over k of w_k lost_ik) / (sum over k of w_k done_ik)
        failed       = sum over i and k of w_k lost_ik
    A stretch that overlaps the time between the instants counts as a whole.
    """
    kinds, times = counts.kinds, counts.times
    if not kinds:
        return None
    weights = np.array([committed.weights.get(kind, 1.0) for kind in kinds])
    before = counts.between(0, triggered_ns) if triggered_ns is not None else {}
    usual = np.array([failed / done if done else 0.0 for done, failed in (before.get(k, (0.0, 0.0)) for k in kinds)])
    inside = (times[1:] > start_ns) & (times[:-1] < end_ns)
    asked = counts.done[inside]
    lost = np.maximum(counts.failed[inside] - asked * usual, 0.0)
    lengths = np.diff(times)[inside] / 60e9
    weighted = asked @ weights
    share = np.divide(lost @ weights, weighted, out=np.zeros(len(weighted)), where=weighted > 0)
    minutes = np.cumsum(share * lengths * committed.users)
    lost_by = np.cumsum(lost @ weights)
    return UserLoss(
        done=float(asked.sum()),
        user_minutes=float(minutes[-1]) if len(minutes) else 0.0,
        failed=float(lost_by[-1]) if len(lost_by) else 0.0,
        times=times[1:][inside],
        minutes_by=minutes,
        failed_by=lost_by,
    )
