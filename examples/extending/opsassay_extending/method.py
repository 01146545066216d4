"""A method: the service whose mean span became slower by the largest factor."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.solvers.methods.base import ranked, stated
from opsassay.solvers.methods.parameters import Count
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True)
class Slowest:
    """Rank services by mean duration in the abnormal period over that in the normal one."""

    least_spans: Count = 1
    """Services with fewer spans in a period are left out."""

    name: ClassVar[str] = "slowest"
    source: ClassVar[str] = "an example"
    cost: ClassVar[str] = "one pass over the spans"

    @property
    def configuration(self) -> Mapping[str, Any]:
        """It names services and no fault kinds, so it is graded on services."""
        return {"names_fault_kinds": False, "least_spans": self.least_spans}

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Return the ranking; nothing is claimed."""
        means = [
            view.scan(period, "traces")
            .group_by("service_name")
            .agg(pl.col("duration").filter(pl.len() >= self.least_spans).mean().alias(period))
            .drop_nulls(period)
            .collect()
            for period in ("normal", "abnormal")
        ]
        both = means[0].join(means[1], on="service_name").filter(pl.col("service_name").is_in(view.services()))
        factors = both.select("service_name", pl.col("abnormal") / pl.col("normal")).iter_rows()
        return Diagnosis(root_causes=(), ranking=ranked(factors), protocol=_PROTOCOL)


_PROTOCOL = stated(
    baseline_window="the whole normal period",
    column_set="durations of spans",
    imputation="not used",
    zero_variance="not used",
    metric_to_service="service_name of the span",
    claim_threshold="it claims nothing",
    fault_kind="none",
)
