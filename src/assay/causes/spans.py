"""Spans of both periods with their parent and their role: entry (a service begins to serve), exit (it calls out), inner.

Data without span kinds is read by structure: an entry has its parent in another service, an exit is a span that
usually has its child there. Data without status codes is read by its logs: an error in the log of a span, in words
that the normal window never had, is a failure of it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from assay.telemetry.datapack import Datapack

USUAL = 0.5
"""An operation with a child in another service in at least this share of its baseline is an exit."""

HABIT = 0.5
"""An error that this share of a service's baseline traces logs says nothing."""

_STORE_VERB = r"^(SELECT|INSERT|UPDATE|DELETE|MERGE|REPLACE) "
_ERRORS = ("ERROR", "FATAL", "CRITICAL")
_VARIABLE = r"[0-9a-fA-F-]*[0-9][0-9a-fA-F.:-]*"
"""Numbers, times and ids: what differs between two messages that say the same."""


def read_spans(pack: Datapack) -> tuple[pl.DataFrame, bool]:
    """Return the spans of *pack*, and whether they carry a status.

    Columns: row, period, trace_id, span_id, parent_span_id, time_ns, end_ns, duration_ns, service, operation, kind, pod,
    error, own_error (an error that blames no other service), logged_error, response_bytes, links, parent (row),
    parent_service, parent_kind, generator, is_entry, is_exit, entry_row (the entry that a span belongs to).
    """
    spans, status_known = _spans(pack)
    return _with_roles(_with_parents(spans), pack.load_generators()), status_known


def _spans(pack: Datapack) -> tuple[pl.DataFrame, bool]:
    raw = pack.both("traces")
    columns = raw.collect_schema().names()
    status = pl.col("attr.http.response.status_code")
    spans = (
        raw.select(
            "period",
            "trace_id",
            "span_id",
            parent_span_id=pl.col("parent_span_id").fill_null(""),
            time_ns=pl.col("time").dt.epoch("ns"),
            service=pl.col("service_name"),
            operation=pl.col("span_name"),
            kind=pl.col("attr.span_kind").fill_null("").str.to_lowercase(),
            pod=pl.col("attr.k8s.pod.name").fill_null(""),
            duration_ns=pl.col("duration").cast(pl.Int64),
            error=(pl.col("attr.status_code").fill_null("").str.to_lowercase() == "error")
            | (status >= 500).fill_null(False),  # noqa: FBT003
            told=(pl.col("attr.status_code").fill_null("Unset").str.to_lowercase() != "unset") | status.is_not_null(),
            response_bytes=pl.col("attr.http.response.content_length").cast(pl.Float64),
            links=pl.col("attr.links").cast(pl.String) if "attr.links" in columns else pl.lit(None, pl.String),
        )
        .sort("period", "time_ns", "trace_id", "span_id", "service", "operation", "duration_ns")
        .unique(subset=["period", "trace_id", "span_id"], keep="first", maintain_order=True)
        .collect()
        .with_columns(end_ns=pl.col("time_ns") + pl.col("duration_ns"))
    )
    status_known = bool(spans.get_column("told").any())
    logged = _logged_errors(pack)
    spans = spans.join(logged, on=["period", "trace_id", "span_id"], how="left", maintain_order="left")
    spans = spans.with_columns(pl.col("logged_error", "new_words", "own_words").fill_null(value=False))
    spans = spans.with_row_index("row").with_columns(own_error="error")
    if not status_known:
        spans = spans.with_columns(error="new_words", own_error="own_words")
    return spans.drop("told", "new_words", "own_words").with_columns(pl.col("row").cast(pl.Int64)), status_known


def _logged_errors(pack: Datapack) -> pl.DataFrame:
    """Return spans with errors in their logs.

    *new_words*: the normal window has no such message. *own_words*: and the message names no other service. All errors
    of the normal window count as new there, so that its rate of failures is rather over- than understated, except
    those that at least HABIT of the traces through the service have: they are how it always talks.
    """
    services = pack.services()
    template = pl.col("message").str.replace_all(_VARIABLE, "").str.slice(0, 400)
    logs = (
        pack.both("logs")
        .filter(pl.col("level").is_in(_ERRORS))
        .select("period", "trace_id", "span_id", "service_name", "message", template=template)
        .collect()
    )
    named = logs.get_column("message").str.extract_many(services, leftmost=True)
    logs = logs.with_columns(blames=named.list.set_difference(logs.select(pl.concat_list("service_name")).to_series()))
    before = logs.filter(pl.col("period") == "normal")
    through = pack.scan("normal", "traces").group_by("service_name").agg(traces=pl.col("trace_id").n_unique()).collect()
    known = (
        before.group_by("service_name", "template")
        .agg(told=pl.col("trace_id").n_unique())
        .join(through, on="service_name", how="left")
        .select("service_name", "template", known=pl.lit(value=True), habit=pl.col("told") >= HABIT * pl.col("traces"))
    )
    marked = logs.join(known, on=["service_name", "template"], how="left")
    new = ((pl.col("period") == "normal") & ~pl.col("habit")) | pl.col("known").is_null()
    return marked.group_by("period", "trace_id", "span_id").agg(
        logged_error=pl.lit(value=True), new_words=new.any(), own_words=(new & (pl.col("blames").list.len() == 0)).any()
    )


def _with_parents(spans: pl.DataFrame) -> pl.DataFrame:
    parents = spans.select(
        "period",
        "trace_id",
        parent_span_id="span_id",
        parent="row",
        parent_service="service",
        parent_kind="kind",
    )
    return spans.join(parents, on=["period", "trace_id", "parent_span_id"], how="left", maintain_order="left")


def _with_roles(spans: pl.DataFrame, generators: frozenset[str]) -> pl.DataFrame:
    """Add *is_entry*, *is_exit* and *entry_row* (the row of the entry that a span belongs to)."""
    foreign = pl.col("parent_service") != pl.col("service")
    serving = pl.col("kind").is_in(["server", "consumer"])
    spans = spans.with_columns(
        generator=pl.col("service").is_in(list(generators)),
        is_entry=pl.col("parent").is_null() | foreign | (serving & (pl.col("parent_kind") != pl.col("kind"))),
    )
    called = (
        spans.filter(pl.col("is_entry") & pl.col("parent").is_not_null())
        .select(row=pl.col("parent"), calls_out=pl.lit(value=True))
        .unique()
    )
    parents = spans.select(row=pl.col("parent"), has_child=pl.lit(value=True)).drop_nulls("row").unique()
    spans = spans.join(called, on="row", how="left", maintain_order="left").join(
        parents, on="row", how="left", maintain_order="left"
    )
    spans = spans.with_columns(pl.col("calls_out", "has_child").fill_null(value=False))
    usual = (
        spans.filter((pl.col("period") == "normal") & (pl.col("kind") == ""))
        .group_by("service", "operation")
        .agg(usual=pl.col("calls_out").mean() >= USUAL)
    )
    leaf_store = pl.col("operation").str.contains(_STORE_VERB) & ~pl.col("has_child")
    spans = spans.join(usual, on=["service", "operation"], how="left", maintain_order="left").with_columns(
        is_exit=pl.when(pl.col("kind") == "")
        .then(~pl.col("is_entry") & (pl.col("usual").fill_null(value=False) | leaf_store))
        .otherwise(pl.col("kind").is_in(["client", "producer"])),
    )
    return spans.with_columns(entry_row=pl.Series(_climb(spans), dtype=pl.Int64))


def _climb(spans: pl.DataFrame) -> np.ndarray:
    """Return for each row the nearest entry at or above it, by pointer doubling: log2(depth) gathers."""
    rows = spans.get_column("row").to_numpy()
    parent = spans.get_column("parent").fill_null(-1).to_numpy()
    up = np.where(spans.get_column("is_entry").to_numpy() | (parent < 0), rows, parent)
    for _ in range(32):
        further = up[up]
        if np.array_equal(further, up):
            break
        up = further
    return up
