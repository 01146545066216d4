"""Golden-signal alerts on hand-made streams."""

from __future__ import annotations

import polars as pl
import pytest

from opsassay.core.schema.incident import Window
from opsassay.core.schema.system import Slo
from opsassay.testbed.recording.alerts import alerts, describe, firing, usual_values

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
            "trace_id": [f"trace-{i}" for i in range(len(times))],
            "span_id": "1",
            "parent_span_id": "",
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


def lending(*parts, limit=0.5, pod="cart-1"):
    """Return readings of a pod over *parts*: from and to (s), the cores that it uses and those that it waits for."""
    seconds = [(s, used, waits) for from_s, to_s, used, waits in parts for s in range(from_s, to_s, 2)]
    waited = [sum(2 * waits for _, _, waits in seconds[: i + 1]) for i in range(len(seconds))]
    values = {
        "container.cpu.limit_utilization": [used / limit for _, used, _ in seconds],
        "container.cpu.usage": [used for _, used, _ in seconds],
        "container.cpu.runqueue.time": waited,
    }
    one = readings(0.0, from_s=0, to_s=2 * len(seconds)).with_columns(
        pl.Series("time", [START + s * SECOND for s, _, _ in seconds]).cast(pl.Datetime("ns", "UTC")),
        pl.lit(pod).alias("attr.k8s.pod.name"),
    )
    tables = {"metrics": [], "metrics_sum": []}
    for name, read in values.items():
        table = tables["metrics_sum" if name.endswith(".time") else "metrics"]
        table.append(one.with_columns(pl.Series("value", read, pl.Float64), metric=pl.lit(name)))
    return {name: pl.concat(parts) for name, parts in tables.items()}


def both(*tables):
    return {name: pl.concat([one[name] for one in tables]) for name in ("metrics", "metrics_sum")}


def still(metrics, *, at_s=79, saturated=("cart",)):
    traces = stream(to_s=100)
    slo, baseline = Slo(saturation=0.9), usual_values(traces, USUAL)
    found = firing({"traces": traces, **metrics}, slo, baseline, START + at_s * SECOND, saturated)
    return [(alert.service, alert.signal, round(alert.value, 2)) for alert in found]


def test_what_others_take_from_a_pod_that_exhausts_its_limit_does_not_clear_its_alert():
    less = lending((60, 80, 0.3, 0.7))
    assert still(less, saturated=()) == []  # nobody fires for what others do
    assert still(less) == [("cart", "saturation", 2.0)]
    assert still(lending((60, 72, 0.1, 0.9), (72, 80, 0.0, 1.0))) == [("cart", "saturation", 2.0)]
    assert (
        still(lending((60, 80, 0.0, 1.0))) == []
    )  # what share of its limit that is cannot be said without any use of it


def test_an_alert_clears_once_a_pod_wants_less_than_its_limit_however_busy_others_are():
    assert still(lending((60, 80, 0.05, 0.3))) == []
    repaired = lending((60, 76, 0.5, 0.5), (76, 80, 0.02, 0.1))
    assert still(repaired, at_s=75) == [("cart", "saturation", 1.0)]
    assert still(repaired) == []
    assert still(both(lending((60, 70, 0.5, 0.5)), lending((70, 80, 0.02, 0.1)))) == []  # its counter began anew
    restarted_in_vain = both(lending((60, 70, 0.2, 0.8)), lending((70, 80, 0.2, 0.8)))
    assert still(restarted_in_vain, at_s=75) == [("cart", "saturation", 2.0)]


def test_an_alert_holds_until_a_reading_says_otherwise():
    late = lending((60, 74, 0.5, 0.5))
    assert still(late, saturated=()) == []
    assert still(late) == [("cart", "saturation", 1.0)]
    assert still(late, at_s=90) == []  # there is nothing of it in the window
    full = readings(0.95, from_s=60, to_s=74).with_columns(metric=pl.lit("container.memory.limit_utilization"))
    assert still({"metrics": full, "metrics_sum": full.clear()}) == [("cart", "saturation", 0.95)]
    assert still(both(late, lending((60, 80, 0.02, 0.0), pod="cart-2"))) == [("cart", "saturation", 1.0)]


def test_each_service_and_signal_fires_once_and_the_words_say_what():
    found = fired(stream(to_s=50), stream(from_s=50, failed=True), stream(service="ads"))
    assert len(found) == 1
    words = describe(found)
    assert "cart" in words
    assert "of requests fail" in words
    assert "Find the root cause" in words
    assert "No alert fired" in describe([])
