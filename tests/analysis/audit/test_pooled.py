"""Random effects against pimeta (R's metafor), statsmodels and a calculation by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from opsassay.analysis.audit.pooled import (
    cochran_q,
    leaving_out,
    prediction_interval,
    random_effects,
    subsets,
    tau2_paule_mandel,
)

EFFECT = np.array([3.4, -10.4, -9.4, -4.9, 7.7, -3.8, -12.5, -12.5, 1.6, -34.4, -30.4])
VARIANCE = np.array([8.5, 9.5, 14.4, 22.5, 24.0, 8.6, 91.5, 91.5, 10.7, 24.0, 24.0])

floats = st.floats(-0.5, 0.5, allow_nan=False).map(lambda x: round(x, 4))
analyses = st.integers(3, 12).flatmap(
    lambda k: st.tuples(
        st.lists(floats, min_size=k, max_size=k), st.lists(st.floats(0.001, 0.05), min_size=k, max_size=k)
    )
)


def test_three_systems_by_hand():
    # Effects 0, 3, 9 with variance 1 each: mean 4, Q = 16 + 1 + 25 = 42, I2 = 40/42. With equal variances Paule-Mandel has
    # 42 / (1 + tau2) = 2, so tau2 = 20, as has DerSimonian-Laird; se = sqrt(21 / 3); t(2) = 4.302653, t(1) = 12.706205.
    found = random_effects(np.array([0.0, 3.0, 9.0]), np.ones(3))
    assert found.mean == pytest.approx(4)
    assert found.q == pytest.approx(42)
    assert found.i2 == pytest.approx(40 / 42)
    assert found.tau2 == pytest.approx(20)
    assert found.tau2_dl == pytest.approx(20)
    assert found.i2_tau2 == pytest.approx(20 / 21)
    assert found.low == pytest.approx(4 - 4.3026527 * np.sqrt(7))
    assert found.prediction_high == pytest.approx(4 + 12.7062047 * np.sqrt(27))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["PM", "DL"])
def test_tau2_and_i2_agree_with_metafor(method):
    import pimeta

    # pimeta iterates to 1e-8 and we to rounding: 1e-6 relative.
    peer = pimeta.rma(EFFECT, VARIANCE, method=method, test="knha")
    found = random_effects(EFFECT, VARIANCE)
    assert (found.tau2 if method == "PM" else found.tau2_dl) == pytest.approx(peer.tau2, rel=1e-6)
    if method == "PM":
        assert 100 * found.i2_tau2 == pytest.approx(peer.I2, rel=1e-6)
        assert found.mean == pytest.approx(float(np.ravel(peer.b)[0]), rel=1e-6)
        assert [found.low, found.high] == pytest.approx([np.ravel(peer.ci_lb)[0], np.ravel(peer.ci_ub)[0]], rel=1e-6)
        assert found.q == pytest.approx(peer.QE, rel=1e-9)


def test_the_prediction_interval_is_rileys_of_metafor():
    import pimeta

    found = random_effects(EFFECT, VARIANCE)
    peer = pimeta.predict_rma(
        float(found.mean), float(found.standard_error), float(found.tau2), len(EFFECT), predtype="riley", test="knha"
    )
    assert [found.prediction_low, found.prediction_high] == pytest.approx([peer.pi_lb, peer.pi_ub], rel=1e-9)


def test_agrees_with_statsmodels():
    from statsmodels.stats.meta_analysis import combine_effects

    # statsmodels stops iterating tau2 at 1e-5 absolute.
    peer = combine_effects(EFFECT, VARIANCE, method_re="iterated", use_t=True, alpha=0.05)
    found = random_effects(EFFECT, VARIANCE)
    assert found.tau2 == pytest.approx(peer.tau2, rel=1e-4)
    assert found.q == pytest.approx(peer.q, rel=1e-9)
    assert found.mean == pytest.approx(peer.mean_effect_re, rel=1e-5)
    assert found.standard_error == pytest.approx(peer.sd_eff_w_re_hksj, rel=1e-4)
    low, high = peer.conf_int()[3]
    assert [found.low, found.high] == pytest.approx([low, high], rel=1e-4)


@given(analyses)
@settings(max_examples=60, deadline=None)
def test_paule_mandel_solves_its_equation_and_makes_the_scale_one(made):
    effect, variance = np.array(made[0]), np.array(made[1])
    found = random_effects(effect, variance)
    if found.tau2 > 0:
        assert cochran_q(effect, variance, found.tau2) == pytest.approx(len(effect) - 1, rel=1e-8)
        assert found.scale == pytest.approx(1, rel=1e-8)
    else:
        assert found.q <= (len(effect) - 1) * (1 + 1e-9)
        assert found.scale <= 1 + 1e-9


@given(analyses, st.floats(-3, 3), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_shifting_and_reordering_systems_change_what_they_should(made, shift, dice):
    effect, variance = np.array(made[0]), np.array(made[1])
    before = random_effects(effect, variance)
    order = np.array(dice.sample(range(len(effect)), len(effect)))
    after = random_effects(effect[order] + shift, variance[order])
    for name in ("q", "i2", "tau2", "tau2_dl", "standard_error"):
        assert getattr(after, name) == pytest.approx(float(getattr(before, name)), rel=1e-5, abs=1e-8)
    assert after.prediction_low == pytest.approx(before.prediction_low + shift, rel=1e-5, abs=1e-6)


def test_leaving_out_is_the_analysis_of_the_rest():
    rows = subsets(len(EFFECT), 2)
    assert rows.shape == (55, 11)
    assert (rows.sum(axis=1) == 2).all()
    together = random_effects(EFFECT, leaving_out(VARIANCE, rows))
    for i in (0, 17, 54):
        alone = random_effects(EFFECT[~rows[i]], VARIANCE[~rows[i]])
        for name in ("tau2", "i2", "i2_tau2", "mean", "low", "prediction_high", "tau2_dl"):
            assert getattr(together, name)[i] == pytest.approx(float(getattr(alone, name)), rel=1e-9)


def test_what_few_systems_do_not_define_is_nan_and_nothing_warns():
    two = random_effects(np.array([0.1, 0.3]), np.array([0.01, 0.02]))
    assert np.isfinite(two.low)
    assert np.isnan(two.prediction_low)
    one = random_effects(np.array([0.1]), np.array([0.01]))
    assert np.isnan([one.q, one.i2, one.tau2, one.low, one.prediction_low, one.i2_tau2]).all()
    same = random_effects(np.zeros(4), np.full(4, 0.01))
    assert (same.q, same.i2, same.tau2, same.scale) == (0, 0, 0, 0)


@given(analyses, st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_no_interval_is_narrower_than_that_of_the_fixed_effect_however_well_systems_agree(made, spread):
    effect, variance = np.array(made[0]) * spread**4, np.array(made[1])
    found, fixed = random_effects(effect, variance), stats.norm.ppf(0.975) / np.sqrt((1 / variance).sum())
    for low, high in ((found.low, found.high), (found.prediction_low, found.prediction_high)):
        assert high - low >= 2 * fixed
        assert low < found.mean < high


def test_tiny_variances_converge():
    effect = np.array([0.0, 0.2, 0.9])
    tau2 = tau2_paule_mandel(effect, np.full(3, 1e-12))
    assert tau2 == pytest.approx(np.var(effect, ddof=1), rel=1e-6)


def test_prediction_interval_formula():
    low, high = prediction_interval(np.array(1.0), np.array(2.0), np.array(3.0), np.array(5), 0.9)
    assert high - 1 == pytest.approx(stats.t.ppf(0.95, 3) * np.sqrt(7))
    assert low + high == pytest.approx(2)
