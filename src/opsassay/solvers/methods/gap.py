"""gap: it blames the service that lost most rows, a baseline for what missing telemetry alone reveals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import polars as pl

from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.methods import evidence
from opsassay.solvers.methods.base import ranked, stated
from opsassay.solvers.methods.parameters import Share
from opsassay.solvers.methods.propagation import PROTOCOL, propagation
from opsassay.solvers.methods.signals import seconds
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import MODALITIES, PERIODS


@dataclass(frozen=True)
class Gap:
    """Rank services by the fall of their recorded rows per second from the normal to the abnormal period."""

    claim_at_share: Share = 0.1
    """Blame no service unless the top one lost at least this share of its rows per second."""

    name: ClassVar[str] = "gap"
    source: ClassVar[str] = "baseline: what artefacts of the recording give away"
    cost: ClassVar[str] = "row counts of ten tables"
    fault_kinds: ClassVar[tuple[FaultKind, ...]] = (FaultKind.POD_UNAVAILABLE,)

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The threshold: the lost share of rows per second from which a service is blamed."""
        return asdict(self)

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame the service that lost most rows per second from the normal to the abnormal period, as unavailable."""
        rates = row_rates(view)
        ranking = ranked((s, normal - abnormal) for s, normal, abnormal in rates.iter_rows())
        protocol = stated(
            baseline_window="the whole normal period",
            column_set="rows of all five tables, counted",
            imputation="no rows is a rate of 0",
            zero_variance="not used: counts, not deviations",
            metric_to_service="service_name of the row",
            claim_threshold=f"a loss of at least {self.claim_at_share:.0%} of the rows per second",
            fault_kind="pod_unavailable: the emission gap of Table 6",
            propagation=PROTOCOL,
        )
        lost_share = {s: (normal - abnormal) / normal for s, normal, abnormal in rates.iter_rows() if normal > 0}
        if not ranking or lost_share.get(ranking[0].service, 0.0) < self.claim_at_share:
            return Diagnosis(ranking=ranking, protocol=protocol)
        service = ranking[0].service
        claim = RootCauseClaim(
            service=service, fault_kind=FaultKind.POD_UNAVAILABLE, evidence=(evidence.span_count(service),)
        )
        return Diagnosis(
            root_causes=(claim,), propagation=propagation(view, service), ranking=ranking, protocol=protocol
        )


def row_rates(view: Datapack) -> pl.DataFrame:
    """Return service, normal, abnormal: rows per second over all five tables, sorted by service."""
    table = pl.LazyFrame({"service_name": view.candidates()}, schema={"service_name": pl.String})
    for period in PERIODS:
        names = pl.concat([view.scan(period, modality).select("service_name") for modality in MODALITIES])
        rate = names.group_by("service_name").agg((pl.len() / seconds(view, period)).alias(period))
        table = table.join(rate, on="service_name", how="left")
    return table.with_columns(pl.col(PERIODS).fill_null(0.0)).sort("service_name").collect()
