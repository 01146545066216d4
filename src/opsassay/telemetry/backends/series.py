"""The metrics of a datapack as Prometheus' series: labels, and samples with times in milliseconds.

All samples are in one array, series by series in order of time, so that one binary search finds the samples of every
series at every step of a query.

Spans are counted as calls and latency histograms, under the names of Tempo's metrics-generator. A span counts from the
first tick after its end on; a counter has a sample at every tick, like a scrape. Counts per bucket are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from opsassay.telemetry.backends.naming import apart, label_name, metric_name
from opsassay.telemetry.backends.views import View
from opsassay.telemetry.schema import REQUIRED

PREFIX = "traces_spanmetrics"
BOUNDS_MS = 2 ** np.arange(1, 15)
"""Upper bounds of the buckets in ms; longer spans are in one more bucket."""
TICK_NS, MOST_TICKS = 15 * 10**9, 480
"""The interval of samples, Prometheus' default; a recording above two hours has `MOST_TICKS` samples."""
MOST_GROUPS = 1000
"""With more combinations of labels than this, series have no span names."""
_LABELS = ("service", "span_name", "span_kind", "status_code")


class CountedSpans(NamedTuple):
    """The series of one metric: *labels* of each, *values* (series, ticks) at the ticks *ms*."""

    name: str
    labels: list[dict[str, str]]
    ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def counted_spans(view: View) -> Iterator[CountedSpans]:
    """Yield span metrics as a collector makes them: calls, and latency count, sum (s), buckets; raises DatapackError."""
    spans = view.collect(_select_ended_spans(view), "traces")
    if spans.is_empty():
        return
    keys = list(_LABELS)
    if spans.select(pl.struct(keys).n_unique()).item() > MOST_GROUPS:
        spans = spans.with_columns(span_name=pl.lit(""))
    groups = spans.select(keys).unique(maintain_order=True).with_row_index("group")
    group = spans.join(groups, on=keys, how="left", maintain_order="left")["group"].to_numpy()
    labels = [{name: text for name, text in row.items() if text} for row in groups.select(keys).iter_rows(named=True)]
    ticks = _ticks(view)
    tick = np.searchsorted(ticks, spans["end"].to_numpy(), side="left")
    duration_ns = spans["duration"].to_numpy()
    bucket = np.searchsorted(BOUNDS_MS * 10**6, duration_ns, side="left")
    shape = (len(labels), len(ticks), len(BOUNDS_MS) + 1)
    place = (group * shape[1] + tick) * shape[2] + bucket
    counts = np.bincount(place, minlength=int(np.prod(shape))).reshape(shape).cumsum(axis=1).cumsum(axis=2)
    seconds = np.bincount(group * shape[1] + tick, duration_ns / 1e9, minlength=shape[0] * shape[1])
    ms, total = ticks // 10**6, counts[:, :, -1].astype(np.float64)
    yield CountedSpans(f"{PREFIX}_calls_total", labels, ms, total)
    yield CountedSpans(f"{PREFIX}_latency_count", labels, ms, total)
    yield CountedSpans(f"{PREFIX}_latency_sum", labels, ms, seconds.reshape(shape[:2]).cumsum(axis=1))
    bounds = [*(f"{bound / 1000:g}" for bound in BOUNDS_MS.tolist()), "+Inf"]
    of_buckets = [{**one, "le": bound} for one in labels for bound in bounds]
    values = counts.transpose(0, 2, 1).reshape(-1, shape[1]).astype(np.float64)
    yield CountedSpans(f"{PREFIX}_latency_bucket", of_buckets, ms, values)


def _select_ended_spans(view: View) -> pl.LazyFrame:
    """Return the spans that ended within the view: service, span_name, span_kind, status_code, duration and end (ns)."""
    rows = view.rows("traces")
    columns = rows.collect_schema()
    end = pl.col("time").cast(pl.Int64) + pl.col("duration").cast(pl.Int64)

    def prefixed_column(prefix: str, column: str, absent: str) -> pl.Expr:
        given = pl.col(column) if column in columns else pl.lit(None, pl.String)
        return prefix + given.str.to_uppercase().fill_null(absent)

    return (
        rows.select(
            service=pl.col("service_name"),
            span_name=pl.col("span_name"),
            span_kind=prefixed_column("SPAN_KIND_", "attr.span_kind", "UNSPECIFIED"),
            status_code=prefixed_column("STATUS_CODE_", "attr.status_code", "UNSET"),
            duration=pl.col("duration").cast(pl.Int64),
            end=end,
        )
        .filter(pl.col("end").is_between(view.began_ns, view.now_ns))
        .with_columns(pl.col(*_LABELS).fill_null(""))
    )


def _ticks(view: View) -> npt.NDArray[np.int64]:
    """Return the times (ns since 1970) at which span metrics have samples, from the start to the end of the view."""
    every = max(TICK_NS, (view.now_ns - view.began_ns) // MOST_TICKS)
    return np.append(np.arange(view.began_ns, view.now_ns, every, dtype=np.int64), view.now_ns)


NAME = "__name__"
Labels = dict[str, str]
Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

_NUMBERS = {"time", "metric", "value", "count", "sum", "min", "max", "period"}
_TABLES = ("metrics", "metrics_sum", "metrics_histogram")


@dataclass(frozen=True)
class MetricDescription:
    """A metric's *type* and *help* text, as in Prometheus' metadata."""

    type: str
    help: str


@dataclass(frozen=True)
class SeriesStore:
    """Series by index n: ``labels[n]`` and its samples, ``ms`` and ``values`` from ``bounds[n]`` to ``bounds[n + 1]``.

    ``ms`` are milliseconds since 1970, rising within a series; ``metrics`` describes each metric by its name.
    """

    labels: Sequence[Labels]
    bounds: Times
    ms: Times
    values: Values
    metrics: dict[str, MetricDescription]

    def column(self, label: str) -> tuple[list[str], Times]:
        """Return (distinct values of *label*, for each series the index of its value); '' where a series has none."""
        if label not in self._column_cache:
            texts: dict[str, int] = {}
            which = [texts.setdefault(labels.get(label, ""), len(texts)) for labels in self.labels]
            self._column_cache[label] = list(texts), np.array(which, dtype=np.int64)
        return self._column_cache[label]

    @cached_property
    def _column_cache(self) -> dict[str, tuple[list[str], Times]]:
        """Return a dictionary in which `column` keeps its results by label."""
        return {}

    @cached_property
    def matched(self) -> dict[tuple[str, str, str], tuple[bool, npt.NDArray[np.bool_]]]:
        """The cache of `select`: (operator, label, value) to (matches "", which series match), oldest first."""
        return {}

    @cached_property
    def distinct(self) -> bool:
        """Whether no two series have the same labels."""
        return len({tuple(sorted(labels.items())) for labels in self.labels}) == len(self.labels)

    @cached_property
    def unnamed(self) -> Sequence[Labels]:
        """The labels of each series without the name of its metric."""
        return [{name: text for name, text in labels.items() if name != NAME} for labels in self.labels]

    @cached_property
    def first_ms(self) -> int:
        """The time of the earliest sample in ms since 1970, 0 without any."""
        return int(self.ms.min()) if len(self.ms) else 0

    @cached_property
    def last_ms(self) -> int:
        """The time of the latest sample in ms since 1970, 0 without any."""
        return int(self.ms.max()) if len(self.ms) else 0

    def positions(self, numbers: Times, at_ms: Times) -> Times:
        """Return the position of the first sample after each of *at_ms*, for each series index in *numbers*.

        The shape is (series, times); a sample at that very time is before the position.
        """
        span = self.last_ms - self.first_ms + 2
        within = np.clip(at_ms - self.first_ms, -1, span - 2)
        return np.searchsorted(self._sort_keys, numbers[:, None] * span + within[None, :], side="right").astype(
            np.int64
        )

    @cached_property
    def sampled_as(self) -> Times:
        """For each series, the index of the first series with exactly the same sample times."""
        first: dict[bytes, int] = {}
        pairs = zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True)
        found = [first.setdefault(self.ms[low:high].tobytes(), number) for number, (low, high) in enumerate(pairs)]
        return np.array(found, dtype=np.int64)

    @cached_property
    def begun_again(self) -> npt.NDArray[np.bool_]:
        """For each series, whether its value drops anywhere, as that of a counter that was reset."""
        found = np.zeros(len(self.labels), dtype=bool)
        found[np.searchsorted(self.bounds, np.flatnonzero(self.drops), side="right") - 1] = True
        return found

    @cached_property
    def drops(self) -> Values:
        """For each sample, the value before it if the value dropped (a counter reset), else 0."""
        lost = np.zeros(len(self.values))
        if len(self.values):
            began_again = self.values[1:] < self.values[:-1]
            began_again[self.bounds[1:-1] - 1] = False
            lost[1:][began_again] = self.values[:-1][began_again]
        return lost

    @cached_property
    def fallen(self) -> Times:
        """Before each sample position, how many samples in the store are less than their predecessor."""
        return _counted_before(self.values[1:] < self.values[:-1])

    @cached_property
    def changed(self) -> Times:
        """Before each sample position, how many samples in the store differ from their predecessor."""
        before, after = self.values[:-1], self.values[1:]
        return _counted_before((before != after) & ~(np.isnan(before) & np.isnan(after)))

    @cached_property
    def _sort_keys(self) -> Times:
        """A number for each sample that increases with its series and, within that, its time; for binary search."""
        span = self.last_ms - self.first_ms + 2
        numbers = np.repeat(np.arange(len(self.labels), dtype=np.int64), np.diff(self.bounds))
        return numbers * span + (self.ms - self.first_ms)


def _counted_before(flags: npt.NDArray[np.bool_]) -> Times:
    """Return the running count of *flags* with two zeros in front: the number of flags before each position."""
    return np.concatenate([np.zeros(2, dtype=np.int64), np.cumsum(flags, dtype=np.int64)])


def read_series(view: View) -> SeriesStore:
    """Return the series of *view*; raises DatapackError when a table is damaged.

    Gauges and sums are as recorded. A histogram ``x`` becomes the counters ``x_count`` and ``x_sum``, cumulative from the
    start of the recording, and the gauges ``x_min`` and ``x_max``; the tables have no buckets. Calls and their latencies
    are also counted from spans (`counted_spans`).
    """
    parts = [part for table in _TABLES for part in _read_series_parts(view, table)]
    parts += [_part_of_spans(counted) for counted in counted_spans(view)]
    order = sorted(range(len(parts)), key=lambda at: (parts[at].raw, parts[at].table))
    names = apart(parts[at].name for at in order)
    labels: list[Labels] = []
    counts, times, values = [np.zeros(1, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    described = {}
    for name, at in zip(names, order, strict=True):
        part = parts[at]
        described[name] = MetricDescription(part.type, f"{part.raw} of the table {part.table}")
        labels += [{NAME: name, **one} for one in part.labels]
        counts.append(part.counts)
        times.append(part.ms)
        values.append(part.values)
    return SeriesStore(
        labels, np.cumsum(np.concatenate(counts)), np.concatenate(times), np.concatenate(values), described
    )


@dataclass(frozen=True)
class _SeriesPart:
    """All series of one metric of one table; *counts* are the samples of each series."""

    raw: str
    table: str
    name: str
    type: str
    labels: list[Labels]
    counts: Times
    ms: Times
    values: Values


def _read_series_parts(view: View, table: str) -> list[_SeriesPart]:
    """Return one part for each metric and number column (value, count, sum, min, max) of the table *table*."""
    frame = view.rows(table)
    columns = frame.collect_schema()
    keys = [name for name in columns.names() if name not in _NUMBERS and not columns[name].is_nested()]
    numbers = [name for name in ("value", "count", "sum", "min", "max") if name in columns]
    selected = frame.select(
        pl.col("metric"), *(pl.col(key).cast(pl.String, strict=False) for key in keys),
        *(pl.col(name).cast(pl.Float64) for name in numbers), ms=pl.col("time").dt.epoch("ms"),
    ).drop_nulls([name for name in ("ms", "metric", *numbers) if name in {"ms", *REQUIRED[table]}])  # fmt: skip
    rows = view.collect(selected, table).sort("ms", maintain_order=True)
    grouped = rows.group_by("metric", *keys, maintain_order=True).agg("ms", *numbers)
    named = apart(label_name(key) for key in keys)
    found = []
    for (raw,), series in grouped.group_by("metric", maintain_order=True):
        labels = [
            {name: value for name, value in zip(named, row, strict=True) if value}
            for row in series.select(keys).iter_rows()
        ]
        found += [_series_of_number(str(raw), table, number, labels, series) for number in numbers]
    return found


def _part_of_spans(span_counts: CountedSpans) -> _SeriesPart:
    """Return *span_counts* (a metric counted from spans) in the form in which `read_series` joins all metrics."""
    series, ticks = span_counts.values.shape
    counts, ms = np.full(series, ticks, dtype=np.int64), np.tile(span_counts.ms, series)
    return _SeriesPart(
        span_counts.name,
        "traces",
        span_counts.name,
        "counter",
        span_counts.labels,
        counts,
        ms,
        span_counts.values.ravel(),
    )


def _series_of_number(
    raw: str, table: str, value_column: str, labels: list[Labels], series: pl.DataFrame
) -> _SeriesPart:
    """Return the series of the metric *raw* from one number column, *value_column*, of the table *table*.

    *series* has a row for each series, with *labels* in the same order. Of several samples in one ms the last counts.
    """
    counts = series["ms"].list.len().to_numpy().astype(np.int64)
    ms = series["ms"].explode().to_numpy().astype(np.int64)
    column = series[value_column]
    added_up = value_column in {"count", "sum"}
    if added_up:
        column = column.list.eval(pl.element().cum_sum())
    values = column.explode().cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64)
    owner = np.repeat(np.arange(len(counts)), counts)
    kept = np.ones(len(ms), dtype=bool)
    kept[:-1] = (owner[1:] != owner[:-1]) | (ms[1:] != ms[:-1])
    if value_column in {"min", "max"}:  # not every histogram says them
        kept &= ~np.isnan(values)
    counts = np.bincount(owner[kept], minlength=len(counts)).astype(np.int64)
    labels, counts = [one for one, count in zip(labels, counts, strict=True) if count], counts[counts > 0]
    whole = value_column == "value"
    kind = "counter" if added_up else "gauge" if table != "metrics_sum" else "unknown"
    name = metric_name(raw if whole else f"{raw}.{value_column}")
    return _SeriesPart(
        raw if whole else f"{value_column} of {raw}", table, name, kind, labels, counts, ms[kept], values[kept]
    )
