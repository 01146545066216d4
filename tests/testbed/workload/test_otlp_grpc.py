"""Telemetry of programs over gRPC: a real exporter and a real receiver, and what must be refused."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading

import grpc
import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver
from opsassay.telemetry.otlp.grpc import SERVICES
from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.telemetry.otlp.spool import MAX_PAYLOAD_BYTES
from opsassay.testbed.workload.runtime.program_clock import ProgramClock
from opsassay.testbed.workload.runtime.program_telemetry import ProgramTelemetry
from opsassay.testbed.workload.runtime.stats import Stats

TRACES = next(path for path, signal in SERVICES.items() if signal == "traces")


@pytest.fixture
def receiver(tmp_path):
    process = start_receiver(tmp_path / "state")
    try:
        yield ReceiverControl(tmp_path / "state"), process
    finally:
        process.stdin.close()
        process.kill()
        process.wait(20)


@pytest.fixture
def at(receiver):
    """Return host:port at which a program of the service `orders` sends what the receiver gets."""
    control, _ = receiver
    loop, listener = asyncio.new_event_loop(), socket.create_server(("127.0.0.1", 0))
    resource = {"service.name": "orders", "k8s.pod.name": "orders-0"}
    stats, endpoint = Stats(), f"http://127.0.0.1:{control.port}"
    telemetry = ProgramTelemetry(stats, ProgramClock(), endpoint, resource, {}, {})
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(telemetry.start(listener), loop).result(20)
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(telemetry._http.close(), loop).result(20)
        asyncio.run_coroutine_threadsafe(end_connections(loop), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        listener.close()
        loop.close()


async def end_connections(loop):
    """Close what clients have left open: in a program it goes with the process."""
    for transport in list(loop._transports.values()):
        transport.abort()
    await asyncio.sleep(0.1)


def call(at, body, path=TRACES, compression=None):
    """Return the status that a raw call with *body* gets."""
    with grpc.insecure_channel(at, options=[("grpc.max_send_message_length", -1)]) as channel:
        try:
            channel.unary_unary(path)(body, timeout=20, compression=compression)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_what_a_real_exporter_sends_is_recorded_as_that_of_the_service(receiver, at, tmp_path, compression):
    control, _ = receiver
    control.open_session(tmp_path / "s", "s")
    how = {"endpoint": f"http://{at}", "insecure": True, "compression": compression}
    tracer, http_tracer = TracerProvider(), TracerProvider()
    tracer.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(**how)))
    http_tracer.add_span_processor(SimpleSpanProcessor(HttpSpanExporter(endpoint=f"http://{at}/v1/traces")))
    for number in range(40):
        with tracer.get_tracer("t").start_as_current_span(f"job {number}") as span:
            span.set_attribute("long", "x" * 5000)
    http_tracer.get_tracer("t").start_span("by HTTP").end()
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(**how))])
    meters.get_meter("t").create_counter("sold").add(3)
    logs = LoggerProvider()
    logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(**how)))
    logs.get_logger("t").emit(LogRecord(body="no more", severity_number=SeverityNumber.WARN))
    for provider in (tracer, http_tracer, meters, logs):
        provider.shutdown()
    control.close_session("s")
    frames = decode_spool(tmp_path / "s")
    assert sorted(frames["traces"]["span_name"]) == sorted(["by HTTP", *(f"job {number}" for number in range(40))])
    assert set(frames["traces"]["service_name"]) == {"orders"}
    assert "sold" in {*frames["metrics"]["metric"], *frames["metrics_sum"]["metric"]}
    assert "no more" in set(frames["logs"]["message"])


@pytest.mark.parametrize(
    ("body", "path", "compression", "status"),
    [
        (b"x" * (MAX_PAYLOAD_BYTES + 1), TRACES, None, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (b"\0" * (MAX_PAYLOAD_BYTES + 1), TRACES, grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (b"\xff no message", TRACES, None, grpc.StatusCode.INVALID_ARGUMENT),
        (b"", TRACES, grpc.Compression.Deflate, grpc.StatusCode.OK),  # nothing to pack, so it is sent plain
        (b"a" * 1000, TRACES, grpc.Compression.Deflate, grpc.StatusCode.UNIMPLEMENTED),
        (b"", "/shop.Orders/Buy", None, grpc.StatusCode.UNIMPLEMENTED),
        (b"", TRACES, None, grpc.StatusCode.OK),
    ],
)
def test_what_is_too_large_or_no_export_gets_the_status_of_grpc_for_it(at, body, path, compression, status):
    assert call(at, body, path, compression) is status


def test_a_client_tries_again_while_the_receiver_is_gone(receiver, at):
    _, process = receiver
    process.kill()
    process.wait(20)
    assert call(at, b"") is grpc.StatusCode.UNAVAILABLE


def test_bytes_that_are_no_http_end_their_connection_and_no_other(at):
    host, port = at.split(":")
    for junk in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot frames at all, not at all", gzip.compress(b"x"), b"PRI"):
        with socket.create_connection((host, int(port)), timeout=10) as asking:
            asking.sendall(junk)
            asking.shutdown(socket.SHUT_WR)
            while asking.recv(65536):
                pass
    assert call(at, b"") is grpc.StatusCode.OK
