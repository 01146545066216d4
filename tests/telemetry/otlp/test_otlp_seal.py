"""Sealing: what real OpenTelemetry exporters sent, and what hand-made requests say, comes out in the datapack schema."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1 import metrics_pb2 as m
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ProtoResource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, StatusCode

from opsassay.core.errors import DatapackError
from opsassay.telemetry.otlp.seal import decode_spool, split_windows
from opsassay.telemetry.otlp.spool import Kind, SpoolFile, frame_header, read_frames, spool_path
from opsassay.telemetry.schema import SCHEMA

T0 = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def pair(key, value):
    form = {int: "int_value", float: "double_value", bool: "bool_value", str: "string_value"}[type(value)]
    return KeyValue(key=key, value=AnyValue(**{form: value}))


def pairs(attributes):
    return [pair(key, value) for key, value in attributes.items()]


def span(**fields):
    defaults = {
        "trace_id": b"\x01" * 16,
        "span_id": b"\xab" * 8,
        "name": "op",
        "start_time_unix_nano": T0,
        "end_time_unix_nano": T0 + 7,
    }
    return Span(**(defaults | fields))


def traces(*spans, **resource):
    group = ResourceSpans(resource=ProtoResource(attributes=pairs(resource)), scope_spans=[ScopeSpans(spans=spans)])
    return ExportTraceServiceRequest(resource_spans=[group])


def metrics(*measured, resource=None):
    scope = m.ScopeMetrics(metrics=measured)
    group = m.ResourceMetrics(resource=ProtoResource(attributes=pairs(resource or {})), scope_metrics=[scope])
    return ExportMetricsServiceRequest(resource_metrics=[group])


@pytest.fixture
def sealed(tmp_path):
    """Return a function that writes requests to a spool, as the receiver lays them down, and decodes it."""

    def decode(*requests, opened_ns=T0):
        files = {signal: SpoolFile(spool_path(tmp_path, signal)) for signal in ("traces", "metrics", "logs")}
        for file in files.values():
            file.append(frame_header(opened_ns, Kind.OPENED, b""), b"")
        for number, request in enumerate(requests, 1):
            signal = type(request).__name__.removeprefix("Export").removesuffix("ServiceRequest").lower()
            body = request.SerializeToString()
            files[signal if signal != "trace" else "traces"].append(
                frame_header(opened_ns + number, Kind.PROTOBUF, body), body
            )
        for file in files.values():
            file.close()
        return decode_spool(tmp_path)

    return decode


def ns(column: pl.Series) -> list[int]:
    return column.cast(pl.Int64).to_list()


def test_real_exporters_come_out_as_they_went_in(receiver, tmp_path):
    endpoint = f"http://127.0.0.1:{receiver.port}/v1"
    resource = Resource({"service.name": "cart", "k8s.pod.name": "cart-0", "k8s.namespace.name": "shop"})
    receiver.control.open_session(tmp_path / "r", "a")

    tracing = TracerProvider(resource=resource)
    tracing.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/traces", compression=Compression.Gzip)))
    tracer = tracing.get_tracer("test")
    with tracer.start_as_current_span("GET /cart", kind=SpanKind.SERVER) as outer:
        outer.set_attributes({"http.request.method": "GET", "http.response.status_code": 503})
        with tracer.start_as_current_span("SELECT", kind=SpanKind.CLIENT) as inner:
            inner.set_status(StatusCode.ERROR)
    recording = LoggerProvider(resource=resource)
    recording.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(f"{endpoint}/logs")))
    with tracer.start_as_current_span("logged") as logged:
        recording.get_logger("test").emit(
            timestamp=T0, severity_number=SeverityNumber.WARN, severity_text="Warn", body="stock of tea is low"
        )
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{endpoint}/metrics"), 3_600_000)
    metering = MeterProvider([reader], resource=resource)
    meter = metering.get_meter("test")
    meter.create_counter("requests").add(3)
    meter.create_gauge("queue").set(2.5)
    latency = meter.create_histogram("latency")
    latency.record(10.0)
    latency.record(30.0)
    metering.force_flush()
    latency.record(50.0)
    for provider in (tracing, recording, metering):
        provider.shutdown()
    stats = receiver.control.close_session("a")
    tables = decode_spool(tmp_path / "r")

    assert {name: dict(table.schema) for name, table in tables.items()} == {n: dict(s) for n, s in SCHEMA.items()}
    assert stats.signals["traces"].kept_items == tables["traces"].height == 3
    child, root = tables["traces"].head(2).to_dicts()
    context = outer.get_span_context()
    assert root["trace_id"] == child["trace_id"] == f"{context.trace_id:032x}"
    assert root["span_id"] == child["parent_span_id"] == f"{context.span_id:016x}"
    assert (root["parent_span_id"], root["service_name"], root["attr.k8s.pod.name"]) == ("", "cart", "cart-0")
    assert (root["attr.span_kind"], child["attr.span_kind"]) == ("Server", "Client")
    assert (root["attr.status_code"], child["attr.status_code"]) == ("Unset", "Error")
    assert (root["attr.http.request.method"], root["attr.http.response.status_code"]) == ("GET", 503)
    assert ns(tables["traces"]["time"])[1] == outer.start_time
    assert root["duration"] == outer.end_time - outer.start_time

    (log,) = tables["logs"].to_dicts()
    assert (log["level"], log["message"], log["service_name"]) == ("WARN", "stock of tea is low", "cart")
    assert (log["attr.k8s.service.name"], log["attr.k8s.namespace.name"]) == ("cart", "shop")
    assert log["span_id"] == f"{logged.get_span_context().span_id:016x}"

    assert tables["metrics"].select("metric", "value").rows()[0] == ("queue", 2.5)
    assert (
        tables["metrics_sum"].select("metric", "value", "attr.k8s.pod.name").rows() == [("requests", 3.0, "cart-0")] * 2
    )
    assert tables["metrics_histogram"].select("count", "sum", "min", "max").rows() == [
        (2.0, 40.0, 10.0, 30.0),
        (1.0, 50.0, None, 50.0),
    ]


def test_span_fields_and_fallbacks(sealed):
    listed = AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="42")]))
    table = sealed(
        traces(
            span(
                kind=1, attributes=pairs({"http.method": "PUT", "http.status_code": 201, "http.request.body.size": 9})
            ),
            span(
                kind=4,
                span_id=b"\x02" * 8,
                status=Status(code=1),
                attributes=pairs({"http.response.status_code": "404"}),
            ),
            span(
                kind=5,
                span_id=b"\x03" * 8,
                end_time_unix_nano=T0 - 1,
                attributes=[
                    KeyValue(key="http.response.header.content-length", value=listed),
                    *pairs({"http.response.status_code": 70_000, "http.request.body.size": -1}),
                ],
            ),
            span(kind=0, span_id=b"\x04" * 8),
            **{"service.name": "cart", "k8s.service.name": "cart-svc"},
        ),
        traces(span(span_id=b"\x05" * 8), **{"service.name": "pay"}),
    )["traces"]
    assert table["attr.span_kind"].to_list() == ["Internal", "Producer", "Consumer", None, None]
    assert table["attr.status_code"].to_list() == ["Unset", "Ok", "Unset", "Unset", "Unset"]
    assert table["attr.http.request.method"].to_list() == ["PUT", None, None, None, None]
    assert table["attr.http.response.status_code"].to_list() == [201, 404, None, None, None]
    assert table["attr.http.request.content_length"].to_list() == [9, None, None, None, None]
    assert table["attr.http.response.content_length"].to_list() == [None, None, 42, None, None]
    assert table["duration"].to_list() == [7, 7, 0, 7, 7]
    assert table["attr.k8s.service.name"].to_list() == ["cart-svc"] * 4 + ["pay"]
    assert table["span_id"].to_list()[0] == "abababababababab"
    assert "attr.links" not in table.columns


def test_links_are_kept_of_consumers_that_start_a_trace_and_of_nobody_else(sealed):
    links = [Span.Link(trace_id=bytes([n]) * 16, span_id=bytes([n]) * 8) for n in (1, 2)]
    table = sealed(
        traces(
            span(kind=5, links=links),
            span(kind=5, links=links, span_id=b"\x02" * 8, parent_span_id=b"\x09" * 8),
            span(kind=3, links=links, span_id=b"\x03" * 8),
        )
    )["traces"]
    assert table["attr.links"].to_list() == ["01" * 16 + ":" + "01" * 8 + "," + "02" * 16 + ":" + "02" * 8, None, None]


def test_real_exporters_send_links_of_consumers(receiver, tmp_path):
    receiver.control.open_session(tmp_path / "r", "a")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{receiver.port}/v1/traces")))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("publish", kind=SpanKind.PRODUCER) as published:
        context = published.get_span_context()
    with tracer.start_as_current_span("consume", kind=SpanKind.CONSUMER, links=[Link(context)]):
        pass
    provider.shutdown()
    receiver.control.close_session("a")
    table = decode_spool(tmp_path / "r")["traces"]
    assert table["attr.links"].to_list() == [None, f"{context.trace_id:032x}:{context.span_id:016x}"]


def test_log_levels_times_and_bodies(sealed):
    nested = AnyValue(kvlist_value=KeyValueList(values=[pair("a", 1), pair("b", "é")]))
    records = [
        LogRecord(time_unix_nano=T0, severity_text="warning", severity_number=9, body=AnyValue(string_value=" kept ")),
        LogRecord(observed_time_unix_nano=T0 + 5, severity_number=17, body=nested),
        LogRecord(severity_number=24),
        LogRecord(time_unix_nano=T0 + 9, trace_id=b"\xcd" * 16, span_id=b"\xef" * 8),
    ]
    group = ResourceLogs(
        resource=ProtoResource(attributes=pairs({"service.name": "cart"})), scope_logs=[ScopeLogs(log_records=records)]
    )
    table = sealed(ExportLogsServiceRequest(resource_logs=[group]), opened_ns=T0 + 100)["logs"]
    assert table["level"].to_list() == ["INFO", "ERROR", "FATAL", ""]
    assert table["message"].to_list() == [" kept ", '{"a": 1, "b": "é"}', "", ""]
    assert ns(table["time"]) == [T0, T0 + 5, T0 + 101, T0 + 9]
    assert table["trace_id"].to_list() == ["", "", "", "cd" * 16]
    assert table["span_id"].to_list()[3] == "ef" * 8


def test_points_take_their_own_attributes_before_those_of_the_resource(sealed):
    points = [
        m.NumberDataPoint(time_unix_nano=T0, as_int=4),
        m.NumberDataPoint(
            time_unix_nano=T0 + 1, as_double=0.5, attributes=pairs({"service.name": "pay", "k8s.pod.name": "pay-1"})
        ),
        m.NumberDataPoint(time_unix_nano=T0 + 2, flags=1),
    ]
    resource = {"service.name": "node-agent", "k8s.node.name": "n1"}
    table = sealed(metrics(m.Metric(name="cpu", gauge=m.Gauge(data_points=points)), resource=resource))["metrics"]
    assert table["value"].to_list() == [4.0, 0.5]
    assert table["service_name"].to_list() == ["node-agent", "pay"]
    assert table["attr.k8s.pod.name"].to_list() == [None, "pay-1"]
    assert table["attr.k8s.node.name"].to_list() == ["n1", "n1"]


def histogram(temporality, *points):
    return m.Metric(name="h", histogram=m.Histogram(aggregation_temporality=temporality, data_points=points))


def bucket(start, second, count, total, low, high, **attributes):
    return m.HistogramDataPoint(
        start_time_unix_nano=start,
        time_unix_nano=T0 + second * SECOND,
        count=count,
        sum=total,
        min=low,
        max=high,
        attributes=pairs(attributes),
    )


def test_cumulative_histograms_become_what_happened_between_two_points(sealed):
    old, new = T0 - 60 * SECOND, T0 + SECOND
    table = sealed(
        metrics(histogram(2, bucket(old, 1, 100, 900.0, 2.0, 30.0), bucket(new, 1, 5, 50.0, 1.0, 20.0, route="b"))),
        metrics(histogram(2, bucket(old, 2, 104, 1000.0, 2.0, 70.0), bucket(new, 2, 5, 50.0, 1.0, 20.0, route="b"))),
        metrics(histogram(2, bucket(old, 3, 105, 1001.0, 1.0, 70.0))),
        metrics(histogram(2, bucket(T0 + 3 * SECOND, 4, 2, 8.0, 3.0, 5.0))),  # the process started again
        metrics(histogram(2, bucket(old, 5, 1, 6.0, 6.0, 6.0))),  # a reset without a new start
        metrics(histogram(1, bucket(T0, 6, 7, 70.0, 9.0, 11.0, route="delta"))),
    )["metrics_histogram"]
    rows = table.select((pl.col("time").cast(pl.Int64) - T0) // SECOND, "count", "sum", "min", "max").rows()
    assert rows == [
        (1, 5.0, 50.0, 1.0, 20.0),  # began in the recording: stands for itself; the old series only gave its base
        (2, 4.0, 100.0, None, 70.0),
        (2, 0.0, 0.0, None, None),
        (3, 1.0, 1.0, 1.0, None),
        (4, 2.0, 8.0, 3.0, 5.0),
        (5, 1.0, 6.0, 6.0, 6.0),
        (6, 7.0, 70.0, 9.0, 11.0),
    ]


def test_exponential_histograms_and_summaries_are_histograms(sealed):
    point = {"start_time_unix_nano": T0, "time_unix_nano": T0 + 1, "count": 2, "sum": 3.0}
    exponential = m.ExponentialHistogram(
        aggregation_temporality=1, data_points=[m.ExponentialHistogramDataPoint(**point, min=1.0, max=2.0)]
    )
    summary = m.Summary(data_points=[m.SummaryDataPoint(**point)])
    table = sealed(metrics(m.Metric(name="e", exponential_histogram=exponential), m.Metric(name="s", summary=summary)))
    assert table["metrics_histogram"].select("metric", "count", "sum", "min", "max").rows() == [
        ("e", 2.0, 3.0, 1.0, 2.0),
        ("s", 2.0, 3.0, None, None),
    ]


def test_a_request_sent_twice_counts_once_and_batches_do_not_show(sealed, monkeypatch):
    monkeypatch.setattr("opsassay.telemetry.otlp.seal.BATCH_ROWS", 2)
    link = Span.Link(trace_id=b"\x01" * 16, span_id=b"\x01" * 8)
    one = traces(span(name="1"), span(name="2"), span(name="3"))
    table = sealed(one, traces(span(name="4", kind=5, links=[link])), one, traces(span(name="5")))["traces"]
    assert table["span_name"].to_list() == ["1", "2", "3", "4", "5"]
    assert table["attr.links"].null_count() == 4


def test_impossible_times_are_left_out_with_a_warning(sealed, caplog):
    table = sealed(traces(span(start_time_unix_nano=2**63, name="late"), span(start_time_unix_nano=0), span(name="ok")))
    assert table["traces"]["span_name"].to_list() == ["ok"]
    assert "2 rows of traces" in caplog.text


def test_a_torn_last_frame_is_dropped_at_every_cut(tmp_path):
    path, file = spool_path(tmp_path, "traces"), SpoolFile(spool_path(tmp_path, "traces"))
    for payload in (b"first", b"second"):
        file.append(frame_header(1, Kind.PROTOBUF, payload), payload)
    file.close()
    whole = path.read_bytes()
    first = len(whole) - len(b"second") - 17
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        assert [frame.payload for frame in read_frames(path)] == [b"first"], cut


@pytest.mark.parametrize("changed", [5, 10, 16, 18])
def test_damage_is_dropped_at_the_end_and_an_error_before_it(tmp_path, changed):
    path = spool_path(tmp_path, "logs")
    frame = frame_header(1, Kind.PROTOBUF, b"payload") + b"payload"
    damaged = bytearray(frame)
    damaged[changed] ^= 0x80
    path.write_bytes(frame + damaged)
    assert [frame.payload for frame in read_frames(path)] == [b"payload"]
    path.write_bytes(bytes(damaged) + frame)
    with pytest.raises(DatapackError, match="damaged at byte 0"):
        list(read_frames(path))


def test_a_length_that_was_never_written_is_an_error_and_not_the_end(tmp_path):
    path = spool_path(tmp_path, "logs")
    frame = bytearray(frame_header(1, Kind.PROTOBUF, b"payload") + b"payload")
    frame[3] = 0x80
    path.write_bytes(frame)
    with pytest.raises(DatapackError, match="damaged at byte 0"):
        list(read_frames(path))


def test_a_missing_spool_is_named(tmp_path):
    with pytest.raises(DatapackError, match=r"spool-metrics\.bin"):
        decode_spool(tmp_path)


def test_windows_keep_traces_whole_and_cut_logs_by_time():
    def table(**columns):
        times = pl.Series("time", columns.pop("time")).cast(pl.Datetime("ns", "UTC"))
        return pl.DataFrame([times, *(pl.Series(name, values) for name, values in columns.items())])

    spans = table(
        time=[150, 90, 100, 210, 199, 200, 10, 120, 95],
        trace_id=["a", "a", "b", "b", "c", "d", "e", "e", "f"],
        parent_span_id=["x", "", "", "x", "x", "", "", "x", ""],
        span_name=["a2", "a1", "b1", "b2", "c1", "d1", "e1", "e2", "f1"],
        duration=[7] * 9,
    )
    logs = table(time=[49, 50, 99, 100, 199, 200], message=["-", "n", "n", "a", "a", "-"])
    split = split_windows({"traces": spans, "logs": logs}, (50, 100, 200))
    assert split["normal", "traces"]["span_name"].to_list() == ["a1", "f1", "a2"]
    assert split["abnormal", "traces"]["span_name"].to_list() == ["b1", "c1", "b2"]
    assert split["normal", "logs"]["message"].to_list() == ["n", "n"]
    assert split["abnormal", "logs"]["message"].to_list() == ["a", "a"]


def test_work_that_begins_long_after_its_root_has_ended_belongs_by_its_own_time():
    spans = pl.DataFrame(
        {
            "time": pl.Series([10 * SECOND, 41 * SECOND, 42 * SECOND, 29 * SECOND, 31 * SECOND]).cast(
                pl.Datetime("ns", "UTC")
            ),
            "duration": [5 * SECOND, SECOND, SECOND, 5 * SECOND, SECOND],
            "trace_id": ["late", "late", "late", "across", "across"],
            "parent_span_id": ["", "root", "child", "", "root"],
            "span_name": ["gave up", "begun 26 s later", "its call", "root", "called in time"],
        }
    )
    split = split_windows({"traces": spans}, (0, 30 * SECOND, 60 * SECOND))
    assert split["normal", "traces"]["span_name"].to_list() == ["gave up", "root", "called in time"]
    assert split["abnormal", "traces"]["span_name"].to_list() == ["begun 26 s later", "its call"]


def test_times_are_utc(sealed):
    table = sealed(traces(span()))["traces"]
    assert table["time"].to_list()[0].astimezone(UTC) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
