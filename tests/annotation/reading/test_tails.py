"""Tail probabilities against scipy.stats."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from opsassay.annotation.reading.tails import beta_binomial_at_least, binomial_at_most, hypergeometric_at_least


@st.composite
def draws(draw):
    population = draw(st.integers(1, 3000))
    return draw(st.integers(0, 3000)), population, draw(st.integers(0, population)), draw(st.integers(0, population))


def columns(rows):
    return (np.array(column, dtype=float) for column in zip(*rows, strict=True))


@given(st.lists(draws(), min_size=1, max_size=20))
def test_hypergeometric_tails(rows):
    k, population, marked, drawn = columns(rows)
    k = np.minimum(k, np.minimum(marked, drawn))
    k = np.maximum(k, marked + drawn - population)
    at_least = hypergeometric_at_least(k, population, marked, drawn)
    assert at_least == pytest.approx(stats.hypergeom.sf(k - 1, population, marked, drawn), rel=1e-7, abs=1e-12)


def test_a_far_tail_keeps_its_digits():
    (found,) = hypergeometric_at_least(*(np.array([float(v)]) for v in (400, 100_000, 500, 10_000)))
    assert found == pytest.approx(stats.hypergeom.sf(399, 100_000, 500, 10_000), rel=1e-6)
    assert 0 < found < 1e-100


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 400), st.floats(0.01, 50), st.floats(0.01, 500)),
        min_size=1,
        max_size=20,
    )
)
def test_beta_binomial_tail(rows):
    hits, more, a, b = columns(rows)
    found = beta_binomial_at_least(hits, hits + more, a, b)
    assert found == pytest.approx(stats.betabinom.sf(hits - 1, hits + more, a, b), rel=1e-6, abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 20_000), st.floats(0, 1)), min_size=1), st.floats(0.001, 0.999))
def test_binomial_tail(rows, p):
    n = np.array([draws for draws, _ in rows], dtype=float)
    k = np.floor(n * np.array([share for _, share in rows]))
    assert binomial_at_most(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), abs=1e-8)


def test_no_rows():
    none = np.zeros(0)
    assert beta_binomial_at_least(none, none, none, none).shape == (0,)
    assert hypergeometric_at_least(none, none, none, none).shape == (0,)
