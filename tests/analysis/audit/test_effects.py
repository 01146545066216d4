"""Effects, intervals and permutations against hand calculations and scipy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from opsassay.analysis.audit.effects import paired_effects, pseudo_variance, sign_counts
from opsassay.analysis.audit.permutation import permutation_p, system_contrasts
from opsassay.analysis.audit.resampling import bootstrap_means, combined_interval, effect_intervals, permuted_means

from .made import drawn, matched, table


def test_effects_and_variances_by_hand():
    m = matched(table({"s": {"a": [1, 0, 1, 1], "b": [0, 0, 1, 0]}, "t": {"a": [0.25, 0.5], "b": [0.75, 0.5]}}))
    # s: differences 1 0 0 1, mean 1/2, Var (ddof 1) = 1/3, over n: 1/12. t: -1/2 0, mean -1/4, Var = 1/8, over n: 1/16.
    found = paired_effects(m, 0, 1)
    assert found.effect == pytest.approx([0.5, -0.25])
    assert found.variance == pytest.approx([1 / 12, 1 / 16])
    assert paired_effects(m, 0, 1, ddof=0).variance == pytest.approx([1 / 16, 1 / 32])
    assert sign_counts(found.effect) == (1, 1, 0)


def test_zero_variance_gets_two_pseudo_cases():
    m = matched(table({"ties": {"a": [1, 0, 1], "b": [1, 0, 1]}, "won": {"a": [1, 1], "b": [0, 0]}}))
    found = paired_effects(m, 0, 1)
    assert found.adjusted.all()
    # Ties: 2 / (n + 2)^2. Won: values 1 1 1 -1, mean 1/2, population variance 3/4, over 4.
    assert found.variance == pytest.approx([2 / 25, 3 / 16])
    assert pseudo_variance(np.array([1.0]), np.array([1])) == pytest.approx([np.var([1, 1, -1]) / 3])
    low, high = effect_intervals(m, bootstrap_means(m, 100), 0, 1)
    assert low == pytest.approx([-1.959964 * np.sqrt(2) / 5, 0.5 - 1.959964 * np.sqrt(3) / 4])
    assert high[1] == 1
    assert low[1] < 0


def test_thirds_that_tie_are_ties():
    m = matched(table({"s": {"a": [1 / 3, 2 / 3, 1], "b": [1, 1 / 3, 2 / 3]}}))
    assert paired_effects(m, 0, 1).effect[0] == 0


def test_the_bootstrap_agrees_with_scipy():
    m = matched(drawn(seed=1))
    drawn_means = bootstrap_means(m, 20_000, 1)
    low, high = effect_intervals(m, drawn_means, 0, 1)
    for s in range(4):
        rows = m.rows_of(np.arange(4) == s)
        peer = stats.bootstrap(
            (m.difference(0, 1)[rows],), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(7)
        ).confidence_interval
        # Percentiles of 20,000 draws of a mean over n cases move in steps of 1/n.
        assert [low[s], high[s]] == pytest.approx([peer.low, peer.high], abs=1.01 / m.sizes[s])


def test_methods_stay_paired_and_systems_have_streams_of_their_own():
    m = matched(drawn(methods=("a", "b"), seed=2))
    doubled = matched(drawn(methods=("a", "b"), seed=2).with_columns())
    assert (bootstrap_means(m, 50) == bootstrap_means(doubled, 50)).all()
    alone = m.only(np.array([False, True, False, False]))
    assert (bootstrap_means(alone, 50)[:, 0] == bootstrap_means(m, 50)[:, 1]).all()
    same = matched(table({"s": {"a": [1, 0, 1, 0], "b": [1, 0, 1, 0]}}))
    means = bootstrap_means(same, 50)
    assert (means[:, :, 0] == means[:, :, 1]).all()


def test_the_permutation_p_value_is_that_of_all_deals():
    m = matched(table({"s": {"a": [1, 1, 1], "b": [0, 0, 1]}, "t": {"a": [0, 0, 1], "b": [1, 0, 1]}}))
    difference = m.difference(0, 1)
    observed = (difference[:3].mean() - difference[3:].mean()) ** 2
    deals = [set(chosen) for chosen in itertools.combinations(range(6), 3)]
    exceeding = sum(
        (difference[list(c)].mean() - difference[[i for i in range(6) if i not in c]].mean()) ** 2 >= observed - 1e-12
        for c in deals
    )
    permuted = permuted_means(m, 4000)
    found = permutation_p(paired_effects(m, 0, 1).effect, permuted[:, :, 0] - permuted[:, :, 1], m.sizes)
    assert found == pytest.approx(exceeding / len(deals), abs=0.03)  # 4,000 deals: standard error below 0.008


def test_contrasts_of_a_system_with_the_rest():
    m = matched(
        table(
            {
                "s": {"a": [1, 1, 1, 0], "b": [0, 0, 1, 0]},
                "t": {"a": [0, 1], "b": [1, 1]},
                "u": {"a": [1, 0], "b": [1, 0]},
            }
        )
    )
    permuted, boot = permuted_means(m, 200), bootstrap_means(m, 200)
    found = system_contrasts(
        paired_effects(m, 0, 1), permuted[:, :, 0] - permuted[:, :, 1], boot[:, :, 0] - boot[:, :, 1], m.sizes
    )
    # s: 1/2 against the four cases of the others, -1 0 0 0.
    assert found.contrast[0] == pytest.approx(0.5 + 0.25)
    assert (found.low <= found.contrast).all()
    assert (found.contrast <= found.high).all()
    assert ((found.p > 0) & (found.p <= 1)).all()


def test_a_system_in_which_nothing_varies_adds_its_uncertainty_to_what_it_is_combined_with():
    m = matched(table({"s": {"a": [1, 1, 1, 0], "b": [0, 0, 1, 0]}, "t": {"a": [1, 1, 1], "b": [1, 1, 1]}}))
    paired, boot = paired_effects(m, 0, 1), bootstrap_means(m, 500)
    drawn_effects = boot[:, :, 0] - boot[:, :, 1]
    still = np.sqrt(paired.variance[1])
    low, high = combined_interval(paired.effect.mean(), drawn_effects.mean(axis=1), still / 2)
    alone = combined_interval(paired.effect.mean(), drawn_effects.mean(axis=1), 0.0)
    assert paired.effect.mean() - low == pytest.approx(np.hypot(paired.effect.mean() - alone[0], 1.959964 * still / 2))
    assert high - paired.effect.mean() == pytest.approx(np.hypot(alone[1] - paired.effect.mean(), 1.959964 * still / 2))
    found = system_contrasts(paired, boot[:, :, 0] - boot[:, :, 1], drawn_effects, m.sizes)
    # Either contrast is the effect of one system less that of the other, so both have the interval of the difference.
    assert found.high - found.contrast == pytest.approx((found.contrast - found.low)[::-1])
    assert (found.contrast - found.low).min() > 1.959964 * still


@pytest.mark.slow
def test_drawing_patterns_has_the_distribution_of_drawing_cases(monkeypatch):
    m = matched(drawn(sizes=(300, 200, 100), families=("x",) * 3, seed=3))
    boot, deal = bootstrap_means(m, 20_000), permuted_means(m, 20_000)
    monkeypatch.setattr("opsassay.analysis.audit.resampling._PATTERN_COST", 1e9)  # no pattern is ever cheaper
    by_case, by_deal = bootstrap_means(m, 20_000), permuted_means(m, 20_000)
    for one, other in ((boot, by_case), (deal, by_deal)):
        assert not (one == other).all()
        # 20,000 draws of means with standard deviation 0.03 to 0.05: standard error below 0.0004.
        assert one.mean(axis=0) == pytest.approx(other.mean(axis=0), abs=0.002)
        assert one.std(axis=0) == pytest.approx(other.std(axis=0), rel=0.03)
        d, e = one[:, :, 0] - one[:, :, 1], other[:, :, 0] - other[:, :, 1]
        assert d.std(axis=0) == pytest.approx(e.std(axis=0), rel=0.03)
        assert np.corrcoef(d[:, 0], d[:, 1])[0, 1] == pytest.approx(np.corrcoef(e[:, 0], e[:, 1])[0, 1], abs=0.03)
