"""Tests of whether the difference between methods depends on the system: likelihood ratio and cluster-robust Wald.

The fractional logit (Papke and Wooldridge 1996) maximises sum y log p + (1 - y) log(1 - p). With factors alone as
predictors this depends on the scores only through the mean and size of each (group, method) cell, so a million cases
cost what the cells cost. Covariances for the Wald test are sums over cases within systems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, expit, logit, xlogy

from opsassay.analysis.audit.effects import TIE
from opsassay.analysis.audit.matched import Matched

Floats = NDArray[np.float64]
EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Test:
    """A test statistic with its degrees of freedom; *p* is None, with a *reason*, where there is nothing to test."""

    statistic: float | None
    df: int
    p: float | None
    reason: str = ""
    mcfadden: float | None = None
    mcfadden_without: float | None = None


def chi_square(
    statistic: float,
    df: int,
    undefined: str = "no system tells the methods apart",
    note: str = "",
    **more: float | None,
) -> Test:
    """Return the test of *statistic* against chi-square with *df*; for *df* 0 a test with the reason *undefined*.

    *note* is the reason of any other test, *more* are further fields of `Test`.
    """
    if df < 1:
        return Test(None, 0, None, undefined)
    statistic = max(statistic, 0.0)
    return Test(statistic, df, float(chdtrc(df, statistic)), note, **more)


def likelihood_ratio(means: Floats, sizes: NDArray[np.int64]) -> Test:
    """Return the test of group + method against group x method on cell *means* (groups x methods).

    *sizes* are cases per group, the same for every method. LRT = 2 (log L of the cell means - log L of the additive
    model), df = (groups - 1)(methods - 1). Groups in which every score is 0, or every score is 1, and methods for which
    the same holds, fit both models exactly: they add nothing and are left out of the degrees of freedom. Robust
    standard errors do not enter a likelihood ratio; the score of one case under several methods counts as independent,
    so that the test is conservative where methods succeed on the same cases (docs/audit.md has the measurement).
    McFadden's R2 = 1 - log L / log L of one common mean, with and without the interaction.
    """
    groups, methods = _informative_cells(means)
    cells, weights = means[np.ix_(groups, methods)], sizes[groups].astype(float)
    full = log_likelihood(means, means, sizes)
    pooled = float((means.mean(axis=1) * sizes).sum() / sizes.sum())
    null = log_likelihood(means, np.full(means.shape, pooled), sizes)
    if len(weights) < 2 or cells.shape[1] < 2:
        return Test(None, 0, None, "fewer than two systems and methods have scores other than all 0 or all 1")
    additive = log_likelihood(cells, fit_additive(cells, weights), weights)
    statistic = 2 * (log_likelihood(cells, cells, weights) - additive)
    df = (len(weights) - 1) * (cells.shape[1] - 1)
    if null == 0:
        return chi_square(statistic, df)
    return chi_square(statistic, df, mcfadden=1 - full / null, mcfadden_without=1 - (full - statistic / 2) / null)


def likelihood_ratio_within(means: Floats, sizes: NDArray[np.int64], families: Sequence[str]) -> Test:
    """Return the test of method x family given system effects, by *means* (systems x methods) over *sizes* cases.

    System + method against system + method x family, df = (families - 1)(methods - 1): stricter than family cells alone.
    """
    rows, columns = _informative_cells(means)
    means, sizes = means[np.ix_(rows, columns)], sizes[rows]
    family = np.array(families)[rows]
    names = list(dict.fromkeys(family))
    if len(names) < 2 or means.shape[1] < 2:
        return Test(None, 0, None, "fewer than two families and methods have scores other than all 0 or all 1")
    weights = sizes.astype(float)
    additive = log_likelihood(means, fit_additive(means, weights), weights)
    by_family = 0.0
    df = -(means.shape[1] - 1)
    for name in names:  # with a method effect of its own in each family, families are fitted apart
        part = family == name
        _, informative = _informative_cells(means[part])
        by_family += log_likelihood(means[part], fit_additive(means[part], weights[part]), weights[part])
        df += max(len(informative) - 1, 0)
    return chi_square(2 * (by_family - additive), df)


def _informative_cells(means: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of groups and methods left when those all at 0 or all at 1 are dropped repeatedly."""
    rows = np.arange(means.shape[0])
    columns = np.arange(means.shape[1])
    while True:
        inner = means[np.ix_(rows, columns)]
        if inner.size == 0:
            return rows[:0], columns[:0]
        kept_rows = rows[(inner > TIE).any(axis=1) & (inner < 1 - TIE).any(axis=1)]
        kept_columns = columns[(inner > TIE).any(axis=0) & (inner < 1 - TIE).any(axis=0)]
        if len(kept_rows) == len(rows) and len(kept_columns) == len(columns):
            return rows, columns
        rows, columns = kept_rows, kept_columns


def log_likelihood(means: Floats, fitted: Floats, sizes: Floats | NDArray[np.int64]) -> float:
    """Return the Bernoulli quasi log-likelihood of mean scores *means* over *sizes* cases per cell, given *fitted*."""
    return float((sizes[:, None] * (xlogy(means, fitted) + xlogy(1 - means, 1 - fitted))).sum())


def fit_additive(means: Floats, weights: Floats) -> Floats:
    """Return the fitted means (groups x methods) of the logit model group + method; *weights* are cases per cell."""
    groups, methods = means.shape
    if methods == 1 or groups == 1:
        return means
    design = np.zeros((groups, methods, groups + methods - 1))
    design[np.arange(groups), :, np.arange(groups)] = 1.0
    for j in range(1, methods):
        design[:, j, groups + j - 1] = 1.0
    fitted = fit_logit(design.reshape(groups * methods, -1), means.ravel(), np.repeat(weights, methods))
    return fitted.reshape(groups, methods)


def fit_logit(design: Floats, means: Floats, weights: Floats) -> Floats:
    """Return the fitted means of a fractional logit of cell *means* with *weights* cases on the *design* matrix.

    Iteratively reweighted least squares (McCullagh and Nelder 1989, 2.5) until the deviance changes by less than 1e-10. On
    the boundary an effect grows without end; after 50 steps the likelihood, which alone is used, has long converged.
    """
    fitted = (means + 0.5) / 2
    odds, deviance = logit(fitted), np.inf
    for _ in range(50):
        inner = np.clip(fitted, EPSILON, 1 - EPSILON)
        slope = inner * (1 - inner)
        root = np.sqrt(weights * slope)
        effects = np.linalg.lstsq(design * root[:, None], (odds + (means - fitted) / slope) * root)[0]
        odds = design @ effects
        fitted = expit(odds)
        before, deviance = deviance, -2 * float((weights * (xlogy(means, fitted) + xlogy(1 - means, 1 - fitted))).sum())
        if abs(before - deviance) < 1e-10:
            break
    return np.clip(fitted, 1e-15, 1 - 1e-15)


@dataclass(frozen=True)
class RobustTest:
    """A Wald test, and the systems that it had to leave out."""

    test: Test
    left_out: tuple[str, ...]


def wald(matched: Matched, methods: Sequence[int], ddof: int = 1) -> RobustTest:
    """Return the cluster-robust Wald test of method x group for the *methods* (indices), cases as clusters.

    Groups are the systems. In the model with all interactions the log odds of cell (g, m) are logit(mean_gm),
    with the sandwich covariance Cov(x_m, x_m' | g) / (n_g v_m v_m'), v = mean (1 - mean): that of a GLM with standard
    errors clustered by case. The hypothesis is that the contrasts c_g = logit_gm - logit_g1 are the same in all groups;
    W = sum (c_g - c)' S_g^-1 (c_g - c), c their generalised least squares mean, chi-square with (G - 1)(M - 1) degrees
    of freedom. A group in which a method is at 0 or at 1, or two methods agree on every case, has no finite covariance
    to weigh with: it is left out and named.
    """
    names = list(matched.systems)
    values = matched.values[:, list(methods)]
    of_row = np.repeat(np.unique(names, return_inverse=True)[1], matched.sizes)
    found = [_logit_contrasts(values[rows], ddof) for rows in _rows_by_group(of_row)]
    order = np.unique(names)
    contrasts = np.stack([contrast for contrast, _ in found])
    covariances = np.stack([covariance for _, covariance in found])
    usable = _are_invertible(covariances)
    left_out = tuple(name for name in dict.fromkeys(names) if not usable[np.searchsorted(order, name)])
    if usable.sum() < 2:
        reason = "fewer than two systems have all methods strictly between 0 and 1 and apart"
        return RobustTest(Test(None, 0, None, reason), left_out)
    contrasts, precisions = contrasts[usable], np.linalg.inv(covariances[usable])
    centre = np.linalg.solve(precisions.sum(axis=0), np.einsum("gij,gj->i", precisions, contrasts))
    statistic = float(np.einsum("gi,gij,gj->", contrasts - centre, precisions, contrasts - centre))
    return RobustTest(chi_square(statistic, (len(contrasts) - 1) * (values.shape[1] - 1)), left_out)


def _rows_by_group(group: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the row indices of each value in *group*, in order of the values."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _logit_contrasts(scores: Floats, ddof: int) -> tuple[Floats, Floats]:
    """Return the log-odds differences of *scores* (one group) to the first method, and their covariance; or NaN."""
    n, mean = len(scores), scores.mean(axis=0)
    contrasts = len(mean) - 1
    if n < 2 or (mean <= TIE).any() or (mean >= 1 - TIE).any():
        return np.full(contrasts, np.nan), np.full((contrasts, contrasts), np.nan)
    slope = mean * (1 - mean)
    centred = (scores - mean) / slope
    against_first = centred[:, 1:] - centred[:, :1]
    odds = np.log(mean / (1 - mean))
    return odds[1:] - odds[0], against_first.T @ against_first / ((n - ddof) * n)


def _are_invertible(covariances: Floats) -> NDArray[np.bool_]:
    """Return for each covariance matrix whether it is finite and invertible."""
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    usable = np.asarray((variances > TIE).all(axis=1))  # NaN is not above
    scale = np.sqrt(variances[usable])
    correlation = covariances[usable] / (scale[:, :, None] * scale[:, None, :])
    usable[usable] = np.linalg.cond(correlation) < 1e10
    return usable


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Return Holm's step-down adjusted p-values (Holm 1979); None values are not counted."""
    tested = [(value, i) for i, value in enumerate(p) if value is not None]
    out: list[float | None] = [None] * len(p)
    highest = 0.0
    for rank, (value, i) in enumerate(sorted(tested)):
        highest = max(highest, min(1.0, (len(tested) - rank) * value))
        out[i] = highest
    return out
