"""Jaeger's query API over HTTP: its shapes, its searches, its errors."""

from __future__ import annotations

import json

import pytest

from telemetry.backends.recordings import AWKWARD, START_S, got, recorded, served
from telemetry.packs import make_pack

MS = 10**6


def span(trace, span_id, parent, service, at_s, ms, **further):
    return {"trace_id": trace, "span_id": span_id, "parent_span_id": parent, "service_name": service, "time_s": at_s,
            "duration": ms * MS, "span_name": f"GET /{service}", "attr.span_kind": "Server", **further}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    bad = {"attr.status_code": "Error", "attr.http.response.status_code": 500}
    spans = [
        span("a1", "1", "", "front", 10, 30, **{"attr.k8s.pod.name": "front-0", "attr.http.request.method": "GET"}),
        span("a1", "2", "1", "back", 11, 20, **bad),
        span("a1", "3", "2", "back", 12, 5),
        span("b2", "4", "", "front", 20, 300, **{"attr.status_code": "Ok"}),
        span("b2", "5", "4", "back", 21, 250),
        span("c3", "6", "", "front", 30, 3, span_name="POST /front"),
        span("d4", "7", "", AWKWARD, 40, 3, **{"attr.note": AWKWARD}),
    ]
    with served(recorded(tmp_path_factory.mktemp("r") / "incident", [], spans=spans)) as url:
        yield url


def ids(url, expected=200, **parameters):
    return [trace["traceID"] for trace in got(url, "/api/traces", expected, **parameters)["data"]]


def us(second):
    return (START_S + second) * 10**6


def test_services_and_operations(url):
    found = got(url, "/api/services")
    assert found == {"data": ["back", "front", AWKWARD], "total": 3, "limit": 0, "offset": 0, "errors": None}
    assert got(url, "/api/services/front/operations")["data"] == ["GET /", "GET /front", "POST /front"]
    assert got(url, "/api/services/none/operations")["data"] == []
    pairs = got(url, "/api/operations", service="back", spanKind="server")["data"]
    assert pairs == [{"name": "GET /back", "spanKind": "server"}]


def test_a_trace_has_jaegers_shape(url):
    (trace,) = got(url, "/api/traces/a1")["data"]
    assert trace.keys() == {"traceID", "spans", "processes", "warnings"}
    first, second, third = trace["spans"]
    assert first == {
        "traceID": "a1", "spanID": "1", "flags": 1, "operationName": "GET /front", "references": [], "startTime": us(10),
        "duration": 30_000, "logs": [], "processID": "p1", "warnings": None,
        "tags": [
            {"key": "span.kind", "type": "string", "value": "server"},
            {"key": "http.request.method", "type": "string", "value": "GET"},
        ],
    }  # fmt: skip
    assert second["references"] == [{"refType": "CHILD_OF", "traceID": "a1", "spanID": "1"}]
    assert {tag["key"]: (tag["type"], tag["value"]) for tag in second["tags"]} == {
        "span.kind": ("string", "server"), "error": ("bool", True), "otel.status_code": ("string", "ERROR"),
        "http.response.status_code": ("int64", 500),
    }  # fmt: skip
    assert trace["processes"] == {
        "p1": {"serviceName": "front", "tags": [{"key": "k8s.pod.name", "type": "string", "value": "front-0"}]},
        "p2": {"serviceName": "back", "tags": []},
    }
    assert third["processID"] == "p2"


def test_a_search_finds_whole_traces_latest_first(url):
    assert ids(url, service="front", operation="GET /front") == ["b2", "a1"]
    assert ids(url, service="front", end=us(100)) == ["c3", "b2", "a1"]
    assert ids(url, service="front", end=us(100), limit=1) == ["c3"]
    assert ids(url, service="none") == []
    found = got(url, "/api/traces", service="back", limit=1)["data"][0]
    assert [one["spanID"] for one in found["spans"]] == ["4", "5"]


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ({"minDuration": "25ms"}, ["b2", "a1"]),
        ({"minDuration": "0.1s"}, ["b2"]),
        ({"maxDuration": "3000us"}, ["c3"]),
        ({"minDuration": "3ms", "maxDuration": "30ms"}, ["c3", "a1"]),
        ({"start": us(15), "end": us(25)}, ["b2"]),
        ({"tags": '{"k8s.pod.name":"front-0"}'}, ["a1"]),
        ({"tag": "otel.status_code:OK"}, ["b2"]),
        ({"tags": '{"no.such":"x"}'}, []),
        ({"operation": "POST /front"}, ["c3"]),
    ],
)
def test_every_condition_of_a_search_holds(url, search, expected):
    assert ids(url, **({"service": "front", "end": us(100)} | search)) == expected


def test_all_conditions_hold_for_one_span(url):
    assert ids(url, service="back", tags='{"error":"true"}') == ["a1"]
    assert ids(url, service="back", tags='{"error":"true","http.response.status_code":"500"}', minDuration="20ms") == [
        "a1"
    ]
    assert ids(url, service="back", tags='{"error":"true"}', minDuration="21ms") == []
    assert ids(url, service="front", tags='{"error":"true"}') == []


def test_names_and_values_with_quotes_and_newlines(url):
    assert ids(url, service=AWKWARD, tags=json.dumps({"note": AWKWARD})) == ["d4"]
    assert ids(url, service=AWKWARD, tag=f"note:{AWKWARD}") == ["d4"]
    assert got(url, "/api/services/we%22ird%0A%5Cna%7Bme%7D/operations")["data"] == [f"GET /{AWKWARD}"]


def test_traces_are_found_by_their_ids(url):
    assert ids(url, traceID=["c3", "a1"]) == ["c3", "a1"]
    nothing = got(url, "/api/traces/ffff", 404)
    assert nothing == {
        "data": None,
        "total": 0,
        "limit": 0,
        "offset": 0,
        "errors": [{"code": 404, "msg": "trace not found"}],
    }


def test_dependencies_count_calls_between_services(url):
    assert got(url, "/api/dependencies")["data"] == [{"parent": "front", "child": "back", "callCount": 2}]
    some = got(url, "/api/dependencies", endTs=(START_S + 15) * 1000, lookback=10_000)["data"]
    assert some == [{"parent": "front", "child": "back", "callCount": 1}]


def test_dependencies_of_a_chain(tmp_path):
    with served(make_pack(tmp_path / "p")) as url:
        calls = {(one["parent"], one["child"]): one["callCount"] for one in got(url, "/api/dependencies")["data"]}
    assert calls == {("loadgenerator", "frontend"): 120, ("frontend", "cart"): 120, ("cart", "store"): 120}


@pytest.mark.parametrize(
    ("path", "parameters", "said"),
    [
        ("/api/traces", {}, "parameter 'service' is required"),
        ("/api/operations", {}, "parameter 'service' is required"),
        ("/api/traces", {"service": "front", "start": "x"}, "unable to parse param 'start'"),
        ("/api/traces", {"service": "front", "end": "9" * 30}, "unable to parse param 'end'"),
        ("/api/traces", {"service": "front", "limit": "-1"}, "unable to parse param 'limit'"),
        ("/api/traces", {"service": "front", "minDuration": "5"}, "unable to parse param 'minDuration'"),
        ("/api/traces", {"service": "front", "minDuration": "5s", "maxDuration": "1s"}, "should be greater than"),
        ("/api/traces", {"service": "front", "tags": "{"}, "malformed 'tags' parameter"),
        ("/api/traces", {"service": "front", "tags": "[" * 5000}, "malformed 'tags' parameter"),
        ("/api/traces", {"service": "front", "tags": '{"a":1}'}, "malformed 'tags' parameter"),
        ("/api/traces", {"service": "front", "tag": "error"}, "malformed 'tag' parameter"),
        ("/api/dependencies", {"endTs": "now"}, "unable to parse param 'endTs'"),
    ],
)
def test_a_request_that_is_wrong_gets_jaegers_error(url, path, parameters, said):
    answer = got(url, path, 400, **parameters)
    (error,) = answer["errors"]
    assert (answer["data"], error["code"]) == (None, 400)
    assert said in error["msg"]


def test_an_answer_has_its_bound(url, monkeypatch):
    monkeypatch.setattr("opsassay.telemetry.backends.jaeger.MOST_SPANS", 4)
    assert "ask for fewer traces" in got(url, "/api/traces", 413, service="front", end=us(100))["errors"][0]["msg"]
    assert ids(url, service="front", end=us(100), limit=1) == ["c3"]


def test_numbers_that_json_has_not_are_no_tags(tmp_path):
    spans = [span("a", "1", "", "front", 1, 1, **{"attr.share": value}) for value in (float("nan"), float("inf"), 0.5)]
    with served(recorded(tmp_path / "incident", [], spans=spans)) as url:
        (trace,) = got(url, "/api/traces/a")["data"]
    shares = [tag for one in trace["spans"] for tag in one["tags"] if tag["key"] == "share"]
    assert shares == [{"key": "share", "type": "float64", "value": 0.5}]


def test_an_id_may_lack_its_leading_zeros_and_has_hexadecimal_digits(tmp_path):
    long, short = f"{0xAB12:032x}", f"{0xCD34:016x}"
    spans = [span(trace, "1", "", "front", 10, 30) for trace in (long, short)]
    with served(recorded(tmp_path / "incident", [], spans=spans)) as url:
        for asked, trace in (("ab12", long), ("AB12", long), (f"{0xAB12:016x}", long), (long, long), ("cd34", short),
                             (f"{0xCD34:032x}", short)):  # fmt: skip
            for path in (f"/api/traces/{asked}", f"/api/traces?traceID={asked}", f"/tempo/api/traces/{asked}"):
                found = got(url, path.partition("?")[0], **({"traceID": asked} if "?" in path else {}))
                assert ("batches" in found) or [one["traceID"] for one in found["data"]] == [trace], path
        for asked in ("zz", "0x12", "1" * 33, "é"):
            assert "no id of a trace" in got(url, f"/api/traces/{asked}", 400)["errors"][0]["msg"]
            assert "no id of a trace" in got(url, "/api/traces", 400, traceID=asked)["errors"][0]["msg"]
        assert got(url, "/api/traces/12ab", 404)["errors"][0]["msg"] == "trace not found"
