"""alert-count: the service with the most signals that left their normal range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.methods.base import numbers_of, ranked, stated
from opsassay.solvers.methods.claims import KIND_PROTOCOL, KINDS, claim_of_signal
from opsassay.solvers.methods.matrix import (
    COLUMN_SET,
    IMPUTATION,
    METRIC_TO_SERVICE,
    baseline_words,
    readings,
    z_scores,
)
from opsassay.solvers.methods.parameters import NotNegative, Positive, Share
from opsassay.solvers.methods.propagation import PROTOCOL
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True)
class AlertCount:
    """Rank services by how many of their columns pass |z| > *z* at least once in the abnormal period."""

    z: Positive = 3.0
    """The conventional default; the audit moves it to 2.5 and 3.5 (appendix L)."""

    claim_at_share: Share = 0.5
    """Claim nothing unless the top service has this share of its columns flagged, and at least one strongly ..."""

    claim_at_z: NotNegative = 10.0
    """... that is, at this |z|: some columns pass 3 by chance in every recording."""

    window: Positive | None = None
    """Length of the baseline in seconds, up to the end of the normal period; None takes all of the period."""

    name: ClassVar[str] = "alert-count"
    source: ClassVar[str] = "alert-count comparator of the leaderboard audit, section 4.1, appendices L and M"
    cost: ClassVar[str] = "one pass over all readings"
    fault_kinds: ClassVar[tuple[FaultKind, ...]] = KINDS

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The thresholds by name; the field *z* is called ``flag_at_z``."""
        return {"flag_at_z" if name == "z" else name: value for name, value in numbers_of(self).items()}

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame the service with the most signals outside their normal range; *view* is the incident's telemetry."""
        table = readings(view, window_s=self.window)
        z = z_scores(table.normal, table.abnormal)
        extreme = np.abs(z).max(axis=0, initial=0.0)
        flagged = Counter(s for s, value in zip(table.services, extreme, strict=True) if value > self.z)
        ranking = ranked({service: float(flagged[service]) for service in view.candidates()})
        protocol = stated(
            baseline_window=baseline_words(self.window),
            column_set=f"{COLUMN_SET}; means of {table.step_s:g} s bins",
            imputation=IMPUTATION,
            zero_variance="z = 0 (ddof 0), so never flagged",
            metric_to_service=METRIC_TO_SERVICE,
            claim_threshold=f"{self.claim_at_share:.0%} of the service's columns flagged, one of them at "
            f"|z| of at least {self.claim_at_z:g}",
            fault_kind=KIND_PROTOCOL,
            propagation=PROTOCOL,
        )
        if not ranking or not ranking[0].score:
            return claim_of_signal(view, ranking, None, 0.0, protocol)
        service = ranking[0].service
        place = table.top_signal(service, extreme)
        share = flagged[service] / table.services.count(service)
        claims = share >= self.claim_at_share and extreme[place] >= self.claim_at_z
        reading = z[np.abs(z[:, place]).argmax(), place]
        note = f"{flagged[service]} columns of {service} passed |z| = {self.z:g}" if claims else ""
        return claim_of_signal(view, ranking, table.signals[place] if claims else None, float(reading), protocol, note)
