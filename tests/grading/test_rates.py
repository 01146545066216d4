import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from opsassay.grading.rates import wilson


@given(st.integers(1, 5000), st.floats(0, 1))
def test_the_interval_is_the_peers_to_1e_9(n, share):
    assert wilson(share * n, n) == pytest.approx(proportion_confint(share * n, n, method="wilson"), abs=1e-9)


def test_nothing_tried_says_nothing():
    assert wilson(0, 0) == (0.0, 1.0)
