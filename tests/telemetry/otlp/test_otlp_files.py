"""Files of OTLP as others write them: every file and item is read or named, spellings and ids have one rule."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from opsassay.telemetry.importers.cases import ImportReport
from opsassay.telemetry.importers.otlp import import_otlp
from opsassay.telemetry.otlp.requests import parse_json
from opsassay.telemetry.tree import Tree

TRACE, SPAN = "a1" * 16, "b2" * 8
AT_NS = 1_700_000_000 * 10**9
ONE_SIDED = "There are {} of the abnormal window alone: nothing can be compared in them."


def span(**other: Any) -> dict[str, Any]:
    base = {"traceId": TRACE, "spanId": SPAN, "name": "GET /", "kind": 2, "startTimeUnixNano": str(AT_NS)}
    return {**base, "endTimeUnixNano": str(AT_NS + 5), **other}


def spans(*made: dict[str, Any], scopes: str = "scopeSpans") -> dict[str, Any]:
    named = {"attributes": [{"key": "service.name", "value": {"stringValue": "cart"}}]}
    return {"resourceSpans": [{"resource": named, scopes: [{"spans": list(made)}]}]}


def logs(*made: dict[str, Any]) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": str(AT_NS), **one} for one in made]}]}]}


def imported(tmp_path: Path, name: str, content: str | bytes) -> tuple[Tree, str, ImportReport]:
    """Import a case with *content* as abnormal/*name*, beside one span that is in order."""
    for period in ("normal", "abnormal"):
        (tmp_path / "case" / period).mkdir(parents=True)
        (tmp_path / "case" / period / "first.json").write_text(json.dumps(spans(span(name="first"))))
    file = tmp_path / "case" / "abnormal" / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    report = import_otlp(tmp_path / "case", tmp_path / "out")
    return Tree(tmp_path / "out"), report.imported[0][1], report


def names_of(tree: Tree, id_: str) -> list[str]:
    found = tree.datapack(id_).read("abnormal", "traces").get_column("span_name").to_list()
    return [name for name in found if name != "first"]


def said(report: ImportReport) -> str:
    return "\n".join(note for _, note in report.notes)


SHAPES = {
    "any name": json.dumps(spans(span())),
    "before 0.19": json.dumps(spans(span(), scopes="instrumentationLibrarySpans")),
    "before 0.19, snake_case": json.dumps(spans(span(), scopes="instrumentation_library_spans")),
    "Tempo's batches": json.dumps({"batches": spans(span())["resourceSpans"]}),
    "Tempo's trace": json.dumps({"trace": spans(span())}),
    "a list of requests": json.dumps([spans(span())]),
    "no line break after the first bracket": '{ "resourceSpans": [\n'
    + json.dumps(spans(span())["resourceSpans"][0], indent=1)
    + "]}",
    "indented": json.dumps(spans(span()), indent=2),
    "a byte order mark": "\ufeff" + json.dumps(spans(span())),
    "a byte order mark, indented": "\ufeff" + json.dumps(spans(span()), indent=2),
    "an unknown field": json.dumps({**spans(span(later={"a": [1]})), "later": 1}),
    "nulls": json.dumps(spans(span(parentSpanId=None, attributes=None, status=None, links=None))),
}


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["export.json", "logs_t.json", "traces_t.jsonl"])
def test_spans_are_read_whatever_the_name_and_the_shape(shape: str, name: str, tmp_path: Path) -> None:
    tree, id_, report = imported(tmp_path, name, SHAPES[shape])
    assert (names_of(tree, id_), report.notes) == (["GET /"], ())


def test_several_indented_objects_are_all_read(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(spans(span(name=name)), indent=1) for name in "ab")
    tree, id_, report = imported(tmp_path, "t.json", text)
    assert (names_of(tree, id_), report.notes) == (["a", "b"], ())


def test_signals_in_one_file_are_all_read(tmp_path: Path) -> None:
    both = {**spans(span()), **logs({"body": {"stringValue": "no"}})}
    tree, id_, report = imported(tmp_path, "both.json", json.dumps(both))
    assert names_of(tree, id_) == ["GET /"]
    assert tree.datapack(id_).read("abnormal", "logs").get_column("message").to_list() == ["no"]
    assert [words for _, words in report.notes] == [ONE_SIDED.format("logs")]


def _named_otherwise() -> bytes:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name="d", start_time_unix_nano=AT_NS)
    return request.SerializeToString()


NOTHING = {
    "Jaeger": ("t.json", '{"data": [{"spans": []}]}', "it has data and none of resourceSpans"),
    "Zipkin": ("t.json", '[{"traceId": "a1", "id": "b2"}]', "it has id, traceId and none of"),
    "empty object": ("t.json", "{}", "it has none and none of"),
    "no group": ("t.json", '{"resourceSpans": []}', "gave no rows"),
    "no span": ("t.json", json.dumps(spans()), "gave no rows"),
    "other scopes": ("t.json", json.dumps(spans(span(), scopes="scopes")), "scopes beside scopeSpans is not read"),
    "other items": (
        "t.json",
        '{"resourceSpans": [{"scopeSpans": [{"items": [1]}]}]}',
        "items beside spans is not read",
    ),
    "an empty file": ("t.json", "", "gave no rows"),
    "a scalar": ("t.json", "7", "7 is no object"),
    "text": ("notes.txt", "x", "is neither JSON"),
    "zstd": ("t.json.zst", b"\x28\xb5\x2f\xfd", "is neither JSON"),
    "protobuf of no signal": ("export.pb", _named_otherwise(), "rename it"),
    "protobuf of another signal": ("logs.pb", _named_otherwise(), "logs"),
    "a metric of no type": (
        "m.json",
        '{"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "lost"}]}]}]}',
        "1 metric without data points of a known type: lost",
    ),
    "cut off": ("t.json", json.dumps(spans(span()), indent=1)[:-9], "t.json:1 is no export request"),
    "a time that is none": ("t.json", json.dumps(spans(span(startTimeUnixNano="soon"))), "soon"),
    "an id that is none": ("t.json", json.dumps(spans(span(traceId="xyz"))), 'traceId "xyz" is no hexadecimal id'),
    "two spellings": ("t.json", json.dumps(spans(span(trace_id=TRACE))), "traceId is there in two spellings"),
}


@pytest.mark.parametrize("what", NOTHING)
def test_a_file_that_gives_nothing_is_named_with_the_reason(what: str, tmp_path: Path) -> None:
    name, content, reason = NOTHING[what]
    tree, id_, report = imported(tmp_path, name, content)
    assert names_of(tree, id_) == []
    assert f"abnormal/{name}" in said(report) or "abnormal: " in said(report)
    assert reason in said(report)


def test_a_folder_in_a_period_is_named(tmp_path: Path) -> None:
    (tmp_path / "case" / "normal" / "traces").mkdir(parents=True)
    (tmp_path / "case" / "normal" / "first.json").write_text(json.dumps(spans(span())))
    (tmp_path / "case" / "abnormal").mkdir()
    (tmp_path / "case" / "abnormal" / "first.json").write_text(json.dumps(spans(span())))
    assert "normal/traces is a folder" in said(import_otlp(tmp_path / "case", tmp_path / "out"))


def test_one_bad_span_takes_no_other_with_it(tmp_path: Path) -> None:
    made = [span(name="a"), span(name="b", traceId="xyz"), span(name="c", links=[{"traceId": "?", "spanId": SPAN}])]
    tree, id_, report = imported(tmp_path, "t.json", json.dumps(spans(*made)))
    assert names_of(tree, id_) == ["a", "c"]
    assert "1 item left out: traceId" in said(report)


SPELLINGS = {
    "camelCase": span(parentSpanId="C3" * 8),
    "snake_case": {
        "trace_id": TRACE, "span_id": SPAN, "parent_span_id": "c3" * 8, "name": "GET /", "kind": "SPAN_KIND_SERVER",
        "start_time_unix_nano": AT_NS, "end_time_unix_nano": AT_NS + 5,
    },
    "capital letters": span(traceId=TRACE.upper(), parentSpanId="C3" * 8),
    "base64, as Tempo sends": span(
        traceId=base64.b64encode(bytes.fromhex(TRACE)).decode(), spanId=base64.b64encode(bytes.fromhex(SPAN)).decode(),
        parentSpanId=base64.b64encode(bytes.fromhex("c3" * 8)).decode(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_ids_are_the_same_in_every_spelling(spelling: str, tmp_path: Path) -> None:
    tree, id_, report = imported(tmp_path, "t.json", json.dumps(spans(SPELLINGS[spelling])))
    frame = tree.datapack(id_).read("abnormal", "traces").filter(span_name="GET /")
    assert frame.select("trace_id", "span_id", "parent_span_id").row(0) == (TRACE, SPAN, "c3" * 8)
    assert report.notes == ()


@pytest.mark.parametrize(("field", "text"), [("traceId", "a1" * 8), ("spanId", "b2" * 12), ("parentSpanId", "c3")])
def test_an_id_of_another_length_is_a_note(field: str, text: str, tmp_path: Path) -> None:
    _, _, report = imported(tmp_path, "t.json", json.dumps(spans(span(**{field: text}))))
    assert "bytes long" in said(report)


def test_a_parent_of_zeros_is_none(tmp_path: Path) -> None:
    tree, id_, _ = imported(tmp_path, "t.json", json.dumps(spans(span(parentSpanId="0" * 16))))
    assert tree.datapack(id_).read("abnormal", "traces").get_column("parent_span_id").to_list() == ["", ""]


def test_a_number_that_is_none_is_read(tmp_path: Path) -> None:
    point = {"timeUnixNano": str(AT_NS), "asDouble": float("nan")}
    gauge = {"name": "g", "gauge": {"dataPoints": [point]}}
    text = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [gauge]}]}]})
    tree, id_, report = imported(tmp_path, "m.json", text)
    assert tree.datapack(id_).read("abnormal", "metrics").height == 1
    assert [words for _, words in report.notes] == [ONE_SIDED.format("metrics")]


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("text", ["", "err", "ERR", "info", "50", "SEVERE", "emerg", "Warning", "notice", "Fehler"])
@pytest.mark.parametrize("number", [17, 20, "SEVERITY_NUMBER_ERROR3"])
def test_the_severity_number_goes_before_the_text(number: int | str, text: str, tmp_path: Path) -> None:
    record = {"severityNumber": number, "severityText": text, "body": {"stringValue": "no"}}
    tree, id_, _ = imported(tmp_path, "l.json", json.dumps(logs(record)))
    assert tree.datapack(id_).read("abnormal", "logs").get_column("level").to_list() == ["ERROR"]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("err", "ERROR"),
        ("Severe", "ERROR"),
        ("crit", "FATAL"),
        ("emerg", "FATAL"),
        ("info", "INFO"),
        ("Warning", "WARN"),
        ("Information", "INFO"),
        ("notice", "INFO"),
        ("30", "INFO"),
        ("fine", "DEBUG"),
        ("Verbose", "TRACE"),
        ("Fehler", "FEHLER"),
        ("ERROR2", "ERROR"),
        ("SEVERITY_NUMBER_WARN3", "WARN"),
        ("[error]", "ERROR"),
        ("<E>", "ERROR"),
        ("Info:", "INFO"),
        ("dpanic", "FATAL"),
        ("log4", "LOG4"),
        ("3", "3"),
    ],
)
def test_words_of_other_sources_are_levels_without_a_number(text: str, level: str, tmp_path: Path) -> None:
    tree, id_, _ = imported(tmp_path, "l.json", json.dumps(logs({"severityText": text, "body": {"stringValue": "no"}})))
    assert tree.datapack(id_).read("abnormal", "logs").get_column("level").to_list() == [level]


def test_plain_values_are_read_where_otlp_has_objects(tmp_path: Path) -> None:
    made = span(status="ERROR", attributes=[{"key": "http.request.method", "value": "GET"}])
    request = {"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": "basket"}]},
                                  "scopeSpans": [{"spans": [made]}]}], **logs({"body": "boom"}, {"body": 7})}  # fmt: skip
    tree, id_, report = imported(tmp_path, "t.json", json.dumps(request))
    rows = tree.datapack(id_).read("abnormal", "traces").filter(pl.col("service_name") == "basket").to_dicts()
    assert [(one["attr.status_code"], one["attr.http.request.method"]) for one in rows] == [("Error", "GET")]
    assert tree.datapack(id_).read("abnormal", "logs").get_column("message").sort().to_list() == ["7", "boom"]
    assert "left out" not in said(report)


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (spans(span(endTimeUnixNano=str(AT_NS - 10**9))), "1 span without an end after the start: the duration is 0"),
        (spans(span(endTimeUnixNano=None)), "1 span without an end after the start: the duration is 0"),
        (
            spans(span(startTimeUnixNano=str(AT_NS // 10**6), endTimeUnixNano=str(AT_NS // 10**6 + 5))),
            "1 rows of traces lie before the year 2000: OTLP counts nanoseconds",
        ),
        (
            {"resourceMetrics": [{"scopeMetrics": [{"metrics": [
                {"name": "g", "gauge": {"dataPoints": [{"timeUnixNano": str(AT_NS), "value": 5}]}}
            ]}]}]},
            "1 point without a value not kept",
        ),
    ],
)  # fmt: skip
def test_a_value_that_is_not_as_otlp_has_it_is_a_note(content: dict[str, Any], note: str, tmp_path: Path) -> None:
    assert note in said(imported(tmp_path, "t.json", json.dumps(content))[2])


def lossy(kind: str, kept: bool) -> tuple[str, Any]:
    """Return the signal and a request that holds what a datapack has no place for, or the same without it (*kept*)."""
    point = {"timeUnixNano": str(AT_NS), "startTimeUnixNano": str(AT_NS - 1)}
    histogram = {**point, "count": "3", "sum": 1.5}
    link = {"traceId": "c3" * 16, "spanId": "d4" * 8}
    other = [{"key": "colour", "value": {"stringValue": "red"}}]

    def metric(form: str, of: dict[str, Any], **about: Any) -> tuple[str, Any]:
        made = {"name": "x", form: {"dataPoints": [of], **about}}
        return "metrics", {"resourceMetrics": [{"scopeMetrics": [{"metrics": [made]}]}]}

    match kind:
        case "events":
            return "traces", spans(span(events=[] if kept else [{"name": "a"}, {"name": "b"}]))
        case "links":
            return "traces", spans(span(links=[link], kind=5 if kept else 2))
        case "state":
            return "traces", spans(span(traceState="" if kept else "a=b"))
        case "attributes of spans":
            return "traces", spans(span(attributes=[] if kept else other))
        case "attributes of logs":
            return "logs", logs({"body": {"stringValue": "x"}, "attributes": [] if kept else other})
        case "attributes of points":
            return metric("gauge", {**point, "asDouble": 1.0, "attributes": [] if kept else other})
        case "buckets":
            return metric("histogram", histogram | ({} if kept else {"bucketCounts": ["1", "2"], "explicitBounds": [1]}),
                          aggregationTemporality=1)  # fmt: skip
        case "exponential buckets":
            return metric("exponentialHistogram", histogram | ({} if kept else {"positive": {"bucketCounts": ["1", "2"]}}),
                          aggregationTemporality=1)  # fmt: skip
        case "quantiles":
            values = [] if kept else [{"quantile": 0.5, "value": 1.0}]
            return metric("summary", {**histogram, "quantileValues": values})
        case "exemplars":
            return metric("gauge", {**point, "asDouble": 1.0, "exemplars": [] if kept else [{"asDouble": 1.0}]})
    return metric("gauge", {**point, "asDouble": 1.0, "flags": 0 if kept else 1})


LOSSES = {
    "events": "2 span events not kept", "links": "1 span link not kept", "state": "1 trace state not kept",
    "attributes of spans": "1 attribute of traces not kept: there is no column for colour",
    "attributes of logs": "1 attribute of logs not kept: there is no column for colour",
    "attributes of points": "1 attribute of metrics not kept: there is no column for colour",
    "buckets": "2 histogram buckets not kept", "exponential buckets": "2 histogram buckets not kept",
    "quantiles": "1 summary quantile not kept", "exemplars": "1 exemplar not kept",
    "flags": "1 point without a value not kept",
}  # fmt: skip


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("form", ["json", "pb"])
def test_what_a_datapack_has_no_place_for_is_counted(tmp_path: Path, kind: str, form: str) -> None:
    for kept in (False, True):
        signal, request = lossy(kind, kept)
        content: str | bytes = json.dumps(request)
        if form == "pb":
            content = parse_json(signal, json.dumps(request).encode()).SerializeToString()
        report = imported(tmp_path / str(kept), f"{signal}.{form}", content)[2]
        assert (f"abnormal: {LOSSES[kind]}" in said(report)) is not kept
        assert not kept or "not kept" not in said(report)


def test_messages_of_a_collector_after_their_lengths_are_read(tmp_path: Path) -> None:
    """The collector's file exporter writes them so with ``format: proto``."""
    made = [ExportTraceServiceRequest() for _ in range(2)]
    for number, request in enumerate(made):
        one = request.resource_spans.add().scope_spans.add().spans.add()
        one.name, one.start_time_unix_nano, one.end_time_unix_nano = f"s{number}", AT_NS, AT_NS + 5
    bodies = [request.SerializeToString() for request in made]
    tree, id_, _ = imported(tmp_path, "traces.pb", b"".join(len(one).to_bytes(4, "big") + one for one in bodies))
    assert names_of(tree, id_) == ["s0", "s1"]


def test_a_metric_whose_growth_is_not_known_is_named_beside_one_that_is(tmp_path: Path) -> None:
    point = {"timeUnixNano": str(AT_NS), "count": "3", "sum": 4.5}
    lone = {"name": "lone", "histogram": {"aggregationTemporality": 2, "dataPoints": [point]}}
    known = {"name": "known", "histogram": {"aggregationTemporality": 1, "dataPoints": [point]}}
    content = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [lone, known]}]}]}
    _, _, report = imported(tmp_path, "m.json", json.dumps(content))
    assert "abnormal: 1 metric without a second point to count from the first: lone" in said(report)
