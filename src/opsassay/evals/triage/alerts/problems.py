"""The faults behind a recorded incident's alerts: the cascade of each, and the user requests that each spoilt."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
from pydantic import Field

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.causal_graph import CausalGraph
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Case

USUAL = 0.99
"""A request is late when it is slower than this quantile of its operation in the normal window."""


class Problem(Noun):
    """One fault of a storm."""

    about: str = Field(description="the fault and where it was")
    services: tuple[str, ...] = Field(description="the services of its cascade, sorted")
    lost_rps: float | None = Field(
        description="users' requests per second that it spoilt; None: its graph names no alarm"
    )


def problems_of(case: Case) -> tuple[Problem, ...]:
    """Return the faults of *case* with verified cascades, as problems; UserError without annotated truth, or none."""
    if case.truth is None or case.annotation is None:
        raise UserError(
            f"{case.name} has no annotated truth, so it is unknown which alert belongs to which fault; annotate it "
            "with `opsassay incident annotate`."
        )
    graph = case.annotation.graph
    faults = [(f"{one.type} at {one.place}", services, one.host) for one, services, _ in case.truth.affected()]
    placed = faults or [("a root cause", services, None) for services in case.truth.root_services()]
    found = []
    for about, services, host in placed:
        reached = _reached(graph, services, host)
        operations = [n.component for n in graph.alarm_nodes if n.component in reached]
        lost = lost_per_second(case.datapack, operations) if operations else None
        named = {graph.service_of(one) for one in reached if not one.startswith("node|")}
        if named:
            found.append(Problem(about=about, services=tuple(sorted(named)), lost_rps=lost))
    if not found:
        raise UserError(
            f"{case.name} has no verified cascade ({case.annotation.label.value}: {case.annotation.reason}), so it is "
            "unknown which alert belongs to which fault; leave it out."
        )
    return tuple(found)


def faults_of(case: Case) -> frozenset[tuple[str, str]]:
    """Return (fault type, service or host as text) of each fault of *case*; empty without a ground truth."""
    return frozenset((one.type, str(one.place)) for one, *_ in case.truth.affected()) if case.truth else frozenset()


def _reached(graph: CausalGraph, services: Collection[str], host: str | None) -> set[str]:
    """Return the components reachable in *graph* from root causes on *services* or *host*, these included."""
    roots = (n.component for n in graph.root_causes)
    reached = {one for one in roots if one == f"node|{host}" or graph.service_of(one) in services}
    while more := {edge.target for edge in graph.edges if edge.source in reached} - reached:
        reached |= more
    return reached


def lost_per_second(pack: Datapack, operations: Collection[str]) -> float:
    """Return the increase of failed user requests per second from the normal to the abnormal window of *pack*.

    *operations* are those that users call, as ``span|service::name``. A request counts as failed when it failed, took
    longer than the normal window's 99th percentile of its operation, or is missing compared with the normal rate.
    """
    named = pl.concat_str(pl.lit("span|"), "service_name", pl.lit("::"), "span_name")
    outgoing = pl.col("attr.span_kind").fill_null("").str.to_lowercase().str.contains("client|producer")
    spans = pack.collect(
        pack.both("traces")
        .with_columns(operation=named, ns=pl.col("duration").cast(pl.Int64))
        .filter(pl.col("operation").is_in(list(operations)) & ~outgoing)
        .select("period", "operation", "ns", failed=(pl.col("attr.status_code") == "Error").fill_null(value=False)),
        "traces",
    )
    usual = (
        spans.filter(pl.col("period") == "normal")
        .group_by("operation")
        .agg(limit=pl.col("ns").quantile(USUAL, "higher"))
    )
    judged = spans.join(usual, on="operation", how="left").with_columns(
        spoilt=pl.col("failed") | (pl.col("ns") > pl.col("limit")).fill_null(value=False)
    )
    windows = {"normal": pack.incident.normal, "abnormal": pack.incident.abnormal}
    rates = {}
    for period, window in windows.items():
        rows = judged.filter(pl.col("period") == period)
        rates[period] = (rows.height / window.seconds, rows.filter("spoilt").height / window.seconds)
    (came, spoilt), (came_then, spoilt_then) = rates["normal"], rates["abnormal"]
    return float(max(0.0, spoilt_then - spoilt) + max(0.0, came - came_then))
