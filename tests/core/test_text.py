"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.core.text import number_text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1926.3, 3, "1,926"), (1170.0, 3, "1,170"), (999.7, 3, "1,000"), (999.7, 4, "999.7"), (0.371, 3, "0.371"),
        (2000.0, 4, "2,000"), (-12345.6, 3, "-12,346"), (0.0, 3, "0"), (1e15, 3, "1e+15"), (math.inf, 3, "inf"),
    ],
)  # fmt: skip
def test_a_thousand_and_more_is_written_whole(value, digits, text):
    assert number_text(value, digits) == text


@given(st.floats(min_value=1e-3, max_value=9e14), st.sampled_from((3, 4)))
def test_no_number_that_people_meet_has_an_exponent_and_all_are_near(value, digits):
    text = number_text(value, digits)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
