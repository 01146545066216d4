"""What a program sends by OTLP, over HTTP or gRPC: counted, given the identity of its pod, and passed on to the receiver.

The endpoint is on the loopback of the program's own network, so that no fault of the data network silences telemetry.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from opsassay.core.errors import UserError
from opsassay.telemetry.otlp.intake import CONTENT_TYPE, JSON
from opsassay.telemetry.otlp.requests import parse, parse_json, unpack
from opsassay.telemetry.otlp.spool import MAX_PAYLOAD_BYTES, Kind
from opsassay.testbed.workload.runtime.program_clock import ProgramClock
from opsassay.testbed.workload.runtime.sidecar_config import SPANS_PATH
from opsassay.testbed.workload.runtime.sidecar_spans import SidecarSpans

PORT, GRPC_PORT = 4318, 4317
"""Where SDKs send to by default; here both take both, since many programs have one of the two built in."""
GRPC_BEGINS = b"PRI * HTTP/2.0"
HOST_ATTRIBUTES = ("host.", "process.", "container.", "os.", "k8s.", "service.")
"""Resource attributes that tell of this machine, or what the pod's identity says in their place."""
GROUPS = {"traces": "resource_spans", "metrics": "resource_metrics", "logs": "resource_logs"}
"""The field of an export request that holds what comes from one resource."""
GZIP_MAGIC = b"\x1f\x8b"
PEER_FIELDS = ("server.address", "net.peer.name", "peer.service", "net.sock.peer.name")
URL_FIELDS = ("url.full", "http.url")
STATUS_FIELDS = ("http.response.status_code", "http.status_code")
METHOD_FIELDS = ("http.request.method", "http.method")


class ProgramTelemetry:
    """Takes a program's telemetry, counts its spans into *stats*, sends it on to *endpoint* as *resource*'s.

    *stores* maps the names of stores to what commands to them are counted under (``sql:db``), *services* each name by which
    another service is called to that service.
    Ends of spans tell *clock* what time it is for the program. With a *sidecar*, its spans are those of the service's
    requests, and the program's own are parts of them.
    """

    def __init__(
        self,
        stats: Any,
        clock: ProgramClock,
        endpoint: str,
        resource: Mapping[str, str],
        services: Mapping[str, str],
        stores: Mapping[str, str],
        *,
        sidecar: bool = False,
    ) -> None:
        self._sidecar = SidecarSpans() if sidecar else None
        self._stats, self._clock, self._endpoint, self._resource = stats, clock, endpoint, dict(resource)
        self._peers = {called: f"call:{service}" for called, service in services.items()} | dict(stores)
        self._http: aiohttp.ClientSession | None = None

    async def start(self, *listeners: socket.socket) -> None:
        """Receive OTLP at *listeners*, listening sockets on the loopback of the program's network."""
        application = web.Application(client_max_size=MAX_PAYLOAD_BYTES)
        for signal in GROUPS:
            application.router.add_post(f"/v1/{signal}", self._take_export)
        application.router.add_post(SPANS_PATH, self._take_export)
        runner = web.AppRunner(application, access_log=None, handle_signals=False)
        await runner.setup()
        assert runner.server is not None
        for listener in listeners:
            await asyncio.get_running_loop().create_server(
                lambda: _Beginning(cast("Callable[[], asyncio.Protocol]", runner.server), self._take_grpc),
                sock=listener,
            )
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5))

    async def _take_export(self, request: web.Request) -> web.Response:
        """Take an export *request* over HTTP, and answer it."""
        signal = request.path.rpartition("/")[2]
        try:
            message = _read(signal, request.content_type, await request.read())
        except UserError as error:
            return web.Response(status=400, text=str(error))
        status, body = await self._pass_on(signal, message, from_program=request.path != SPANS_PATH)
        if request.content_type == JSON and status == 200:
            return web.json_response({})
        return web.Response(status=status, body=body, content_type=CONTENT_TYPE)

    async def _take_grpc(self, signal: str, payload: bytes) -> int:
        """Take an export of *signal* over gRPC; return the HTTP status. Raises BrokenBodyError, LargeBodyError."""
        status, _ = await self._pass_on(signal, _read(signal, CONTENT_TYPE, payload), from_program=True)
        return status

    async def _pass_on(self, signal: str, message: Any, *, from_program: bool) -> tuple[int, bytes]:
        """Count the spans of the export *message*, set its resource, send it on; return HTTP status and body."""
        for group in getattr(message, GROUPS[signal]):
            if signal == "traces" and self._sidecar is not None:
                self._sidecar.place(group, from_program=from_program)
            self._set_resource(group.resource)
            if signal == "traces":
                spans = [span for scope in group.scope_spans for span in scope.spans]
                for span in spans:
                    self._count_span(span)
                if from_program:
                    self._clock.read_span(max((span.end_time_unix_nano for span in spans), default=0))
        assert self._http is not None
        headers = {"Content-Type": CONTENT_TYPE}
        try:
            async with self._http.post(
                f"{self._endpoint}/v1/{signal}", data=message.SerializeToString(), headers=headers
            ) as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 503, f"The receiver does not answer: {error}".encode()

    def _set_resource(self, resource: Any) -> None:
        """Replace attributes of host, container and the like in *resource* by those of this replica."""
        kept = [one for one in resource.attributes if not one.key.startswith(HOST_ATTRIBUTES)]
        del resource.attributes[:]
        resource.attributes.extend(kept)
        resource.attributes.extend(
            KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in self._resource.items()
        )

    def _count_span(self, span: Any) -> None:
        """Count *span* as a request served, a message handled or a call to a service or store of the system."""
        fields = {one.key: _as_python_value(one.value) for one in span.attributes}
        status = next((fields[name] for name in STATUS_FIELDS if name in fields), 0)
        ok = span.status.code != 2 and int(status or 0) < 400
        took_ns = max(span.end_time_unix_nano - span.start_time_unix_nano, 0)
        if span.kind == Span.SPAN_KIND_SERVER:
            method = next((fields[name] for name in METHOD_FIELDS if name in fields), "")
            operation = f"{method} {fields['http.route']}" if "http.route" in fields else span.name
            for activity in ("server", f"server {operation}"):
                self._stats.add(activity, took_ns, ok=ok)
        elif span.kind == Span.SPAN_KIND_CONSUMER:
            self._stats.add("consumer", took_ns, ok=ok)
        elif span.kind == Span.SPAN_KIND_CLIENT and (called := self._activity_of(_peer(fields))) is not None:
            self._stats.add(called, took_ns, ok=ok)

    def _activity_of(self, host: str) -> str | None:
        """Return the counter name for calls to *host*; None if it is no service or store of the system."""
        return self._peers.get(host) or self._peers.get(host.partition(".")[0])


class _Beginning(asyncio.Protocol):
    """A connection of which nothing is known: its first bytes say whether *http* has it or *export*, over gRPC."""

    def __init__(self, http: Callable[[], asyncio.Protocol], export: Callable[[str, bytes], Awaitable[int]]) -> None:
        self._http, self._export, self._seen = http, export, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store *transport* until the first bytes tell whether the connection is gRPC or HTTP."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass the connection, with all *data* so far, to a gRPC or HTTP protocol once its first bytes tell which."""
        self._seen += data
        if len(self._seen) < len(GRPC_BEGINS) and GRPC_BEGINS.startswith(self._seen):
            return
        protocol = self._grpc() if self._seen.startswith(GRPC_BEGINS) else self._http()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._seen)

    def _grpc(self) -> asyncio.Protocol:
        from opsassay.telemetry.otlp.grpc import GrpcConnection  # few programs need it, and all would import it

        return GrpcConnection(self._export)


def _read(signal: str, content_type: str, body: bytes) -> Any:
    """Return the OTLP export of *signal* in *body* (*content_type*, or gzipped); BrokenBodyError, LargeBodyError."""
    plain = unpack(Kind.GZIP if body[:2] == GZIP_MAGIC else Kind.PROTOBUF, body)
    return (parse_json if content_type == JSON else parse)(signal, plain)


def _as_python_value(value: Any) -> Any:
    """Return an OTLP attribute *value* as Python's; None for lists, bytes and the empty value."""
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind in ("string_value", "int_value", "bool_value", "double_value") else None


def _peer(fields: Mapping[str, Any]) -> str:
    """Return the host that a client span with attributes *fields* called, '' if they name none."""
    host = next((str(fields[key]) for key in PEER_FIELDS if fields.get(key)), None)
    url = next((str(fields[key]) for key in URL_FIELDS if fields.get(key)), "")
    return host or urlsplit(url).hostname or ""
