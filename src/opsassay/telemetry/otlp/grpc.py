"""OTLP over gRPC: the Export method of its three services, on a connection of HTTP/2 without TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import cast
from urllib.parse import quote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from opsassay.telemetry.otlp.requests import BrokenBodyError, LargeBodyError
from opsassay.telemetry.otlp.spool import MAX_PAYLOAD_BYTES

Export = Callable[[str, bytes], Awaitable[int]]
"""Takes signal and request (protobuf, or gzipped) and returns the status of HTTP; BrokenBodyError, LargeBodyError."""
SERVICES = {
    f"/opentelemetry.proto.collector.{package}.v1.{package.title()}Service/Export": signal
    for package, signal in (("trace", "traces"), ("metrics", "metrics"), ("logs", "logs"))
}
INVALID, TOO_LARGE, UNKNOWN_METHOD, UNAVAILABLE = 3, 8, 12, 14
STATUSES = {200: 0, 400: INVALID, 413: TOO_LARGE, 415: INVALID}
"""Statuses of gRPC by those of HTTP; others are UNAVAILABLE, after which a client tries again."""
PREFIX_BYTES, EMPTY_ANSWER = 5, b"\0" * 5
MOST_AT_ONCE = 16


class GrpcConnection(asyncio.Protocol):
    """One connection of a client, whose requests go to *export*."""

    def __init__(self, export: Export) -> None:
        self._export, self._answering = export, set[asyncio.Task[None]]()
        self._calls: dict[int, tuple[dict[str, str], bytearray]] = {}
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the connection on *transport*."""
        self._transport = cast("asyncio.Transport", transport)
        self._http.initiate_connection()
        self._http.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: MOST_AT_ONCE})
        self._send()

    def data_received(self, data: bytes) -> None:
        """Take *data*, and answer the requests that it completes; what is no HTTP/2 ends the connection."""
        try:
            for event in self._http.receive_data(data):
                self._take(event)
        except ProtocolError:
            self._send()
            self._transport.close()
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Drop what is not complete."""
        self._calls.clear()

    def _take(self, event: Event) -> None:
        """Keep the part of a request that *event* brings, and answer what is complete or too large."""
        if isinstance(event, RequestReceived):
            self._calls[event.stream_id] = (dict(cast("list[tuple[str, str]]", event.headers)), bytearray())
        elif isinstance(event, DataReceived):
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            body = self._calls[event.stream_id][1] if event.stream_id in self._calls else bytearray()
            body += event.data
            if len(body) > MAX_PAYLOAD_BYTES + PREFIX_BYTES:
                del self._calls[event.stream_id]
                self._answer(event.stream_id, TOO_LARGE, f"larger than {MAX_PAYLOAD_BYTES} bytes; send smaller batches")
        elif isinstance(event, StreamReset):
            self._calls.pop(event.stream_id, None)
        elif isinstance(event, StreamEnded) and event.stream_id in self._calls:
            task = asyncio.get_running_loop().create_task(self._carry_out(event.stream_id))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _carry_out(self, stream: int) -> None:
        """Pass on the complete request on *stream* and answer it."""
        headers, body = self._calls.pop(stream)
        signal, packed = SERVICES.get(headers.get(":path", "")), headers.get("grpc-encoding", "identity")
        status, why = INVALID, "not one whole message of gRPC"
        if signal is None or (body[:1] == b"\1" and packed != "gzip"):
            status, why = UNKNOWN_METHOD, "not Export of traces, metrics or logs, plain or with gzip"
        elif len(body) == PREFIX_BYTES + int.from_bytes(body[1:PREFIX_BYTES], "big"):
            try:
                answered = await self._export(signal, bytes(body[PREFIX_BYTES:]))
                status, why = STATUSES.get(answered, UNAVAILABLE), f"the receiver answered {answered}"
            except LargeBodyError as error:
                status, why = TOO_LARGE, str(error)
            except BrokenBodyError as error:
                why = str(error)
        self._answer(stream, status, why)
        self._send()

    def _answer(self, stream: int, status: int, why: str) -> None:
        """Answer *stream* with an empty message, or *status* and *why*."""
        headers = [(":status", "200"), ("content-type", "application/grpc")]
        ended = [("grpc-status", f"{status}"), *([("grpc-message", quote(why, safe=" "))] if status else [])]
        with contextlib.suppress(ProtocolError):  # the client has given up
            if status:
                self._http.send_headers(stream, [*headers, *ended], end_stream=True)
                return
            self._http.send_headers(stream, headers)
            self._http.send_data(stream, EMPTY_ANSWER)
            self._http.send_headers(stream, ended, end_stream=True)

    def _send(self) -> None:
        """Send what is to be sent."""
        self._transport.write(self._http.data_to_send())
