"""The interaction test under other assumptions: Firth's penalty, an L2 penalty, without quasi-separated cells."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.effects import TIE
from opsassay.analysis.audit.interaction import Test, chi_square, fit_logit
from opsassay.analysis.audit.matched import Matched
from opsassay.analysis.audit.pooled import cochran_q
from opsassay.core.text import plural

Floats = NDArray[np.float64]


def interaction_design(groups: int, methods: int) -> tuple[Floats, int]:
    """Return the design of group + method + interaction on cells (group-major), and how many columns are additive.

    Reference coding; the first column is the intercept, the last (groups - 1)(methods - 1) are the interaction.
    """
    group = np.repeat(np.arange(groups), methods)
    method = np.tile(np.arange(methods), groups)
    by_group = (group[:, None] == np.arange(1, groups)).astype(float)
    by_method = (method[:, None] == np.arange(1, methods)).astype(float)
    both = (by_group[:, :, None] * by_method[:, None, :]).reshape(len(group), -1)
    additive = np.column_stack([np.ones(len(group)), by_group, by_method])
    return np.column_stack([additive, both]), additive.shape[1]


NOT_INSTALLED = "the package {} of the extra audit is not installed"


@dataclass(frozen=True, eq=False)
class FirthCells:
    """Penalised log odds of every cell and their variances, S x M; None, with the *reason*, where there are none."""

    log_odds: Floats | None
    variance: Floats | None
    reason: str = ""


def firth_cells(matched: Matched) -> FirthCells:
    """Return the estimates of the model with all interactions under Firth's penalty, for 0/1 scores (`firthmodels`).

    With a parameter for every cell likelihood and information are products over cells, and the penalty does not depend
    on how the model is written, so each cell is fitted on its own and serves every pair. Fractional scores have none:
    the penalty is derived for binary ones (Firth 1993). Variances are the library's, from the information with the
    penalty's pseudo-cases in it.
    """
    if not np.isin(matched.values, (0.0, 1.0)).all():
        return FirthCells(None, None, "the scores are not all 0 or 1")
    try:
        from firthmodels import FirthLogisticRegression
    except ModuleNotFoundError:
        return FirthCells(None, None, NOT_INSTALLED.format("firthmodels"))

    # The library wants both outcomes: an anchor cell of one success and one failure, with a parameter of its own, is there.
    design = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    outcome = np.array([1, 0, 1, 0])
    model = FirthLogisticRegression(backend="numpy", fit_intercept=False, max_iter=200, gtol=1e-6, xtol=1e-6)
    log_odds, variance = np.empty(matched.means.shape), np.empty(matched.means.shape)
    for (s, m), mean in np.ndenumerate(matched.means):
        right = float(np.round(mean * matched.sizes[s]))
        model.fit(design, outcome, sample_weight=np.array([1.0, 1.0, right, matched.sizes[s] - right]))
        log_odds[s, m], variance[s, m] = model.coef_[1], model.bse_[1] ** 2
    return FirthCells(log_odds, variance)


def firth(cells: FirthCells, a: int, b: int) -> Test:
    """Return the joint Wald test of whether method *a* - *b* (indices) depends on the system, by Firth's estimates *cells*.

    It has systems - 1 degrees of freedom, and is finite where a cell is all 0 or all 1 (leaderboard-audit, Table 5).
    """
    if cells.log_odds is None or cells.variance is None:
        return Test(None, 0, None, cells.reason)
    contrast = cells.log_odds[:, a] - cells.log_odds[:, b]
    variance = cells.variance[:, a] + cells.variance[:, b]
    return chi_square(float(cochran_q(contrast, variance)), len(contrast) - 1, "there is one system")


def l2(matched: Matched, a: int, b: int, strength: float = 1.0) -> Test:
    """Return the likelihood ratio of method x system when both models are fitted with an L2 penalty, C = *strength*.

    Both maximise C log L - |beta|^2 / 2 without penalty on the intercept (scikit-learn's logistic regression; the
    variant of leaderboard-audit, Table 5); the statistic is 2 (log L_full - log L_additive) at those estimates,
    compared with chi-square of the unpenalised degrees of freedom, which is an approximation.
    """
    means = matched.means[:, [a, b]]
    if len(means) < 2:
        return Test(None, 0, None, "there is one system")
    if means.max() <= TIE or means.min() >= 1 - TIE:
        return Test(None, 0, None, "all scores are the same")
    if find_spec("sklearn") is None:
        return Test(None, 0, None, NOT_INSTALLED.format("scikit-learn"))
    design, additive = interaction_design(*means.shape)
    full = _l2_log_likelihood(design, means, matched.sizes, strength)
    reduced = _l2_log_likelihood(design[:, :additive], means, matched.sizes, strength)
    return chi_square(2 * (full - reduced), design.shape[1] - additive)


def _l2_log_likelihood(design: Floats, means: Floats, sizes: NDArray[np.int64], strength: float) -> float:
    """Return the log likelihood of an L2-penalised logistic fit of *means* over *sizes*; *strength* is C of sklearn."""
    from sklearn.linear_model import LogisticRegression

    rows, outcome, weights = _as_binary(design[:, 1:], means, sizes)
    model = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-8, max_iter=500)
    model.fit(rows, outcome, sample_weight=weights)
    log_odds = model.decision_function(rows)
    return float(-(weights * np.logaddexp(0, np.where(outcome == 1, -log_odds, log_odds))).sum())


def _as_binary(design: Floats, means: Floats, sizes: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return (design rows, outcomes 0 or 1, weights): a success and a failure per cell, those of weight 0 left out."""
    right = (means * sizes[:, None]).ravel()
    weights = np.concatenate([right, ((1 - means) * sizes[:, None]).ravel()])
    outcome = np.concatenate([np.ones(len(right), dtype=np.int64), np.zeros(len(right), dtype=np.int64)])
    kept = weights > TIE
    return np.concatenate([design, design])[kept], outcome[kept], weights[kept]


def without_separated_cells(matched: Matched, a: int, b: int) -> Test:
    """Return the likelihood ratio test of method x system without the cells that are all 0 or all 1.

    Each such cell takes its interaction parameter with it; *df* counts the parameters that the other cells identify
    (leaderboard-audit, Table 5, keeps the df of the full table). The reason says how many cells were left out.
    """
    means = matched.means[:, [a, b]]
    kept = (means > TIE) & (means < 1 - TIE)
    gone = int((~kept).sum())
    if not gone:
        return Test(None, 0, None, "no cell is all 0 or all 1")
    design, additive = interaction_design(*means.shape)
    rows = design[kept.ravel()]
    reduced = rows[:, :additive]
    if not len(rows):
        return Test(None, 0, None, f"every cell is all 0 or all 1 ({gone})")
    weights = np.repeat(matched.sizes, 2)[kept.ravel()].astype(float)
    cells = means[kept]
    df = len(cells) - int(np.linalg.matrix_rank(reduced))
    if df < 1:
        return Test(None, 0, None, f"nothing is left to test without {plural(gone, 'cell')}")
    statistic = 2 * (
        _cell_log_likelihood(cells, cells, weights)
        - _cell_log_likelihood(cells, fit_logit(reduced, cells, weights), weights)
    )
    return chi_square(statistic, df, note=f"{plural(gone, 'cell')} left out")


def _cell_log_likelihood(means: Floats, fitted: Floats, weights: Floats) -> float:
    """Return the binomial log likelihood of cell *means* given the means *fitted*; *weights*: cases per cell."""
    return float((weights * (means * np.log(fitted) + (1 - means) * np.log1p(-fitted))).sum())
