"""From the spool of a closed session to datapack tables, and the cut into a normal and an abnormal window."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.telemetry.otlp.logs import LogColumns
from opsassay.telemetry.otlp.metrics import MetricColumns, histogram_deltas
from opsassay.telemetry.otlp.requests import parse, unpack
from opsassay.telemetry.otlp.spool import Frame, Kind, read_frames, spool_path
from opsassay.telemetry.otlp.traces import TraceColumns
from opsassay.telemetry.schema import MODALITIES, PERIODS, empty

__all__ = ["decode_spool", "read_frames", "split_windows"]

BATCH_ROWS = 50_000
LATE_S = 1.0
"""A span that begins so long after its root has ended is work that nobody waits for any more."""
_log = logging.getLogger(__name__)


def decode_spool(directory: Path) -> dict[str, pl.DataFrame]:
    """Return the tables traces, logs, metrics, metrics_sum and metrics_histogram of a recorded *directory*.

    Columns are those of the datapack schema, rows in the order of arrival; a request that a client sent twice counts
    once. Gauges are in metrics; sums in metrics_sum, unchanged, so that cumulative ones stay cumulative; histograms,
    exponential ones and summaries in metrics_histogram, as the growth since the previous point (see
    `metrics.histogram_deltas`). Traces have an extra column attr.links (``trace_id:span_id,...``) if a consumer span
    without a parent has links. Rows with an impossible time are left out with a warning. Raises DatapackError for a
    missing or damaged spool.
    """
    opened_ns, frames = _first_received_ns(directory, "metrics"), {}
    parts = {modality: list[pl.DataFrame]() for modality in MODALITIES}
    for signal, columns in (("traces", TraceColumns()), ("logs", LogColumns()), ("metrics", MetricColumns())):
        for batch in _read_batches(directory, signal, columns):
            for modality, frame in (batch if isinstance(batch, dict) else {signal: batch}).items():
                parts[modality].append(frame)
    for modality, batches in parts.items():
        frames[modality] = (
            _drop_impossible_times(pl.concat(batches, how="diagonal"), modality) if batches else empty(modality)
        )
    if parts["metrics_histogram"]:
        frames["metrics_histogram"] = histogram_deltas(frames["metrics_histogram"], opened_ns)
    return frames


def split_windows(
    frames: dict[str, pl.DataFrame], boundaries: tuple[int, int, int]
) -> dict[tuple[str, str], pl.DataFrame]:
    """Return (period, modality) -> table for the windows [start, boundary) and [boundary, end) of *boundaries*, ns of UTC.

    All spans of a trace are in the period in which its earliest root span (without one, its earliest span) began,
    except spans that begin more than LATE_S after the root's end: those are split by their own time, like logs and
    metrics. Rows outside of both windows are left out; rows are in order of time.
    """
    tables = {}
    for modality, frame in frames.items():
        began = pl.col("time")
        if modality == "traces":
            began = _span_time()
        ordered = frame.sort("time", maintain_order=True)
        for number, period in enumerate(PERIODS):
            # Whole nanoseconds: a python datetime would round the boundaries to microseconds.
            within = began.cast(pl.Int64()).is_between(boundaries[number], boundaries[number + 1], closed="left")
            tables[period, modality] = ordered.filter(within)
    return tables


def _span_time() -> pl.Expr:
    """Return the expression for the time by which a span is put into a period: its root's start; if late its own."""
    is_root = pl.col("parent_span_id") == ""
    root = pl.col("time").filter(is_root).min().over("trace_id")
    ended_ns = pl.col("time").cast(pl.Int64) + pl.col("duration").cast(pl.Int64)
    root_ended_ns = ended_ns.filter(is_root).max().over("trace_id")
    late = pl.col("time").cast(pl.Int64) - root_ended_ns > int(LATE_S * 1e9)
    whole = pl.coalesce(root, pl.col("time").min().over("trace_id"))
    return pl.when(late.fill_null(value=False)).then(pl.col("time")).otherwise(whole)


def _read_batches(
    directory: Path, signal: str, columns: TraceColumns | LogColumns | MetricColumns
) -> Iterator[pl.DataFrame | dict[str, pl.DataFrame]]:
    """Yield the rows of *signal* recorded in *directory*, in frames of about BATCH_ROWS rows made by *columns*."""
    for received_ns, request in _requests(directory, signal):
        columns.add(request, received_ns)
        if columns.rows >= BATCH_ROWS:
            yield columns.take()
    if columns.rows:
        yield columns.take()


def _requests(directory: Path, signal: str) -> Iterator[tuple[int, Any]]:
    """Yield (receive time, message) of each distinct request of *signal* in *directory*; repeated ones count once."""
    seen = set[bytes]()
    for frame in read_frames(spool_path(directory, signal)):
        if frame.kind == Kind.OPENED:
            continue
        body = unpack(frame.kind, frame.payload)
        digest = hashlib.sha256(body).digest()
        if digest not in seen:
            seen.add(digest)
            yield frame.received_ns, parse(signal, body)


def _first_received_ns(directory: Path, signal: str) -> int:
    """Return when the first request of *signal* in the spool *directory* arrived, ns of UTC; 0 without one."""
    first: Frame | None = next(read_frames(spool_path(directory, signal)), None)
    return first.received_ns if first else 0


def _drop_impossible_times(frame: pl.DataFrame, modality: str) -> pl.DataFrame:
    """Return *frame* without rows that have no time; their number is logged as a warning."""
    missing = frame["time"].null_count()
    if missing:
        _log.warning("%d rows of %s have an impossible time and are left out.", missing, modality)
    return frame.filter(pl.col("time").is_not_null()) if missing else frame
