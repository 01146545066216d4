"""Since when resources deviate: windows of five seconds, wider where samples are farther apart."""

from __future__ import annotations

import polars as pl
import pytest

from opsassay.annotation.evidence.metrics import raised, resource_states
from opsassay.annotation.evidence.thresholds import ResourceThresholds

NANO = 1_000_000_000
BEGAN_S = 1_000


def samples(metric, every_s, level, pod="cart-0", host="host-a"):
    """Return a minute before and a minute after BEGAN_S of *metric*, which is *level* of the second."""
    rows = [
        {
            "time": second * NANO,
            "period": "normal" if second < BEGAN_S else "abnormal",
            "metric": metric,
            "value": level(second),
            "service_name": "cart" if pod else "",
            "attr.k8s.pod.name": pod,
            "attr.k8s.node.name": host,
        }
        for second in range(BEGAN_S - 60, BEGAN_S + 60, every_s)
    ]
    schema = {"attr.k8s.pod.name": pl.String, "value": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=schema).with_columns(pl.col("time").cast(pl.Datetime("ns", "UTC")))


def rising(second):
    return 0.9 if second >= BEGAN_S + 17 else 0.05 + 0.001 * (second % 3)


@pytest.mark.parametrize(("every_s", "onset_s", "width_s"), [(1, 20, 5), (5, 20, 5), (12, 24, 12)])
def test_the_onset_is_the_first_window_that_is_high(every_s, onset_s, width_s):
    """At 17 s it rises: the window of 15 to 20 s has two low samples of five, or none."""
    found = resource_states(samples("container.cpu.usage", every_s, rising), BEGAN_S * NANO, ResourceThresholds())
    assert set(found) == {"container|cart", "pod|cart-0"}
    early = every_s == 1  # three of the five samples of that window are high
    for state in found.values():
        assert state.reasons == {"cpu"}
        assert state.onsets["cpu"] == (BEGAN_S + (15 if early else onset_s)) * NANO
        assert state.width_ns == width_s * NANO


def test_hosts_memory_and_restarts_have_onsets_too():
    tables = [
        samples("k8s.node.cpu.usage", 5, rising, pod=None),
        samples("container.memory.working_set", 5, lambda s: (100 + 400 * (s >= BEGAN_S + 30)) * 2**20),
        samples("k8s.container.restarts", 5, lambda s: float(s >= BEGAN_S + 42)),
    ]
    found = resource_states(pl.concat(tables), BEGAN_S * NANO, ResourceThresholds())
    onsets = {name: {k: v // NANO - BEGAN_S for k, v in state.onsets.items()} for name, state in found.items()}
    of_pod = {"mem": 30, "restart": 45}
    assert onsets == {"node|host-a": {"cpu": 20}, "pod|cart-0": of_pod, "container|cart": of_pod}


def test_noise_has_no_onset():
    calm = samples("container.cpu.usage", 1, lambda second: 0.5 + 0.05 * (second % 3))
    assert resource_states(calm, BEGAN_S * NANO, ResourceThresholds()) == {}


USUAL = [0.00058, 0.00061, 0.0006, 0.00063, 0.0005]


def readings(normal, abnormal):
    """Return processor use and the share of a limit of 0.02 cores, a reading a minute, of cart."""
    rows = [
        (metric, period, value / of)
        for metric, of in (("k8s.pod.cpu.usage", 1.0), ("k8s.pod.cpu_limit_utilization", 0.02))
        for period, values in (("normal", normal), ("abnormal", abnormal))
        for value in values
    ]
    table = pl.DataFrame(rows, ["metric", "period", "value"], orient="row")
    return table.with_columns(service_name=pl.lit("cart"), **{"attr.k8s.pod.name": pl.lit("cart-0")})


@pytest.mark.parametrize("odd", [[], [0.02], [0.0], [float("nan")]])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_an_odd_reading_before_hides_no_processor_at_its_limit(count, odd):
    if odd == [0.02] and count < 2:
        pytest.skip("of two readings none is the odd one")
    table = readings(USUAL[:count] + odd, [0.0008, 0.0178, 0.0179])
    found = raised(table, "cart", "cpu", ResourceThresholds())
    assert found.passed
    assert found.used_up


@pytest.mark.parametrize("normal", [USUAL, USUAL[:2], USUAL[:1]])
def test_readings_that_differ_by_their_resolution_are_no_rise(normal):
    limits = ResourceThresholds(cpu_cores=0.0, cpu_ratio=1.0)
    assert not raised(readings(normal, [0.0012, 0.0011]), "cart", "cpu", limits).passed
