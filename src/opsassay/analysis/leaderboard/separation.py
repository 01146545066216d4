"""Which solvers differ significantly on the same tasks, and the rank intervals that follow.

For solvers *a* and *b* with scores on the same n tasks, T = sum(d) / sqrt(sum(d²)) with d = a - b, against its
distribution when the signs of all tasks are drawn anew. The largest |T| over all pairs counts (Westfall and Young
1993), so that many entries of one participant give no better chance. All 2^n signs are used where they are few, so that
three tasks never separate two solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
LEVEL = 0.95
_CHUNK = 2**24
"""Most numbers in memory at a time while signs are drawn."""
_KEPT = 2
"""Size of the caches of draws, which depend on the number of tasks."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Separation:
    """Significant differences among k solvers on n tasks.

    *better* bool[k, k]: the row's solver is better than the column's. *first* and *last* i64[k]: the interval of the
    rank, 1 for the best.
    """

    better: NDArray[np.bool_]
    first: NDArray[np.int64]
    last: NDArray[np.int64]


def separate(scores: Floats, *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0) -> Separation:
    """Return which solvers differ significantly, and rank intervals, from *scores* f64[k, n], solvers by tasks.

    A rank's interval holds every rank that is possible given who is separated (Mogstad et al. 2024) and every rank within
    *level* of a paired bootstrap over tasks, whichever is wider.
    """
    solvers, tasks = scores.shape
    signs, counts = _draw_both(tasks, draws, seed)
    better = _find_better(scores, signs, 1 - level)
    first, last = 1 + better.sum(axis=0), solvers - better.sum(axis=1)
    drawn = counts @ scores.T / tasks
    tail = 100 * (1 - level) / 2
    best, worst = _rank_intervals(drawn, tail)
    return Separation(better, np.minimum(first, best).astype(np.int64), np.maximum(last, worst).astype(np.int64))


def better_than(scores: Floats, *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0) -> NDArray[np.bool_]:
    """Return bool[k, k]: whether the row's solver is significantly better than the column's, as in `separate`."""
    return _find_better(scores, _draw_kept_signs(scores.shape[1], draws, seed), 1 - level)


def intervals(scores: Floats, *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0) -> tuple[float, float]:
    """Return the interval of the mean of *scores* f64[n] at *level*: percentiles of a bootstrap over tasks."""
    tasks = len(scores)
    drawn = _cached_counts(tasks, draws, seed) @ scores / tasks
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


def _find_better(scores: Floats, signs: NDArray[Any], error: float) -> NDArray[np.bool_]:
    """Return bool[k, k]: row's solver better than column's, by random *signs*; *error*: family-wise error rate."""
    solvers, tasks = scores.shape
    better = np.zeros((solvers, solvers), dtype=bool)
    a, b = np.triu_indices(solvers, 1)
    if not len(a):
        return better
    differences = scores[a] - scores[b]
    size = np.sqrt((differences**2).sum(axis=1))
    scaled = np.divide(differences, size[:, None], out=np.zeros_like(differences), where=size[:, None] > 0)
    observed = scaled.sum(axis=1)
    rows = max(1, _CHUNK // max(len(a), tasks))
    largest = np.concatenate(
        [np.abs(signs[at : at + rows] @ scaled.T).max(axis=1) for at in range(0, len(signs), rows)]
    )
    # The signs that were seen are one of the draws: among them when all are tried, beside them when they are drawn.
    seen = 0 if len(signs) == 2**tasks else 1
    ordered = np.sort(largest)
    reached = len(ordered) - np.searchsorted(ordered, np.abs(observed) - 1e-9, side="left")
    apart = (reached + seen) / (len(signs) + seen) <= error
    better[a, b] = apart & (observed > 0)
    better[b, a] = apart & (observed < 0)
    return better


def _draw_signs(tasks: int, random: np.random.Generator, draws: int) -> Floats:
    """Return f64[m, tasks] of -1 and 1: all 2^tasks combinations if these are at most *draws*, else *draws* random ones."""
    if 2**tasks <= draws:
        bits = (np.arange(2**tasks)[:, None] >> np.arange(tasks)) & 1
        return np.asarray(2.0 * bits - 1.0, dtype=np.float64)
    return random.choice((-1.0, 1.0), size=(draws, tasks))


@lru_cache(_KEPT)
def _draw_kept_signs(tasks: int, draws: int, seed: int) -> NDArray[np.int8]:
    """Return the draws of `_draw_signs` for *seed* as small integers, cached."""
    return _draw_signs(tasks, np.random.default_rng(seed), draws).astype(np.int8)


@lru_cache(_KEPT)
def _draw_both(tasks: int, draws: int, seed: int) -> tuple[NDArray[np.int8], NDArray[np.unsignedinteger]]:
    """Return the cached results, as small integers, of `_draw_signs` and then `_bootstrap_counts` for *seed*."""
    random = np.random.default_rng(seed)
    signs = _draw_signs(tasks, random, draws).astype(np.int8)
    return signs, _bootstrap_counts(tasks, random, draws).astype(np.min_scalar_type(tasks))


def _bootstrap_counts(tasks: int, random: np.random.Generator, draws: int) -> NDArray[np.int64]:
    """Return how often a bootstrap draws each task, i64[draws, tasks]."""
    return random.multinomial(tasks, np.full(tasks, 1 / tasks), draws)


@lru_cache(_KEPT)
def _cached_counts(tasks: int, draws: int, seed: int) -> NDArray[np.unsignedinteger]:
    """Return `_bootstrap_counts` in the smallest integer type."""
    return _bootstrap_counts(tasks, np.random.default_rng(seed), draws).astype(np.min_scalar_type(tasks))


def _rank_intervals(resampled: Floats, tail: float) -> tuple[Floats, Floats]:
    """Return (best, worst) rank of each solver over *resampled* f64[draws, k], without *tail* percent at either end."""
    ranks = np.ones(resampled.shape)
    for other in resampled.T:
        ranks += other[:, None] > resampled + 1e-12
    best, worst = np.percentile(ranks, [tail, 100 - tail], axis=0, method="nearest")
    return best, worst
