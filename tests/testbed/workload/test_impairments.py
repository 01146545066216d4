"""What packet faults cost a byte stream, by hand."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from opsassay.testbed.workload.runtime.impairments import Bandwidth, Loss, next_resend_s, resend_times


def test_resends_double_from_200_ms():
    assert list(itertools.islice(resend_times(0.2), 4)) == pytest.approx([0.2, 0.6, 1.4, 3.0])
    assert next_resend_s(0.0) == pytest.approx(0.2)
    assert next_resend_s(1.0) == pytest.approx(0.4)  # the third is sent 1.4 s after the first


def test_a_lossy_link_costs_what_the_share_says():
    random.seed(1)
    lags = [Loss(0.3).lag_s(500, 0.0) for _ in range(20_000)]
    assert sum(lag > 0 for lag in lags) / len(lags) == pytest.approx(0.3, abs=0.02)
    assert sum(lag > 0.3 for lag in lags) / len(lags) == pytest.approx(0.09, abs=0.01)  # lost twice
    assert set(lags) <= {0.0, *itertools.accumulate(0.2 * 2**n for n in range(15))}
    large = [Loss(0.3).lag_s(3 * 1448, 0.0) for _ in range(20_000)]  # three packets, each may be lost
    assert sum(lag > 0 for lag in large) / len(large) == pytest.approx(1 - 0.7**3, abs=0.02)
    assert Loss(0.0).lag_s(10_000, 0.0) == 0.0
    assert Loss(1.0).lag_s(1, 0.0) == math.inf


def test_all_links_of_a_narrow_wire_share_it():
    wire = Bandwidth(1000.0)
    assert wire.lag_s(500, 10.0) == pytest.approx(0.5)
    assert wire.lag_s(500, 10.0) == pytest.approx(1.0)  # behind the first
    assert wire.lag_s(500, 20.0) == pytest.approx(0.5)  # free again
