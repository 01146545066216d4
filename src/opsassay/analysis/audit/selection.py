"""The cost of choosing a method by pooled results: leave out systems or a family, choose by the others, count the regret.

Effects are (..., S), means (..., S, M): leading axes are resamples, so that intervals come from the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.effects import TIE

Floats = NDArray[np.float64]
Pooling = Literal["macro", "weighted", "median", "trimmed"]
POOLINGS: tuple[Pooling, ...] = ("macro", "weighted", "median", "trimmed")


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The choices by the other systems: the *pooled* effect that decided, and the *regret* on the held-out system.

    A pooled effect of zero or more chooses the first method of the pair. *regret* is 0 where the choice was right.
    """

    pooled: Floats
    regret: Floats

    @property
    def reversed(self) -> NDArray[np.bool_]:
        """For each system, whether the chosen method is the worse one on it."""
        return np.asarray(self.regret > TIE)

    def summary(self) -> Regret:
        """Return over systems the number of reversals, and the mean and maximum regret."""
        return Regret(int(self.reversed.sum()), float(self.regret.mean()), float(self.regret.max()))


@dataclass(frozen=True)
class Regret:
    """Number of reversals (wrong choices), mean and maximum regret as fractions."""

    reversals: int
    mean_regret: float
    max_regret: float


def leave_one_system_out(
    effect: Floats, sizes: NDArray[np.int64], pooling: Pooling = "macro", trim: float = 0.1
) -> HeldOut:
    """Return, for each system, the choice between two methods by the pool of the other systems, and its regret.

    ``macro`` pools by the mean of the systems' effects, which is what the tables of leaderboard-audit come from;
    ``weighted`` by the mean over cases, ``median`` and ``trimmed`` (share *trim* off each end) over systems. Regret is
    best minus chosen on the held-out system (section 4.1, appendix E). With one system nothing is left to pool: NaN.
    """
    pooled = POOL[pooling](effect, sizes, trim)
    return HeldOut(pooled, regret_of(effect, pooled))


def regret_of(effect: Floats, pooled: Floats) -> Floats:
    """Return the loss on *effect* (first minus second method) when the sign of *pooled* decides the choice."""
    lost = np.where(pooled >= -TIE, -effect, effect)
    return np.where(np.isnan(pooled), np.nan, np.where(lost > TIE, lost, 0.0))


def pool_macro(effect: Floats, sizes: NDArray[np.int64], trim: float) -> Floats:  # noqa: ARG001 - one signature
    """Return the mean effect of the other systems, for each system; *sizes* and *trim* are not used."""
    k = effect.shape[-1]
    return (effect.sum(axis=-1, keepdims=True) - effect) / (k - 1) if k > 1 else np.full(effect.shape, np.nan)


def pool_weighted(effect: Floats, sizes: NDArray[np.int64], trim: float) -> Floats:  # noqa: ARG001 - one signature
    """Return for each system the mean effect over the cases (*sizes* each) of the others; *trim* is not used."""
    if effect.shape[-1] < 2:
        return np.full(effect.shape, np.nan)
    weighted = effect * sizes
    return np.asarray((weighted.sum(axis=-1, keepdims=True) - weighted) / (sizes.sum() - sizes))


def pool_median(effect: Floats, sizes: NDArray[np.int64], trim: float) -> Floats:  # noqa: ARG001 - one signature
    """Return the median effect of the other systems, for each system; *sizes* and *trim* are not used."""
    return np.median(_effects_of_others(effect), axis=-1) if effect.shape[-1] > 1 else np.full(effect.shape, np.nan)


def pool_trimmed(effect: Floats, sizes: NDArray[np.int64], trim: float) -> Floats:  # noqa: ARG001 - one signature
    """Return for each system the mean of the others' effects without floor(trim k) at each end; *sizes* is not used."""
    if effect.shape[-1] < 2:
        return np.full(effect.shape, np.nan)
    others = np.sort(_effects_of_others(effect), axis=-1)
    cut = int(trim * others.shape[-1])
    return np.asarray(others[..., cut : others.shape[-1] - cut].mean(axis=-1))


POOL: dict[Pooling, Callable[[Floats, NDArray[np.int64], float], Floats]] = {
    "macro": pool_macro,
    "weighted": pool_weighted,
    "median": pool_median,
    "trimmed": pool_trimmed,
}


def _effects_of_others(effect: Floats) -> Floats:
    """Return (..., S, S - 1): for each system the effects of the others."""
    k = effect.shape[-1]
    index = np.array([[j for j in range(k) if j != i] for i in range(k)])
    return np.asarray(effect[..., index])


def leave_two_out(effect: Floats) -> HeldOut:
    """Return choices and regrets for every two systems left out, (..., S(S-1)/2, 2), by the mean effect of the rest."""
    k = effect.shape[-1]
    first, second = np.triu_indices(k, 1)
    both = np.stack([effect[..., first], effect[..., second]], axis=-1)
    rest = k - 2
    pooled = (effect.sum(axis=-1)[..., None] - both.sum(axis=-1)) / rest if rest else np.full(len(first), np.nan)
    pooled = np.broadcast_to(pooled[..., None], both.shape)
    return HeldOut(pooled, regret_of(both, pooled))


def leave_one_family_out(effect: Floats, families: tuple[str, ...]) -> HeldOut:
    """Return, for each family in order, the choice by the macro mean of the systems outside it, and its regret.

    Regret is taken on the macro mean of the family's systems (leaderboard-audit, Table 10). NaN with one family.
    """
    names = list(dict.fromkeys(families))
    inside = np.array([[f == name for f in families] for name in names])
    within = effect @ (inside / inside.sum(axis=1, keepdims=True)).T
    if len(names) < 2:
        return HeldOut(np.full(within.shape, np.nan), np.full(within.shape, np.nan))
    outside = ~inside
    pooled = effect @ (outside / outside.sum(axis=1, keepdims=True)).T
    return HeldOut(pooled, regret_of(within, pooled))


@dataclass(frozen=True, eq=False)
class Best:
    """Choices among all methods: the index that the other systems' macro means choose, and its regret."""

    chosen: NDArray[np.int64]
    regret: Floats


def leave_one_system_out_best(means: Floats) -> Best:
    """Return the choice among all M methods by the macro mean of the other systems, and best minus chosen on each.

    *means* is S x M with S above 1. A tie chooses the first method of the table.
    """
    others = (means.sum(axis=0, keepdims=True) - means) / (len(means) - 1)
    chosen = first_best(others)
    regret = means.max(axis=1) - means[np.arange(len(means)), chosen]
    return Best(chosen, np.where(regret > TIE, regret, 0.0))


def first_best(means: Floats) -> NDArray[np.int64]:
    """Return the index of the largest mean along the last axis; the first of those equal within rounding."""
    return np.asarray((means >= means.max(axis=-1, keepdims=True) - TIE).argmax(axis=-1))


@dataclass(frozen=True, eq=False)
class Stability:
    """Shares of resamples by system: *winner_kept*: its better method stays so; *reversal_kept*: it is chosen wrongly."""

    winner_kept: Floats
    reversal_kept: Floats


def reversal_stability(effect: Floats, resampled: Floats) -> Stability:
    """Return how often case resampling keeps each system's better method, and keeps the reversal.

    *resampled* are resampled effects (R x S). ``winner_kept`` is the figure of leaderboard-audit, appendix J: the share of
    resamples in which the effect has its sign (for a tie: is a tie). ``reversal_kept`` also draws the other systems.
    """
    same = np.where(np.abs(effect) <= TIE, np.abs(resampled) <= TIE, np.sign(resampled) == np.sign(effect))
    regret = regret_of(resampled, pool_macro(resampled, np.ones(resampled.shape[-1], dtype=np.int64), 0.0))
    return Stability(same.mean(axis=0), (regret > TIE).mean(axis=0))
