"""SLOs at the surface, where users notice: which of the golden signals latency, errors and silence are violated."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from pydantic import Field

from opsassay.annotation.evidence.latency_delta import added_time
from opsassay.annotation.evidence.states import beyond_chance
from opsassay.annotation.evidence.thresholds import Thresholds
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.windows import KIND
from opsassay.core.schema.base import Written

SIGNALS = {
    "latency": frozenset({"lat", "p99", "timeout", "inj_affected"}),
    "errors": frozenset({"err", "timeout", "reset", "missing", "inj_affected"}),
    "silence": frozenset({"silent", "missing"}),
}
"""For each signal the states in which a path may end at a node with that violation: slowness explains no errors."""


class SurfaceSlo(Written):
    """When the surface is violated, against the normal window; stricter than the per-node screens on purpose.

    *surface* names the services that users feel; when it is empty, these are the places where requests enter and
    messages are consumed.
    """

    surface: tuple[str, ...] = Field(default=(), description="services that users feel; entrances when empty")
    latency_factor: float = Field(default=1.5, gt=1, description="mean latency over its usual that is a violation")
    latency_added_ms: float = Field(default=20.0, ge=0, description="and by how much at least, ms")
    z: float = Field(default=3.0, gt=0, description="and with which certainty when the whole surface is screened")
    z_directed: float = Field(default=2.0, gt=0, description="or at one place that a verified path reaches")
    chance: float = Field(default=0.001, gt=0, lt=1, description="probability below which failures are a violation")
    minimum_errors: int = Field(default=3, ge=1, description="failures below which there is none")
    missing_share: float = Field(default=0.5, gt=0, lt=1, description="share of the usual messages that is silence")
    missing_calls: float = Field(default=15.0, gt=0, description="messages that must be expected to say so")


def surface_entries(calls: Calls, surface: tuple[str, ...] = ()) -> pl.DataFrame:
    """Return the requests that users notice: node, period, time_ns, felt_ms, felt_failed, ended_early, shape, kind.

    They are the requests at the entrance of the system and the messages that are consumed. A request that was never
    served (the load generator's span has no child) is a failure of the operation that should have served it. Where
    spans have no status, operations called directly by the entrance are included, since it does not show failures. With
    *surface*, the names of services, they are the requests of these services instead.
    """
    entries = calls.entries
    entrance = pl.col("surface") | (pl.col("kind") == "consumer")
    if not calls.status_known:
        top = entries.filter("surface").get_column("entry").implode()
        entrance |= pl.col("caller_entry").is_in(top)
    if surface:
        entrance = pl.col("service").is_in(surface)
    columns = ["node", "service", "period", "time_ns", "felt_ms", "felt_failed", "ended_early", "shape", "kind"]
    unserved = calls.exits.filter(pl.col("from_generator") & pl.col("absent")).select(
        node="callee_node",
        service="callee_service",
        period="period",
        time_ns="time_ns",
        felt_ms=pl.lit(None, pl.Float64),
        felt_failed="failed",
        ended_early=pl.lit(value=False),
        shape=pl.lit(0, pl.UInt64),
        kind=pl.lit("server", KIND),
    )
    if surface:
        unserved = unserved.filter(pl.col("service").is_in(surface))
    return pl.concat([entries.filter(entrance).select(columns), unserved.select(columns)])


@dataclass(frozen=True)
class Alarms:
    """Violations of the SLO that users notice.

    *violated*: node -> signal (latency, errors, silence) -> first time, ns (None for latency). *suspects*: nodes that
    slowed as much with less certainty (slo.z_directed): enough for a single node at which a verified fault arrives, not
    for a screen of the whole surface, which tests many.
    """

    violated: dict[str, dict[str, int | None]]
    suspects: frozenset[str]


def surface_alarms(calls: Calls, slo: SurfaceSlo, thresholds: Thresholds) -> Alarms:
    """Return the violations of *slo* that users notice: latency, errors and silence.

    With the numbers of *slo*: latency by `added_time` with z above slo.z (for suspects z_directed), added_ms >
    latency_added_ms and added_ms > (latency_factor - 1) * before_ms; errors by `beyond_chance`; silence of a consumer
    that handled less than missing_share of its messages per second, where missing_calls at least were expected.
    """
    felt = surface_entries(calls, slo.surface)
    slower = added_time(
        felt.filter(~pl.col("ended_early")), "felt_ms", ["node"], ["shape"], unmatched_too=True, small_groups_too=True
    )
    found: dict[str, dict[str, int | None]] = {}
    strict = thresholds.model_copy(update={"chance": slo.chance, "minimum_errors": slo.minimum_errors})
    normal, abnormal = (felt.filter(pl.col("period") == p) for p in ("normal", "abnormal"))
    for node, first in beyond_chance(abnormal, normal, "felt_failed", strict).items():
        found.setdefault(node, {})["errors"] = first
    for node in _slow_nodes(slower, slo, slo.z):
        found.setdefault(node, {})["latency"] = None
    for node in _silent_consumers(calls, felt, slo):
        found.setdefault(node, {})["silence"] = None
    return Alarms(dict(sorted(found.items())), frozenset(_slow_nodes(slower, slo, slo.z_directed)))


def _slow_nodes(slower: pl.DataFrame, slo: SurfaceSlo, z: float) -> list[str]:
    """Return the nodes of *slower* with z above *z* and more added latency than the SLO's ms and factor, sorted."""
    slow = slower.filter(
        (pl.col("z") > z)
        & (pl.col("added_ms") > slo.latency_added_ms)
        & (pl.col("added_ms") > (slo.latency_factor - 1) * pl.col("before_ms"))
    )
    return sorted(slow.get_column("node"))


def _silent_consumers(calls: Calls, felt: pl.DataFrame, slo: SurfaceSlo) -> list[str]:
    """Return the consumers in *felt* whose message rate fell below *slo*'s missing_share of the baseline's, sorted."""
    rates = (
        felt.filter(pl.col("kind") == "consumer")
        .group_by("node")
        .agg(
            before=(pl.col("period") == "normal").sum() / calls.seconds("normal"),
            now=(pl.col("period") == "abnormal").sum() / calls.seconds("abnormal"),
        )
        .with_columns(expected=pl.col("before") * calls.seconds("abnormal"))
    )
    short = (pl.col("expected") >= slo.missing_calls) & (pl.col("now") < slo.missing_share * pl.col("before"))
    return sorted(rates.filter(short).get_column("node"))
