"""Reads the spans of both windows into one table, sorted by time, with the row of each span's parent.

Where spans have no status codes, a span failed if its log has an error message that the normal window never had.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from opsassay.annotation.reading.names import coded, known_names, stacked
from opsassay.annotation.reading.parents import Index, Rows
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import PERIODS
from opsassay.telemetry.severity import ERROR_LEVELS

PERIOD = pl.Enum(PERIODS)
KIND = pl.Enum(["", "server", "consumer", "client", "producer", "internal"])
"""Kinds of spans; '' when none is given, and internal for all kinds that are not listed."""

HABIT = 0.5
"""An error that at least this share of a service's baseline traces logs is no sign of failure."""

_STRAY_NS = 60 * 10**9
"""How far outside its window a span may start: a request may cross the boundary, but a jumped clock is farther off."""

_NAMES = ("service", "operation", "pod")
_VARIABLE = r"[0-9a-fA-F-]*[0-9][0-9a-fA-F.:-]*"
"""Matches numbers, times and ids: the parts in which two messages of one statement differ."""


@dataclass(frozen=True, eq=False)
class Read:
    """The spans of both windows. *parent*: row of each parent (-1: none). *notes*: sentences on oddities.

    *frame*: the columns of Spans.frame, and root (names no parent), key (64-bit hash of its ids).
    """

    frame: pl.DataFrame
    parent: Index
    status_known: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Window:
    """The spans of one window, without those outside of it (*strayed*: how many) and with repeated ids (*repeated*)."""

    frame: pl.DataFrame
    parent: Index
    strayed: int
    repeated: int


def span_key() -> pl.Expr:
    """Return the expression for the 64-bit key of a span, from its trace, span id and period."""
    return _span_key(pl.col("trace_id").hash(1), "span_id")


def _span_key(trace: pl.Expr, span: str) -> pl.Expr:
    """Return the key of a span: the hash *trace*, that of the column *span*, and a bit for the period."""
    period = pl.when(pl.col("period") == PERIODS[0]).then(pl.lit(0, pl.UInt64)).otherwise(pl.lit(2**63, pl.UInt64))
    return trace ^ pl.col(span).hash(2) ^ period


def read(pack: Datapack) -> Read:
    """Return the spans of both windows of *pack*, with the row of each one's parent; raises DatapackError."""
    with ThreadPoolExecutor(len(PERIODS) + 1) as lanes:  # parents are in the same window: each is read by itself
        logged = lanes.submit(_logged_errors, pack)
        normal, abnormal = windows = list(lanes.map(partial(_read_window, pack), PERIODS))
        errors = logged.result()
    names = [stacked([window.frame.get_column(name) for window in windows]) for name in _NAMES]
    rest = pl.concat([window.frame.drop(_NAMES) for window in windows], how="diagonal", rechunk=True)
    offset = normal.frame.height
    parent = np.concatenate([normal.parent, np.where(abnormal.parent < 0, -1, abnormal.parent + offset)])
    status_known = bool(rest.get_column("status_known").any())
    frame = _with_logged_errors(rest.drop("status_known").with_columns(names), errors, status_known=status_known)
    strayed, repeated = (sum(getattr(window, what) for window in windows) for what in ("strayed", "repeated"))
    return Read(frame, parent, status_known, tuple(_describe_oddities(pack, strayed, repeated)))


def _read_window(pack: Datapack, period: str) -> _Window:
    """Read the spans that lie in the window of *period*, without repeated ids, and each parent's row (-1: none)."""
    raw = pack.scan(period, "traces").with_columns(period=pl.lit(period, PERIOD), trace=pl.col("trace_id").hash(1))
    code = pl.col("attr.status_code").fill_null("Unset")
    status = pl.col("attr.http.response.status_code")
    links = {"links": pl.col("attr.links").cast(pl.String)} if "attr.links" in raw.collect_schema() else {}
    columns = raw.select(
        "period",
        "trace",
        root=pl.col("parent_span_id").fill_null("") == "",
        key=_span_key(pl.col("trace"), "span_id"),
        parent_key=_span_key(pl.col("trace"), "parent_span_id"),
        time_ns=pl.col("time").dt.epoch("ns"),
        duration_ns=pl.col("duration").cast(pl.Int64),
        service=pl.col("service_name").fill_null(""),
        operation=pl.col("span_name").fill_null(""),
        kind=pl.col("attr.span_kind").fill_null(""),
        pod=pl.col("attr.k8s.pod.name").fill_null(""),
        error=code.is_in(["Error", "ERROR", "error"]) | (status >= 500).fill_null(value=False),
        status_known=~code.is_in(["Unset", "UNSET", "unset", ""]) | status.is_not_null(),
        response_bytes=pl.col("attr.http.response.content_length").cast(pl.Float64),
        **links,
    )
    frame = _sort_by_time(_encode_names(pack.collect(columns, "traces")))
    frame = frame.with_columns(end_ns=pl.col("time_ns") + pl.col("duration_ns")).drop("duration_ns")
    window = pack.incident.normal if period == PERIODS[0] else pack.incident.abnormal
    inside = pl.col("time_ns").is_between(window.start_ns - _STRAY_NS, window.end_ns + _STRAY_NS)
    within = frame.filter(inside)
    strayed = frame.height - within.height
    rows = Rows(within.get_column("key").to_numpy())
    repeated = int(rows.repeated.sum())
    if repeated:
        within = within.filter(pl.Series(~rows.repeated))
        rows = Rows(within.get_column("key").to_numpy())
    parent = rows.find(within.get_column("parent_key").to_numpy())
    parent[within.get_column("root").to_numpy()] = -1
    return _Window(within.drop("parent_key"), parent, strayed, repeated)


def _encode_names(frame: pl.DataFrame) -> pl.DataFrame:
    """Return *frame* with names as polars Enums and span kinds as KIND."""
    given = coded(frame.get_column("kind"))
    lowered = [kind.lower() for kind in known_names(given)]
    kinds = pl.Series([kind if kind in KIND.categories else "internal" for kind in lowered], dtype=KIND)
    names = [coded(frame.get_column(name)) for name in _NAMES]
    return frame.with_columns(*names, kind=kinds.gather(given.to_physical()))


def _sort_by_time(frame: pl.DataFrame) -> pl.DataFrame:
    """Return *frame* sorted by time, key and duration; rows already in time order are sorted only among equal times."""
    by = frame.select("time_ns", "key", "duration_ns")
    time = by.get_column("time_ns").to_numpy()
    if np.any(time[1:] < time[:-1]):
        return frame[by.select(pl.arg_sort_by(by.columns)).to_series()]
    tied = np.flatnonzero(time[1:] == time[:-1])  # only spans of the same time may still change places
    rows = np.union1d(tied, tied + 1)
    order = rows[by[rows].select(pl.arg_sort_by(by.columns)).to_series().to_numpy()]
    if np.array_equal(order, rows):
        return frame
    places = np.arange(frame.height)
    places[rows] = order
    return frame[places]


def _describe_oddities(pack: Datapack, strayed: int, repeated: int) -> list[str]:
    """Return sentences on spans outside their window (*strayed*), *repeated* span ids, and windows that overlap."""
    notes = [f"{strayed} spans lie outside their window (a clock jumped?); they are left out."] if strayed else []
    notes += [f"{repeated} spans repeat the ids of others; the first of each is kept."] if repeated else []
    overlap = (pack.incident.normal.end_ns - pack.incident.abnormal.start_ns) / 1e9
    notes += (
        [f"The windows overlap by {overlap:.0f} s, so the baseline holds part of the fault."] if overlap > 1 else []
    )
    return notes


def _with_logged_errors(frame: pl.DataFrame, logged: pl.DataFrame, *, status_known: bool) -> pl.DataFrame:
    """Return *frame* with error and own_error by span status or, unless *status_known*, by *logged*, errors in logs."""
    words = ["logged_error", "new_words", "own_words"]
    if logged.height:
        frame = frame.join(logged, on="key", how="left", maintain_order="left").with_columns(
            pl.col(words).fill_null(value=False)
        )
    else:
        frame = frame.with_columns(pl.lit(value=False).alias(w) for w in words)
    errors = (pl.col("error"), pl.col("error")) if status_known else (pl.col("new_words"), pl.col("own_words"))
    return frame.with_columns(error=errors[0], own_error=errors[1]).drop("new_words", "own_words")


def _logged_errors(pack: Datapack) -> pl.DataFrame:
    """Return key, logged_error, new_words and own_words of spans with errors in their logs; no columns without any.

    *new_words*: the normal window has no such message; *own_words*: moreover the message names no other service. Within
    the normal window all errors count as new, so that its failure rate is rather over- than understated, except those
    in at least HABIT of the traces through the service, which are its habit.
    """
    template = pl.col("message").str.replace_all(_VARIABLE, "").str.slice(0, 400)
    failures = pl.col("level").is_in(ERROR_LEVELS) & (pl.col("span_id").fill_null("") != "")
    columns = pack.both("logs").filter(failures)
    columns = columns.select("period", "service_name", "message", trace="trace_id", key=span_key(), template=template)
    logs = pack.collect(columns, "logs")
    if not logs.height:
        return pl.DataFrame()
    named = logs.get_column("message").str.extract_many(pack.services(), leftmost=True)
    logs = logs.with_columns(blames=named.list.set_difference(logs.select(pl.concat_list("service_name")).to_series()))
    before = logs.filter(pl.col("period") == "normal")
    through = pack.scan("normal", "traces").group_by("service_name").agg(traces=pl.col("trace_id").n_unique()).collect()
    known = (
        before.group_by("service_name", "template")
        .agg(logging=pl.col("trace").n_unique())
        .join(through, on="service_name", how="left")
        .select(
            "service_name", "template", known=pl.lit(value=True), habit=pl.col("logging") >= HABIT * pl.col("traces")
        )
    )
    marked = logs.join(known, on=["service_name", "template"], how="left")
    new = ((pl.col("period") == "normal") & ~pl.col("habit")) | pl.col("known").is_null()
    return marked.group_by("key").agg(
        logged_error=pl.lit(value=True), new_words=new.any(), own_words=(new & (pl.col("blames").list.len() == 0)).any()
    )
