"""The normal window is judged by what users saw in it, before anything is broken."""

from __future__ import annotations

import polars as pl
import pytest

from opsassay.core.errors import NotNormalError
from opsassay.core.schema.incident import Window
from opsassay.core.schema.system import Slo
from opsassay.telemetry.schema import empty
from opsassay.testbed.recording.baseline import measure, user_requests

SECOND = 10**9
WINDOW = Window(start_ns=0, end_ns=31 * SECOND)
SLO = Slo(latency_p99_ms=1000)


def objection(requests: int = 300, failed: int = 0, slow: int = 0, slow_ms: int = 3000, late_services: int = 0) -> str:
    """Return what is said of a window of 10 requests a second, of which so many failed or were slow."""
    rows = [
        {
            "time": n * 30 * SECOND // max(requests, 1),
            "duration": (slow_ms if n < slow else 20) * 10**6,
            "parent_span_id": "",
            "service_name": "loadgenerator",
            "attr.span_kind": "Client",
            "attr.status_code": "Error" if n < failed else "Ok",
        }
        for n in range(requests)
    ]
    rows += [
        {
            "time": n * SECOND // 10,
            "duration": (400 if n > 220 and s < late_services else 10) * 10**6,
            "parent_span_id": "x",
            "service_name": f"service-{s}",
            "attr.span_kind": "Server",
            "attr.status_code": "Ok",
        }
        for s in range(3)
        for n in range(300)
    ]
    traces = pl.DataFrame(rows, schema_overrides={"duration": pl.UInt64}).with_columns(
        pl.col("time").cast(pl.Datetime("ns", "UTC"))
    )
    usual = Window(start_ns=0, end_ns=20 * SECOND)
    frames = {"traces": traces, "metrics": empty("metrics")}
    return measure(frames, SLO, WINDOW, reference=usual, rate_rps=10.0, free_cores=0.2).objection(SLO)


def test_a_healthy_window_is_normal():
    assert objection() == ""
    assert objection(failed=12, slow=2) == "", "what the objective allows is normal"


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ({"requests": 200}, "200 of 300 user requests were answered, 0.2 of"),
        ({"requests": 0}, "0 of 300 user requests were answered"),
        ({"failed": 30}, "10% of the user requests failed"),
        ({"slow": 30}, "p99 latency for users was 3000 ms (limit 1000 ms)"),
        ({"late_services": 2}, "2 alerts fired, the first on service-0: p99 latency 400 ms"),
    ],
)
def test_what_is_not_normal_is_said(window, words):
    said = objection(**window)
    assert words in said
    assert "processors were free" in said
    assert said in str(NotNormalError(said))


def test_one_alert_is_what_chance_brings():
    assert objection(late_services=1) == ""


def test_without_a_load_generator_users_are_what_reached_the_entries_from_outside():
    spans = [
        ("t1", "a", "", "front", "Server"), ("t1", "b", "a", "front", "Client"), ("t1", "c", "b", "back", "Server"),
        ("t1", "d", "c", "front", "Server"), ("t2", "e", "from k6", "front", "Server"),
        ("t3", "f", "", "loadgenerator", "Client"),
    ]  # fmt: skip
    columns = ["trace_id", "span_id", "parent_span_id", "service_name", "attr.span_kind"]
    traces = pl.DataFrame(spans, schema=columns, orient="row")
    assert set(user_requests(traces, {"front"})["span_id"]) == {"a", "e"}, "what back called is none of users"
    assert user_requests(traces, ())["span_id"].to_list() == ["f"]
