"""Functions over ranges: rate and its kin, with Prometheus' own extrapolation, and ``*_over_time``.

A range ends at the step and does not hold the instant at which it begins, as in Prometheus 3. Formulas are those of
``promql/functions.go`` (extrapolatedRate, instantValue).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsassay.apis.promql.values import Present, too_many_samples
from opsassay.apis.series import SeriesStore, Times, Values

MOST_SAMPLES = 50_000_000
"""What all ranges of one function may hold together, as Prometheus' ``--query.max-samples``."""

Reducer = Callable[[Values, Times], Values]


@dataclass(frozen=True)
class Windows:
    """The samples of each series at each step: positions from *low* up to *high* of *store*, shape (series, steps)."""

    store: SeriesStore
    low: Times
    high: Times
    end_ms: Times
    range_ms: int

    @classmethod
    def of(cls, store: SeriesStore, numbers: Times, end_ms: Times, range_ms: int) -> Windows:
        """Return the ranges of *range_ms* that end at *end_ms*; raises PromqlError when they hold too much."""
        low = store.positions(numbers, end_ms - range_ms)
        return cls(store, low, store.positions(numbers, end_ms), end_ms, range_ms)

    @property
    def counts(self) -> Times:
        """How many samples each holds."""
        return self.high - self.low

    def at(self, positions: Times) -> tuple[Times, Values]:
        """Return times and values at *positions*, which may lie outside of all samples where nothing is looked at."""
        within = np.clip(positions, 0, max(0, len(self.store.ms) - 1))
        if not len(self.store.ms):
            return np.zeros(within.shape, dtype=np.int64), np.zeros(within.shape)
        return self.store.ms[within], self.store.values[within]

    def reduced(self, values: Values, reduce: Reducer, skip: int = 0) -> Values:
        """Return *reduce* over each range of *values*, its first *skip* samples left out; 0 where nothing is left."""
        low, filled = self.low + skip, self.counts > skip
        if int(self.counts.sum()) > MOST_SAMPLES:
            raise too_many_samples()
        found = np.zeros(low.shape)
        if filled.any():
            pairs = np.stack([low[filled], self.high[filled]], axis=1).ravel()
            found[filled] = reduce(np.append(values, 0.0), pairs)[::2]
        return found


Result = tuple[Values, Present]


def extrapolated(windows: Windows, *, counter: bool, per_second: bool) -> Result:
    """Return the growth in each range, extrapolated towards its ends: increase, rate (*per_second*), delta."""
    present = windows.counts >= 2
    first_ms, first = windows.at(windows.low)
    last_ms, last = windows.at(windows.high - 1)
    growth = last - first
    if counter and windows.store.drops.any():
        growth = growth + windows.reduced(windows.store.drops, np.add.reduceat, skip=1)
    sampled_s = (last_ms - first_ms) / 1000
    mean_s = sampled_s / (windows.counts - 1)
    before_s = (first_ms - (windows.end_ms - windows.range_ms)[None, :]) / 1000
    after_s = (windows.end_ms[None, :] - last_ms) / 1000
    before_s = np.where(before_s >= mean_s * 1.1, mean_s / 2, before_s)
    if counter:
        to_zero_s = np.where((growth > 0) & (first >= 0), sampled_s * (first / growth), np.inf)
        before_s = np.minimum(before_s, to_zero_s)
    after_s = np.where(after_s >= mean_s * 1.1, mean_s / 2, after_s)
    factor = (sampled_s + before_s + after_s) / sampled_s
    return growth * factor / (windows.range_ms / 1000 if per_second else 1), present


def instant_rate(windows: Windows) -> Result:
    """Return the growth per second between the last two samples of each range."""
    before_ms, before = windows.at(windows.high - 2)
    last_ms, last = windows.at(windows.high - 1)
    growth = np.where(last < before, last, last - before)
    return growth / ((last_ms - before_ms) / 1000), windows.counts >= 2


def over_time(reduce: Reducer) -> Callable[[Windows], Result]:
    """Return the function that is *reduce* over all samples of a range."""
    return lambda windows: (windows.reduced(windows.store.values, reduce), windows.counts > 0)


def mean_over_time(windows: Windows) -> Result:
    """Return the mean of the samples of each range."""
    return windows.reduced(windows.store.values, np.add.reduceat) / windows.counts, windows.counts > 0


def last_sample(windows: Windows) -> Result:
    """Return the latest sample of each range."""
    return windows.at(windows.high - 1)[1], windows.counts > 0


def deviation_over_time(windows: Windows) -> Result:
    """Return the standard deviation of the samples of each range, of all and not of a sample of them."""
    values = windows.store.values
    base = values[np.isfinite(values)].mean() if np.isfinite(values).any() else 0.0  # so that squares stay small
    away = values - base
    mean = windows.reduced(away, np.add.reduceat) / windows.counts
    squares = windows.reduced(away * away, np.add.reduceat) / windows.counts
    return np.sqrt(np.maximum(squares - mean * mean, 0.0)), windows.counts > 0


def instant_delta(windows: Windows) -> Result:
    """Return the difference of the last two samples of each range."""
    return windows.at(windows.high - 1)[1] - windows.at(windows.high - 2)[1], windows.counts >= 2


def counted_steps(is_one: Callable[[Values, Values], Present]) -> Callable[[Windows], Result]:
    """Return the function that counts, in each range, samples that differ from the one before as *is_one* says."""

    def count(windows: Windows) -> Result:
        values = windows.store.values
        ones = np.zeros(len(values))
        ones[1:] = is_one(values[:-1], values[1:])
        return windows.reduced(ones, np.add.reduceat, skip=1), windows.counts > 0

    return count


def _changed(before: Values, after: Values) -> Present:
    found: Present = (before != after) & ~(np.isnan(before) & np.isnan(after))
    return found


def _present(windows: Windows) -> Result:
    return np.ones(windows.counts.shape), windows.counts > 0


def _counted(windows: Windows) -> Result:
    counts: npt.NDArray[np.float64] = windows.counts.astype(np.float64)
    return counts, windows.counts > 0


RANGE_FUNCTIONS: Mapping[str, Callable[[Windows], Result]] = {
    "rate": lambda windows: extrapolated(windows, counter=True, per_second=True),
    "increase": lambda windows: extrapolated(windows, counter=True, per_second=False),
    "delta": lambda windows: extrapolated(windows, counter=False, per_second=False),
    "irate": instant_rate,
    "avg_over_time": mean_over_time,
    "sum_over_time": over_time(np.add.reduceat),
    "min_over_time": over_time(np.fmin.reduceat),
    "max_over_time": over_time(np.fmax.reduceat),
    "count_over_time": _counted,
    "last_over_time": last_sample,
    "stddev_over_time": deviation_over_time,
    "present_over_time": _present,
    "changes": counted_steps(_changed),
    "resets": counted_steps(np.greater),
    "idelta": instant_delta,
}
