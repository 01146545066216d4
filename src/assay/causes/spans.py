"""Spans of both periods with their parent and their role: entry (a service begins to serve), exit (it calls out), inner.

Data without span kinds is read by structure: an entry has its parent in another service, an exit is a span that
usually has its child there. Data without status codes is read by its logs: an error in the log of a span, in words
that the normal window never had, is a failure of it.

Rows are dense and sorted by time, so that parents, owners and callees are plain indices into columns: one hash join
finds the parents, all else is gathering. An index of -1 is nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from assay.causes.names import coded, codes, known
from assay.telemetry.datapack import Datapack
from assay.telemetry.schema import PERIODS

Index = NDArray[np.int64]
Flags = NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)

PERIOD = pl.Enum(PERIODS)
KIND = pl.Enum(["", "server", "consumer", "client", "producer", "internal"])
"""Kinds of spans: none told, and internal, which stands for all others too."""

USUAL = 0.5
"""An operation with a child in another service in at least this share of its baseline is an exit."""

HABIT = 0.5
"""An error that this share of a service's baseline traces logs says nothing."""

_STRAY_NS = 60 * 10**9
"""How far outside its window a span may lie: requests run over the boundary, clocks do not."""

_STORE_VERB = r"^(SELECT|INSERT|UPDATE|DELETE|MERGE|REPLACE) "
_UNTOLD, _SERVER, _CONSUMER, _CLIENT, _PRODUCER = range(5)
_ERRORS = ("ERROR", "FATAL", "CRITICAL")
_VARIABLE = r"[0-9a-fA-F-]*[0-9][0-9a-fA-F.:-]*"
"""Numbers, times and ids: what differs between two messages that say the same."""


@dataclass(frozen=True, eq=False)
class Spans:
    """The spans of a datapack.

    *frame*, one row per span, by time: period, trace (64-bit hash of its id), time_ns, end_ns, service, operation, kind
    and pod (Enums), error, own_error (an error that blames no other service), logged_error, response_bytes; key (64-bit
    hash of ids) and links when there are any. *parent*: row of the parent span. *entry*: row of the entry that a span
    belongs to, -1 for spans in a cycle of parents. *generator*, *is_entry*, *is_exit*: roles. *status_known*: whether
    spans carry a status.
    """

    frame: pl.DataFrame
    parent: Index
    entry: Index
    generator: Flags
    is_entry: Flags
    is_exit: Flags
    status_known: bool
    notes: tuple[str, ...] = ()


def at(values: NDArray[T], index: Index, missing: int) -> NDArray[T]:
    """Return ``values[index]``, with *missing* where the index is -1."""
    if not values.size:
        return np.full(index.shape, missing, dtype=values.dtype)
    found = values[np.maximum(index, 0)]
    found[index < 0] = missing
    return found


def nullable(index: Index) -> pl.Series:
    """Return *index* as a Series in which -1 is null: what polars gathers with."""
    return pl.select(pl.when(pl.lit(pl.Series(index)) >= 0).then(pl.lit(pl.Series(index)))).to_series()


def index_of(series: pl.Series) -> Index:
    """Return the index that *series* holds, -1 for its nulls: the reverse of `nullable`."""
    return series.fill_null(-1).to_numpy()


def span_key(trace: str = "trace_id", span: str = "span_id") -> pl.Expr:
    """Return the 64-bit key of a span within both periods: ids are long texts, and joins on them are slow."""
    return _key(pl.col(trace).hash(1), span)


def _key(trace: pl.Expr, span: str) -> pl.Expr:
    period = pl.when(pl.col("period") == PERIODS[0]).then(pl.lit(0, pl.UInt64)).otherwise(pl.lit(2**63, pl.UInt64))
    return trace ^ pl.col(span).hash(2) ^ period


def read_spans(pack: Datapack) -> Spans:
    """Return the spans of *pack* with their parents and roles."""
    frame, status_known, notes = _read(pack)
    children = frame.select("parent_key").with_row_index("row").drop_nulls()
    rows = frame.select(parent_key="key", parent=pl.int_range(pl.len(), dtype=pl.Int64))
    pairs = children.join(rows, on="parent_key", how="inner")
    parent = np.full(frame.height, -1, dtype=np.int64)
    parent[pairs.get_column("row").to_numpy()] = pairs.get_column("parent").to_numpy()
    generator = frame.get_column("service").is_in(sorted(pack.load_generators())).to_numpy()
    is_entry, is_exit = _roles(frame, parent)
    owner = _climb(np.where(is_entry, -1, parent))
    entry = np.where(is_entry[owner], owner, -1)
    looped = int((entry < 0).sum())
    notes += [f"{looped} spans are their own ancestors; they are left out."] if looped else []
    notes += _orphans(frame, parent)
    done = ["parent_key", "root"] if "links" in frame.columns else ["parent_key", "root", "key"]
    return Spans(frame.drop(done), parent, entry, generator, is_entry, is_exit, status_known, tuple(notes))


def _orphans(frame: pl.DataFrame, parent: Index) -> list[str]:
    lost = int(((parent < 0) & ~frame.get_column("root").to_numpy()).sum())
    return [f"{lost} of {frame.height} spans name a parent that is not there; each counts as an entry."] if lost else []


def _read(pack: Datapack) -> tuple[pl.DataFrame, bool, list[str]]:
    raw = pack.both("traces").with_columns(pl.col("period").cast(PERIOD), trace=pl.col("trace_id").hash(1))
    columns = raw.collect_schema().names()
    told = pl.col("attr.status_code").fill_null("Unset")
    status = pl.col("attr.http.response.status_code")
    root = pl.col("parent_span_id").fill_null("") == ""
    links = {"links": pl.col("attr.links").cast(pl.String)} if "attr.links" in columns else {}
    wanted = raw.select(
        "period",
        "trace",
        root=root,
        key=_key(pl.col("trace"), "span_id"),
        parent_key=pl.when(~root).then(_key(pl.col("trace"), "parent_span_id")),
        time_ns=pl.col("time").dt.epoch("ns"),
        service=pl.col("service_name").fill_null(""),
        operation=pl.col("span_name").fill_null(""),
        kind=pl.col("attr.span_kind").fill_null(""),
        pod=pl.col("attr.k8s.pod.name").fill_null(""),
        duration_ns=pl.col("duration").cast(pl.Int64),
        error=told.is_in(["Error", "ERROR", "error"]) | (status >= 500).fill_null(value=False),
        told=~told.is_in(["Unset", "UNSET", "unset", ""]) | status.is_not_null(),
        response_bytes=pl.col("attr.http.response.content_length").cast(pl.Float64),
        **links,
    )
    frame = _in_order(_coded(pack.collect(wanted, "traces")))
    inside = frame.select(_inside_windows(pack)).to_series()
    strayed = int((~inside).sum())
    frame = frame.filter(inside) if strayed else frame
    height = frame.height
    if frame.get_column("key").n_unique() < height:
        frame = frame.unique(subset="key", keep="first", maintain_order=True)
    status_known = bool(frame.get_column("told").any())
    frame = _with_logged_errors(frame, pack, status_known=status_known)
    frame = frame.with_columns(end_ns=pl.col("time_ns") + pl.col("duration_ns")).drop("told", "duration_ns")
    return frame, status_known, _oddities(pack, strayed, height - frame.height)


def _coded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return *frame* with its names as Enums, and its kinds as KIND."""
    names = [coded(frame.get_column(c)) for c in ("service", "operation", "pod", "kind")]
    told = [kind.lower() for kind in known(names[-1])]
    kinds = pl.Series([k if k in KIND.categories else "internal" for k in told], dtype=KIND)
    return frame.with_columns(*names[:-1], kind=kinds.gather(names[-1].to_physical()))


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Return *frame* sorted by time, whatever the order of its rows was; mostly they are sorted already."""
    by = frame.select(pl.col("period").to_physical(), "time_ns", "key", "duration_ns")
    period, time = (by.get_column(c).to_numpy() for c in ("period", "time_ns"))
    same = period[1:] == period[:-1]
    if not np.all((period[1:] > period[:-1]) | (same & (time[1:] >= time[:-1]))):
        return frame[by.select(pl.arg_sort_by(by.columns)).to_series()]
    tied = np.flatnonzero(same & (time[1:] == time[:-1]))  # only spans of the same time may still change places
    rows = np.union1d(tied, tied + 1)
    order = rows[by[rows].select(pl.arg_sort_by(by.columns)).to_series().to_numpy()]
    if np.array_equal(order, rows):
        return frame
    places = np.arange(frame.height)
    places[rows] = order
    return frame[places]


def _inside_windows(pack: Datapack) -> pl.Expr:
    normal, abnormal = (
        pl.col("time_ns").is_between(window.start_ns - _STRAY_NS, window.end_ns + _STRAY_NS)
        for window in (pack.incident.normal, pack.incident.abnormal)
    )
    return pl.when(pl.col("period") == PERIODS[0]).then(normal).otherwise(abnormal)


def _oddities(pack: Datapack, strayed: int, repeated: int) -> list[str]:
    notes = [f"{strayed} spans lie outside their window (a clock jumped?); they are left out."] if strayed else []
    notes += [f"{repeated} spans repeat the ids of others; the first of each is kept."] if repeated else []
    overlap = (pack.incident.normal.end_ns - pack.incident.abnormal.start_ns) / 1e9
    notes += (
        [f"The windows overlap by {overlap:.0f} s, so the baseline holds part of the fault."] if overlap > 1 else []
    )
    return notes


def _with_logged_errors(frame: pl.DataFrame, pack: Datapack, *, status_known: bool) -> pl.DataFrame:
    logged = _logged_errors(pack)
    words = ["logged_error", "new_words", "own_words"]
    if logged.height:
        frame = frame.join(logged, on="key", how="left", maintain_order="left").with_columns(
            pl.col(words).fill_null(value=False)
        )
    else:
        frame = frame.with_columns(pl.lit(value=False).alias(w) for w in words)
    told = (pl.col("error"), pl.col("error")) if status_known else (pl.col("new_words"), pl.col("own_words"))
    return frame.with_columns(error=told[0], own_error=told[1]).drop("new_words", "own_words")


def _logged_errors(pack: Datapack) -> pl.DataFrame:
    """Return key, logged_error, new_words and own_words of spans with errors in their logs.

    *new_words*: the normal window has no such message. *own_words*: and the message names no other service. All errors
    of the normal window count as new there, so that its rate of failures is rather over- than understated, except
    those that at least HABIT of the traces through the service have: they are how it always talks.
    """
    template = pl.col("message").str.replace_all(_VARIABLE, "").str.slice(0, 400)
    failures = pl.col("level").is_in(_ERRORS) & (pl.col("span_id").fill_null("") != "")
    wanted = pack.both("logs").filter(failures)
    wanted = wanted.select("period", "service_name", "message", trace="trace_id", key=span_key(), template=template)
    logs = pack.collect(wanted, "logs")
    if not logs.height:
        return pl.DataFrame()
    named = logs.get_column("message").str.extract_many(pack.services(), leftmost=True)
    logs = logs.with_columns(blames=named.list.set_difference(logs.select(pl.concat_list("service_name")).to_series()))
    before = logs.filter(pl.col("period") == "normal")
    through = pack.scan("normal", "traces").group_by("service_name").agg(traces=pl.col("trace_id").n_unique()).collect()
    known = (
        before.group_by("service_name", "template")
        .agg(told=pl.col("trace").n_unique())
        .join(through, on="service_name", how="left")
        .select("service_name", "template", known=pl.lit(value=True), habit=pl.col("told") >= HABIT * pl.col("traces"))
    )
    marked = logs.join(known, on=["service_name", "template"], how="left")
    new = ((pl.col("period") == "normal") & ~pl.col("habit")) | pl.col("known").is_null()
    return marked.group_by("key").agg(
        logged_error=pl.lit(value=True), new_words=new.any(), own_words=(new & (pl.col("blames").list.len() == 0)).any()
    )


def _roles(frame: pl.DataFrame, parent: Index) -> tuple[Flags, Flags]:
    """Return which spans are entries and which are exits."""
    service, kind = codes(frame.get_column("service")), frame.get_column("kind").to_physical().to_numpy()
    serving = (kind == _SERVER) | (kind == _CONSUMER)
    foreign = at(service, parent, -1) != service
    is_entry = (parent < 0) | foreign | (serving & (at(kind, parent, _UNTOLD) != kind))
    is_exit = (kind == _CLIENT) | (kind == _PRODUCER)
    untold = kind == _UNTOLD
    if not untold.any():
        return is_entry, is_exit
    calls_out, has_child = np.zeros(parent.size, dtype=bool), np.zeros(parent.size, dtype=bool)
    calls_out[parent[is_entry & (parent >= 0)]] = True
    has_child[parent[parent >= 0]] = True
    usual = (
        frame.select("period", "service", "operation")
        .with_columns(calls_out=pl.Series(calls_out))
        .filter(pl.Series(untold) & (pl.col("period") == "normal"))
        .group_by("service", "operation")
        .agg(usual=pl.col("calls_out").mean() >= USUAL)
    )
    told = frame.select("service", "operation").join(
        usual, on=["service", "operation"], how="left", maintain_order="left"
    )
    store = frame.get_column("operation").cast(pl.String).str.contains(_STORE_VERB).to_numpy() & ~has_child
    by_habit = told.get_column("usual").fill_null(value=False).to_numpy()
    return is_entry, is_exit | (untold & ~is_entry & (by_habit | store))


def _climb(parent: Index) -> Index:
    """Return for each row the last one on its way up *parent*, by pointer doubling: log2(depth) gathers."""
    up = np.where(parent < 0, np.arange(parent.size), parent)
    rows = np.flatnonzero(parent >= 0)
    for _ in range(32):
        further = up[up[rows]]
        moves = further != up[rows]
        rows, further = rows[moves], further[moves]
        if not rows.size:
            break
        up[rows] = further
    return up


def top_exit(spans: Spans) -> Index:
    """Return for each exit the outermost one of those that it lies directly in: clients wrap clients."""
    inside = spans.is_exit & at(spans.is_exit, spans.parent, 0)
    return _climb(np.where(inside, spans.parent, -1))
