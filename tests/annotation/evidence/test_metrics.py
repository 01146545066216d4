"""Since when resources deviate: windows of five seconds, wider where samples are farther apart."""

from __future__ import annotations

import polars as pl
import pytest

from opsassay.annotation.evidence.metrics import resource_states
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
