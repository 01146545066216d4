"""Exits: the calls that services make, the callee that each reached, and the callee that it usually reaches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from opsassay.annotation.reading.parents import Index
from opsassay.annotation.reading.spans import Flags, Spans, nullable, take_or_missing, top_exit
from opsassay.annotation.reading.windows import span_key

EXPECTED_SHARE, EXPECTED_PURITY = 0.8, 0.9
"""An exit without a callee has an expected one if its baseline had one this often, and the same one this often."""


ENDED_AT_ONCE_NS, ENDED_AT_ONCE_SHARE = 1e6, 0.01
"""A callee that ends less than this before its caller's exit counts as cut off: clocks differ, answers take time."""


@dataclass(frozen=True, eq=False)
class _Places:
    """Exits as rows of spans: *span* (its times), *caller*, *callee* (-1: none); *virtual*: without a client span."""

    span: Index
    caller: Index
    callee: Index
    virtual: Flags
    linked: Flags


def find_exits(spans: Spans, entries: pl.DataFrame, entry_of: Index) -> pl.DataFrame:
    """Return the table of calls (Calls.exits): from client spans, calls without one, and span links.

    *entry_of*: for each span row the id in *entries* of the request that it starts, -1 for none.
    """
    found = [*_exit_pairs(spans), *_linked_exits(spans)]
    places = [
        np.concatenate([getattr(p, name) for p in found]) for name in ("span", "caller", "callee", "virtual", "linked")
    ]
    # Rows of spans are in the order of time, and so are those of each part: a stable sort merges them.
    order = np.argsort(places[0] * (spans.parent.size + 1) + places[2], kind="stable")
    at_ = _Places(*(column[order] for column in places))
    caller = nullable(take_or_missing(entry_of, take_or_missing(spans.entry, at_.caller, -1), -1))
    return _with_ends(_exit_table(spans, at_), entries, caller, nullable(take_or_missing(entry_of, at_.callee, -1)))


def _exit_pairs(spans: Spans) -> list[_Places]:
    """Return [calls with a client span, calls without one (a server span whose parent is no client span)]."""
    child = np.flatnonzero(spans.is_entry & (spans.parent >= 0) & ~spans.generator)
    parent = spans.parent[child]
    outermost = top_exit(spans)
    by_exit = spans.is_exit[parent]
    called, under = child[by_exit], outermost[parent[by_exit]]
    callee = np.full(spans.parent.size, -1, dtype=np.int64)
    callee[under[::-1]] = called[::-1]
    further = callee[under] != called
    real = np.flatnonzero(spans.is_exit)
    real = real[outermost.take(real) == real]
    exits = np.concatenate([real, under[further]])
    callees = np.concatenate([callee[real], called[further]])
    no, yes = np.zeros(exits.size, dtype=bool), np.ones(int((~by_exit).sum()), dtype=bool)
    direct = child[~by_exit]
    return [_Places(exits, exits, callees, no, no), _Places(direct, parent[~by_exit], direct, yes, ~yes)]


def _linked_exits(spans: Spans) -> list[_Places]:
    """Return asynchronous calls, from producer spans to which a consumer span of another trace links; [] without links."""
    if "links" not in spans.frame.columns:
        return []
    pairs = (
        spans.frame.select("period", callee_row=pl.Series(spans.entry), link=pl.col("links").str.split(","))
        .drop_nulls("link")
        .explode("link")
        .filter(pl.col("link").str.contains(":", literal=True) & (pl.col("callee_row") >= 0))
        .with_columns(
            pl.col("link").str.strip_chars().str.split_exact(":", 1).struct.rename_fields(["trace_id", "span_id"])
        )
        .unnest("link")
        .select("callee_row", key=span_key())
    )
    rows = spans.frame.select("key", row=pl.int_range(pl.len(), dtype=pl.Int64))
    found = pairs.join(rows, on="key", how="inner", maintain_order="left")
    row, callee = (found.get_column(c).to_numpy() for c in ("row", "callee_row"))
    yes = np.ones(row.size, dtype=bool)
    return [_Places(row, row, callee, yes, yes)]


def _exit_table(spans: Spans, places: _Places) -> pl.DataFrame:
    """Return the table of calls at *places*; one without a client span (*virtual*) has the times of the callee's span."""
    frame = spans.frame.select("period", "time_ns", "end_ns", "operation", "kind", failed="error")[places.span]
    return frame.with_columns(
        span=pl.Series(places.span),
        service=spans.frame.get_column("service").gather(places.caller),
        from_generator=pl.Series(spans.generator[places.caller]),
        virtual=pl.Series(places.virtual),
        producer=pl.Series(places.linked) | (pl.col("kind") == "producer"),
    ).drop("kind")


def _with_ends(exits: pl.DataFrame, entries: pl.DataFrame, caller: pl.Series, callee: pl.Series) -> pl.DataFrame:
    """Return *exits* with caller and callee, rows of *entries* (null: none), and the ms between their spans."""
    nodes = entries.get_column("node")
    reached = entries.select(
        callee_node="node",
        callee_service="service",
        callee_ms="duration_ms",
        callee_start="time_ns",
        callee_kind="kind",
    ).select(pl.all().gather(callee))
    exits = exits.hstack(reached).with_columns(
        caller_entry=caller,
        callee_entry=callee,
        caller_node=pl.coalesce(nodes.gather(caller), pl.col("service").cast(nodes.dtype)),
    )
    exits = exits.with_columns(place=pl.col("caller_node").hash(4) ^ pl.col("operation").hash(5))
    usual = _usual_callee(exits)
    row = exits.select("place").join(
        usual.select("place").with_row_index("row"), on="place", how="left", maintain_order="left"
    )
    exits = _with_unconsumed(exits.hstack(usual.drop("place").select(pl.all().gather(row.get_column("row")))))
    lacks = pl.col("callee_entry").is_null()
    asynchronous = pl.col("producer") | (pl.col("callee_kind") == "consumer").fill_null(value=False)
    waited = ~pl.col("virtual") & ~asynchronous
    lasted = (pl.col("end_ns") - pl.col("time_ns")) / 1e6
    at_once = pl.min_horizontal(pl.lit(ENDED_AT_ONCE_NS), lasted * 1e6 * ENDED_AT_ONCE_SHARE)
    return exits.select(
        "period",
        "caller_entry",
        "caller_node",
        "time_ns",
        "end_ns",
        "callee_entry",
        "virtual",
        "from_generator",
        "failed",
        "usual_service",
        caller_service="service",
        name="operation",
        duration_ms=lasted,
        asynchronous=asynchronous,
        callee_node=pl.coalesce("callee_node", "usual_node"),
        callee_service=pl.coalesce("callee_service", "usual_service"),
        absent=lacks & pl.col("usual_node").is_not_null(),
        store=lacks & pl.col("never").fill_null(value=False),
        gap_ms=pl.when(waited).then(lasted - pl.col("callee_ms")),
        lead_ms=pl.when(waited).then((pl.col("callee_start") - pl.col("time_ns")) / 1e6),
        lag_ms=pl.when(asynchronous).then((pl.col("callee_start") - pl.col("time_ns")) / 1e6),
        callee_ms=pl.min_horizontal("callee_ms", lasted),
        overrun=(pl.col("callee_ms") * 1e6 + pl.col("callee_start") >= pl.col("end_ns") - at_once).fill_null(
            value=False
        ),
    ).with_row_index("exit")


def _with_unconsumed(exits: pl.DataFrame) -> pl.DataFrame:
    """Return *exits* with one more row for each usual consumer that did not get a message."""
    sent = exits.filter(pl.col("producer"))
    if not sent.height:
        return exits
    normal = sent.filter(pl.col("period") == "normal")
    usual = (
        normal.drop_nulls("callee_node")
        .group_by("place", "callee_node", "callee_service")
        .agg(got=pl.col("span").n_unique())
        .join(normal.group_by("place").agg(sent=pl.col("span").n_unique()), on="place")
        .filter(pl.col("got") >= EXPECTED_SHARE * pl.col("sent"))
        .filter(pl.len().over("place") > 1)
        .select("place", usual_node="callee_node", usual_service="callee_service")
        .sort("place", "usual_node")
    )
    had = sent.select("span", usual_node="callee_node").drop_nulls()
    nobody = [c for c in exits.columns if c.startswith("callee_")]
    absent = (
        sent.unique("span", keep="first", maintain_order=True)
        .drop("usual_node", "usual_service", "never")
        .join(usual, on="place", how="inner", maintain_order="left_right")
        .join(had, on=["span", "usual_node"], how="anti", maintain_order="left")
        .with_columns(pl.lit(None).alias(c) for c in nobody)
        .with_columns(never=pl.lit(value=False))
    )
    if not absent.height:
        return exits
    unknown = pl.col("callee_entry").is_null() & pl.col("span").is_in(absent.get_column("span").implode())
    absent = absent.select(exits.columns).cast(exits.schema)
    return pl.concat([exits.filter(~unknown), absent]).sort("span", maintain_order=True)


def _usual_callee(exits: pl.DataFrame) -> pl.DataFrame:
    """Return for each calling operation its callee in the baseline (usual_node, usual_service); *never*: it had none."""
    by = ["place"]
    normal = exits.filter(pl.col("period") == "normal")
    per_callee = normal.group_by(*by, "callee_node", "callee_service").len("calls")
    return (
        per_callee.sort("calls", "callee_node", descending=[True, False], nulls_last=True)
        .group_by(by, maintain_order=True)
        .agg(
            total=pl.col("calls").sum(),
            served=pl.col("calls").filter(pl.col("callee_node").is_not_null()).sum(),
            top=pl.col("calls").filter(pl.col("callee_node").is_not_null()).first(),
            node=pl.col("callee_node").drop_nulls().first(),
            service=pl.col("callee_service").drop_nulls().first(),
        )
        .with_columns(
            clear=(pl.col("served") >= EXPECTED_SHARE * pl.col("total"))
            & (pl.col("top") >= EXPECTED_PURITY * pl.col("served"))
        )
        .select(
            *by,
            usual_node=pl.when("clear").then("node"),
            usual_service=pl.when("clear").then("service"),
            never=pl.col("served") == 0,
        )
    )
