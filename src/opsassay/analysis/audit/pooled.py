"""Random-effects meta-analysis of effects by system: many analyses at once, one per row.

Arrays are (..., k): the last axis is systems. An infinite variance leaves a system out. Written by hand because
statsmodels would take 95 s for leaving out two of 50 systems for 190 pairs, 232,750 analyses that take 2 s here; its
`combine_effects` is an oracle in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, stdtrit

Floats = NDArray[np.float64]
_STEPS = 200


@dataclass(frozen=True, eq=False)
class RandomEffects:
    """Results by analysis; NaN where a statistic is undefined (k < 2, for prediction intervals k < 3).

    *scale* is the factor of Hartung and Knapp; *standard_error* includes it where it is above 1.
    """

    k: NDArray[np.int64]
    mean: Floats
    standard_error: Floats
    low: Floats
    high: Floats
    prediction_low: Floats
    prediction_high: Floats
    tau2: Floats
    tau2_dl: Floats
    q: Floats
    q_p: Floats
    i2: Floats
    i2_tau2: Floats
    scale: Floats


def random_effects(effect: Floats, variance: Floats, level: float = 0.95) -> RandomEffects:
    """Return the Paule-Mandel, Hartung-Knapp-Sidik-Jonkman analysis of each row, with all heterogeneity statistics.

    *effect* and *variance* broadcast to (..., k); variances are above 0, infinite for a system that is left out.
    """
    effect, variance = np.broadcast_arrays(np.asarray(effect, float), np.asarray(variance, float))
    k = np.isfinite(variance).sum(axis=-1)
    q = cochran_q(effect, variance)
    tau2 = tau2_paule_mandel(effect, variance)
    mean, standard_error, scale = hartung_knapp(effect, variance, tau2)
    low, high = hksj_interval(mean, standard_error, k, level)
    prediction_low, prediction_high = prediction_interval(mean, standard_error, tau2, k, level)
    return RandomEffects(
        k=k,
        mean=mean,
        standard_error=standard_error,
        low=low,
        high=high,
        prediction_low=prediction_low,
        prediction_high=prediction_high,
        tau2=np.where(k > 1, tau2, np.nan),
        tau2_dl=np.where(k > 1, tau2_dersimonian_laird(effect, variance), np.nan),
        q=np.where(k > 1, q, np.nan),
        q_p=np.where(k > 1, chdtrc(np.maximum(k - 1, 1), q), np.nan),
        i2=i2_from_q(q, k),
        i2_tau2=i2_from_tau2(tau2, variance),
        scale=scale,
    )


def weighted_mean(effect: Floats, weight: Floats) -> Floats:
    """Return sum(w y) / sum(w) of *effect* y with *weight* w along the last axis."""
    return np.asarray((weight * effect).sum(axis=-1) / weight.sum(axis=-1))


def cochran_q(effect: Floats, variance: Floats, tau2: Floats | float = 0.0) -> Floats:
    """Return Q = sum w (y - mean_w)^2 with w = 1 / (v + tau2) (Cochran 1954; with tau2 the generalised Q)."""
    weight = 1 / (variance + np.asarray(tau2)[..., None])
    mean = weighted_mean(effect, weight)
    return np.asarray((weight * (effect - mean[..., None]) ** 2).sum(axis=-1))


def i2_from_q(q: Floats, k: NDArray[np.int64]) -> Floats:
    """Return I2 = max(0, (Q - (k - 1)) / Q) of *k* systems, the share of Q beyond k - 1 (Higgins and Thompson 2002)."""
    over = np.maximum(q - (k - 1), 0.0)
    share: Floats = np.divide(over, q, out=np.zeros_like(q), where=q > 0)
    return np.where(k > 1, share, np.nan)


def i2_from_tau2(tau2: Floats, variance: Floats) -> Floats:
    """Return I2 = tau2 / (tau2 + s2), s2 = (k - 1) sum w / ((sum w)^2 - sum w^2), w = 1 / v (metafor's form)."""
    weight = 1 / variance
    k = np.isfinite(variance).sum(axis=-1)
    bottom = weight.sum(axis=-1) ** 2 - (weight**2).sum(axis=-1)
    defined = (k > 1) & (bottom > 0)
    typical = np.divide((k - 1) * weight.sum(axis=-1), bottom, out=np.ones_like(bottom), where=defined)
    return np.where(defined, tau2 / (tau2 + typical), np.nan)


def tau2_dersimonian_laird(effect: Floats, variance: Floats) -> Floats:
    """Return tau2 = max(0, (Q - (k - 1)) / (sum w - sum w^2 / sum w)), w = 1 / v (DerSimonian and Laird 1986)."""
    weight = 1 / variance
    k = np.isfinite(variance).sum(axis=-1)
    bottom = weight.sum(axis=-1) - (weight**2).sum(axis=-1) / weight.sum(axis=-1)
    over = np.maximum(cochran_q(effect, variance) - (k - 1), 0.0)
    return np.asarray(np.divide(over, bottom, out=np.zeros_like(over), where=bottom > 0))


def tau2_paule_mandel(effect: Floats, variance: Floats) -> Floats:
    """Return the tau2 at which the generalised Q is k - 1, or 0 where Q is smaller (Paule and Mandel 1982).

    Q falls and is convex in tau2, so Newton's steps from 0 rise to the root (DerSimonian and Kacker 2007).
    """
    k = np.isfinite(variance).sum(axis=-1)
    tau2 = np.zeros(k.shape)
    for _ in range(_STEPS):
        weight = 1 / (variance + tau2[..., None])
        residual = effect - weighted_mean(effect, weight)[..., None]
        over = (weight * residual**2).sum(axis=-1) - (k - 1)
        slope = (weight**2 * residual**2).sum(axis=-1)
        step = np.divide(over, slope, out=np.zeros_like(over), where=(slope > 0) & (over > 0))
        tau2 = tau2 + step
        if np.all(step <= 1e-9 * tau2):  # Newton squares the error: the last step leaves none
            break
    return tau2


def hartung_knapp(effect: Floats, variance: Floats, tau2: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean, standard error and scale of Hartung and Knapp.

    se^2 = max(1, scale) / sum w, scale = sum w (y - mean)^2 / (k - 1), w = 1 / (v + tau2). Hartung and Knapp
    (2001), Sidik and Jonkman (2005). With Paule-Mandel and tau2 > 0 the scale is exactly 1, since that is the equation
    which tau2 solves. With tau2 = 0 it may be below 1, when systems agree better than their variances let expect: the
    bound (Knapp and Hartung 2003; Roever, Knapp and Friede 2015) keeps the interval no narrower than the fixed effect's.
    """
    weight = 1 / (variance + tau2[..., None])
    k = np.isfinite(variance).sum(axis=-1)
    mean = weighted_mean(effect, weight)
    scale = (weight * (effect - mean[..., None]) ** 2).sum(axis=-1) / np.maximum(k - 1, 1)
    scale = np.where(k > 1, scale, np.nan)
    return mean, np.sqrt(np.maximum(scale, 1.0) / weight.sum(axis=-1)), scale


def hksj_interval(
    mean: Floats, standard_error: Floats, k: NDArray[np.int64], level: float = 0.95
) -> tuple[Floats, Floats]:
    """Return mean +- t(k - 1) se of *k* systems, NaN below two; *level* is the confidence."""
    reach = np.where(k > 1, stdtrit(np.maximum(k - 1, 1), (1 + level) / 2), np.nan) * standard_error
    return mean - reach, mean + reach


def prediction_interval(
    mean: Floats, standard_error: Floats, tau2: Floats, k: NDArray[np.int64], level: float = 0.95
) -> tuple[Floats, Floats]:
    """Return mean +- t(k - 2) sqrt(tau2 + se^2), where another system's effect may lie (IntHout et al. 2016).

    NaN below three systems, where t has no degree of freedom.
    """
    quantile = np.where(k > 2, stdtrit(np.maximum(k - 2, 1), (1 + level) / 2), np.nan)
    reach = quantile * np.sqrt(tau2 + standard_error**2)
    return mean - reach, mean + reach


def leaving_out(variance: Floats, left_out: NDArray[np.bool_]) -> Floats:
    """Return *variance* once per row of *left_out* (R x k), set to infinity where a system is left out."""
    return np.where(left_out, np.inf, variance)


def subsets(k: int, out: int) -> NDArray[np.bool_]:
    """Return every way to leave *out* (1 or 2) of *k* systems out, one per row; True: the system is left out."""
    if out == 1:
        return np.eye(k, dtype=bool)
    first, second = np.triu_indices(k, 1)
    rows = np.zeros((len(first), k), dtype=bool)
    rows[np.arange(len(first)), first] = True
    rows[np.arange(len(first)), second] = True
    return rows
