"""How much of the spread of effects lies between families of systems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.effects import TIE

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FamilySpread:
    """Between-family share of the sum of squares (None when all effects are equal), sign changes, widest range."""

    between_share: float | None
    sign_changes: int
    families: int
    max_range: float


def family_spread(effect: Floats, families: tuple[str, ...]) -> FamilySpread:
    """Return how the effects of systems spread between and within families (leaderboard-audit, Table 10).

    between_share = sum n_f (mean_f - mean)^2 / sum (d_s - mean)^2, every system weighing alike; *sign_changes* counts
    families that hold an effect above and one below zero; *max_range* is the widest range of effects in one family.
    """
    names = list(dict.fromkeys(families))
    groups = [effect[[f == name for f in families]] for name in names]
    grand = effect.mean()
    total = float(((effect - grand) ** 2).sum())
    between = float(sum(len(g) * (g.mean() - grand) ** 2 for g in groups))
    return FamilySpread(
        between_share=between / total if total > TIE**2 else None,
        sign_changes=sum(bool((g > TIE).any() and (g < -TIE).any()) for g in groups),
        families=len(names),
        max_range=float(max(np.ptp(g) for g in groups)),
    )
