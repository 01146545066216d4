"""Detectors against hand calculations and scipy."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from opsassay.annotation.evidence.detectors import (
    Severity,
    adaptive_multiplier,
    percentile_severity,
    z_score,
    z_severity,
)
from opsassay.annotation.evidence.states import NANO, SPAN_WINDOW_S, beyond_percentiles
from opsassay.annotation.evidence.thresholds import Thresholds


def test_z_score_agrees_with_scipy():
    sample = np.array([3.0, 4.5, 5.0, 7.25, 9.0])
    assert z_score(sample, sample.mean(), sample.std()) == pytest.approx(stats.zscore(sample))


def test_z_score_of_a_constant_baseline_divides_by_epsilon():
    assert z_score([2.0], 1.0, 0.0) == pytest.approx([1e6])


def test_z_severity_changes_above_each_limit():
    assert z_severity([1.5, 1.6, 2.0, 2.1, 3.0, 3.1], 0.0, 1.0).tolist() == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (9.0, Severity.NONE),
        (10.5, Severity.MODERATE),  # above P90
        (20.5, Severity.WARNING),  # above P99
        (41.0, Severity.CRITICAL),  # above 2 x P99, although below P99.9
    ],
)
def test_percentile_severity(value, expected):
    assert percentile_severity([value], p90=10.0, p99=20.0, p999=50.0).tolist() == [expected]


def test_percentile_severity_of_narrow_tails_uses_the_multiples():
    assert percentile_severity([99.0, 101.0, 149.0, 151.0, 201.0], 95.0, 100.0, 300.0).tolist() == [1, 2, 2, 2, 3]


def test_adaptive_multiplier_by_hand():
    # l_base = l_ref and cv = alpha: 1.5 + 3 (1 - 1/e)
    assert adaptive_multiplier(0.2, 0.15) == pytest.approx(1.5 + 3 * (1 - math.exp(-1)))
    # 20 ms without spread: 1.5 * 10^0.6
    assert adaptive_multiplier(0.02, 0.0) == pytest.approx(1.5 * 10**0.6)


def test_adaptive_multiplier_never_calls_any_rise_of_a_slow_service_slow():
    assert adaptive_multiplier(60.0, 0.0) == pytest.approx(1.2)


@given(st.floats(1e-4, 100), st.floats(1e-4, 100), st.floats(0, 5), st.floats(0, 5))
def test_adaptive_multiplier_falls_with_latency_and_rises_with_spread(a, b, cv, more):
    low, high = sorted((a, b))
    assert adaptive_multiplier(low, cv) >= adaptive_multiplier(high, cv) > 1
    assert adaptive_multiplier(low, cv + more) >= adaptive_multiplier(low, cv)


def test_error_counts_of_the_paper_are_held_against_the_percentiles_of_the_baselines_windows():
    width = int(SPAN_WINDOW_S * NANO)

    def calls(node, failures):
        """A call and so many failed ones in each window from 0 on."""
        rows = [(node, w * width + i, i < count) for w, count in enumerate(failures) for i in range(count + 1)]
        return pl.DataFrame(rows, schema=["node", "time_ns", "felt_failed"], orient="row")

    normal = pl.concat([calls("steady", [0] * 40), calls("noisy", [3, 4] * 20)])
    now = pl.concat([calls("steady", [0, 0, 1]), calls("noisy", [4, 4, 4]), calls("new", [0, 2])])
    found = beyond_percentiles(now, normal, "felt_failed", Thresholds())
    assert found == {"new": width, "steady": 2 * width}  # one failure where none was, not a count as it always is
    assert beyond_percentiles(calls("noisy", [0, 5]), normal, "felt_failed", Thresholds()) == {"noisy": width}
