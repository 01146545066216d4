"""The power of an audit with given systems and families, by simulation of the two-level model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from opsassay.analysis.audit.pooled import random_effects
from opsassay.analysis.audit.selection import leave_one_system_out

GAPS = (0.0, 0.05, 0.1, 0.2, 0.3)
SPREADS = (0.0, 0.05, 0.1, 0.2)
FAMILY_SHARES = (0.0, 1.0)


@dataclass(frozen=True)
class Power:
    """Shares of simulated audits that come to each conclusion.

    *gap* is the true mean effect, *tau* the true standard deviation between systems, *family_share* how much of its
    variance families share. At gap 0 the first three are false alarms.
    """

    gap: float
    tau: float
    family_share: float
    interval_excludes_zero: float
    family_interval_excludes_zero: float | None
    prediction_excludes_zero: float | None
    heterogeneity_found: float
    mean_reversals: float


def simulate_power(
    sizes: NDArray[np.int64],
    families: Sequence[str],
    deviation: float,
    *,
    simulations: int = 1000,
    seed: int = 42,
    level: float = 0.95,
    gaps: Sequence[float] = GAPS,
    spreads: Sequence[float] = SPREADS,
    family_shares: Sequence[float] = FAMILY_SHARES,
) -> list[Power]:
    """Return what an audit of systems with *sizes* cases in *families* would find for each gap, tau and family share.

    Model: effect_s = gap + tau (sqrt(r) u_f + sqrt(1 - r) w_s) + e_s, u and w standard normal, e_s normal with the
    variance deviation^2 / n_s, which is taken as known; *deviation* is that of one case's paired difference. Reported
    are the shares of runs in which the HKSJ interval over systems, a t interval over family means and the prediction
    interval exclude zero, and Q is significant.
    """
    names = list(dict.fromkeys(families))
    family = np.array([names.index(f) for f in families])
    variance = np.maximum(deviation, 1e-3) ** 2 / sizes
    draw = np.random.default_rng([seed, 2])
    k, out = len(sizes), []
    shared, own = draw.standard_normal((simulations, len(names))), draw.standard_normal((simulations, k))
    noise = draw.standard_normal((simulations, k)) * np.sqrt(variance)
    for tau in spreads:
        for share in family_shares if tau and len(names) > 1 else (0.0,):
            moved = noise + tau * (np.sqrt(share) * shared[:, family] + np.sqrt(1 - share) * own)
            out += [_simulate_power(moved, gap, tau, share, variance, sizes, family, level) for gap in gaps]
    return out


def _simulate_power(
    deviations: NDArray[np.float64],
    gap: float,
    tau: float,
    share: float,
    variance: NDArray[np.float64],
    sizes: NDArray[np.int64],
    family: NDArray[np.int64],
    level: float,
) -> Power:
    """Return the power to detect a mean effect *gap* at *level*, from its random *deviations* (draws x systems).

    Per system, *variance* is that of its sampling error, *sizes* its number of cases, *family* its family's index.
    *tau* and *share* (family share) are only copied into the result.
    """
    effect = gap + deviations
    found = random_effects(effect, variance, level)
    regret = leave_one_system_out(effect, sizes).reversed.sum(axis=1) if len(sizes) > 1 else np.zeros(len(effect))
    return Power(
        gap=gap,
        tau=tau,
        family_share=share,
        interval_excludes_zero=_share_without_zero(found.low, found.high),
        family_interval_excludes_zero=_family_power(effect, family, level),
        prediction_excludes_zero=_share_without_zero(found.prediction_low, found.prediction_high)
        if len(sizes) > 2
        else None,
        heterogeneity_found=float((found.q_p < 1 - level).mean()),
        mean_reversals=float(regret.mean()),
    )


def _share_without_zero(low: NDArray[np.float64], high: NDArray[np.float64]) -> float:
    """Return the share of intervals from *low* to *high* that exclude 0."""
    return float(((low > 0) | (high < 0)).mean())


def _family_power(effect: NDArray[np.float64], family: NDArray[np.int64], level: float) -> float | None:
    """Return the share of simulations (rows) with |m| > t(F - 1) sd / sqrt(F) of F family means, t at *level*."""
    count = int(family.max()) + 1
    if count < 2:
        return None
    means = np.stack([effect[:, family == f].mean(axis=1) for f in range(count)], axis=1)
    reach = stdtrit(count - 1, (1 + level) / 2) * means.std(axis=1, ddof=1) / np.sqrt(count)
    return float((np.abs(means.mean(axis=1)) > reach).mean())
