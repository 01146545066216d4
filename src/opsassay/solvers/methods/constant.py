"""constant: it gives the same answer for every incident, a baseline for suites with a frequent culprit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.methods import evidence
from opsassay.solvers.methods.base import ranked, stated
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True)
class Constant:
    """Blame the alphabetically first service of the normal period, without reading the abnormal period."""

    fault_kind: FaultKind = FaultKind.CPU_STRESS

    name: ClassVar[str] = "constant"
    source: ClassVar[str] = "baseline: the answer that ignores the question"
    cost: ClassVar[str] = "one column of names"

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The fault kind that is always claimed."""
        return {"fault_kind": self.fault_kind.value}

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame the alphabetically first service for the configured fault kind; claims no propagation."""
        names = _service_names(view, "traces") or _service_names(view, "metrics") | _service_names(view, "logs")
        services = sorted(names - view.load_generators() - {""})
        ranking = ranked((service, float(len(services) - place)) for place, service in enumerate(services))
        claims = tuple(
            RootCauseClaim(service=s, fault_kind=self.fault_kind, evidence=(evidence.normal_span_count(s),))
            for s in services[:1]
        )
        protocol = stated(
            baseline_window="names of the normal period only",
            column_set="service_name of traces; of metrics and logs where there are no spans",
            imputation="not used",
            zero_variance="not used",
            metric_to_service="service_name of the row",
            claim_threshold="none: it always claims, so it is wrong on every incident without a fault",
            fault_kind=f"always {self.fault_kind.value}",
        )
        return Diagnosis(root_causes=claims, ranking=ranking, protocol=protocol)


def _service_names(view: Datapack, modality: str) -> set[str]:
    """Return the names of services with rows in the normal period of *modality* (traces, logs, metrics)."""
    column = view.scan("normal", modality).select(pl.col("service_name").unique()).collect().get_column("service_name")
    return set(column.drop_nulls())
