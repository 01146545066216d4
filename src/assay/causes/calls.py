"""Spans made into calls: one row per *entry* (a service begins to serve a request) and per *exit* (it calls out).

Inner spans of a service belong to the entry above them, so that a hop is a call between services and never a frame
inside one.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from assay.causes.spans import read_spans
from assay.telemetry.datapack import Datapack

EXPECTED_SHARE, EXPECTED_PURITY = 0.8, 0.9
"""An exit without a callee lacks one when its baseline had one this often, and this often the same."""

BEHIND = " > "
"""Between a wildcard operation and the callee that tells its requests apart, in a node's name."""

ALWAYS, ALWAYS_OF = 0.9, 5
"""A callee that this share of an operation's baseline calls had, out of so many, belongs to it."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The calls of one datapack, both periods.

    *entries*: entry (dense id), period, trace_id, time_ns, end_ns, service, operation, node (service::operation), pod,
    duration_ms, own_ms (not waiting for an exit), store_ms (waiting for stores), exit_gap_ms
    (between its exits and their callees), felt_ms (by the load generator),
    failed, own_error (failed, and blames no other service), cut_short (a usual callee is missing), felt_failed,
    any_failed_exit, logged_error, response_bytes, caller_entry (null at the surface), surface (bool),
    first_callee, shape (all callees).
    *exits*: exit (dense id), period, trace_id, caller_entry (null for a load generator), caller_node, caller_service,
    name, time_ns, end_ns, duration_ms, failed, asynchronous, callee_entry, callee_node and callee_service (the expected
    ones when absent), absent, store, gap_ms (exit minus callee), lead_ms (callee start minus exit start),
    callee_ms (while the exit lasted), overrun (the callee worked on when the exit ended).
    """

    entries: pl.DataFrame
    exits: pl.DataFrame
    services: tuple[str, ...]
    status_known: bool
    start_ns: dict[str, int]
    end_ns: dict[str, int]

    def seconds(self, period: str) -> float:
        """Return the length of *period*, at least one second."""
        return max((self.end_ns[period] - self.start_ns[period]) / 1e9, 1.0)


def read_calls(pack: Datapack) -> Calls:
    """Return the calls of *pack*; load generators are left out, what they felt is kept at the surface."""
    generators = pack.load_generators()
    spans, status_known = read_spans(pack)
    entries = _entries(spans, generators, status_known=status_known)
    exits = _expect_callees(_exits(spans, generators), entries)
    entries, exits = _split_wildcards(_own_time(_cut_short(entries, exits), exits), exits)
    windows = {"normal": pack.incident.normal, "abnormal": pack.incident.abnormal}
    return Calls(
        entries=_felt(entries, exits, status_known=status_known),
        exits=exits,
        services=tuple(s for s in pack.services() if s not in generators),
        status_known=status_known,
        start_ns={p: w.start_ns for p, w in windows.items()},
        end_ns={p: w.end_ns for p, w in windows.items()},
    )


def _entries(spans: pl.DataFrame, generators: frozenset[str], *, status_known: bool) -> pl.DataFrame:
    inner = spans.group_by("entry_row").agg(
        logged_error=pl.col("logged_error").any(),
        inner_error=(pl.col("error") & ~pl.col("is_exit")).any(),
        own_inner_error=(pl.col("own_error") & ~pl.col("is_exit")).any(),
    )
    made_traffic = pl.col("parent_service").is_in(list(generators))
    entries = (
        spans.filter(pl.col("is_entry") & ~pl.col("generator"))
        .drop("logged_error")
        .join(inner, left_on="row", right_on="entry_row", how="left", maintain_order="left")
        .with_row_index("entry")
    )
    caller = spans.select(parent=pl.col("row"), caller_row=pl.col("entry_row"))
    entries = entries.join(caller, on="parent", how="left", maintain_order="left")
    ids = entries.select(caller_row=pl.col("row"), caller_entry=pl.col("entry").cast(pl.Int64))
    entries = entries.join(ids, on="caller_row", how="left", maintain_order="left")
    # Without status codes an exception inside the service is the only sign that the request failed.
    failed = pl.col("error") if status_known else pl.col("error") | pl.col("inner_error")
    own = pl.col("error") if status_known else pl.col("own_error") | pl.col("own_inner_error")
    return entries.select(
        pl.col("entry").cast(pl.Int64),
        "row",
        "period",
        "trace_id",
        "time_ns",
        "end_ns",
        "service",
        "operation",
        "pod",
        "kind",
        "caller_entry",
        "logged_error",
        "response_bytes",
        node=pl.concat_str("service", pl.lit("::"), "operation"),
        duration_ms=pl.col("duration_ns") / 1e6,
        failed=failed,
        own_error=own,
        surface=(pl.col("parent_span_id") == "") | made_traffic.fill_null(value=False),
    )


def _exits(spans: pl.DataFrame, generators: frozenset[str]) -> pl.DataFrame:
    """Return exits with their callee's row, if any: exit spans, direct children in other services, and span links."""
    outer = spans.select(parent=pl.col("row"), inside_exit=pl.col("is_exit"))
    spans = spans.join(outer, on="parent", how="left", maintain_order="left")
    child = spans.filter(pl.col("is_entry") & pl.col("parent").is_not_null() & ~pl.col("generator"))
    callee = child.select(row=pl.col("parent"), callee_row=pl.col("row"))
    real = spans.filter(pl.col("is_exit") & ~pl.col("inside_exit").fill_null(value=False))
    real = real.join(callee, on="row", how="left", maintain_order="left")
    direct = child.filter(~pl.col("inside_exit").fill_null(value=False)).with_columns(callee_row=pl.col("row"))
    owner = spans.select(parent=pl.col("row"), owner=pl.col("entry_row"), owner_service=pl.col("service"))
    direct = direct.join(owner, on="parent", how="left", maintain_order="left").with_columns(
        entry_row=pl.col("owner"), service=pl.col("owner_service")
    )
    direct = direct.filter(~pl.col("row").is_in(real.get_column("callee_row").drop_nulls().implode()))
    wanted = ["row", "period", "trace_id", "time_ns", "end_ns", "service", "operation", "kind", "error"]
    wanted += ["entry_row", "callee_row", "virtual"]
    exits = pl.concat(
        [
            real.with_columns(virtual=pl.lit(value=False)).select(wanted),
            direct.with_columns(virtual=pl.lit(value=True)).select(wanted),
            _linked(spans).select(wanted),
        ]
    )
    return exits.with_columns(from_generator=pl.col("service").is_in(list(generators)))


def _linked(spans: pl.DataFrame) -> pl.DataFrame:
    """Return asynchronous exits: a consumer's *links* name the producer spans, in another trace."""
    pairs = (
        spans.filter(pl.col("links").is_not_null() & (pl.col("links") != ""))
        .select("period", callee_row="entry_row", link=pl.col("links").str.split(","))
        .explode("link")
        .with_columns(parts=pl.col("link").str.strip_chars().str.split_exact(":", 1))
        .unnest("parts")
    )
    producers = spans.drop("links").with_columns(kind=pl.lit("producer"), virtual=pl.lit(value=True))
    return pairs.join(
        producers,
        left_on=["period", "field_0", "field_1"],
        right_on=["period", "trace_id", "span_id"],
        how="inner",
        maintain_order="left",
    ).rename({"field_0": "trace_id"})


def _expect_callees(exits: pl.DataFrame, entries: pl.DataFrame) -> pl.DataFrame:
    caller = entries.select(entry_row=pl.col("row"), caller_entry=pl.col("entry"), caller_node=pl.col("node"))
    callee = entries.select(
        callee_row=pl.col("row"),
        callee_entry=pl.col("entry"),
        callee_node=pl.col("node"),
        callee_service=pl.col("service"),
        callee_ms=pl.col("duration_ms"),
        callee_start=pl.col("time_ns"),
        callee_kind=pl.col("kind"),
    )
    exits = exits.join(caller, on="entry_row", how="left", maintain_order="left")
    exits = exits.join(callee, on="callee_row", how="left", maintain_order="left")
    exits = exits.with_columns(caller_node=pl.col("caller_node").fill_null(pl.col("service")))
    by_operation = _usual_callee(exits, ["caller_node", "operation"])
    exits = exits.join(by_operation, on=["caller_node", "operation"], how="left", maintain_order="left")
    lacks = pl.col("callee_entry").is_null()
    asynchronous = (pl.col("kind") == "producer") | (pl.col("callee_kind") == "consumer").fill_null(value=False)
    waited = ~pl.col("virtual") & ~asynchronous
    return (
        exits.select(
            "period",
            "trace_id",
            "caller_entry",
            "caller_node",
            "time_ns",
            "end_ns",
            "callee_entry",
            "virtual",
            "from_generator",
            caller_service="service",
            name="operation",
            duration_ms=(pl.col("end_ns") - pl.col("time_ns")) / 1e6,
            failed="error",
            asynchronous=asynchronous,
            callee_node=pl.coalesce("callee_node", "usual_node"),
            callee_service=pl.coalesce("callee_service", "usual_service"),
            absent=lacks & pl.col("usual_node").is_not_null(),
            store=lacks & pl.col("never").fill_null(value=False),
            gap_ms=pl.when(waited).then((pl.col("end_ns") - pl.col("time_ns")) / 1e6 - pl.col("callee_ms")),
            lead_ms=pl.when(waited).then((pl.col("callee_start") - pl.col("time_ns")) / 1e6),
            callee_ms=pl.min_horizontal("callee_ms", (pl.col("end_ns") - pl.col("time_ns")) / 1e6),
            overrun=(pl.col("callee_ms") * 1e6 + pl.col("callee_start") >= pl.col("end_ns") - 1_000_000).fill_null(
                value=False
            ),
        )
        .sort("period", "time_ns", "trace_id", "caller_node", "name", "end_ns")
        .with_row_index("exit")
    )


def _usual_callee(exits: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return per exit operation the callee that its baseline had, and whether it never had one."""
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


def _cut_short(entries: pl.DataFrame, exits: pl.DataFrame) -> pl.DataFrame:
    """Add *cut_short*: a callee is missing that the operation's baseline calls (nearly) all had.

    Null where the baseline is too thin to say so, unless the operation calls no one.
    """
    made = exits.drop_nulls(["caller_entry", "callee_entry"]).select("caller_entry", "callee_node").unique()
    normal = entries.filter(pl.col("period") == "normal")
    served = normal.group_by("node").len("served").filter(pl.col("served") >= ALWAYS_OF)
    usual = (
        made.join(normal.select(caller_entry=pl.col("entry"), node=pl.col("node")), on="caller_entry")
        .group_by("node", "callee_node")
        .len("had")
        .join(served, on="node")
        .filter(pl.col("had") >= ALWAYS * pl.col("served"))
    )
    wanted = entries.select("entry", "node").join(usual.select("node", "callee_node"), on="node")
    lacking = wanted.join(made, left_on=["entry", "callee_node"], right_on=["caller_entry", "callee_node"], how="anti")
    calls_out = made.join(entries.select("node", caller_entry="entry"), on="caller_entry").get_column("node").unique()
    unknown = pl.col("node").is_in(calls_out.implode()) & ~pl.col("node").is_in(served.get_column("node").implode())
    short = pl.col("entry").is_in(lacking.get_column("entry").unique().implode())
    return entries.with_columns(cut_short=pl.when(~unknown).then(short))


def _own_time(entries: pl.DataFrame, exits: pl.DataFrame) -> pl.DataFrame:
    """Add the time that an entry did not wait for an exit: duration minus the union of its exits' intervals."""
    bounds = entries.select(caller_entry=pl.col("entry"), from_ns=pl.col("time_ns"), to_ns=pl.col("end_ns"))
    waits = (
        exits.filter(pl.col("caller_entry").is_not_null() & ~(pl.col("virtual") & pl.col("asynchronous")))
        .join(bounds, on="caller_entry", how="inner", maintain_order="left")
        .with_columns(
            begin=pl.max_horizontal("time_ns", "from_ns"),
            finish=pl.min_horizontal("end_ns", "to_ns"),
        )
        .sort("caller_entry", "begin", "finish")
        .with_columns(reached=pl.col("finish").cum_max().shift(1).over("caller_entry"))
        .with_columns(
            wait_ms=pl.max_horizontal(
                pl.col("finish") - pl.max_horizontal("begin", pl.col("reached")), pl.lit(0, pl.Int64)
            )
            / 1e6
        )
        .group_by("caller_entry")
        .agg(
            wait_ms=pl.col("wait_ms").sum(),
            store_ms=pl.col("wait_ms").filter(pl.col("store")).sum(),
            first_callee=pl.col("callee_node").drop_nulls().first(),
            shape=pl.col("callee_node").drop_nulls().unique().sort().str.join(" "),
            exit_gap_ms=pl.col("gap_ms").clip(lower_bound=0.0).sum(),
            any_failed_exit=pl.col("failed").any(),
        )
        .rename({"caller_entry": "entry"})
    )
    return (
        entries.join(waits, on="entry", how="left", maintain_order="left")
        .with_columns(
            pl.col("wait_ms", "store_ms", "exit_gap_ms").fill_null(0.0),
            pl.col("shape", "first_callee").fill_null(""),
            pl.col("any_failed_exit").fill_null(value=False),
        )
        .with_columns(own_ms=(pl.col("duration_ms") - pl.col("wait_ms")).clip(lower_bound=0.0))
    )


def _split_wildcards(entries: pl.DataFrame, exits: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tell the requests behind one wildcard route apart by what they call first: `/*` is no operation."""
    named = (
        pl.when(pl.col("operation").str.contains("*", literal=True) & (pl.col("first_callee") != ""))
        .then(pl.concat_str("node", pl.lit(BEHIND), "first_callee"))
        .otherwise("node")
    )
    entries = entries.with_columns(node=named)
    names = entries.select(caller_entry=pl.col("entry"), split=pl.col("node"))
    callees = entries.select(callee_entry=pl.col("entry"), callee_split=pl.col("node"))
    exits = exits.join(names, on="caller_entry", how="left", maintain_order="left")
    exits = exits.join(callees, on="callee_entry", how="left", maintain_order="left")
    return entries, exits.with_columns(
        caller_node=pl.coalesce("split", "caller_node"), callee_node=pl.coalesce("callee_split", "callee_node")
    ).drop("split", "callee_split")


def _felt(entries: pl.DataFrame, exits: pl.DataFrame, *, status_known: bool) -> pl.DataFrame:
    """Add what the caller outside the system felt: its client span where there is one, else the entry itself.

    Without status codes a request that was cut short counts as failed: nothing else tells.
    """
    outside = (
        exits.filter(pl.col("from_generator") & ~pl.col("virtual") & pl.col("callee_entry").is_not_null())
        .group_by("callee_entry")
        .agg(outside_ms=pl.col("duration_ms").max(), outside_failed=pl.col("failed").any())
        .rename({"callee_entry": "entry"})
    )
    return entries.join(outside, on="entry", how="left", maintain_order="left").select(
        pl.exclude("outside_ms", "outside_failed"),
        felt_ms=pl.coalesce("outside_ms", "duration_ms"),
        felt_failed=pl.col("failed")
        | pl.col("outside_failed").fill_null(value=False)
        | (pl.lit(not status_known) & pl.col("cut_short").fill_null(value=False)),
    )
