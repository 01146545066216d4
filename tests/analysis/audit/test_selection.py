"""Choosing by the pool: regret by hand, poolings, families, stability."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import trim_mean

from opsassay.analysis.audit.families import family_spread
from opsassay.analysis.audit.selection import (
    leave_one_family_out,
    leave_one_system_out,
    leave_one_system_out_best,
    leave_two_out,
    reversal_stability,
)

EFFECT = np.array([0.3, -0.1, -0.1, -0.25])
SIZES = np.array([100, 10, 10, 10])
effects = st.lists(st.floats(-1, 1, allow_nan=False), min_size=2, max_size=9).map(np.array)


def test_three_systems_by_hand():
    # Held out in turn, the others pool to -0.1, 0.1, 0.1 (macro): regret 0.3, 0.2, 0.
    found = leave_one_system_out(np.array([0.3, -0.2, 0.0]), np.array([5, 5, 5]))
    assert found.pooled == pytest.approx([-0.1, 0.15, 0.05])
    assert found.regret == pytest.approx([0.3, 0.2, 0.0])
    assert found.reversed.tolist() == [True, True, False]
    assert (found.summary().reversals, found.summary().mean_regret, found.summary().max_regret) == (
        2,
        pytest.approx(0.5 / 3),
        pytest.approx(0.3),
    )


def test_macro_and_case_weighted_pools_choose_differently():
    macro = leave_one_system_out(EFFECT, SIZES)
    weighted = leave_one_system_out(EFFECT, SIZES, "weighted")
    assert macro.reversed.tolist() == [True, False, False, True]
    assert weighted.reversed.tolist() == [True, True, True, True]
    assert weighted.pooled[3] == pytest.approx((30 - 1 - 1) / 120)


@pytest.mark.parametrize("trim", [0.0, 0.1, 0.25])
def test_median_and_trimmed_pools_agree_with_numpy_and_scipy(trim):
    effect = np.random.default_rng(3).normal(0, 0.2, 11)
    others = [np.delete(effect, i) for i in range(11)]
    median = leave_one_system_out(effect, np.ones(11, int), "median").pooled
    trimmed = leave_one_system_out(effect, np.ones(11, int), "trimmed", trim).pooled
    assert median == pytest.approx([np.median(o) for o in others])
    assert trimmed == pytest.approx([trim_mean(o, trim) for o in others])


def test_a_tied_pool_chooses_the_first_method():
    found = leave_one_system_out(np.array([0.0, -0.4]), np.array([3, 3]))
    assert found.regret == pytest.approx([0.0, 0.4])


@given(effects)
@settings(max_examples=60, deadline=None)
def test_regret_is_what_is_lost_and_turning_the_pair_changes_nothing_but_ties(effect):
    sizes = np.ones(len(effect), dtype=int)
    found = leave_one_system_out(effect, sizes)
    assert ((found.regret == 0) | (np.isclose(found.regret, np.abs(effect)))).all()
    if (np.abs(found.pooled) > 1e-9).all():
        assert leave_one_system_out(-effect, sizes).regret == pytest.approx(found.regret)


def test_leaving_two_out_pools_the_rest():
    found = leave_two_out(EFFECT)
    # Systems 0 and 1 out: the rest pools to -0.175, the second method is chosen, 0.3 is lost on system 0.
    assert found.pooled[0] == pytest.approx([-0.175, -0.175])
    assert found.regret[0] == pytest.approx([0.3, 0])
    assert found.regret.shape == (6, 2)


def test_leaving_a_family_out():
    found = leave_one_family_out(np.array([0.3, 0.1, -0.2, -0.2, 0.1]), ("x", "x", "y", "y", "z"))
    assert found.pooled == pytest.approx([-0.1, 0.5 / 3, 0.0])
    assert found.regret == pytest.approx([0.2, 0.2, 0.0])


def test_the_choice_among_all_methods():
    means = np.array([[0.9, 0.5, 0.1], [0.2, 0.5, 0.1], [0.2, 0.5, 0.9]])
    found = leave_one_system_out_best(means)
    assert found.chosen.tolist() == [1, 0, 0]
    assert found.regret == pytest.approx([0.4, 0.3, 0.7])


def test_family_spread_by_hand():
    # Grand mean 0.1; families 0.2 and 0.0 of two each: between 2 (0.01) + 2 (0.01) = 0.04; total 0.04 + 0 + 0.09 + 0.09.
    found = family_spread(np.array([0.3, 0.1, 0.4, -0.4]), ("x", "x", "y", "y"))
    assert found.between_share == pytest.approx(0.04 / (0.04 + 0 + 0.09 + 0.25))
    assert (found.sign_changes, found.families) == (1, 2)
    assert found.max_range == pytest.approx(0.8)
    assert family_spread(np.zeros(3), ("x", "x", "y")).between_share is None


def test_stability_counts_resamples():
    drawn = np.array([[0.3, -0.2, -0.1], [-0.1, -0.2, 0.3], [0.2, -0.3, 0.0], [0.2, 0.1, 0.3]])
    found = reversal_stability(np.array([0.2, -0.2, 0.0]), drawn)
    assert found.winner_kept == pytest.approx([0.75, 0.75, 0.25])
    # System 0 is reversed where it is above zero and the others pool below zero: rows 0 and 2.
    assert found.reversal_kept[0] == pytest.approx(0.5 + 0.25)
