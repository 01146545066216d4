"""chance: it blames a service and a fault kind at random: right with 1/n for n services, 1/25 for the kind."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.methods import evidence
from opsassay.solvers.methods.base import ranked, stated
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True)
class Chance:
    """Shuffle the services and draw a kind, with a seed made of the incident's id and *salt*."""

    salt: str = ""

    name: ClassVar[str] = "chance"
    source: ClassVar[str] = "baseline: expected top-1 accuracy 1/n of n services, 1/(25 n) with the kind"
    cost: ClassVar[str] = "one column of names"

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The salt from which the pseudo-random answers follow."""
        return asdict(self)

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame a service for a fault kind, each drawn uniformly; claims no propagation."""
        seed = hashlib.sha256(f"chance\0{self.salt}\0{view.incident.id}".encode()).digest()
        draw = random.Random(seed)  # noqa: S311 - a reproducible draw, no secret
        services = view.candidates()
        order = draw.sample(services, len(services))
        kind = draw.choice(list(FaultKind))
        claims = tuple(
            RootCauseClaim(service=s, fault_kind=kind, evidence=(evidence.span_count(s),)) for s in order[:1]
        )
        protocol = stated(
            baseline_window="none",
            column_set="names of services in traces of either period",
            imputation="not used",
            zero_variance="not used",
            metric_to_service="service_name of the row",
            ties="none: the order is a permutation",
            claim_threshold="none: it always claims, so it is wrong on every incident without a fault",
            fault_kind="uniform over the 25 kinds",
            expected_accuracy=1 / len(services) if services else 0.0,
        )
        ranking = ranked((service, float(len(order) - place)) for place, service in enumerate(order))
        return Diagnosis(root_causes=claims, ranking=ranking, protocol=protocol)
