"""Paired differences of two methods by system, which a pooled mean hides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.matched import Matched

Floats = NDArray[np.float64]

TIE = 1e-12
"""Differences of means below this count as 0: they are rounding errors."""


@dataclass(frozen=True, eq=False)
class PairedEffects:
    """Mean difference and its variance by system; *adjusted* flags systems with a variance by `pseudo_variance`.

    *deviation* is the standard deviation of the differences by system. All are arrays (S,).
    """

    effect: Floats
    variance: Floats
    deviation: Floats
    adjusted: NDArray[np.bool_]


def paired_effects(matched: Matched, a: int, b: int, ddof: int = 1) -> PairedEffects:
    """Return the mean paired difference of methods *a* and *b* by system, and its sampling variance.

    effect_s = mean of d_si, variance_s = Var(d_si; ddof) / n_s (leaderboard-audit, section 4.1, which does not say its
    ddof). Where all differences of a system are equal, or there is one case, the variance would be 0 and the system
    would outweigh all others; `pseudo_variance` stands in for it.
    """
    difference = matched.difference(a, b)
    effect = matched.by_system(difference)
    effect = np.where(np.abs(effect) < TIE, 0.0, effect)
    centred = difference - np.repeat(effect, matched.sizes)
    sums = np.add.reduceat(centred**2, matched.starts)
    spread = sums / np.maximum(matched.sizes - ddof, 1)
    adjusted = (sums <= TIE) | (matched.sizes < 2)
    variance = np.where(adjusted, pseudo_variance(effect, matched.sizes), spread / matched.sizes)
    return PairedEffects(effect, variance, np.sqrt(np.where(adjusted, 0.0, spread)), adjusted)


def pseudo_variance(effect: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Return the variance of the mean of n equal differences *effect*, had one case gone each way entirely.

    With the two pseudo-cases +1 and -1: mean m = n d / (n + 2), variance = ((n d^2 + 2) / (n + 2) - m^2) / (n + 2). For
    d = 0 this is 2 / (n + 2)^2, the Laplace adjustment of Bonett and Price (2012, J. Educ. Behav. Stat. 37:479) for
    paired proportions.
    """
    n = np.asarray(sizes, dtype=np.float64)
    mean = n * effect / (n + 2)
    return np.asarray(((n * effect**2 + 2) / (n + 2) - mean**2) / (n + 2))


def sign_counts(effect: Floats) -> tuple[int, int, int]:
    """Return (number of effects above 0, below 0, at 0) (leaderboard-audit, Table 2)."""
    return int((effect > TIE).sum()), int((effect < -TIE).sum()), int((np.abs(effect) <= TIE).sum())
