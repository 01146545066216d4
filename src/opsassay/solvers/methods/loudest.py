"""loudest: it blames the service with the most errors and slow spans, a baseline for reading the error log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import polars as pl

from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.methods import evidence
from opsassay.solvers.methods.base import ranked, stated
from opsassay.solvers.methods.parameters import Count, NotNegative, Positive
from opsassay.solvers.methods.propagation import PROTOCOL, propagation
from opsassay.solvers.methods.signals import failed_span, seconds
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import PERIODS
from opsassay.telemetry.severity import ERROR_LEVELS

_PARTS = ("failed_spans", "error_lines", "slow_spans")


@dataclass(frozen=True)
class Loudest:
    """Rank services by failed spans, error logs and slow spans per second, less those of the normal period."""

    slow_ratio: Positive = 2.0
    """A span is slow when it takes longer than this many times the normal 99th percentile of its operation."""

    claim_at_sigma: NotNegative = 5.0
    """Blame no service unless this excess is this many Poisson standard deviations of the normal count ..."""

    claim_at_count: Count = 5
    """... and at least this many rows."""

    name: ClassVar[str] = "loudest"
    source: ClassVar[str] = "baseline: a diagnosis must beat the error log"
    cost: ClassVar[str] = "one pass over spans and logs"
    fault_kinds: ClassVar[tuple[FaultKind, ...]] = (FaultKind.HTTP_SLOW, FaultKind.HTTP_ABORTED)

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The thresholds by name."""
        return asdict(self)

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame the service with the largest excess of failed spans, error logs and slow spans per second."""
        counts = complaints(view, self.slow_ratio)
        scores = {row["service"]: row["excess"] / seconds(view, "abnormal") for row in counts.iter_rows(named=True)}
        ranking = ranked(dict.fromkeys(view.candidates(), 0.0) | scores)
        protocol = stated(
            baseline_window="the whole normal period",
            column_set="failed spans, log lines of level error and above, slow spans (over "
            f"{self.slow_ratio:g} x the normal p99 of the same service and operation); each counted once",
            imputation="none; an operation without normal spans has no slow ones",
            zero_variance="not used: counts, not deviations",
            metric_to_service="service_name of the row",
            claim_threshold=f"excess over the normal rate of at least {self.claim_at_count} rows and "
            f"{self.claim_at_sigma:g} x sqrt(expected + 1)",
            fault_kind="http_slow when slow spans are most of the excess, else http_aborted",
            propagation=PROTOCOL,
        )
        top = counts.filter(pl.col("service") == ranking[0].service).to_dicts() if ranking else []
        if not top or not self._is_outlier(top[0]):
            return Diagnosis(ranking=ranking, protocol=protocol)
        service, most = ranking[0].service, max(_PARTS, key=lambda part: top[0][f"{part}_excess"])
        slow = most == "slow_spans"
        backing = {
            "failed_spans": evidence.error_spans,
            "error_lines": evidence.error_logs,
            "slow_spans": evidence.latency,
        }[most]
        claim = RootCauseClaim(
            service=service,
            fault_kind=FaultKind.HTTP_SLOW if slow else FaultKind.HTTP_ABORTED,
            evidence=(backing(service),),
        )
        return Diagnosis(
            root_causes=(claim,), propagation=propagation(view, service), ranking=ranking, protocol=protocol
        )

    def _is_outlier(self, row: Mapping[str, float]) -> bool:
        """Whether ``excess`` of *row* (of `complaints`) reaches the thresholds: a count and sigmas of ``expected``."""
        least = max(self.claim_at_count, self.claim_at_sigma * math.sqrt(row["expected"] + 1))
        return row["excess"] >= least


def complaints(view: Datapack, slow_ratio: float) -> pl.DataFrame:
    """Return per service its failed spans, error logs and slow spans in excess of the normal period.

    Columns: service, excess, expected (rows), and ``PART_excess`` for failed_spans, error_lines and slow_spans.
    PART_excess = abnormal rows - s * normal rows with s = abnormal seconds / normal seconds; excess is their sum,
    expected = s * normal rows of all parts. A span is slow above *slow_ratio* times the normal p99 of its service and
    operation.
    """
    operation = ["service_name", "span_name"]
    usual = (
        view.scan("normal", "traces")
        .group_by(operation)
        .agg(p99=pl.col("duration").cast(pl.Float64).quantile(0.99, "linear"))
    )
    per_period = []
    for period in PERIODS:
        spans = view.scan(period, "traces").join(usual, on=operation, how="left")
        is_slow = (pl.col("duration") > slow_ratio * pl.col("p99")).fill_null(value=False)
        of_traces = spans.group_by("service_name").agg(
            failed_spans=failed_span().sum(), slow_spans=(is_slow & ~failed_span()).sum()
        )
        is_error = pl.col("level").is_in(ERROR_LEVELS)
        of_logs = view.scan(period, "logs").group_by("service_name").agg(error_lines=is_error.sum())
        joined = pl.LazyFrame({"service_name": view.candidates()}, schema={"service_name": pl.String})
        for part in (of_traces, of_logs):
            joined = joined.join(part, on="service_name", how="left")
        per_period.append(joined.with_columns(pl.col(_PARTS).fill_null(0).cast(pl.Float64)))
    scale = seconds(view, "abnormal") / seconds(view, "normal")
    both = per_period[0].join(per_period[1], on="service_name", suffix="_abnormal")
    excess = [(pl.col(f"{part}_abnormal") - scale * pl.col(part)).alias(f"{part}_excess") for part in _PARTS]
    return (
        both.with_columns(excess, expected=scale * pl.sum_horizontal(_PARTS))
        .with_columns(excess=pl.sum_horizontal(f"{part}_excess" for part in _PARTS))
        .select("excess", "expected", *(f"{part}_excess" for part in _PARTS), service="service_name")
        .sort("service")
        .collect()
    )
