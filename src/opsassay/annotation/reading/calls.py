"""Spans converted to calls: one row per *entry* (a service starts to serve a request) and per *exit* (it calls out).

Inner spans of a service belong to the entry above them, so that a hop is a call between services. Also finds gaps:
times without any recorded span, because a file is missing or a collector was down.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from opsassay.annotation.reading.exits import find_exits
from opsassay.annotation.reading.names import coded, codes, join_names, known_names
from opsassay.annotation.reading.parents import Index
from opsassay.annotation.reading.spans import Spans, index_of, nullable, read_spans, take_or_missing
from opsassay.annotation.reading.structure import ALWAYS, ALWAYS_OF, find_bare, lacks_usual
from opsassay.annotation.reading.waits import with_waits
from opsassay.core.schema.incident import Window
from opsassay.telemetry.datapack import Datapack

LONG_NS, TIMES_USUAL = 15_000_000_000, 10
"""A time without any span is a gap if it lasts LONG_NS, and TIMES_USUAL the mean time between two requests."""


def unobserved(spans: pl.DataFrame, period: str, window: Window) -> tuple[tuple[int, int], ...]:
    """Return the gaps without any span in *period* of *window*, as (from, to) in ns of UTC.

    *spans*: period, trace, time_ns, end_ns, those of load generators included, which go on when a system is down. The
    time before the first and after the last span is a gap in the normal window only: in the abnormal window it may be
    an effect of the fault.
    """
    within = pl.col("time_ns").is_between(window.start_ns, window.end_ns)  # a wrong clock is elsewhere, alone
    mine = spans.filter((pl.col("period") == period) & within).sort("time_ns")
    if not mine.height:
        return ()
    begins, ends = mine.get_column("time_ns").to_numpy(), np.maximum.accumulate(mine.get_column("end_ns").to_numpy())
    before, after = ends[:-1], begins[1:]
    if period == "normal":
        before, after = np.r_[window.start_ns, before, ends[-1]], np.r_[begins[0], after, window.end_ns]
    silent = after - before
    traces = mine.get_column("trace").n_unique()
    busy_ns = window.end_ns - window.start_ns - int(silent[silent >= LONG_NS].sum())
    found = np.flatnonzero((silent >= LONG_NS) & (silent >= TIMES_USUAL * max(busy_ns, 0) / traces))
    return tuple((int(before[at]), int(after[at])) for at in found)


def about_gaps(period: str, gaps: tuple[tuple[int, int], ...], window: Window) -> str:
    """Return a sentence that says how many seconds of *window*, the one of *period*, were observed between its *gaps*."""
    whole, lost = window.seconds, sum(end - start for start, end in gaps) / 1e9
    seen = f"Of the {whole:.0f} s of the {period} window {whole - lost:.0f} s were observed"
    return f"{seen}: for {lost:.0f} s there are no spans."


BEHIND = " > "
"""Separates, in a node's name, a wildcard operation from the callee by which its requests are distinguished."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The calls of one datapack, both periods; names (services, nodes, pods, ...) are Enums.

    *entries*: entry (dense id), period, trace (hash of its id), time_ns, end_ns, service, operation, node
    (service::operation), pod, kind, duration_ms, own_ms (not waiting for an exit), store_ms (waiting for stores),
    exit_gap_ms (between its exits and their callees), felt_ms (by the load generator), failed, own_error (failed, and
    blames no other service), cut_short (a usual callee is missing), felt_failed, ended_early (failed, in less than its
    node's usual time), any_failed_exit, logged_error, response_bytes, caller_entry (null at the surface), surface (bool),
    shape (a hash of the set of callees).
    *exits*: exit (dense id), period, caller_entry (null for a load generator), caller_node, caller_service,
    from_generator, virtual (no span of its own: the callee's stands in), name, time_ns, end_ns, duration_ms, failed,
    asynchronous, callee_entry, callee_node and callee_service (the expected ones when absent), usual_service (that of
    the baseline, where it had one), absent, store, gap_ms (exit minus callee), lead_ms (callee start minus exit start),
    lag_ms (the same of messages), callee_ms (while the exit lasted), overrun (the callee worked on when the exit
    ended), critical (the share of it that the caller waited for nothing else: parallel calls wait for the last).
    *bare*: as `find_bare` returns it. *notes*: what was odd about the spans, in sentences. *gaps*: (from, to) in ns, by
    period, that were not observed.
    *start_ns* and *end_ns*: of the windows by period, UTC. Dense ids count rows from 0 on, before any are filtered out.
    """

    entries: pl.DataFrame
    exits: pl.DataFrame
    bare: pl.DataFrame
    services: tuple[str, ...]
    status_known: bool
    start_ns: dict[str, int]
    end_ns: dict[str, int]
    notes: tuple[str, ...] = ()
    gaps: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def seconds(self, period: str) -> float:
        """Return how many seconds of *period* were observed, without gaps and at least 1, as the divisor of rates."""
        start, end = self.start_ns[period], self.end_ns[period]
        lost = sum(max(min(b, end) - max(a, start), 0) for a, b in self.gaps.get(period, ()))
        return max((end - start - lost) / 1e9, 1.0)


def read_calls(pack: Datapack) -> Calls:
    """Return the calls in the spans of *pack*; load generators only add waiting time and failures to their callees.

    Raises DatapackError for a table that cannot be read.
    """
    generators = pack.load_generators()
    spans = read_spans(pack)
    entries, entry_of = _read_entries(spans)
    exits = find_exits(spans, entries, entry_of)
    bare = find_bare(spans, entry_of)
    status_known = spans.status_known
    windows = {"normal": pack.incident.normal, "abnormal": pack.incident.abnormal}
    gaps = {period: unobserved(spans.frame, period, window) for period, window in windows.items()}
    notes = (
        *spans.notes,
        *(about_gaps(period, gaps[period], window) for period, window in windows.items() if gaps[period]),
    )
    del spans, entry_of  # memory is highest from here on
    with ThreadPoolExecutor(1) as beside:  # neither reads what the other adds
        cut_short = beside.submit(_lacks_callees, entries, exits)
        waited, exits = with_waits(entries, exits)
        entries = waited.with_columns(cut_short=cut_short.result())
    entries, exits = _split_wildcards(entries, exits)
    services = known_names(entries.get_column("service"))
    return Calls(
        entries=_with_outer_spans(entries, exits, status_known=status_known),
        exits=exits,
        bare=bare,
        services=tuple(s for s in services if s and s not in generators),
        status_known=status_known,
        start_ns={p: w.start_ns for p, w in windows.items()},
        end_ns={p: w.end_ns for p, w in windows.items()},
        notes=notes,
        gaps=gaps,
    )


def _read_entries(spans: Spans) -> tuple[pl.DataFrame, Index]:
    """Return (requests that services serve, index from span row to request id, -1 for none)."""
    rows = np.flatnonzero(spans.is_entry & ~spans.generator)
    entry_of = np.full(spans.parent.size, -1, dtype=np.int64)
    entry_of[rows] = np.arange(rows.size)
    frame, parent = spans.frame, spans.parent[rows]
    begun = frame[rows]

    def inside(column: str, *, also_exits: bool = False) -> pl.Series:
        """Return for each entry whether *column* is true in one of its spans, in exits only with *also_exits*."""
        flags = frame.get_column(column).to_numpy()
        owner = spans.entry[flags if also_exits else flags & ~spans.is_exit]
        found = np.zeros(spans.parent.size, dtype=bool)
        found[owner[owner >= 0]] = True
        return pl.Series(found[rows])

    # Without status codes an exception inside the service is the only sign that the request failed.
    unknown = pl.lit(not spans.status_known)
    entries = begun.with_row_index("entry").with_columns(
        pl.col("entry").cast(pl.Int64),
        node=join_names(begun.get_column("service"), "::", begun.get_column("operation")),
        duration_ms=(pl.col("end_ns") - pl.col("time_ns")) / 1e6,
        logged_error=inside("logged_error", also_exits=True),
        failed=pl.col("error") | (unknown & inside("error")),
        own_error=pl.col("own_error") | (unknown & inside("own_error")),
        surface=pl.Series((parent < 0) | take_or_missing(spans.generator, parent, 0)),
        caller_entry=nullable(take_or_missing(entry_of, take_or_missing(spans.entry, parent, -1), -1)),
        row=pl.Series(rows),
    )
    return entries.drop("error", "key", strict=False), entry_of


def _lacks_callees(entries: pl.DataFrame, exits: pl.DataFrame) -> pl.Series:
    """Return for each entry whether it lacks a callee that (nearly) all baseline requests of its node called."""
    node, normal = codes(entries.get_column("node")), (entries.get_column("period") == "normal").to_numpy()
    reached = exits.get_column("callee_entry").is_not_null().to_numpy()
    caller = index_of(exits.get_column("caller_entry"))
    callee = np.where(reached, codes(exits.get_column("callee_node")), -1)
    size = known_names(entries.get_column("node")).len()
    lacks = lacks_usual(node, normal, caller, callee, size)
    calling = np.isin(np.arange(size), node[caller[(caller >= 0) & (callee >= 0)]])
    unknown = calling & (np.bincount(node[normal], minlength=size) < ALWAYS_OF)
    return pl.select(pl.when(pl.lit(pl.Series(~unknown[node]))).then(pl.lit(pl.Series(lacks)))).to_series()


def usual_callees(calls: Calls) -> pl.DataFrame:
    """Return the callees that (nearly) all baseline requests of a node called: node, callee_node, callee_service."""
    before = calls.entries.lazy().filter(pl.col("period") == "normal").select("node", "entry")
    served = before.group_by("node").len("served").filter(pl.col("served") >= ALWAYS_OF)
    made = (
        calls.exits.lazy()
        .filter((pl.col("period") == "normal") & ~pl.col("asynchronous"))
        .select("caller_entry", "caller_node", "callee_node", "callee_service")
        .drop_nulls()
        .unique(["caller_entry", "callee_node"])
    )
    return (
        made.group_by(node="caller_node", callee_node="callee_node", callee_service="callee_service")
        .len("had")
        .join(served, on="node", how="inner")
        .filter(pl.col("had") >= ALWAYS * pl.col("served"))
        .select("node", "callee_node", "callee_service")
        .sort("node", "callee_node")
        .collect()
    )


def _split_wildcards(entries: pl.DataFrame, exits: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both tables with the nodes of wildcard routes `/*` split by the first call that a request makes."""
    operations = entries.get_column("operation")
    routes = [name for name in known_names(operations) if "*" in name]
    wild = operations.is_in(routes)
    if not wild.any():
        return entries, exits
    first = (
        exits.select("caller_entry", "callee_node")
        .drop_nulls()
        .group_by("caller_entry", maintain_order=True)
        .agg(first=pl.col("callee_node").first())
    )
    entries = entries.join(first, left_on="entry", right_on="caller_entry", how="left", maintain_order="left")
    plain = pl.col("node").cast(pl.String)
    split = pl.concat_str(plain, pl.lit(BEHIND), "first")
    names = entries.select(pl.when(wild).then(pl.coalesce(split, plain)).otherwise(plain)).to_series()
    nodes = coded(names, entries.get_column("node"), exits.get_column("caller_node"), exits.get_column("callee_node"))
    callers, callees = (nodes.gather(exits.get_column(c)) for c in ("caller_entry", "callee_entry"))
    return entries.with_columns(node=nodes).drop("first"), exits.with_columns(
        caller_node=pl.coalesce(callers, pl.col("caller_node").cast(nodes.dtype)),
        callee_node=pl.coalesce(callees, pl.col("callee_node").cast(nodes.dtype)),
    )


def _with_outer_spans(entries: pl.DataFrame, exits: pl.DataFrame, *, status_known: bool) -> pl.DataFrame:
    """Return *entries* plus felt_ms, felt_failed and ended_early, by the load generator's client span if any."""
    outside = exits.filter(pl.col("from_generator") & ~pl.col("virtual") & pl.col("callee_entry").is_not_null())
    waited_ms, lag_ms = np.full(entries.height, -np.inf), np.full(entries.height, np.inf)
    failed = np.zeros(entries.height, dtype=np.bool_)
    np.maximum.at(waited_ms, index_of(outside.get_column("callee_entry")), outside.get_column("duration_ms").to_numpy())
    failed[index_of(outside.filter("failed").get_column("callee_entry"))] = True
    sent = exits.select("callee_entry", "lag_ms").drop_nulls()
    np.minimum.at(lag_ms, index_of(sent.get_column("callee_entry")), sent.get_column("lag_ms").to_numpy().clip(min=0.0))
    duration_ms = entries.get_column("duration_ms").to_numpy() + np.where(np.isinf(lag_ms), 0.0, lag_ms)
    felt = entries.with_columns(
        felt_ms=pl.Series(np.where(np.isinf(waited_ms), duration_ms, waited_ms)),
        felt_failed=pl.col("failed")
        | pl.Series(failed)
        | (pl.lit(not status_known) & pl.col("cut_short").fill_null(value=False)),
    )
    return felt.with_columns(ended_early=_ended_early(felt))


def _ended_early(entries: pl.DataFrame) -> pl.Series:
    """Return for each row of *entries* (served calls) if it failed sooner than its node's mean in the normal window."""
    failures = entries.lazy().filter("felt_failed").select("entry", "node", "felt_ms")
    usual = entries.lazy().filter(pl.col("period") == "normal").group_by("node").agg(usual_ms=pl.col("felt_ms").mean())
    early = failures.join(usual, on="node").filter(pl.col("felt_ms") < pl.col("usual_ms")).collect()
    flags = np.zeros(entries.height, dtype=np.bool_)
    flags[early.get_column("entry").to_numpy()] = True
    return pl.Series(flags)
