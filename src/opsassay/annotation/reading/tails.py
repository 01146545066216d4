"""Tail probabilities of counts, element by element; importing `scipy.stats` for them would take most of a second.

Arguments are arrays of one shape with whole numbers (except *a*, *b* and *p*); results are probabilities.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NEGLIGIBLE = 1e-17
"""The summation stops at terms smaller than this share of the sum so far."""


def hypergeometric_at_least(k: Floats, population: Floats, marked: Floats, drawn: Floats) -> Floats:
    """Return P(X >= k), X being the number of *marked* among *drawn* of *population* (Fisher's exact test).

    P(X = j) = C(marked, j) C(population - marked, drawn - j) / C(population, drawn). The smaller tail is summed: below
    the mean it is that of the unmarked, P(X >= k) = 1 - P(drawn - X >= drawn - k + 1).
    """
    low = k <= drawn * marked / population
    start, good = np.where(low, drawn - k + 1, k), np.where(low, population - marked, marked)
    tail = _hypergeometric_upper(start, population, good, drawn)
    return np.where(low, 1 - tail, tail)


def _hypergeometric_upper(start: Floats, population: Floats, marked: Floats, drawn: Floats) -> Floats:
    """Return P(X >= *start*) where *start* is above the mean, so that every term is smaller than the last."""
    last = np.minimum(marked, drawn)
    j = np.minimum(start, last)
    bad = population - marked
    logarithm = _log_choose(marked, j) + _log_choose(bad, np.minimum(drawn - j, bad)) - _log_choose(population, drawn)
    term = np.where(start <= last, np.exp(logarithm), 0.0)
    total = term.copy()
    while np.any(term > NEGLIGIBLE * total):
        term = term * (marked - j) * (drawn - j) / ((j + 1) * (bad - drawn + j + 1))
        j = np.minimum(j + 1, last)
        total += term
    return np.minimum(total, 1.0)


def beta_binomial_at_least(k: Floats, n: Floats, a: Floats, b: Floats) -> Floats:
    """Return P(X >= k) for *n* draws whose probability is Beta(*a*, *b*), as 1 - sum of P(X = j) over j < k.

    P(X = j) = C(n, j) B(j + a, n - j + b) / B(a, b). Memory grows with the sum of *k*.
    """
    counts = np.maximum(k, 0).astype(np.int64)
    row = np.repeat(np.arange(len(counts)), counts)
    j = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    before = j - 1.0  # each term follows from the one before it; the first of a row is P(X = 0)
    ratio = (n[row] - before) / j.clip(min=1) * (before + a[row]) / (n[row] - j + b[row])
    none = _log_gamma(n + b) + _log_gamma(a + b) - _log_gamma(n + a + b) - _log_gamma(b)
    steps = np.cumsum(np.log(np.where(j > 0, ratio, 1.0)))
    first = np.cumsum(counts) - counts
    logarithm = none[row] + steps - steps[first[row]]
    below = np.bincount(row, weights=np.exp(logarithm), minlength=len(counts)).astype(np.float64)
    return np.clip(1 - below, 0.0, 1.0)


def binomial_at_most(k: Floats, n: Floats, p: float) -> Floats:
    """Return P(X <= k) for *n* draws with probability *p*, strictly between 0 and 1."""
    found = []
    for most, draws in zip(k.astype(np.int64).tolist(), n.tolist(), strict=True):
        j = np.arange(1, most + 1)
        steps = np.cumsum(np.log((draws - j + 1) / j) + math.log(p / (1 - p)))
        found.append(np.exp(draws * math.log1p(-p) + np.concatenate(([0.0], steps))).sum())
    return np.minimum(np.array(found, dtype=np.float64), 1.0)


def _log_gamma(values: Floats) -> Floats:
    """Return the natural logarithm of the gamma function at each of *values*."""
    return np.array([math.lgamma(value) for value in values.tolist()])


def _log_choose(n: Floats, k: Floats) -> Floats:
    """Return the logarithm of the number of ways to choose *k* of *n*."""
    return _log_gamma(n + 1) - _log_gamma(k + 1) - _log_gamma(n - k + 1)
