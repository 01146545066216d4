"""max-|Z|: it blames the service with the most extreme reading, in standard deviations of its normal period."""

from __future__ import annotations

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
from opsassay.solvers.methods.parameters import NotNegative, Positive
from opsassay.solvers.methods.propagation import PROTOCOL
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True)
class MaxZ:
    """Rank services by their largest |z| over all signals and bins of the abnormal period."""

    claim_at_z: NotNegative = 10.0
    """Blame no service when the maximum is lower: with hundreds of readings and ten normal bins, some pass 3 by chance."""

    window: Positive | None = None
    """Length of the baseline in seconds, up to the end of the normal period; None takes all of the period."""

    name: ClassVar[str] = "max-z"
    source: ClassVar[str] = "max-|Z| comparator of the leaderboard audit, section 4.1 and appendix M"
    cost: ClassVar[str] = "one pass over all readings"
    fault_kinds: ClassVar[tuple[FaultKind, ...]] = KINDS

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The threshold and the other fields that are not None, by name."""
        return numbers_of(self)

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame the service with the most extreme reading, with the fault kind that its signal indicates.

        score_s = max over columns j of s and bins t of |z_tj|, z as in `matrix.z_scores` (the leaderboard audit, 4.1).
        """
        table = readings(view, window_s=self.window)
        z = z_scores(table.normal, table.abnormal)
        scores = np.abs(z).max(axis=0, initial=0.0)
        ranking = ranked(dict.fromkeys(view.candidates(), 0.0) | table.by_service(scores))
        protocol = stated(
            baseline_window=baseline_words(self.window),
            column_set=f"{COLUMN_SET}; means of {table.step_s:g} s bins",
            imputation=IMPUTATION,
            zero_variance="z = 0 (ddof 0)",
            metric_to_service=METRIC_TO_SERVICE,
            claim_threshold=f"|z| of at least {self.claim_at_z:g}",
            fault_kind=KIND_PROTOCOL,
            propagation=PROTOCOL,
        )
        if not ranking or ranking[0].score < self.claim_at_z:
            return claim_of_signal(view, ranking, None, 0.0, protocol)
        place = table.top_signal(ranking[0].service, scores)
        reading = z[np.abs(z[:, place]).argmax(), place]
        note = f"{table.signals[place]} of {ranking[0].service} reached z = {reading:.1f}"
        return claim_of_signal(view, ranking, table.signals[place], float(reading), protocol, note)
