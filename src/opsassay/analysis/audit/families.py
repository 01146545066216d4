"""The spread of effects between and within families of systems, and its explanation by covariates of the systems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.effects import TIE
from opsassay.analysis.audit.interaction import Test, chi_square, fit_logit, log_likelihood
from opsassay.analysis.audit.matched import Matched

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


@dataclass(frozen=True)
class Nested:
    """Tests between the nested models X, Y, Z; *absorbed*: covariate to the share of the residual statistic it explains."""

    y_against_x: Test
    z_against_y: Test
    absorbed: dict[str, float]


def nested_models(matched: Matched, methods: list[int]) -> Nested | None:
    """Return likelihood ratio tests of nested fractional logits; None without covariates or with one system.

    X: method + covariates; Y: X + method x covariates; Z: Y + system + method x system (leaderboard-audit, Table 9B).
    Covariates are means over the cases of a system, standardised; degrees of freedom are differences of ranks.
    ``absorbed[c]`` = 1 - LRT(Z, Y) / LRT(Z, Y without c): what c takes off the residual interaction.
    """
    if not matched.covariates or len(matched.systems) < 2:
        return None
    names = list(matched.covariates)
    means = matched.means[:, methods]
    saturated = log_likelihood(means, means, matched.sizes)
    level = {name: _standardise_values(matched.covariates[name]) for name in names}
    x, x_rank = _fit_covariates(matched, means, list(level.values()), interacting=False)
    y, y_rank = _fit_covariates(matched, means, list(level.values()), interacting=True)
    residual = chi_square(2 * (saturated - y), means.size - y_rank, "the covariates identify every system")
    absorbed = {}
    for name in names:
        others = [values for other, values in level.items() if other != name]
        without, _ = _fit_covariates(matched, means, others, interacting=True)
        if saturated - without > 1e-9:
            absorbed[name] = 1 - (saturated - y) / (saturated - without)
    return Nested(chi_square(2 * (y - x), y_rank - x_rank), residual, absorbed)


def _standardise_values(values: Floats) -> Floats:
    """Return *values* with mean 0 and standard deviation 1; all 0 when they are equal."""
    spread = values.std()
    return np.asarray((values - values.mean()) / (spread if spread > 0 else 1.0))


def _fit_covariates(
    matched: Matched, means: Floats, covariates: list[Floats], *, interacting: bool
) -> tuple[float, int]:
    """Return log-likelihood and rank of method + *covariates* (x method if *interacting*) on cell *means* by system."""
    systems, methods = means.shape
    method = np.tile(np.eye(methods), (systems, 1))
    columns = [method]
    for values in covariates:
        by_cell = np.repeat(values, methods)[:, None]
        columns.append(by_cell * method if interacting else by_cell)
    design = np.column_stack(columns)
    fitted = fit_logit(design, means.ravel(), np.repeat(matched.sizes, methods).astype(float))
    return log_likelihood(means, fitted.reshape(means.shape), matched.sizes), int(np.linalg.matrix_rank(design))
