"""Functions over ranges: rate and related ones, with Prometheus' extrapolation, and ``*_over_time``.

A range ends at the step and excludes the instant at which it begins, as in Prometheus 3. Formulas are those of
``promql/functions.go`` (extrapolatedRate, instantValue).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from opsassay.telemetry.backends.promql.values import Present, quantile_of, too_many_samples
from opsassay.telemetry.backends.series import Labels, SeriesStore, Times, Values

MOST_SAMPLES = 50_000_000
"""Most samples in all ranges of one function, as Prometheus' ``--query.max-samples``."""

_AT_ONCE = 1 << 20
"""Most samples that are processed in one array."""

Reducer = Callable[[Values, Times], Values]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class Windows:
    """The samples of the series *numbers* of *store* in the window that ends at each step.

    Series with equal sample times share a timeline: *sampled* is one series of each timeline, *timeline* the timeline of
    each series of *numbers*. *low* and *high*, of shape (timelines, steps), are the first sample of each window and the one
    after its last, as indices within a series.
    """

    store: SeriesStore
    numbers: Times
    sampled: Times
    timeline: Times
    low: Times
    high: Times
    end_ms: Times
    range_ms: int

    @classmethod
    def ending_at(cls, store: SeriesStore, numbers: Times, end_ms: Times, range_ms: int) -> Windows:
        """Return the windows of *range_ms* that end at each of *end_ms*, for the series indices *numbers* of *store*."""
        sampled, timeline = np.unique(store.sampled_as[numbers], return_inverse=True)
        begin = store.bounds[sampled, None]
        low, high = (store.positions(sampled, at_ms) - begin for at_ms in (end_ms - range_ms, end_ms))
        return cls(store, numbers, sampled, timeline, low, high, end_ms, range_ms)

    def rows(self, series: Times) -> Windows:
        """Return the windows of only the series at the indices *series*."""
        return replace(self, numbers=self.numbers[series], timeline=self.timeline[series])

    @property
    def counts(self) -> Times:
        """The number of samples in each window, shape (timelines, steps)."""
        return self.high - self.low

    @property
    def labels(self) -> list[Labels]:
        """The labels of each series."""
        return [self.store.labels[number] for number in self.numbers.tolist()]

    def each(self, timeline_rows: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Expand *timeline_rows*, one row per timeline, to one row per series."""
        if len(timeline_rows) == 1:
            return np.broadcast_to(timeline_rows, (len(self.numbers), len(self.end_ms)))
        return timeline_rows[self.timeline]

    def holding(self, minimum: int) -> Present:
        """Return which windows have at least *minimum* samples, shape (series, steps)."""
        return self.each(self.counts >= minimum)

    def positions(self, samples: Times) -> Times:
        """Return the positions in the store of *samples*, numbered within a series, by timeline; shape (series, steps)."""
        found: Times = self.store.bounds[self.numbers, None] + self.each(samples)
        return found

    def values_at(self, samples: Times) -> Values:
        """Return the values of *samples*, indices within a series; an index out of range gives an arbitrary value."""
        found: Values = self.store.values.take(self.positions(samples), mode="clip")
        return found

    def ms_at(self, samples: Times) -> Times:
        """Return the times (ms since 1970) of *samples*, indices within a series; shape (timelines, steps)."""
        found: Times = self.store.ms.take(self.store.bounds[self.sampled, None] + samples, mode="clip")
        return found

    def reduced(self, values: Values, reduce: Reducer, skip: int = 0) -> Values:
        """Reduce the store's *values* in each window by *reduce*, without its first *skip* samples; 0 for no sample.

        The result has the shape (series, steps). Raises PromqlError when the windows hold too many samples.
        """
        self._counted()
        filled = self.holding(skip + 1)
        found = np.zeros(filled.shape)
        if filled.any():
            first, last = (int(self.store.bounds[at]) for at in (self.numbers.min(), self.numbers.max() + 1))
            pairs = np.stack([self.positions(self.low + skip)[filled], self.positions(self.high)[filled]], axis=1)
            found[filled] = reduce(np.append(values[first:last], 0.0), pairs.ravel() - first)[::2]
        return found

    def by_length(self, compute: Callable[[Values, Times, Times], Values], minimum: int = 1) -> Values:
        """Return *compute* of each window with at least *minimum* samples, 0 for others; shape (series, steps).

        It gets the values and times of all windows of one length, shape (windows, length), and the step of each. Raises
        PromqlError when the windows hold too many samples.
        """
        counts = self._counted()
        low = self.positions(self.low).ravel()
        found = np.zeros(len(low))
        order = np.argsort(counts, kind="stable")
        order = order[np.searchsorted(counts[order], minimum) :]
        ends = np.flatnonzero(np.diff(counts[order], append=-1)) + 1
        for begin, end in zip([0, *ends.tolist()], ends.tolist(), strict=False):
            length = int(counts[order[begin]])
            values = np.lib.stride_tricks.sliding_window_view(self.store.values, length)
            ms = np.lib.stride_tricks.sliding_window_view(self.store.ms, length)
            for at in range(begin, end, rows := max(1, _AT_ONCE // length)):
                cells = order[at : min(at + rows, end)]
                found[cells] = compute(values[low[cells]], ms[low[cells]], cells % len(self.end_ms))
        return found.reshape(len(self.numbers), len(self.end_ms))

    def _counted(self) -> Times:
        """Return the number of samples in each window, series after series; raises PromqlError for too many."""
        if int(self.counts.sum(axis=1)[self.timeline].sum()) > MOST_SAMPLES:
            raise too_many_samples()
        return self.each(self.counts).ravel()


Result = tuple[Values, Present]
"""Values of the shape (series, steps), and where they are present."""


def extrapolated(windows: Windows, *, counter: bool, per_second: bool) -> Result:
    """Return PromQL's increase, rate (*per_second*) or delta (not *counter*) of each range, extrapolated to its ends.

    With growth = last - first (of a counter plus the value before each reset), sampled the time between these two
    samples, before and after the times from the range's ends to them, in seconds:

        increase = growth * (sampled + before + after) / sampled,  rate = increase / length of the range

    *before* or *after* is half the mean distance of samples if it is 1.1 times that distance or more; for a counter
    *before* is at most the time since it was 0 by its slope, first / growth * sampled. Needs two samples.
    """
    first = windows.values_at(windows.low)
    growth = windows.values_at(windows.high - 1) - first
    if counter and len(begun_again := np.flatnonzero(windows.store.begun_again[windows.numbers])):
        growth[begun_again] += windows.rows(begun_again).reduced(windows.store.drops, np.add.reduceat, skip=1)
    first_ms, last_ms = windows.ms_at(windows.low), windows.ms_at(windows.high - 1)
    sampled_s = (last_ms - first_ms) / 1000
    mean_s = sampled_s / (windows.counts - 1)
    before_s = (first_ms - (windows.end_ms - windows.range_ms)[None, :]) / 1000
    after_s = (windows.end_ms[None, :] - last_ms) / 1000
    before_s = np.where(before_s >= mean_s * 1.1, mean_s / 2, before_s)
    after_s = np.where(after_s >= mean_s * 1.1, mean_s / 2, after_s)
    sampled_s, before_s, after_s = (windows.each(spans_s) for spans_s in (sampled_s, before_s, after_s))
    if counter:
        to_zero_s = np.where((growth > 0) & (first >= 0), sampled_s * (first / growth), np.inf)
        before_s = np.minimum(before_s, to_zero_s)
    factor = (sampled_s + before_s + after_s) / sampled_s
    return growth * factor / (windows.range_ms / 1000 if per_second else 1), windows.holding(2)


def instant_rate(windows: Windows) -> Result:
    """Return the growth per second between the last two samples of each window; a drop counts as a counter reset."""
    before, last = windows.values_at(windows.high - 2), windows.values_at(windows.high - 1)
    growth = np.where(last < before, last, last - before)
    apart_s = (windows.ms_at(windows.high - 1) - windows.ms_at(windows.high - 2)) / 1000
    return growth / windows.each(apart_s), windows.holding(2)


def over_time(reduce: Reducer) -> Callable[[Windows], Result]:
    """Return a range function that reduces the samples of each window by *reduce*, a ufunc's reduceat."""
    return lambda windows: (windows.reduced(windows.store.values, reduce), windows.holding(1))


def mean_over_time(windows: Windows) -> Result:
    """Return PromQL's avg_over_time: the mean of the samples in each of *windows*."""
    total, counts = windows.reduced(windows.store.values, np.add.reduceat), windows.each(windows.counts)
    mean = total / counts
    if np.isinf(total).any():  # of a sum that is too large for a number the mean need not be
        mean = np.where(
            np.isinf(total), windows.by_length(lambda values, *_: (values / values.shape[1]).sum(axis=1)), mean
        )
    return mean, windows.holding(1)


def last_sample(windows: Windows) -> Result:
    """Return the latest sample in each of *windows* (PromQL's last_over_time)."""
    return windows.values_at(windows.high - 1), windows.holding(1)


def variance_over_time(windows: Windows) -> Result:
    """Return the population variance of the samples of each range; exactly 0 when all are equal."""

    def variance(values: Values, *_: Times) -> Values:
        away = values - values[:, :1]
        away -= away.mean(axis=1, keepdims=True)
        found: Values = np.einsum("ij,ij->i", away, away) / values.shape[1]
        return found

    return windows.by_length(variance), windows.holding(1)


def deviation_over_time(windows: Windows) -> Result:
    """Return the population standard deviation of the samples of each range."""
    variance, present = variance_over_time(windows)
    return np.sqrt(variance), present


def quantile_over_time(windows: Windows, quantile: Values) -> Result:
    """Return the *quantile*, one value a step, of the samples of each range, as `quantile_of` defines it."""

    def quantiles(values: Values, _: Times, steps: Times) -> Values:
        return quantile_of(values.T, np.ones(values.T.shape, dtype=bool), quantile[steps])

    return windows.by_length(quantiles), windows.holding(1)


def slope(windows: Windows) -> Result:
    """Return PromQL's deriv: the slope per second of the least-squares line through the samples of each window."""
    return windows.by_length(lambda values, ms, _: _line(values, ms)[0], minimum=2), windows.holding(2)


def predicted(windows: Windows, ahead_s: Values, steps_ms: Times) -> Result:
    """Return PromQL's predict_linear: the least-squares line of each window, *ahead_s* seconds after the step."""

    def predict(values: Values, ms: Times, steps: Times) -> Values:
        gained, mean, middle_ms = _line(values, ms)
        return mean + gained * ((steps_ms[steps] - middle_ms) / 1000 + ahead_s[steps])

    return windows.by_length(predict, minimum=2), windows.holding(2)


def _line(values: Values, ms: Times) -> tuple[Values, Values, Values]:
    """Return (slope per second, mean value, mean time) of the least-squares line through each row of *values* at *ms*."""
    first = np.where(np.isinf(values[:, :1]), np.nan, values[:, :1])
    away = values - first
    mean = away.mean(axis=1)
    since_first_s = (ms - ms[:, :1]) / 1000
    middle_s = since_first_s.mean(axis=1)
    around_s = since_first_s - middle_s[:, None]
    gained = np.einsum("ij,ij->i", around_s, away - mean[:, None]) / np.einsum("ij,ij->i", around_s, around_s)
    return gained, first[:, 0] + mean, ms[:, 0] + middle_s * 1000


def instant_delta(windows: Windows) -> Result:
    """Return PromQL's idelta: the last sample of each range minus the one before it."""
    return windows.values_at(windows.high - 1) - windows.values_at(windows.high - 2), windows.holding(2)


def counted_steps(cumulative_count: Callable[[SeriesStore], Times]) -> Callable[[Windows], Result]:
    """Return a range function that counts events in each window; *cumulative_count* is how many precede each sample."""

    def count(windows: Windows) -> Result:
        before = cumulative_count(windows.store)
        low, high = (
            windows.positions(samples) for samples in (np.minimum(windows.low + 1, windows.high), windows.high)
        )
        return (before[high] - before[low]).astype(np.float64), windows.holding(1)

    return count


def _present_over_time(windows: Windows) -> Result:
    """Return PromQL's present_over_time: 1 for each of *windows* with a sample."""
    present = windows.holding(1)
    return np.ones(present.shape), present


def _count_over_time(windows: Windows) -> Result:
    """Return PromQL's count_over_time: the number of samples in each of *windows*."""
    return windows.each(windows.counts.astype(np.float64)), windows.holding(1)


RANGE_FUNCTIONS: Mapping[str, Callable[[Windows], Result]] = {
    "rate": lambda windows: extrapolated(windows, counter=True, per_second=True),
    "increase": lambda windows: extrapolated(windows, counter=True, per_second=False),
    "delta": lambda windows: extrapolated(windows, counter=False, per_second=False),
    "irate": instant_rate,
    "avg_over_time": mean_over_time,
    "sum_over_time": over_time(np.add.reduceat),
    "min_over_time": over_time(np.fmin.reduceat),
    "max_over_time": over_time(np.fmax.reduceat),
    "count_over_time": _count_over_time,
    "last_over_time": last_sample,
    "stddev_over_time": deviation_over_time,
    "stdvar_over_time": variance_over_time,
    "deriv": slope,
    "present_over_time": _present_over_time,
    "changes": counted_steps(lambda store: store.changed),
    "resets": counted_steps(lambda store: store.fallen),
    "idelta": instant_delta,
}
