"""Permutation tests of whether a method's advantage differs between systems: exact whatever the distribution of scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.effects import TIE, PairedEffects
from opsassay.analysis.audit.resampling import combined_interval

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Per system its effect minus the mean effect over the cases of all others, with interval and p-value."""

    contrast: Floats
    low: Floats
    high: Floats
    p: Floats


def permutation_p(effect: Floats, permuted: Floats, sizes: NDArray[np.int64]) -> float | None:
    """Return the permutation p-value of equal paired differences in all systems; None with one system.

    Statistic: sum n_s (d_s - d)^2, the between-system sum of squares; *permuted* (permutations x S) are effects after
    cases were dealt to systems at random (`resampling.permuted_means`); p = (1 + exceedances) / (1 + permutations)
    (Phipson and Smyth 2010).
    """
    if len(sizes) < 2:
        return None
    between = _between_systems(effect, sizes)
    exceeding = (_between_systems(permuted, sizes) >= between - TIE).sum()
    return float((1 + exceeding) / (1 + len(permuted)))


def _between_systems(effect: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Return sum n_s (d_s - d)^2 over the last axis (systems), d being the mean over all cases."""
    grand = (effect * sizes).sum(axis=-1, keepdims=True) / sizes.sum()
    return np.asarray((sizes * (effect - grand) ** 2).sum(axis=-1))


def system_contrasts(
    paired: PairedEffects, permuted: Floats, resampled: Floats, sizes: NDArray[np.int64], level: float = 0.95
) -> Contrasts:
    """Return the contrast of every system with the rest, one degree of freedom each (leaderboard-audit, appendix K).

    Intervals are those of `combined_interval` over the case bootstrap (*resampled*, R x S), p-values two-sided from
    *permuted* (permutations x S). They are exploratory and not adjusted for the number of systems. NaN with one system.
    """
    observed = _against_rest(paired.effect, sizes)
    unmoved = np.where(paired.adjusted, paired.variance, 0.0)
    others = sizes.sum() - sizes
    squares = unmoved * sizes.astype(float) ** 2
    rest = np.divide(squares.sum() - squares, others.astype(float) ** 2, out=np.zeros_like(squares), where=others > 0)
    low, high = combined_interval(observed, _against_rest(resampled, sizes), np.sqrt(unmoved + rest), level)
    exceeding = (np.abs(_against_rest(permuted, sizes)) >= np.abs(observed) - TIE).sum(axis=0)
    p = np.where(np.isnan(observed), np.nan, (1 + exceeding) / (1 + len(permuted)))
    return Contrasts(observed, low, high, p)


def _against_rest(effect: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Return d_s - sum over t != s of n_t d_t / sum over t != s of n_t, along the last axis; NaN with one system."""
    if len(sizes) < 2:
        return np.full(effect.shape, np.nan)
    weighted = effect * sizes
    rest = (weighted.sum(axis=-1, keepdims=True) - weighted) / (sizes.sum() - sizes)
    return np.asarray(effect - rest)
