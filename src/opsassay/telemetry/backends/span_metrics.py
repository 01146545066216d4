"""Counters and latency histograms made of spans, under the names that Tempo's metrics-generator gives them.

A span counts from the first tick after its end on; a counter has a sample at every tick, as if it were scraped. The counts
are exact over the bounds of the buckets, which double from 2 ms on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from opsassay.telemetry.backends.views import View

PREFIX = "traces_spanmetrics"
BOUNDS_MS = 2 ** np.arange(1, 15)
"""Upper bounds of the buckets, milliseconds; one more has what is longer."""
TICK_NS, MOST_TICKS = 15 * 10**9, 480
"""As Prometheus scrapes by default; of a recording longer than two hours ticks are further apart."""
MOST_GROUPS = 1000
"""With more operations than this they have no names: one series each would be more than anybody reads."""
_LABELS = ("service", "span_name", "span_kind", "status_code")


class CountedSpans(NamedTuple):
    """The series of one metric: *labels* of each, *values* (series, ticks) at the ticks *ms*."""

    name: str
    labels: list[dict[str, str]]
    ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def counted_spans(view: View) -> Iterator[CountedSpans]:
    """Yield the calls, and count, sum (s) and buckets of their latency; raises DatapackError for a damaged table."""
    spans = view.collect(_selected(view), "traces")
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


def _selected(view: View) -> pl.LazyFrame:
    """Return the spans that ended within the view, each with the texts of its labels, its *end* and its duration, ns."""
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
    """Return the instants of samples, the first and the last those of the view."""
    every = max(TICK_NS, (view.now_ns - view.began_ns) // MOST_TICKS)
    return np.append(np.arange(view.began_ns, view.now_ns, every, dtype=np.int64), view.now_ns)
