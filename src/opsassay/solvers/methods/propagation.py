"""The propagation from a claimed root cause to its direct and indirect callers that got worse."""

from __future__ import annotations

import polars as pl

from opsassay.core.schema.diagnosis import PropagationClaim
from opsassay.solvers.methods import evidence
from opsassay.solvers.methods.signals import failed_span
from opsassay.telemetry.calls import service_calls
from opsassay.telemetry.datapack import Datapack

FAILED_SHARE_RISE = 0.02
"""A service got worse when the share of its failed spans rose by at least this, ..."""

LATENCY_RATIO = 1.5
"""... or when the 95th percentile of its span durations grew by at least this factor."""

PROTOCOL = (
    "callee to caller along parent spans, upward from the claimed root, into callers that got worse: share of failed "
    f"spans + {FAILED_SHARE_RISE:g} or p95 duration x {LATENCY_RATIO:g}"
)
"""The entry on propagation in the protocol of a method that uses `propagation`."""


def propagation(view: Datapack, root: str) -> tuple[PropagationClaim, ...]:
    """Return the claimed edges callee -> caller from *root* to callers that got worse, each with its SQL.

    Calls of both periods count, so a service without abnormal spans has callers. Sorted by distance from *root*, then name.
    """
    worse = _find_worse_services(view)
    calls = {(callee, caller): period for caller, callee, period in service_calls(view).iter_rows()}
    edges: list[tuple[str, str]] = []
    seen, frontier = {root}, [root]
    while frontier:
        reached = sorted(edge for edge in calls if edge[0] in frontier and edge[1] in worse and edge[1] != root)
        edges += reached
        frontier = sorted({caller for _, caller in reached} - seen)
        seen.update(frontier)
    return tuple(PropagationClaim(source=a, target=b, evidence=(evidence.calls(b, a, calls[a, b]),)) for a, b in edges)


def _find_worse_services(view: Datapack) -> frozenset[str]:
    """Return the services whose share of failed spans or p95 duration rose by at least the thresholds."""

    def state(period: str) -> pl.LazyFrame:
        """Return per service the failed share and the 95th percentile of duration in *period*."""
        return (
            view.scan(period, "traces")
            .group_by("service_name")
            .agg(failed=failed_span().mean(), p95=pl.col("duration").cast(pl.Float64).quantile(0.95, "linear"))
        )

    compared = state("normal").join(state("abnormal"), on="service_name", suffix="_abnormal")
    rise = pl.col("failed_abnormal") - pl.col("failed") >= FAILED_SHARE_RISE
    slower = pl.col("p95_abnormal") >= LATENCY_RATIO * pl.col("p95")
    return frozenset(compared.filter(rise | slower).collect().get_column("service_name"))
