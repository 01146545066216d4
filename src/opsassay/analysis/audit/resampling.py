"""Case bootstrap and permutations of all methods and systems at once, as arrays of means."""

from __future__ import annotations

import hashlib
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.effects import paired_effects
from opsassay.analysis.audit.matched import Matched

Floats = NDArray[np.float64]
_CELLS = 2_000_000
"""Most drawn cases in memory at a time."""

_PATTERN_COST = 6
"""Time to draw one pattern over that to draw one case (130 ns, 25 ns)."""


def bootstrap_means(matched: Matched, resamples: int = 5000, seed: int = 42) -> Floats:
    """Return means under resampling of cases within each system, *resamples* x S x M (Efron and Tibshirani 1993, 6.2).

    Whole cases are drawn with replacement, so that methods stay paired. The stream of a system follows from *seed* and
    its name alone: leaving another system out does not change its interval. Cases with the same scores are drawn as one
    pattern with its multiplicity where that is cheaper: the distribution is the same.
    """
    out = np.empty((resamples, len(matched.systems), len(matched.methods)))
    for s, (start, size) in enumerate(zip(matched.starts, matched.sizes, strict=True)):
        draw = np.random.default_rng([seed, *_seed_from_name(matched.systems[s])])
        scores = np.ascontiguousarray(matched.values[start : start + size])
        patterns, counts = _distinct_rows(scores)
        if len(patterns) * _PATTERN_COST < size:
            out[:, s] = draw.multinomial(int(size), counts / size, size=resamples) @ patterns / size
            continue
        rows = max(1, _CELLS // int(size))
        for low in range(0, resamples, rows):
            out[low : low + rows, s] = _draw_means(draw, scores, min(rows, resamples - low))
    return out


def _distinct_rows(scores: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return (distinct rows of *scores* in order of appearance, how often each occurs)."""
    code = np.zeros(len(scores), dtype=np.int64)
    for column in scores.T:  # column by column: sorting numbers is far cheaper than sorting rows
        values, place = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + place, return_inverse=True)[1]
    _, first, counts = np.unique(code, return_index=True, return_counts=True)
    order = np.argsort(first)
    return scores[first[order]], counts[order]


def _draw_means(draw: np.random.Generator, scores: Floats, rows: int) -> Floats:
    """Return the means of *rows* bootstrap resamples of *scores*, one row each, drawn by *draw*."""
    size = len(scores)
    drawn = draw.integers(0, size, (rows, size), dtype=np.int32)
    drawn += (np.arange(rows, dtype=np.int32) * size)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size)
    out: Floats = counts.astype(np.float64) @ scores / size
    return out


def _seed_from_name(name: str) -> list[int]:
    """Return four 32-bit integers from the SHA-256 of *name*, as a random seed."""
    digest = hashlib.sha256(name.encode()).digest()
    return [int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]


def percentile_intervals(resampled: Floats, level: float | Floats) -> tuple[Floats, Floats]:
    """Return the percentile interval of *resampled* (first axis: resamples) at confidence *level*, along the first axis."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def combined_interval(
    observed: Floats, resampled: Floats, unmoved: Floats, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Return (low, high) around *observed*, a statistic over systems, from its bootstrap *resampled* (first axis).

    The bootstrap does not vary a system in which all differences are equal. *unmoved*, the standard error of such
    systems (`effects.pseudo_variance`), is added to either half-width: reach = sqrt(reach_bootstrap^2 + (z unmoved)^2)
    (Zou and Donner 2008).
    """
    low, high = percentile_intervals(resampled, level)
    further = NormalDist().inv_cdf((1 + level) / 2) * unmoved
    below, above = np.maximum(observed - low, 0.0), np.maximum(high - observed, 0.0)
    return observed - np.hypot(below, further), observed + np.hypot(above, further)


def effect_intervals(matched: Matched, resampled: Floats, a: int, b: int, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return the bounds, one per system, of the effect of method *a* less *b*, both columns of *matched* (bootstrap).

    *resampled* are means, resamples x systems x methods, as `bootstrap_means` gives them; percentile method (Efron and
    Tibshirani 1993, 13.3). n is a system's number of cases, d the mean difference. Where every difference of a system is
    the same the bootstrap cannot move; there the interval is the one of `effects.pseudo_variance`: m +- z sqrt(variance)
    around m = n d / (n + 2), within [-1, 1].
    """
    low, high = percentile_intervals(resampled[:, :, a] - resampled[:, :, b], level)
    paired = paired_effects(matched, a, b)
    centre = matched.sizes * paired.effect / (matched.sizes + 2)
    reach = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(paired.variance)
    low = np.where(paired.adjusted, np.maximum(centre - reach, -1.0), low)
    high = np.where(paired.adjusted, np.minimum(centre + reach, 1.0), high)
    return low, high


def permuted_means(matched: Matched, permutations: int = 2000, seed: int = 42) -> Floats:
    """Return means by system after dealing all cases to systems at random, *permutations* x S x M.

    The systems' sizes and each case's scores stay. If all systems have the same distribution of paired differences,
    every deal is as likely as the observed one (leaderboard-audit, appendix K). Where many cases have equal scores,
    patterns of scores are dealt by hypergeometric draws: the distribution is the same.
    """
    draw = np.random.default_rng([seed, 1])
    patterns, counts = _distinct_rows(matched.values)
    if len(patterns) * len(matched.sizes) * _PATTERN_COST < matched.cases:
        return _deal_patterns(draw, patterns, counts, matched.sizes, permutations)
    out = np.empty((permutations, len(matched.systems), len(matched.methods)))
    order = np.arange(matched.cases, dtype=np.int32)
    for i in range(permutations):
        draw.shuffle(order)
        out[i] = np.add.reduceat(matched.values[order], matched.starts, axis=0)
    return np.asarray(out / matched.sizes[None, :, None])


def _deal_patterns(
    draw: np.random.Generator, patterns: Floats, counts: NDArray[np.int64], sizes: NDArray[np.int64], deals: int
) -> Floats:
    """Return means by system, deals x S x M, with the *counts* of *patterns* dealt at random to systems of *sizes*."""
    left = np.tile(counts, (deals, 1))
    out = np.empty((deals, len(sizes), patterns.shape[1]))
    for s, size in enumerate(sizes):
        taken = np.empty_like(left)
        missing, after = np.full(deals, size), left.sum(axis=1)
        for u in range(len(patterns)):
            after = after - left[:, u]
            taken[:, u] = draw.hypergeometric(left[:, u], after, missing)
            missing = missing - taken[:, u]
        left -= taken
        out[:, s] = taken @ patterns / size
    return out
