"""The same content as protobuf and as JSON in every spelling that the specification allows: the same tables."""

from __future__ import annotations

import base64
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from polars.testing import assert_frame_equal

from opsassay.telemetry.importers.otlp import import_otlp
from opsassay.telemetry.schema import MODALITIES
from opsassay.telemetry.tree import Tree

AT_NS = 1_700_000_000 * 10**9
IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
ENUMS = {
    "kind": "SPAN_KIND_", "code": "STATUS_CODE_", "severityNumber": "SEVERITY_NUMBER_",
    "aggregationTemporality": "AGGREGATION_TEMPORALITY_",
}  # fmt: skip
OLD = {"scopeSpans": "instrumentationLibrarySpans", "scopeLogs": "instrumentationLibraryLogs"}


def attribute(target: Any, key: str, draw: random.Random) -> None:
    """Add an attribute of a drawn type, an empty one among them."""
    value = target.attributes.add(key=key).value
    match draw.randrange(7):
        case 0:
            value.string_value = draw.choice(["", "é", "GET", "404"])
        case 1:
            value.int_value = draw.choice([0, 503, -1, 2**62])
        case 2:
            value.double_value = draw.choice([0.5, -0.0, float("nan"), float("inf")])
        case 3:
            value.bool_value = draw.random() < 0.5
        case 4:
            value.bytes_value = b"\x00\xff"
        case 5:
            value.array_value.values.add().int_value = 7


def content(draw: random.Random) -> dict[str, Any]:
    """Return an export request of each signal with drawn content."""
    made = {
        "traces": ExportTraceServiceRequest(),
        "logs": ExportLogsServiceRequest(),
        "metrics": ExportMetricsServiceRequest(),
    }
    for number in range(draw.randint(1, 3)):
        group = made["traces"].resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = draw.choice("ab")
        span = group.scope_spans.add().spans.add(
            trace_id=draw.randbytes(16), span_id=draw.randbytes(8), parent_span_id=draw.choice([b"", draw.randbytes(8)]),
            name=draw.choice(["", "GET /"]), kind=draw.randrange(6), start_time_unix_nano=AT_NS + number,
            end_time_unix_nano=AT_NS + draw.randrange(10**9),
        )  # fmt: skip
        span.status.code = draw.randrange(3)
        attribute(span, draw.choice(["http.status_code", "http.request.method", "other"]), draw)
        span.links.add(trace_id=draw.randbytes(16), span_id=draw.randbytes(8))
    records = made["logs"].resource_logs.add().scope_logs.add().log_records
    for number in range(draw.randint(1, 3)):
        record = records.add(
            time_unix_nano=draw.choice([0, AT_NS]), observed_time_unix_nano=AT_NS + number, trace_id=draw.randbytes(16),
            severity_number=draw.randrange(25), severity_text=draw.choice(["", "err", "Info", "50"]),
        )  # fmt: skip
        attribute(record, "other", draw)
        record.body.string_value = draw.choice(["", "no", "é"])
    metrics = made["metrics"].resource_metrics.add().scope_metrics.add().metrics
    gauge = metrics.add(name="g").gauge.data_points.add(time_unix_nano=AT_NS)
    attribute(gauge, "other", draw)
    if draw.random() < 0.5:
        gauge.as_int = draw.choice([0, -5, 2**53])
    else:
        gauge.as_double = draw.choice([0.0, 2.5, float("nan")])
    total = metrics.add(name="s").sum
    total.aggregation_temporality = draw.randrange(3)
    total.data_points.add(time_unix_nano=AT_NS, as_int=draw.randrange(9))
    histogram = metrics.add(name="h").histogram
    histogram.aggregation_temporality = draw.randrange(1, 3)
    for number in range(1, 3):
        point = histogram.data_points.add(time_unix_nano=AT_NS + number, count=number, bucket_counts=[number, 0])
        point.explicit_bounds.append(0.5)
        if draw.random() < 0.7:
            point.sum, point.min, point.max = 0.5 * number, 0.0, 0.5
    return made


def spelled(value: Any, draw: random.Random, field: str = "") -> Any:
    """Return protobuf's JSON of *value* in a drawn spelling: names, ids, integers, enums, nulls, unknown fields."""
    if isinstance(value, list):
        return [spelled(part, draw, field) for part in value]
    if isinstance(value, str) and field in IDS:
        digits = base64.b64decode(value).hex()
        return draw.choice([digits, digits.upper(), value])
    if isinstance(value, str) and field in ENUMS:
        short = value.removeprefix(ENUMS[field])
        return draw.choice([value, short, short.lower()])
    if isinstance(value, str) and field.endswith(("Nano", "count", "Counts", "asInt", "intValue")):
        return int(value) if draw.random() < 0.5 else value
    if not isinstance(value, dict):
        return value
    found = {}
    for key, part in value.items():
        name = OLD.get(key, key) if draw.random() < 0.2 else key
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
        found[snake if draw.random() < 0.4 else name] = spelled(part, draw, key)
    if draw.random() < 0.2:
        found["laterField"] = draw.choice([1, "x", {"traceId": None}])
    if draw.random() < 0.2:
        found["droppedAttributesCount"] = None
    return dict(draw.sample(sorted(found.items()), len(found)))


def as_json(message: Any, draw: random.Random) -> Any:
    """Return *message* as JSON in a drawn spelling."""
    plain = json_format.MessageToDict(
        message, use_integers_for_enums=draw.random() < 0.5, always_print_fields_with_no_presence=draw.random() < 0.5
    )
    return spelled(plain, draw)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_json_in_every_spelling_is_the_same_tables_as_protobuf(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    made = content(draw)
    shutil.rmtree(tmp_path / "in", ignore_errors=True)
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    for period in ("normal", "abnormal"):
        for form in ("binary", "text"):
            (tmp_path / "in" / form / period).mkdir(parents=True)
        for signal, message in made.items():
            (tmp_path / "in" / "binary" / period / f"{signal}.pb").write_bytes(message.SerializeToString())
            text = json.dumps(as_json(message, draw), ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 1]))
            (tmp_path / "in" / "text" / period / f"{signal}-export.json").write_text(text, encoding="utf-8")
    report = import_otlp(tmp_path / "in", tmp_path / "out")
    said = {form: [note for name, note in report.notes if name == form] for form in ("binary", "text")}
    assert (report.failed, said["text"]) == ((), said["binary"])
    packs = {name: Tree(tmp_path / "out").datapack(id_) for name, id_ in report.imported}
    for modality in MODALITIES:
        assert_frame_equal(packs["text"].read("normal", modality), packs["binary"].read("normal", modality))


@pytest.mark.parametrize("lost", ["spans", "scopeSpans", "resourceSpans"])
def test_content_under_a_name_that_is_none_is_named(lost: str, tmp_path: Path) -> None:
    draw = random.Random(7)
    text = json.dumps(json_format.MessageToDict(content(draw)["traces"])).replace(f'"{lost}"', '"strange"')
    for period in ("normal", "abnormal"):
        (tmp_path / "case" / period).mkdir(parents=True)
        request = content(draw)["metrics"].SerializeToString()
        (tmp_path / "case" / period / "metrics.pb").write_bytes(request)
    (tmp_path / "case" / "abnormal" / "export.json").write_text(text)
    notes = [note for _, note in import_otlp(tmp_path / "case", tmp_path / "out").notes]
    assert any("export.json" in note and "strange" in note for note in notes)


@pytest.mark.parametrize(("field", "signal"), [("code", "traces"), ("kind", "traces"), ("severityNumber", "logs")])
def test_a_value_that_an_enum_has_not_is_named(field: str, signal: str, tmp_path: Path) -> None:
    message = content(random.Random(7))[signal]
    text = json.dumps(json_format.MessageToDict(message, always_print_fields_with_no_presence=True))
    for period, value in (("normal", "ERROR"), ("abnormal", "STRANGE")):
        (tmp_path / "in" / period).mkdir(parents=True)
        named = re.sub(rf'"{field}": "\w+"', f'"{field}": "{value}"', text) if period == "abnormal" else text
        (tmp_path / "in" / period / "a.json").write_text(named)
    report = import_otlp(tmp_path / "in", tmp_path / "out")
    assert f'{field} "STRANGE" is no value that OTLP has' in str(report)
