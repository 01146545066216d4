"""BARO's robust scorer: it blames the service whose metric rose farthest above its median, in interquartile ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.methods.base import numbers_of, ranked, stated
from opsassay.solvers.methods.claims import KIND_PROTOCOL, KINDS, claim_of_signal
from opsassay.solvers.methods.matrix import COLUMN_SET, IMPUTATION, METRIC_TO_SERVICE, Matrix, baseline_words, readings
from opsassay.solvers.methods.parameters import NotNegative, Positive
from opsassay.solvers.methods.propagation import PROTOCOL
from opsassay.solvers.methods.signals import METRIC
from opsassay.telemetry.datapack import Datapack

MEMORY = "mem"
"""The metric that the public code converts from bytes to whole megabytes: RCAEval's columns that end in ``_mem``."""


@dataclass(frozen=True)
class Baro:
    """Rank services by the robust score of their columns; the change point is the start of the abnormal period."""

    claim_at_score: NotNegative = 10.0
    """Blame no service when the top score is lower."""

    window: Positive | None = None
    """Length of the baseline in seconds, up to the end of the normal period; None takes all of the period."""

    name: ClassVar[str] = "baro"
    source: ClassVar[str] = "BARO (FSE 2024), RobustScorer; the leaderboard audit, section 4.1"
    cost: ClassVar[str] = "quartiles of every column: about 2 ms on 594 x 274"
    fault_kinds: ClassVar[tuple[FaultKind, ...]] = KINDS

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The threshold and the other fields that are not None, by name."""
        return numbers_of(self)

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame the service of the metric with the largest robust score (`robust_scores`)."""
        table = readings(view, window_s=self.window)
        memory = np.array([signal == METRIC + MEMORY for signal in table.signals], dtype=bool)
        scores = robust_scores(table.normal, table.abnormal, memory)
        # A column that is constant in a period has no score; its service ranks behind all that have one.
        lowest = min(np.nanmin(scores, initial=0.0), 0.0)
        known = np.where(np.isnan(scores), lowest, scores)
        ranking = ranked(dict.fromkeys(view.candidates(), lowest) | table.by_service(known))
        protocol = stated(
            baseline_window=baseline_words(self.window),
            column_set=f"{COLUMN_SET}; means of {table.step_s:g} s bins",
            imputation=IMPUTATION,
            zero_variance="columns that are constant in either period are left out; an interquartile range of 0 is 1",
            metric_to_service=METRIC_TO_SERVICE,
            claim_threshold=f"a score of at least {self.claim_at_score:g}",
            fault_kind=KIND_PROTOCOL,
            propagation=PROTOCOL,
            memory=f"columns named {MEMORY!r} (RCAEval's, bytes) in whole megabytes",
            left_out="the Bayesian change-point detection: the boundary of the incident is the change point",
        )
        if not ranking or ranking[0].score < self.claim_at_score:
            return claim_of_signal(view, ranking, None, 0.0, protocol)
        place = table.top_signal(ranking[0].service, known)
        note = f"{table.signals[place]} of {ranking[0].service} rose {known[place]:.1f} interquartile ranges"
        return claim_of_signal(view, ranking, table.signals[place], 1.0, protocol, note)


def robust_scores(normal: Matrix, abnormal: Matrix, memory: NDArray[np.bool_] | None = None) -> Matrix:
    """Return per column the largest (reading - median) / interquartile range; NaN for a column that is left out.

    *normal* and *abnormal* are readings, bins x columns in each column's own unit; columns marked in *memory* are bytes
    and are compared in whole megabytes, as RCAEval's preprocessing has it. score_j = max over t of
    (abnormal_tj - q50_j) / (q75_j - q25_j), quartiles of the normal column (BARO, FSE 2024, RobustScorer).

    As the reference scorer: signed, so a fall does not count; quartiles interpolate linearly; a range that is nothing
    but rounding counts as 1; a column that is constant in either period is left out.
    """
    if not normal.size or not abnormal.size:
        return np.full(normal.shape[1], np.nan)
    varies = (normal != normal[0]).any(axis=0) & (abnormal != abnormal[0]).any(axis=0)
    if memory is not None:
        normal, abnormal = (np.where(memory, np.trunc(part / 1e6), part) for part in (normal, abnormal))
    lower, median, upper = np.quantile(normal, (0.25, 0.5, 0.75), axis=0)
    spread = upper - lower
    spread = np.where(spread < 10 * np.finfo(np.float64).eps, 1.0, spread)
    scores: Matrix = np.where(varies, ((abnormal - median) / spread).max(axis=0), np.nan)
    return scores
