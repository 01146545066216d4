"""self-time: each trace counts for the service in which its delay or its failure began.

A method of OpsAssay. It uses exclusive time, a span's duration without the time in which a child runs, so that a caller
is not blamed for waiting.
"""

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

_OPERATION = ["service_name", "span_name"]
_PARENT = ["trace_id", "parent_span_id"]
_SILENT_SHARE = 0.5
"""A failing service that emits less than this share of its normal spans is unavailable."""


@dataclass(frozen=True)
class SelfTime:
    """Rank services by traces per second whose delay or failure began in them, less the normal rate of such traces."""

    slow_ratio: Positive = 1.5
    """Exclusive time is slow above this many times the normal 99th percentile of the same operation ..."""

    slow_least_ms: NotNegative = 5.0
    """... by at least this many milliseconds."""

    claim_at_sigma: NotNegative = 5.0
    """Blame no service unless its excess of traces is this many Poisson standard deviations of the normal count ..."""

    claim_at_count: Count = 5
    """... and at least this many traces."""

    name: ClassVar[str] = "self-time"
    source: ClassVar[str] = (
        "ours: exclusive time, as `opsassay incident annotate` has it too, and first failures of traces"
    )
    cost: ClassVar[str] = "one sort and two joins over all spans"
    fault_kinds: ClassVar[tuple[FaultKind, ...]] = (
        FaultKind.HTTP_SLOW,
        FaultKind.HTTP_ABORTED,
        FaultKind.POD_UNAVAILABLE,
    )

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The thresholds by name."""
        return asdict(self)

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame the service in which most of the additional slow and failed traces originate."""
        voices = self.voices(view)
        per_s = seconds(view, "abnormal")
        ranking = ranked({row["service"]: row["excess"] / per_s for row in voices.iter_rows(named=True)})
        protocol = stated(
            baseline_window="the whole normal period",
            column_set="exclusive time of spans, and failed spans without a failed child; one voice per trace",
            imputation="none; an operation without normal spans has no slow ones",
            zero_variance="not used: counts, not deviations",
            metric_to_service="service_name of the span; a client span belongs to the service that it calls",
            claim_threshold=f"an excess of at least {self.claim_at_count} traces and {self.claim_at_sigma:g} x "
            "sqrt(expected + 1)",
            fault_kind=f"slow http_slow; failed http_aborted, or pod_unavailable under {_SILENT_SHARE:.0%} of its spans",
            propagation=PROTOCOL,
        )
        top = voices.filter(pl.col("service") == ranking[0].service).to_dicts() if ranking else []
        if not top or not self._is_outlier(top[0]):
            return Diagnosis(ranking=ranking, protocol=protocol)
        service = ranking[0].service
        kind, backing = FaultKind.HTTP_SLOW, evidence.latency
        if top[0]["failed"] > top[0]["slow"]:
            kind, backing = FaultKind.HTTP_ABORTED, evidence.error_spans
            if top[0]["spans_share"] < _SILENT_SHARE:
                kind, backing = FaultKind.POD_UNAVAILABLE, evidence.span_count
        claim = RootCauseClaim(service=service, fault_kind=kind, evidence=(backing(service),))
        return Diagnosis(
            root_causes=(claim,), propagation=propagation(view, service), ranking=ranking, protocol=protocol
        )

    def _is_outlier(self, row: Mapping[str, float]) -> bool:
        """Whether ``excess`` of *row* (from `voices`) reaches both thresholds: a count, and sigmas of ``expected``."""
        least = max(self.claim_at_count, self.claim_at_sigma * math.sqrt(row["expected"] + 1))
        return row["excess"] >= least

    def voices(self, view: Datapack) -> pl.DataFrame:
        """Return service, slow, failed, excess, expected (traces) and spans_share, sorted by service.

        ``slow`` and ``failed`` are the abnormal traces whose delay or failure began in the service, less those expected
        from the normal period: with s = abnormal seconds / normal seconds, slow = slow_abnormal - s * slow_normal, the same
        for failed, excess = slow + failed, expected = s * (slow_normal + failed_normal). spans_share is its spans per
        second over the normal ones.
        """
        scale = seconds(view, "abnormal") / seconds(view, "normal")
        callees = _usual_callees(view)
        spans = {period: _self_times(view, period, callees) for period in PERIODS}
        usual = spans["normal"].group_by(_OPERATION).agg(p99=pl.col("self_ms").quantile(0.99, "linear")).lazy()
        table = pl.LazyFrame({"service": view.candidates()}, schema={"service": pl.String})
        for period in PERIODS:
            emitted = spans[period].lazy().group_by(service="service_name").agg(pl.len().alias(f"spans_{period}"))
            origins = self._origins(spans[period].lazy(), usual, period)
            table = table.join(origins, on="service", how="left").join(emitted, on="service", how="left")
        origins_of = [f"{origin}_{period}" for origin in ("slow", "failed") for period in PERIODS]
        counted = [*origins_of, *(f"spans_{period}" for period in PERIODS)]
        new = [
            (pl.col(f"{origin}_abnormal") - scale * pl.col(f"{origin}_normal")).alias(origin)
            for origin in ("slow", "failed")
        ]
        usual_spans = pl.max_horizontal(scale * pl.col("spans_normal"), pl.lit(1.0))
        return (
            table.with_columns(pl.col(counted).fill_null(0).cast(pl.Float64))
            .with_columns(*new, spans_share=pl.col("spans_abnormal") / usual_spans)
            .with_columns(
                excess=pl.col("slow") + pl.col("failed"),
                expected=scale * (pl.col("slow_normal") + pl.col("failed_normal")),
            )
            .select("service", "slow", "failed", "excess", "expected", "spans_share")
            .sort("service")
            .collect()
        )

    def _origins(self, spans: pl.LazyFrame, usual: pl.LazyFrame, period: str) -> pl.LazyFrame:
        """Return service, ``slow_PERIOD``, ``failed_PERIOD``: the number of traces whose delay or failure began there.

        *usual* has the normal p99 of self_ms by operation.
        """
        over = pl.col("self_ms") - self.slow_ratio * pl.col("p99")
        is_over = (over >= self.slow_least_ms).fill_null(value=False)
        marked = (
            spans.join(usual, on=_OPERATION, how="left")
            .with_columns(
                over=pl.when(is_over).then(over).otherwise(0.0),
                first_failure=pl.col("failed") & ~pl.col("failed_child"),
            )
            .filter(is_over | pl.col("first_failure"))
        )
        order = ["first_failure", "over", "start", "service"]
        first = marked.with_columns(
            start=pl.when("first_failure").then("start"), over=pl.when(~pl.col("first_failure")).then("over")
        )
        voices = first.sort("trace_id", *order, descending=[False, True, True, True, False], nulls_last=True).unique(
            "trace_id", keep="first", maintain_order=True
        )
        return voices.group_by("service").agg(
            (~pl.col("first_failure")).sum().alias(f"slow_{period}"),
            pl.col("first_failure").sum().alias(f"failed_{period}"),
        )


def _spans_with_times(view: Datapack, period: str) -> pl.LazyFrame:
    """Return the spans of *period* with start and end (ns), failed and is_client."""
    return (
        view.scan(period, "traces")
        .filter(pl.col("service_name").is_in(view.candidates()))
        .with_columns(start=pl.col("time").dt.epoch("ns"), failed=failed_span())
        .with_columns(
            end=pl.col("start") + pl.col("duration").cast(pl.Int64),
            is_client=(pl.col("attr.span_kind") == "Client").fill_null(value=False),
        )
        .select("trace_id", "span_id", "parent_span_id", *_OPERATION, "start", "end", "failed", "is_client")
    )


def _join_parents(spans: pl.LazyFrame) -> pl.LazyFrame:
    """Return every span that has a parent, with the parent's fields as ``parent_...``."""
    parents = spans.select("trace_id", pl.exclude("trace_id", "parent_span_id").name.prefix("parent_"))
    return spans.filter(pl.col("parent_span_id") != "").join(parents, on=_PARENT)


def _usual_callees(view: Datapack) -> pl.LazyFrame:
    """Return service_name, span_name and callee: the service that this operation of client spans normally calls."""
    reached = _join_parents(_spans_with_times(view, "normal")).filter(
        "parent_is_client", pl.col("service_name") != pl.col("parent_service_name")
    )
    counts = reached.group_by("parent_service_name", "parent_span_name", callee="service_name").len()
    most = counts.sort("len", "callee", descending=[True, False]).unique(
        ["parent_service_name", "parent_span_name"], keep="first", maintain_order=True
    )
    return most.select(service_name="parent_service_name", span_name="parent_span_name", callee="callee")


def _self_times(view: Datapack, period: str, callees: pl.LazyFrame) -> pl.DataFrame:
    """Return the spans of *period* with self_ms, failed, failed_child, service; a client span counts for its callee."""
    spans = _spans_with_times(view, period)
    inside = (
        _join_parents(spans)
        .with_columns(start=pl.max_horizontal("start", "parent_start"), end=pl.min_horizontal("end", "parent_end"))
        .sort(*_PARENT, "start", "end", "span_id")
    )
    # The union of the children's times: what each adds beyond the latest end so far.
    so_far = pl.col("end").cum_max().shift(1).over(_PARENT)
    added = (pl.col("end") - pl.max_horizontal("start", so_far)).clip(lower_bound=0)
    covered = (
        inside.with_columns(added=added)
        .group_by("trace_id", span_id="parent_span_id")
        .agg(covered=pl.col("added").sum(), failed_child=pl.col("failed").any())
    )
    self_ns = pl.col("end") - pl.col("start") - pl.col("covered").fill_null(0)
    return (
        spans.join(covered, on=["trace_id", "span_id"], how="left")
        .join(callees, on=_OPERATION, how="left")
        .select(
            "trace_id",
            *_OPERATION,
            "start",
            "failed",
            pl.col("failed_child").fill_null(value=False),
            self_ms=self_ns.clip(lower_bound=0) / 1e6,
            service=pl.when("is_client").then(pl.coalesce("callee", "service_name")).otherwise("service_name"),
        )
        .collect()
    )
