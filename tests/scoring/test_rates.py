import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.scoring.figures import difference_text
from opsassay.scoring.rates import estimate_of, mean_of, share_of, wilson


@given(st.integers(1, 5000), st.floats(0, 1))
def test_the_interval_is_the_peers_to_1e_9(n, share):
    from statsmodels.stats.proportion import proportion_confint

    assert wilson(share * n, n) == pytest.approx(proportion_confint(share * n, n, method="wilson"), abs=1e-9)


def test_nothing_tried_says_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_a_share_has_the_interval_of_its_mean_and_it_is_never_a_point(values):
    found = share_of(values)
    assert (found.low, found.high) == pytest.approx(wilson(sum(values), len(values)))
    assert found.low < found.high


def test_equal_weights_change_nothing_and_unequal_ones_leave_fewer_cases():
    assert share_of([0, 1, 1], [5, 5, 5]) == share_of([0, 1, 1])
    weighted = share_of([0, 1], [1, 3])  # mean 3/4 over 16/10 cases
    assert (weighted.low, weighted.high) == pytest.approx(wilson(0.75 * 1.6, 1.6))
    assert share_of([], []) is share_of([1.0], [0.0]) is None


def test_a_figure_is_written_in_one_way():
    assert estimate_of([0.0], share=True).text == "0.0% [0.0, 79.3]"
    assert estimate_of([0.0], share=True).text_with_n == "0.0% [0.0, 79.3] (1)"
    assert estimate_of([12.0, 12.0], share=False).text == "12"
    assert mean_of([[1.0, 4.0]]).text == "2.5 [1, 4]"
    assert estimate_of([0.5, 3.0], share=True).share is False  # no share: it is beyond 1
    assert difference_text(-0.083, -0.2, 0.041, share=True) == "-8.3 pp [-20.0, +4.1]"
    assert difference_text(2.5, None, None, share=False) == "+2.5"
