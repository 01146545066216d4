"""The calls between services, derived from parent spans; solvers get no topology."""

from __future__ import annotations

import polars as pl

from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import PERIODS


def service_calls(datapack: Datapack) -> pl.DataFrame:
    """Return every caller-callee pair of services in the spans: caller, callee, period (abnormal if in both); sorted.

    Calls are read from both periods, so that a service that fell silent keeps its callers.
    """
    names = datapack.services()
    parts = []
    for period in PERIODS:
        spans = datapack.scan(period, "traces").select("trace_id", "span_id", "parent_span_id", "service_name")
        parents = spans.select("trace_id", parent_span_id="span_id", caller="service_name")
        pairs = spans.filter(pl.col("parent_span_id") != "").join(parents, on=["trace_id", "parent_span_id"])
        parts.append(pairs.select("caller", callee="service_name", period=pl.lit(period)).unique())
    both = pl.concat(parts).filter(
        pl.col("caller") != pl.col("callee"), pl.col("caller").is_in(names), pl.col("callee").is_in(names)
    )
    # "abnormal" sorts before "normal".
    return both.group_by("caller", "callee").agg(pl.col("period").min()).sort("caller", "callee").collect()
