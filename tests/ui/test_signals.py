"""Topology and golden signals against hand calculations."""

from __future__ import annotations

import polars as pl
import pytest

from opsassay.core.schema.incident import Window
from opsassay.ui.signals import bucket_seconds, golden_signals, linked_spans, topology

from .cases import S

NORMAL = Window(start_ns=1_000 * S, end_ns=1_010 * S)
ABNORMAL = Window(start_ns=1_010 * S, end_ns=1_020 * S)


def span(at_s, service, span_id, parent="", *, ms=10.0, kind="Server", status="Unset", http=None, period="normal"):
    return {
        "period": period,
        "time": int(at_s * S),
        "trace_id": "t",
        "span_id": span_id,
        "parent_span_id": parent,
        "service_name": service,
        "duration": int(ms * 1e6),
        "attr.span_kind": kind,
        "attr.status_code": status,
        "attr.http.response.status_code": http,
    }


def frame(*rows) -> pl.LazyFrame:
    return pl.DataFrame(rows, schema_overrides={"attr.http.response.status_code": pl.UInt16}).lazy()


def signals_of(*rows, services=("a", "b"), normal=NORMAL, abnormal=ABNORMAL):
    return golden_signals(linked_spans(frame(*rows), services), normal, abnormal)


def test_rate_error_share_and_latency_of_a_bucket_are_those_counted_by_hand():
    found = signals_of(
        span(1000.1, "a", "1", ms=10),
        span(1001.9, "a", "2", ms=30, status="Error"),
        span(1000.5, "a", "3", ms=20, http=503),
        span(1001.0, "a", "4", ms=40, http=404),
        span(1012.0, "a", "5", ms=70, period="abnormal"),
    )
    assert found.bucket_s == 2
    assert found.times_ns == tuple(t * S for t in range(1000, 1020, 2))
    (a,) = found.services
    assert a.requests_per_s == (2.0, 0, 0, 0, 0, 0, 0.5, 0, 0, 0)
    assert a.error_share == (0.5, None, None, None, None, None, 0.0, None, None, None)
    assert a.latency_p99_ms[0] == 40
    assert a.latency_p50_ms[0] in {20, 30}
    assert a.latency_p99_ms[6] == 70


def test_only_server_and_consumer_spans_are_requests_where_a_recording_has_kinds():
    found = signals_of(
        span(1000, "a", "1", kind="SPAN_KIND_SERVER"),
        span(1000, "a", "2", "1", kind="Client"),
        span(1000, "b", "3", "2", kind="CONSUMER"),
        span(1000, "b", "4", "3", kind="Internal"),
    )
    assert [(s.service, s.requests_per_s[0]) for s in found.services] == [("a", 0.5), ("b", 0.5)]


@pytest.mark.parametrize("kind", [None, "", "Internal"])
def test_without_kinds_a_span_that_enters_a_service_is_a_request(kind):
    found = signals_of(
        span(1000, "a", "1", kind=kind),
        span(1000, "a", "2", "1", kind=kind),
        span(1000, "b", "3", "2", kind=kind),
        span(1000, "b", "4", "3", kind=kind),
        span(1000, "b", "5", "lost", kind=kind),
    )
    assert [(s.service, s.requests_per_s[0]) for s in found.services] == [("a", 0.5), ("b", 1.0)]


def test_optional_columns_may_be_missing_and_time_may_be_a_datetime():
    spans = frame(span(1000, "a", "1"), span(1000, "b", "2", "1")).drop(
        "attr.span_kind", "attr.status_code", "attr.http.response.status_code"
    )
    spans = spans.with_columns(pl.col("time").cast(pl.Datetime("ns", "UTC")))
    found = golden_signals(linked_spans(spans, ["a", "b"]), NORMAL, ABNORMAL)
    assert [(s.service, s.requests_per_s[0], s.error_share[0]) for s in found.services] == [
        ("a", 0.5, 0),
        ("b", 0.5, 0),
    ]


def test_a_normal_window_recorded_later_still_comes_first():
    found = signals_of(
        span(1000, "a", "1", period="abnormal"),
        span(1011, "a", "2"),
        span(1011, "a", "3"),
        normal=Window(start_ns=1_010 * S, end_ns=1_014 * S),
        abnormal=Window(start_ns=1_000 * S, end_ns=1_004 * S),
    )
    assert found.times_ns == (1010 * S, 1012 * S, 1000 * S, 1002 * S)
    assert found.services[0].requests_per_s == (1.0, 0, 0.5, 0)


def test_spans_outside_their_window_are_not_counted():
    found = signals_of(span(999, "a", "1"), span(1011, "a", "2"), span(1009.9, "a", "3"))
    assert sum(found.services[0].requests_per_s) * found.bucket_s == 1


def test_calls_are_counted_per_window_and_calls_within_a_service_are_none():
    spans = linked_spans(
        frame(
            span(1000, "a", "1"),
            span(1000, "b", "2", "1"),
            span(1000, "b", "3", "1"),
            span(1000, "b", "4", "2"),
            span(1011, "b", "5", "1", period="abnormal"),
        ),
        ["a", "b", "idle"],
    )
    graph = topology(spans, ["a", "b", "idle"])
    assert [(c.caller, c.callee, c.calls_normal, c.calls_abnormal) for c in graph.calls] == [("a", "b", 2, 1)]
    assert graph.services == ("a", "b", "idle")
    assert graph.entry == "a"


def test_a_load_generator_is_neither_a_service_nor_the_entry():
    spans = linked_spans(frame(span(1000, "locust", "1", kind="Client"), span(1000, "a", "2", "1")), ["a"])
    graph = topology(spans, ["a"])
    assert (graph.services, graph.calls, graph.entry) == (("a",), (), "a")


def test_no_spans_give_no_signals():
    empty = frame(span(1000, "a", "1")).filter(pl.lit(value=False))
    spans = linked_spans(empty, [])
    assert golden_signals(spans, NORMAL, ABNORMAL).services == ()
    assert topology(spans, []).entry is None


@pytest.mark.parametrize(("total_s", "width_s"), [(10, 2), (300, 2), (301, 3), (600, 4), (3000, 5), (6000, 10)])
def test_buckets_are_two_to_five_seconds_until_there_would_be_too_many(total_s, width_s):
    assert bucket_seconds(total_s) == width_s
