"""Tempo's API over HTTP: searches, traces as OTLP's own messages read them, tags, and Tempo's errors."""

from __future__ import annotations

import pytest
import requests
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData

from telemetry.backends.recordings import SECOND, START_S, got, recorded, served
from telemetry.backends.test_jaeger import span

SEARCH = "/tempo/api/search"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    bad = {"attr.status_code": "Error", "attr.http.response.status_code": 500}
    spans = [
        span("a1", "01", "", "front", 10, 30, **{"attr.k8s.pod.name": "front-0", "attr.http.request.method": "GET"}),
        span("a1", "02", "01", "back", 11, 20, **bad, **{"attr.note": 'say "no"'}),
        span("a1", "03", "02", "back", 12, 5, **{"attr.span_kind": "Client", "attr.share": 0.5, "attr.retry": True}),
        span("b2", "04", "", "front", 20, 300, **{"attr.status_code": "Ok"}),
        span("b2", "05", "04", "back", 21, 250),
        span("c3", "06", "", "front", 30, 3, span_name="POST /front"),
        span("d4", "07", "99", "lost", 40, 3),
    ]
    with served(recorded(tmp_path_factory.mktemp("r") / "incident", [], spans=spans)) as url:
        yield url


def ids(url, **parameters):
    return [trace["traceID"] for trace in got(url, SEARCH, **parameters)["traces"]]


def refused(url, path, expected=400, **parameters):
    answer = requests.get(f"{url}/tempo{path}", params=parameters, timeout=30)
    assert (answer.status_code, answer.headers["Content-Type"]) == (expected, "text/plain; charset=utf-8")
    return answer.text


def test_a_trace_found_by_tags_has_tempos_shape(url):
    assert got(url, SEARCH, tags="http.response.status_code=500")["traces"] == [
        {
            "traceID": "a1", "rootServiceName": "front", "rootTraceName": "GET /front",
            "startTimeUnixNano": str((START_S + 10) * SECOND), "durationMs": 2005,
        }
    ]  # fmt: skip


def test_a_trace_found_by_traceql_shows_the_spans_that_fit(url):
    (trace,) = got(url, SEARCH, q='{ resource.service.name = "back" && span.http.response.status_code >= 500 }')[
        "traces"
    ]
    assert trace["spanSet"] == trace["spanSets"][0] == {
        "spans": [
            {
                "spanID": "02", "name": "GET /back", "startTimeUnixNano": str((START_S + 11) * SECOND),
                "durationNanos": "20000000", "attributes": [{"key": "service.name", "value": {"stringValue": "back"}}],
            }
        ],
        "matched": 1,
    }  # fmt: skip
    (trace,) = got(url, SEARCH, q='{ trace:rootService = "front" && name =~ "GET.*" && traceDuration > 2s }', spss=2)[
        "traces"
    ]
    assert (trace["spanSet"]["matched"], len(trace["spanSet"]["spans"])) == (3, 2)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("{}", ["t1", "d4", "c3", "b2", "a1"]),
        ("{ status = error }", ["a1"]),
        ("{ status = ok }", ["b2"]),
        ('{ status != error && status != ok && .service.name = "back" }', ["b2", "a1"]),
        ("{ duration > 240ms }", ["b2"]),
        ("{ duration > 0.25s }", ["b2"]),
        ("{ duration >= 250ms && kind = server }", ["b2"]),
        ("{ kind = client }", ["a1"]),
        ('{ name = "POST /front" || span:status = error }', ["c3", "a1"]),
        ('{ (name = "POST /front" || status = ok) && duration < 10ms }', ["c3"]),
        ('{ name = "POST /front" || status = ok && duration < 10ms }', ["c3"]),
        ('{ resource.k8s.pod.name =~ "front-." }', ["a1"]),
        ('{ resource.k8s.pod.name =~ "front" }', []),
        ('{ .service.name !~ "front|back" && duration < 4ms && duration > 2ms }', ["d4"]),
        ('{ span.note = "say \\"no\\"" }', ["a1"]),
        ('{ span.note = `say "no"` }', ["a1"]),
        ("{ span.share > 0.4 }", ["a1"]),
        ("{ span.share = 0.4 }", []),
        ("{ .retry = true }", ["a1"]),
        ("{ .retry != true }", []),
        ("{ span.http.response.status_code = 500 }", ["a1"]),
        ('{ span.http.response.status_code = "500" }', []),
        ('{ span.no.such = "x" }', []),
        ('{ span.no.such != "x" }', []),
        ('{ span.error = "true" }', []),
        ('{ rootName = "POST /front" }', ["c3"]),
        ("{ .retry != nil }", ["a1"]),
        ("{ .retry = nil && .retry = true }", []),
        ("{ span.no.such = nil && duration > 240ms }", ["b2"]),
        ("{ span.no.such != nil }", []),
        ("{ !(duration <= 240ms) }", ["b2"]),
        ("{ .retry = true && !(.retry = true) }", []),
        ('{ !(span.no.such = "x") && duration > 240ms }', ["b2"]),
        ("{ duration > 240ms && !false }", ["b2"]),
        ('{ span."http.response.status_code" = 500 }', ["a1"]),
        ('{ ."retry" = true }', ["a1"]),
        ('{ resource."no such \\"name\\"" = 1 }', []),
        ("{ true }", ["t1", "d4", "c3", "b2", "a1"]),
        ("{ false }", []),
    ],
)
def test_traceql(url, query, expected):
    assert ids(url, q=query) == expected


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ({}, ["t1", "d4", "c3", "b2", "a1"]),
        ({"limit": 2}, ["t1", "d4"]),
        ({"tags": "service.name=front"}, ["t1", "c3", "b2", "a1"]),
        ({"tags": "service.name=back http.response.status_code=500"}, ["a1"]),
        ({"tags": "service.name=front http.response.status_code=500"}, []),
        ({"tags": 'note="say \\"no\\""'}, ["a1"]),
        ({"tags": "no.such=1"}, []),
        ({"minDuration": "1251ms"}, ["a1"]),
        ({"minDuration": "1.25s", "maxDuration": "2s"}, ["b2"]),
        ({"start": START_S + 15, "end": START_S + 25}, ["b2"]),
        ({"start": START_S + 12, "end": START_S + 19}, ["a1"]),
        ({"start": START_S + 13, "end": START_S + 19}, []),
        ({"q": "{ duration < 4ms }", "start": START_S + 20, "end": START_S + 35}, ["c3"]),
    ],
)
def test_tags_durations_and_times(url, search, expected):
    assert ids(url, **search) == expected


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ('name="GET /back"', ["b2", "a1"]), ("name=none", []), ('name="POST /front" service.name=front', ["c3"]),
        ('root.name="GET /front"', ["b2", "a1"]), ("root.service.name=front", ["t1", "c3", "b2", "a1"]),
        ('root.name="GET /front" name="GET /back" http.response.status_code=500', ["a1"]),
        ("status.code=error", ["a1"]), ("status.code=ok", ["b2"]), ("status.code=strange", []),
    ],
)  # fmt: skip
def test_tags_that_are_no_attributes_are_searched_by(url, tags, expected):
    assert ids(url, tags=tags) == expected


def test_the_spans_of_a_trace_are_otlp(url):
    """Both forms are read by the messages of OpenTelemetry themselves, which refuse a field that they do not know."""
    batches = got(url, "/tempo/api/traces/a1")["batches"]
    assert got(url, "/tempo/api/v2/traces/A1")["trace"]["resourceSpans"] == batches
    read = ParseDict({"resourceSpans": batches}, TracesData())
    services = [one.resource.attributes[0].value.string_value for one in read.resource_spans]
    assert services == ["front", "back"]
    first, second, third = (one for group in read.resource_spans for one in group.scope_spans[0].spans)
    assert first.trace_id == bytes(15) + b"\xa1"
    assert (first.span_id, first.parent_span_id) == (bytes(7) + b"\x01", b"")
    assert (second.span_id, second.parent_span_id) == (bytes(7) + b"\x02", bytes(7) + b"\x01")
    assert (second.name, second.kind, third.kind) == ("GET /back", Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT)
    assert (second.status.code, third.status.code) == (Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET)
    assert second.end_time_unix_nano - second.start_time_unix_nano == 20 * 10**6
    assert second.start_time_unix_nano == (START_S + 11) * SECOND
    kinds = {one.key: one.value.WhichOneof("value") for one in (*second.attributes, *third.attributes)}
    assert kinds == {"http.response.status_code": "int_value", "note": "string_value", "share": "double_value",
                     "retry": "bool_value"}  # fmt: skip
    assert [one.key for one in read.resource_spans[0].resource.attributes] == ["service.name", "k8s.pod.name"]


def test_a_trace_without_a_root_says_so(url):
    (trace,) = got(url, SEARCH, tags="service.name=lost")["traces"]
    assert trace["rootServiceName"] == "<root span not yet received>"


def test_tags_and_their_values(url):
    span_tags = ["http.request.method", "http.response.status_code", "note", "retry", "share"]
    assert got(url, f"{SEARCH}/tags")["tagNames"] == sorted([*span_tags, "k8s.pod.name", "service.name"])
    scopes = {one["name"]: one["tags"] for one in got(url, "/tempo/api/v2/search/tags")["scopes"]}
    assert (scopes["resource"], scopes["span"]) == (["k8s.pod.name", "service.name"], span_tags)
    assert "duration" in scopes["intrinsic"]
    assert [one["name"] for one in got(url, "/tempo/api/v2/search/tags", scope="span")["scopes"]] == ["span"]
    assert got(url, f"{SEARCH}/tag/service.name/values")["tagValues"] == ["back", "front", "lost"]
    assert got(url, f"{SEARCH}/tag/no.such/values")["tagValues"] == []
    values = "/tempo/api/v2/search/tag/{}/values"
    assert got(url, values.format("resource.service.name"))["tagValues"][0] == {"type": "string", "value": "back"}
    assert got(url, values.format("span.http.response.status_code"))["tagValues"] == [{"type": "int", "value": "500"}]
    assert got(url, values.format(".retry"))["tagValues"] == [{"type": "bool", "value": "true"}]
    assert [one["value"] for one in got(url, values.format("status"))["tagValues"]] == ["error", "ok", "unset"]
    assert "POST /front" in [one["value"] for one in got(url, values.format("name"))["tagValues"]]
    assert got(url, values.format("span.service.name"))["tagValues"] == []


def test_whether_it_is_there(url):
    assert requests.get(f"{url}/tempo/api/echo", timeout=9).text == "echo"
    assert requests.get(f"{url}/tempo/ready", timeout=9).text == "ready\n"
    assert got(url, "/tempo/api/status/buildinfo")["version"] == "2.6.0"
    assert requests.get(f"{url}/tempo", timeout=9).status_code == 404


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("status = error", "line 1, col 1: syntax error: unexpected status, expecting {"),
        ("{ status = }", "status is compared by = or != with one of error, ok, unset"),
        ("{ status > error }", "status is compared by = or !="),
        ("{ duration > x }", "unexpected x, expecting a duration"),
        ("{ 5 = .a }", "a value or a sign before a field is not served here; write the field first"),
        ("{ -duration < 0s }", "a value or a sign before a field is not served here"),
        ("{ .a = 1 + 1 }", "arithmetic is not served here"),
        ("{ duration - 1s > 0s }", "arithmetic is not served here"),
        ("{ .a && true }", "write .a = true"),
        ("({ .a = 1 })", "parentheses around sets of spans are not served here"),
        ("{ status = error", "unexpected end of the query, expecting }"),
        ("{ status = error } | count() > 2", "| after a set of spans is not served here"),
        ("{ status = error } >> { kind = server }", "after a set of spans is not served here"),
        ("{ event.name = `x` }", "event.name is no field that is served here"),
        ("{ .a = }", "expecting a value"),
        ("{ .a }", ".a without a comparison is not served here"),
        ("{ .a @ 1 }", "unexpected"),
        ("{ true", "unexpected end of the query"),
        ("{ true &&", "unexpected end of the query, expecting a field"),
        ('{ .a =~ "(" }', "is no regular expression"),
        ("{ .a > `x` && .b =~ 3 }", ""),
        ("{" + "(" * 20 + "true" + ")" * 20 + "}", "nested too deeply"),
        ("{ .a = 'x' }", 'unexpected "\'"'),
        ("{ " + "true && " * 1000 + "true }", "a query may have 4096 characters"),
    ],
)
def test_what_is_no_traceql_or_outside(url, query, said):
    if not said:
        assert ids(url, q=query) == []
        return
    text = refused(url, "/api/search", q=query)
    assert text.startswith("invalid TraceQL query: ")
    assert said in text


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"limit": "x"}, 'invalid limit: strconv.ParseInt: parsing "x": invalid syntax'),
        ({"limit": 0}, "invalid limit: must be a positive number"),
        ({"start": 5}, "please provide non-zero values for http parameters start and end"),
        ({"start": 7, "end": 6}, "http parameter start must be before end. received start=7 end=6"),
        ({"minDuration": "1d"}, 'invalid minDuration: time: invalid duration "1d"'),
        ({"tags": "service.name"}, "invalid tags"),
        ({"tags": 'a="'}, "invalid tags"),
    ],
)
def test_parameters_that_are_wrong(url, search, said):
    assert said in refused(url, "/api/search", **search)


def test_traces_that_are_not_there(url):
    assert refused(url, "/api/traces/ff", 404) == "trace not found"
    assert "hex" in refused(url, "/api/traces/xyz")
    assert "invalid scope" in refused(url, "/api/v2/search/tags", scope="x")
