"""The tests of the tables: Fisher exact, the sign test and Kolmogorov-Smirnov, which are scipy's, and the z-test."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist


def fisher_exact(hits: int, of: int, other_hits: int, other_of: int) -> float | None:
    """Return the two-sided p of equal rates of *hits* of *of* and *other_hits* of *other_of*; None where one is empty."""
    if not of or not other_of:
        return None
    from scipy import stats

    table = [[hits, of - hits], [other_hits, other_of - other_hits]]
    return float(stats.fisher_exact(table, alternative="two-sided").pvalue)


def sign_test(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the two-sided p of the sign test over *pairs*; ties are left out, None when nothing differs."""
    above = sum(a > b for a, b in pairs)
    differing = sum(a != b for a, b in pairs)
    if not differing:
        return None
    from scipy import stats

    return float(stats.binomtest(above, differing, 0.5).pvalue)


def z_test(hits: int, of: int, other_hits: int, other_of: int) -> float | None:
    """Return the two-sided p of the difference-of-proportions z-test; None where one is empty or nothing varies.

    z = (p1 - p2) / sqrt(p (1 - p) (1 / n1 + 1 / n2)), p the share of both together (ITBench, C.6.4).
    """
    if not of or not other_of:
        return None
    together = (hits + other_hits) / (of + other_of)
    error = sqrt(together * (1 - together) * (1 / of + 1 / other_of))
    return 2 * NormalDist().cdf(-abs(hits / of - other_hits / other_of) / error) if error else None


def ks_test(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Return the two-sided p of the Kolmogorov-Smirnov test of one distribution; None where one is empty."""
    if not values or not others:
        return None
    from scipy import stats

    return float(stats.ks_2samp(values, others).pvalue)
