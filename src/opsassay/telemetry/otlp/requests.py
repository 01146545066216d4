"""Export requests as bytes: unpack, check and count them without touching their spans."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from opsassay.core.errors import UserError
from opsassay.telemetry.otlp.json_form import requests_in, with_bytes
from opsassay.telemetry.otlp.spool import MAX_PAYLOAD_BYTES, Kind


class BrokenBodyError(UserError):
    """A request body that is not what it says."""


class LargeBodyError(UserError):
    """A request body that is larger than the receiver takes, before or after unpacking."""


_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS


def unpack(kind: Kind, payload: bytes) -> bytes:
    """Return the protobuf bytes of *payload*, gunzipped by *kind*; raises BrokenBodyError, LargeBodyError over 16 MiB."""
    if kind != Kind.GZIP:
        return payload
    unpacker = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        body = unpacker.decompress(payload, MAX_PAYLOAD_BYTES + 1)
    except zlib.error as error:
        raise BrokenBodyError(f"The body is not gzip as its Content-Encoding says ({error}); send it whole.") from error
    if len(body) > MAX_PAYLOAD_BYTES:
        raise LargeBodyError(f"The body unpacks to more than {MAX_PAYLOAD_BYTES} bytes; export smaller batches.")
    if not unpacker.eof or unpacker.unused_data:
        raise BrokenBodyError("The gzip body ends too early or has bytes after its end; send it whole.")
    return body


_MESSAGES: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}


def split_messages(data: bytes) -> list[bytes]:
    """Return the messages in *data*: each after a length of 4 bytes, as a collector's exporter writes, or all of it."""
    found, at = [], 0
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        found.append(data[at + 4 : end])
        at = end
    return found if found and at == len(data) else [data]


def parse(signal: str, body: bytes) -> Any:
    """Parse *body*, protobuf, as the export request of *signal*; raises BrokenBodyError when it is none."""
    message = _MESSAGES[signal]
    try:
        return message.FromString(body)
    except DecodeError as error:
        raise BrokenBodyError(f"The body is not a protobuf {message.DESCRIPTOR.name}; check the endpoint.") from error


def parse_json(signal: str, body: bytes) -> Any:
    """Parse *body*, OTLP JSON, as the export request of *signal*; raises BrokenBodyError when it is none."""
    message, left_out = _MESSAGES[signal](), list[str]()
    try:
        for request in requests_in(json.loads(body), left_out):
            ParseDict(with_bytes(request), message, ignore_unknown_fields=True)
    except (ValueError, RecursionError, ParseError) as error:
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise BrokenBodyError(f"The body is no OTLP JSON of {signal}: {reason}") from error
    if left_out:
        raise BrokenBodyError(f"The body is no OTLP JSON of {signal}: {left_out[0]}")
    return message


def count_items(signal: str, message: Any) -> int:
    """Return the number of spans, data points or log records in *message*, an export request of *signal*."""
    return _COUNTERS[signal](message)


def _count_spans(message: Any) -> int:
    """Return the number of spans in a trace export request."""
    return sum(len(scope.spans) for resource in message.resource_spans for scope in resource.scope_spans)


def _count_log_records(message: Any) -> int:
    """Return the number of log records in a log export request."""
    return sum(len(scope.log_records) for resource in message.resource_logs for scope in resource.scope_logs)


def _count_data_points(message: Any) -> int:
    """Return the number of data points in a metric export request."""
    return sum(
        len(getattr(metric, form).data_points)
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if (form := metric.WhichOneof("data"))
    )


_COUNTERS: dict[str, Callable[[Any], int]] = {
    "traces": _count_spans,
    "metrics": _count_data_points,
    "logs": _count_log_records,
}
