"""The figure of a solver over cases, its mean and interval, for all commands, pages, reports and the platform."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from opsassay.scoring.figures import MeanFigure

CONFIDENCE = 0.95
RESAMPLES, SEED = 5000, 42

Floats = NDArray[np.float64]


def wilson(successes: float, n: float, level: float = CONFIDENCE) -> tuple[float, float]:
    """Return Wilson's interval of *successes*, which may be a mean over repeats, out of *n*; (0, 1) for none.

    With p = successes / n: (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n) (Wilson 1927), z for *level*.
    """
    if not n:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2)
    p, spread = min(max(successes / n, 0.0), 1.0), z**2 / n
    half = z * math.sqrt(p * (1 - p) / n + spread / (4 * n))
    return max((p + spread / 2 - half) / (1 + spread), 0.0), min((p + spread / 2 + half) / (1 + spread), 1.0)


def share_of(values: Sequence[float] | Floats, weights: Sequence[float] | Floats | None = None) -> MeanFigure | None:
    """Return the mean of *values*, one per case and each in [0, 1], with Wilson's interval; None without any weight.

    No value in [0, 1] with the mean p varies by more than p (1 - p) (Bhatia and Davis 2000), which is what Wilson's
    interval takes, so that of fractions, such as F1 or a mean over repeats, is never too narrow for it; and it does not
    shrink to a point where all cases came out alike. With *weights* the cases count as (sum w)² / sum w² (Kish 1965).
    """
    of = np.asarray(values, dtype=np.float64)
    by = np.ones(len(of)) if weights is None else np.asarray(weights, dtype=np.float64)
    total = float(by.sum())
    if total == 0:
        return None
    mean = float(by @ of) / total
    effective = total**2 / float((by**2).sum())
    return MeanFigure(mean, *wilson(mean * effective, effective), len(of))


def mean_of(strata: Sequence[Sequence[float] | Floats]) -> MeanFigure | None:
    """Return the mean of the means of *strata*, in any unit, with a bootstrap interval; None without any case.

    Percentiles of 5,000 resamples within each stratum, seed 42. Without variation, as for one case, there is no interval.
    """
    given = [np.asarray(stratum, dtype=np.float64) for stratum in strata if len(stratum)]
    if not given:
        return None
    mean, n = float(np.mean([stratum.mean() for stratum in given])), sum(map(len, given))
    if all(np.ptp(stratum) == 0 for stratum in given):
        return MeanFigure(mean, None, None, n, share=False)
    drawn = np.mean([_draw_resamples(len(s), place) @ s / len(s) for place, s in enumerate(given)], axis=0)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return MeanFigure(mean, float(low), float(high), n, share=False)


def estimate_of(values: Sequence[float] | Floats, *, share: bool) -> MeanFigure | None:
    """Return the mean of one value per case with its interval: of shares in [0, 1] when *share*, else in their unit."""
    of = np.asarray(values, dtype=np.float64)
    if share and (not len(of) or (of.min() >= 0 and of.max() <= 1)):
        return share_of(of)
    return mean_of([of])


@lru_cache(maxsize=8)
def _draw_resamples(cases: int, stratum: int) -> NDArray[np.unsignedinteger]:
    """Return a matrix (RESAMPLES, *cases*): how often a resample draws each case; *stratum* is part of the seed."""
    draw = np.random.default_rng((SEED, stratum))
    counts = draw.multinomial(cases, np.full(cases, 1 / cases), size=RESAMPLES)
    return counts.astype(np.min_scalar_type(cases))
