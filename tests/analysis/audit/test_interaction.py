"""Interaction tests from cells and sums, against models fitted to every case by statsmodels, sklearn, firthmodels."""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
import pytest

from opsassay.analysis.audit import variants
from opsassay.analysis.audit.audit import audit
from opsassay.analysis.audit.families import nested_models
from opsassay.analysis.audit.interaction import fit_logit, holm, likelihood_ratio, likelihood_ratio_within, wald
from opsassay.analysis.audit.settings import AuditSettings
from opsassay.analysis.audit.variants import firth, firth_cells, interaction_design, l2, without_separated_cells

from .made import QUICK, drawn, matched, table


def cases_of(m, methods):
    """Return outcome, design (group + method + interaction), number of additive columns and case id of every case."""
    design, additive = interaction_design(len(m.systems), len(methods))
    system = np.repeat(np.arange(len(m.systems)), m.sizes)
    outcome = np.concatenate([m.values[:, j] for j in methods])
    rows = np.concatenate([design[system * len(methods) + i] for i in range(len(methods))])
    return outcome, rows, additive, np.tile(np.arange(m.cases), len(methods))


def glm(outcome, rows, **options):
    import statsmodels.api as sm

    return sm.GLM(outcome, rows, family=sm.families.Binomial()).fit(**options)


@pytest.mark.slow
@pytest.mark.parametrize("fractional", [False, True])
@pytest.mark.parametrize("methods", [(0, 1), (0, 1, 2)])
def test_the_ratio_test_is_that_of_models_on_all_cases(fractional, methods):
    m = matched(drawn(fractional=fractional, seed=3))
    outcome, rows, additive, _ = cases_of(m, methods)
    full, reduced = glm(outcome, rows), glm(outcome, rows[:, :additive])
    test = likelihood_ratio(m.means[:, list(methods)], m.sizes)
    assert test.statistic == pytest.approx(2 * (full.llf - reduced.llf), rel=1e-6)
    assert test.df == rows.shape[1] - additive
    if not fractional:  # statsmodels adds a constant to fractional likelihoods, which its McFadden R2 then has in it
        null = glm(outcome, np.ones((len(outcome), 1)))
        assert test.mcfadden == pytest.approx(1 - full.llf / null.llf, rel=1e-6)
        assert test.mcfadden_without == pytest.approx(1 - reduced.llf / null.llf, rel=1e-6)


@pytest.mark.filterwarnings("ignore")  # separation is what some of them are made for
@pytest.mark.parametrize("seed", range(40))
def test_a_fit_of_cells_is_the_peers_to_1e_9_separated_or_not(seed):
    import statsmodels.api as sm

    rng = np.random.default_rng(seed)
    groups, methods = rng.integers(2, 9, 2)
    weights = np.repeat(rng.integers(3, 60, groups), methods).astype(float)
    shape = 0.2 if seed % 2 else 2.0
    means = rng.binomial(weights.astype(int), rng.beta(shape, shape, len(weights))) / weights
    design, additive = interaction_design(groups, methods)
    peer = sm.GLM(means, design[:, :additive], family=sm.families.Binomial(), var_weights=weights)
    fitted = peer.fit(maxiter=50, tol=1e-10).fittedvalues
    assert fit_logit(design[:, :additive], means, weights) == pytest.approx(fitted, abs=1e-9)


@pytest.mark.parametrize("methods", [(0, 1), (0, 1, 2)])
def test_the_wald_test_is_that_of_clustered_errors(methods):
    m = matched(drawn(fractional=True, seed=5))
    outcome, rows, additive, case = cases_of(m, methods)
    fitted = glm(outcome, rows, cov_type="cluster", cov_kwds={"groups": case, "use_correction": False})
    peer = fitted.wald_test(np.eye(rows.shape[1])[additive:], scalar=True)
    found = wald(m, methods, ddof=0)
    assert found.test.statistic == pytest.approx(peer.statistic, rel=1e-5)
    assert found.test.df == rows.shape[1] - additive
    assert found.left_out == ()


def test_wald_names_the_systems_that_it_leaves_out():
    m = matched(
        table(
            {
                "zero": {"a": [0, 0, 0], "b": [1, 0, 1]},
                "same": {"a": [1, 0, 1], "b": [1, 0, 1]},
                "one": {"a": [1, 0, 1, 1], "b": [0, 1, 0, 1]},
                "two": {"a": [1, 0, 0, 1], "b": [0, 1, 1, 1]},
            }
        )
    )
    found = wald(m, (0, 1))
    assert found.left_out == ("zero", "same")
    assert found.test.df == 1


def test_all_zero_systems_and_constant_methods_cost_their_degrees_of_freedom():
    means = np.array([[0.2, 0.4], [0.0, 0.0], [0.5, 0.3], [1.0, 1.0]])
    sizes = np.array([50, 9, 50, 9])
    test = likelihood_ratio(means, sizes)
    assert test.df == 1
    assert test.statistic == pytest.approx(likelihood_ratio(means[[0, 2]], sizes[[0, 2]]).statistic)
    constant = likelihood_ratio(np.array([[0.0, 0.4], [0.0, 0.2]]), np.array([20, 20]))
    assert constant.p is None
    assert constant.reason


def test_method_by_family_given_systems_is_the_nested_model():
    m = matched(drawn(seed=8))
    outcome, rows, additive, _ = cases_of(m, (0, 1, 2))
    method = np.repeat(np.arange(3), m.cases)
    late = np.tile(np.repeat(np.array([f == "y" for f in m.families]), m.sizes), 3)
    extra = np.column_stack([(method == j) * late for j in (1, 2)]).astype(float)
    base = rows[:, :additive]
    peer = 2 * (glm(outcome, np.column_stack([base, extra])).llf - glm(outcome, base).llf)
    found = likelihood_ratio_within(m.means, m.sizes, m.families)
    assert found.statistic == pytest.approx(peer, rel=1e-6)
    assert found.df == 2


def test_firth_is_that_of_one_fit_on_all_cases():
    from firthmodels import FirthLogisticRegression

    m = matched(drawn(sizes=(12, 15, 10), families=("x", "x", "y"), seed=2))
    outcome, rows, additive, _ = cases_of(m, (0, 1))
    peer = FirthLogisticRegression(backend="numpy", fit_intercept=False, max_iter=300, gtol=1e-6, xtol=1e-6)
    peer.fit(rows, outcome)
    covariance = peer._cov[additive:, additive:]
    effect = peer.coef_[additive:]
    assert firth(firth_cells(m), 0, 1).statistic == pytest.approx(
        effect @ np.linalg.solve(covariance, effect), rel=1e-4
    )


def test_firth_is_finite_in_separated_cells_and_refuses_fractions():
    m = matched(table({"s": {"a": [0, 0, 0, 0], "b": [1, 1, 1, 0]}, "t": {"a": [1, 1, 0, 1], "b": [0, 1, 0, 0]}}))
    test = firth(firth_cells(m), 0, 1)
    assert 0 < test.p < 1
    # Firth's estimate of a cell is the log odds with half a case added to each side.
    assert firth_cells(m).log_odds[0, 0] == pytest.approx(np.log(0.5 / 4.5), abs=1e-4)
    refused = firth(firth_cells(matched(drawn(fractional=True))), 0, 1)
    assert (refused.p, refused.reason) == (None, "the scores are not all 0 or 1")


def test_l2_is_that_of_scikit_learn_on_all_cases():
    from sklearn.linear_model import LogisticRegression

    m = matched(drawn(seed=4))
    outcome, rows, additive, _ = cases_of(m, (0, 1))

    def log_likelihood(columns):
        model = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(columns, outcome)
        p = model.predict_proba(columns)[:, 1]
        return np.log(np.where(outcome == 1, p, 1 - p)).sum()

    peer = 2 * (log_likelihood(rows[:, 1:]) - log_likelihood(rows[:, 1:additive]))
    assert l2(m, 0, 1).statistic == pytest.approx(peer, rel=1e-3)


def test_separated_cells_go_with_their_parameter():
    scores = drawn(seed=6).with_columns(
        score=pl.when((pl.col("system") == "s0") & (pl.col("method") == "a")).then(0.0).otherwise("score")
    )
    m = matched(scores)
    test = without_separated_cells(m, 0, 1)
    assert test.df == 2
    assert test.reason == "1 cell left out"
    # Without method a in s0 that system tells nothing about the interaction: the other three decide.
    rest = m.only(np.array([False, True, True, True]))
    assert test.statistic == pytest.approx(likelihood_ratio(rest.means[:, [0, 1]], rest.sizes).statistic, rel=1e-6)
    assert without_separated_cells(rest, 0, 1).p is None


def test_holm_agrees_with_statsmodels_and_skips_what_was_not_tested():
    from statsmodels.stats.multitest import multipletests

    p = [0.01, 0.04, 0.03, 0.005, 0.5]
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert holm([0.02, None, 0.01]) == [0.02, None, 0.02]


def test_nested_models_are_those_of_all_cases():
    frame = drawn(sizes=(40, 60, 30, 50, 70), families=("x",) * 5, seed=9)
    level = {"s0": 1.0, "s1": 2.5, "s2": 0.3, "s3": 4.0, "s4": 2.0}
    depth = {"s0": 3.0, "s1": 1.0, "s2": 2.0, "s3": 2.0, "s4": 5.0}
    frame = frame.with_columns(
        size=pl.col("system").replace_strict(level), depth=pl.col("system").replace_strict(depth)
    )
    m = matched(frame, AuditSettings(covariates=("size", "depth")))
    found = nested_models(m, [0, 1])
    outcome = np.concatenate([m.values[:, 0], m.values[:, 1]])
    method = np.repeat([0.0, 1.0], m.cases)
    by_case = [np.tile(np.repeat([by[s] for s in m.systems], m.sizes), 2) for by in (level, depth)]
    one = np.ones_like(method)
    x = np.column_stack([one, method, *by_case])
    y = np.column_stack([x, *(method * c for c in by_case)])
    _, full, _, _ = cases_of(m, (0, 1))
    fits = {name: glm(outcome, rows).llf for name, rows in (("x", x), ("y", y), ("z", full))}
    without_size = glm(outcome, np.column_stack([one, method, by_case[1], method * by_case[1]])).llf
    assert found.y_against_x.statistic == pytest.approx(2 * (fits["y"] - fits["x"]), rel=1e-5)
    assert found.y_against_x.df == 2
    assert found.z_against_y.statistic == pytest.approx(2 * (fits["z"] - fits["y"]), rel=1e-5)
    assert found.z_against_y.df == 4
    assert found.absorbed["size"] == pytest.approx(1 - (fits["z"] - fits["y"]) / (fits["z"] - without_size), rel=1e-4)


def test_method_by_family_is_that_of_models_on_all_cases():
    frame = drawn(sizes=(40, 60, 25, 80), families=("x", "x", "y", "z"), seed=13)
    m = matched(frame)
    family = np.tile(np.repeat([("x", "y", "z").index(f) for f in m.families], m.sizes), 2)
    method = np.repeat([0.0, 1.0], m.cases)
    outcome = np.concatenate([m.values[:, 0], m.values[:, 1]])
    late = [(family == i).astype(float) for i in (1, 2)]
    reduced = np.column_stack([np.ones_like(method), method, *late])
    full = np.column_stack([reduced, *(method * f for f in late)])
    found = audit(frame, QUICK).pairs[0].interaction["family"]
    assert found.statistic == pytest.approx(2 * (glm(outcome, full).llf - glm(outcome, reduced).llf), rel=1e-6)
    assert found.df == 2


def test_variants_of_packages_that_are_not_there_say_so(monkeypatch):
    m = matched(drawn(fractional=False, seed=3))
    monkeypatch.setitem(sys.modules, "firthmodels", None)
    monkeypatch.setattr(variants, "find_spec", lambda _name: None)
    assert firth(firth_cells(m), 0, 1).reason == "the package firthmodels of the extra audit is not installed"
    assert l2(m, 0, 1).reason == "the package scikit-learn of the extra audit is not installed"
