"""A real receiver process for each test, and requests made by hand with the protocol's own message classes."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver


@dataclass(frozen=True)
class Receiver:
    """A running receiver, its control and its data port."""

    process: Popen[bytes]
    control: ReceiverControl
    port: int

    def post(self, signal: str, body: bytes, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        """Send *body* and return status, body and headers of the answer."""
        url = f"http://127.0.0.1:{self.port}/v1/{signal}"
        named = {"Content-Type": "application/x-protobuf"} | {k.replace("_", "-"): v for k, v in headers.items()}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, named), timeout=20) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), dict(error.headers)


@pytest.fixture
def client_of() -> Callable[[Popen[bytes], ReceiverControl], Receiver]:
    """Return how to talk to a receiver that a test started by itself."""
    return lambda process, control: Receiver(process, control, control.port)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    process = start_receiver(tmp_path / "state")
    control = ReceiverControl(tmp_path / "state")
    try:
        yield Receiver(process, control, control.port)
        process.stdin.close()  # which ends it
        process.wait(20)
    finally:
        process.kill()  # nothing to do unless the test failed
        process.wait(20)


def pair(key: str, value: str | int) -> KeyValue:
    return KeyValue(
        key=key, value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    )


def resource(**attributes: str) -> Resource:
    return Resource(attributes=[pair(key.replace("__", "."), value) for key, value in attributes.items()])


@pytest.fixture
def numbered_spans() -> Callable[[int, int], bytes]:
    """Return a body of *count* spans whose ids say their numbers, from *first* on."""

    def body(first: int, count: int) -> bytes:
        spans = [
            Span(
                trace_id=(number + 1).to_bytes(16, "big"),
                span_id=(number + 1).to_bytes(8, "big"),
                name=f"span {number}",
                start_time_unix_nano=1_700_000_000_000_000_000 + number,
                end_time_unix_nano=1_700_000_000_000_000_000 + number + 5,
            )
            for number in range(first, first + count)
        ]
        group = ResourceSpans(resource=resource(service__name="cart"), scope_spans=[ScopeSpans(spans=spans)])
        return ExportTraceServiceRequest(resource_spans=[group]).SerializeToString()

    return body
