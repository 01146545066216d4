"""max-|Z|: the service with the most extreme single reading, in standard deviations of its own normal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import polars as pl

from assay.methods import evidence
from assay.methods.base import ranked, stated
from assay.methods.propagation import PROTOCOL, propagation
from assay.methods.signals import METRIC, bin_width_s, binned_signals, stable_mean
from assay.model.diagnosis import Diagnosis, Evidence, RootCauseClaim
from assay.model.faults import FaultKind
from assay.telemetry.datapack import Datapack

_KIND_OF_METRIC: tuple[tuple[str, FaultKind], ...] = (
    ("jvm.gc", FaultKind.JVM_GC_PRESSURE),
    ("jvm.mem", FaultKind.JVM_HEAP_STRESS),
    ("jvm.cpu", FaultKind.JVM_THREAD_CPU_STRESS),
    ("cpu", FaultKind.CPU_STRESS),
    ("memory", FaultKind.MEM_STRESS),
    ("network", FaultKind.NETWORK_LOSS),
)
"""The first part of a metric's name that fits decides (after Table 6)."""


@dataclass(frozen=True)
class MaxZ:
    """Rank services by their largest |z| over all signals and bins of the abnormal period."""

    claim_at_z: float = 10.0
    """A smaller maximum claims nothing: hundreds of readings against ten normal bins pass 3 by chance."""

    name: ClassVar[str] = "max-z"
    source: ClassVar[str] = "max-|Z| comparator of the leaderboard audit, section 4.1"

    @property
    def configuration(self) -> Mapping[str, Any]:
        """Return the threshold."""
        return asdict(self)

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Return the service whose most extreme reading is the largest, with the kind that its signal stands for."""
        width_s = bin_width_s(view)
        extremes = extreme_readings(binned_signals(view, width_s))
        scores = dict.fromkeys(view.services(), 0.0) | dict(extremes.select("service", pl.col("z").abs()).iter_rows())
        ranking = ranked(scores)
        protocol = stated(
            baseline_window="the whole normal period",
            column_set=f"spans, failed spans and error logs per second, mean and p95 span duration, every gauge of "
            f"the metrics table that both periods have; means of {width_s:g} s bins",
            imputation="counts 0 where a bin has no row; other readings are left out where there is none",
            zero_variance="z = 0 (ddof 0)",
            metric_to_service="service_name of the row, replicas averaged",
            claim_threshold=f"|z| of at least {self.claim_at_z:g}",
            fault_kind="by the signal: failed spans or error logs http_aborted, durations http_slow, fewer spans "
            "pod_unavailable, metrics by their name; more spans none",
            propagation=PROTOCOL,
        )
        if not ranking or ranking[0].score < self.claim_at_z:
            return Diagnosis(ranking=ranking, protocol=protocol)
        service = ranking[0].service
        signal, z = extremes.filter(pl.col("service") == service).select("signal", "z").row(0)
        claim = RootCauseClaim(service=service, fault_kind=kind_of(signal, z), evidence=(_evidence(service, signal),))
        return Diagnosis(
            root_causes=(claim,),
            propagation=propagation(view, service),
            ranking=ranking,
            protocol=protocol,
            notes=(f"{signal} of {service} reached z = {z:.1f}",),
        )


def extreme_readings(signals: pl.DataFrame) -> pl.DataFrame:
    """Return the most extreme reading of each service: columns service, signal, z; equal ones by signal, then time.

    *signals* is what `binned_signals` returns. A deviation that is a rounding error of its mean is zero variance.
    """
    normal = pl.col("period") == "normal"
    baseline = (
        signals.filter(normal)
        .group_by("service", "signal")
        .agg(mean=stable_mean(pl.col("value")), deviation=pl.col("value").sort().std(ddof=0))
    )
    varies = pl.col("deviation") > 1e-9 * pl.col("mean").abs()
    z = pl.when(varies).then((pl.col("value") - pl.col("mean")) / pl.col("deviation")).otherwise(0.0)
    return (
        signals.filter(~normal)
        .join(baseline, on=["service", "signal"])
        .with_columns(z=z)
        .sort("service", pl.col("z").abs(), "signal", "bin", descending=[False, True, False, False])
        .unique("service", keep="first", maintain_order=True)
        .select("service", "signal", "z")
    )


def kind_of(signal: str, z: float) -> FaultKind | None:
    """Return the fault kind that an extreme reading of *signal* stands for, None where it stands for none."""
    if signal.startswith(METRIC):
        return next((kind for part, kind in _KIND_OF_METRIC if part in signal.lower()), None)
    if signal == "spans_per_s":
        return FaultKind.POD_UNAVAILABLE if z < 0 else None
    return FaultKind.HTTP_SLOW if signal.startswith("latency") else FaultKind.HTTP_ABORTED


def _evidence(service: str, signal: str) -> Evidence:
    if signal.startswith(METRIC):
        return evidence.gauge(service, signal.removeprefix(METRIC))
    backing = {
        "spans_per_s": evidence.span_count,
        "failed_spans_per_s": evidence.error_spans,
        "error_logs_per_s": evidence.error_logs,
    }
    return backing.get(signal, evidence.latency)(service)
