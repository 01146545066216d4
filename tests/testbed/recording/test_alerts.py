"""Golden-signal alerts on hand-made streams."""

from __future__ import annotations

import polars as pl
import pytest

from opsassay.model.incident import Window
from opsassay.model.system import Slo
from opsassay.testbed.recording.alerts import alerts, describe

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
USUAL = Window(start_ns=START, end_ns=START + 40 * SECOND)
END = START + 80 * SECOND


def stream(rate=4, *, service="cart", from_s=0, to_s=80, ms=10.0, failed=False):
    """Return evenly spaced server spans of one service."""
    times = [START + int((from_s + i / rate) * SECOND) for i in range(int((to_s - from_s) * rate))]
    return pl.DataFrame(
        {
            "time": times,
            "duration": [int(ms * 1e6)] * len(times),
            "service_name": service,
            "attr.span_kind": "Server",
            "attr.status_code": "Error" if failed else "Unset",
        }
    ).with_columns(pl.col("time").cast(pl.Datetime("ns", "UTC")), pl.col("duration").cast(pl.UInt64))


def readings(level, *, from_s=0, to_s=80):
    times = [START + s * SECOND for s in range(from_s, to_s, 2)]
    return pl.DataFrame(
        {
            "time": times,
            "metric": "container.cpu.limit_utilization",
            "value": [level] * len(times),
            "service_name": "cart",
            "attr.k8s.pod.name": "cart-1",
        }
    ).with_columns(pl.col("time").cast(pl.Datetime("ns", "UTC")))


def fired(*parts, metrics=None):
    return alerts(pl.concat(parts), readings(0.1) if metrics is None else metrics, Slo(), USUAL, END)


def test_a_quiet_stream_fires_nothing():
    assert fired(stream()) == []


def test_errors_fire_with_their_share_and_time():
    found = fired(stream(to_s=50), stream(from_s=50, failed=True))
    assert [(a.service, a.signal) for a in found] == [("cart", "error_rate")]
    assert found[0].threshold == pytest.approx(0.05)
    # The first tick with three errors: at 4 requests/s the third ends at 50.51 s, ticks are every two seconds.
    assert (found[0].time_ns - START) / SECOND == pytest.approx(52)
    assert found[0].value == pytest.approx(8 / 40, abs=0.03)


def test_slow_requests_fire_on_p99():
    found = fired(stream(to_s=50), stream(from_s=50, ms=400))
    assert [(a.service, a.signal) for a in found] == [("cart", "latency_p99_ms")]
    assert found[0].threshold == 100.0  # three times the usual 10 ms is under the floor
    assert found[0].value > 300


def test_a_service_that_falls_silent_fires_on_traffic():
    found = fired(stream(to_s=50))
    assert [a.signal for a in found] == ["traffic_rps"]
    assert found[0].threshold == pytest.approx(2.0)
    assert 54 <= (found[0].time_ns - START) / SECOND <= 58  # half of the ten-second window is empty


def test_saturation_needs_three_readings_in_a_row():
    hot = pl.concat([readings(0.1, to_s=60), readings(0.95, from_s=60)])
    blip = pl.concat([readings(0.1, to_s=60), readings(0.95, from_s=60, to_s=63), readings(0.1, from_s=64)])
    assert [a.signal for a in fired(stream(), metrics=hot)] == ["saturation"]
    assert fired(stream(), metrics=blip) == []


def test_each_service_and_signal_fires_once_and_the_words_say_what():
    found = fired(stream(to_s=50), stream(from_s=50, failed=True), stream(service="ads"))
    assert len(found) == 1
    words = describe(found)
    assert "cart" in words
    assert "of requests fail" in words
    assert "Find the root cause" in words
    assert "No alert fired" in describe([])
