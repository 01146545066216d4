"""The server of all APIs over one view: bounded HTTP on a port of this machine or on a Unix socket."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket as Socket  # noqa: N812 - the class; the argument of that name is a path
from typing import Protocol

import polars as pl

from opsassay.apis.alertmanager import AlertmanagerApi
from opsassay.apis.jaeger import JaegerApi
from opsassay.apis.loki import LokiApi
from opsassay.apis.prometheus import PrometheusApi, failed
from opsassay.apis.promql.values import PromqlError
from opsassay.apis.requests import TEXT, ApiCall, ApiReply, read_call
from opsassay.apis.spans import read_spans
from opsassay.apis.tempo import TempoApi
from opsassay.bounded_http.acceptor import Acceptor, listen_on_port, listen_on_socket
from opsassay.bounded_http.one_request import (
    REQUEST_TIMEOUT_S,
    UnreadableError,
    drain,
    read_content,
    read_head,
    send_content,
)
from opsassay.outside import require_socket_path
from opsassay.telemetry.datapack import Datapack

MOST_FORM_BYTES = 2**16
_LOG = logging.getLogger(__name__)
TEMPO = "tempo"
"""The part of the path below which Tempo stands on the port of all APIs: its traces have the paths of Jaeger's."""

_INDEX = (
    "Read-only APIs over one recording: Prometheus below /api/v1, Jaeger below /api, Loki below /loki/api/v1, "
    "Alertmanager below /api/v2, Tempo below /tempo.\n"
)


class BackendApi(Protocol):
    """One backend's API; `answer` gives None for a path that it has not."""

    def answer(self, call: ApiCall) -> ApiReply | None:
        """Return the reply to *call*."""


class ApiServer:
    """Answers the requests of connections out of *backends*."""

    def __init__(self, backends: Sequence[BackendApi], below: Mapping[str, BackendApi] | None = None) -> None:
        """*below* are backends that have all paths below the one name, whose paths others have too."""
        self._backends, self._below = backends, dict(below or {})

    @classmethod
    def over(cls, view: Datapack) -> ApiServer:
        """Return the server of all APIs over *view*, whose tables are read now; raises DatapackError."""
        spans = read_spans(view)
        shared = (PrometheusApi(view), LokiApi(view), AlertmanagerApi(view.incident), JaegerApi(spans))
        return cls(shared, {TEMPO: TempoApi(spans)})

    def alone(self, name: str) -> ApiServer:
        """Return a server of the backend below *name* alone, at the root of its paths."""
        return ApiServer((self._below[name],))

    def serve(self, connection: Socket) -> None:
        """Answer the one request of *connection*; one whose client hangs up ends with it."""
        with suppress(OSError):
            try:
                call, sends_body = self._heard(connection)
            except UnreadableError as error:
                reply, call = failed(PromqlError(str(error), "bad_data", error.status)), None
                send_content(connection, reply.status, reply.content, reply.kind)
                drain(connection)
            if call is not None:
                reply = self.reply(call)
                content = reply.content if sends_body else b""
                send_content(connection, reply.status, content, reply.kind)

    def reply(self, call: ApiCall) -> ApiReply:
        """Return the reply to *call*: of the first backend that has the path, else that there is no such page."""
        if call.method not in {"GET", "HEAD", "POST"}:
            return ApiReply(405, b"Method Not Allowed\n", TEXT)
        if call.path == ("",):
            return ApiReply(200, _INDEX.encode(), TEXT)
        backends = self._backends
        if call.path[0] in self._below:
            backends, call = (self._below[call.path[0]],), call._replace(path=call.path[1:])
        for backend in backends:
            try:
                reply = backend.answer(call)
            except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - our fault, which the log explains
                _LOG.exception("a request could not be answered")
                return failed(PromqlError("internal error", "internal", 500))
            if reply is not None:
                return reply
        return ApiReply(404, b"404 page not found\n", TEXT)

    def _heard(self, connection: Socket) -> tuple[ApiCall | None, bool]:
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        if (head := read_head(connection, deadline)) is None:
            return None, False
        if head.length > MOST_FORM_BYTES:
            raise UnreadableError(413, f"a form may have {MOST_FORM_BYTES} bytes")
        form = read_content(connection, head, deadline)
        try:
            return read_call(head.method, head.path, head.query_text, form), head.method != "HEAD"
        except ValueError as error:
            raise UnreadableError(400, str(error)) from error


def api_urls(url: str) -> dict[str, str]:
    """Return where each API is found when all are served at *url*."""
    return {**dict.fromkeys(("prometheus", "jaeger", "loki", "alertmanager"), url), TEMPO: f"{url}/{TEMPO}"}


@contextmanager
def serving_on_port(server: ApiServer, port: int = 0) -> Iterator[str]:
    """Serve *server* on *port* of 127.0.0.1, any free one for 0, and yield its URL; raises StartError."""
    listener = listen_on_port(port)
    with Acceptor(listener, server.serve):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def serving_on_socket(server: ApiServer, path: Path) -> Iterator[Path]:
    """Serve *server* at the Unix socket *path* while the block runs; raises UserError for a path that cannot be one."""
    require_socket_path(path)
    listener = listen_on_socket(path)
    try:
        with Acceptor(listener, server.serve):
            yield path
    finally:
        path.unlink(missing_ok=True)
