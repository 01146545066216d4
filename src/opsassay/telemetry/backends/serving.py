"""The HTTP server of all backends' APIs over one view, on a local port or a Unix socket."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from socket import socket as Socket  # noqa: N812 - the class; the argument of that name is a path
from typing import Protocol

import polars as pl

from opsassay.core.errors import OperationError
from opsassay.core.http.acceptor import Acceptor, listen_on_port, listen_on_socket
from opsassay.core.http.one_request import (
    REQUEST_TIMEOUT_S,
    UnreadableError,
    drain,
    read_content,
    read_head,
    send_content,
)
from opsassay.core.untrusted import require_socket_path
from opsassay.telemetry.backends.alertmanager import AlertmanagerApi
from opsassay.telemetry.backends.jaeger import JaegerApi
from opsassay.telemetry.backends.loki import LokiApi
from opsassay.telemetry.backends.prometheus import PrometheusApi, failed
from opsassay.telemetry.backends.promql.values import PromqlError
from opsassay.telemetry.backends.requests import TEXT, ApiCall, ApiReply, read_call
from opsassay.telemetry.backends.spans import read_spans
from opsassay.telemetry.backends.tempo import TempoApi
from opsassay.telemetry.backends.views import View, recorded
from opsassay.telemetry.datapack import Datapack

MOST_FORM_BYTES = 2**16
_LOG = logging.getLogger(__name__)
TEMPO = "tempo"
"""The path prefix of Tempo's API on the shared port, since its paths of traces equal Jaeger's."""

REFRESH_S = 1.0
"""The greatest age (s) of a running system's data in a reply."""

_INDEX = (
    "Read-only APIs over one view: Prometheus below /api/v1, Jaeger below /api, Loki below /loki/api/v1, "
    "Alertmanager below /api/v2, Tempo below /tempo.\n"
)


class BackendApi(Protocol):
    """The API of one backend."""

    def reply_to(self, call: ApiCall) -> ApiReply | None:
        """Return the reply to *call*, None when its path is not of this API."""


class MachineLock:
    """The locks by which the queries of one server run one at a time, for Prometheus and for Loki."""

    def __init__(self) -> None:
        self.prometheus, self.loki = threading.Lock(), threading.Lock()


class Backends:
    """The APIs over one *view*, each built at its first use; *turns* are the locks of their queries."""

    def __init__(self, view: View, turns: MachineLock) -> None:
        self._made: dict[str, BackendApi] = {}
        self._lock = threading.Lock()
        self._spans = cache(lambda: read_spans(view))
        self._makers: Mapping[str, Callable[[], BackendApi]] = {
            "prometheus": lambda: PrometheusApi(view, turns.prometheus), "loki": lambda: LokiApi(view, turns.loki),
            "alertmanager": lambda: AlertmanagerApi(view), "jaeger": lambda: JaegerApi(self._spans()),
            TEMPO: lambda: TempoApi(self._spans()),
        }  # fmt: skip

    def get_backend(self, name: str) -> BackendApi:
        """Return the API called *name* (prometheus, loki, ...), built on first use; raises DatapackError, KeyError."""
        with self._lock:
            if name not in self._made:
                self._made[name] = self._makers[name]()
            return self._made[name]

    def read(self) -> Backends:
        """Build the APIs of all backends now, and return self; raises DatapackError."""
        for name in self._makers:
            self.get_backend(name)
        return self


class ApiServer:
    """Answers HTTP requests from the backends that *current* returns: from all, or from the one named *alone*."""

    def __init__(self, current: Callable[[], Backends], alone: str | None = None) -> None:
        self._current, self._alone = current, alone

    @classmethod
    def over(cls, pack: Datapack) -> ApiServer:
        """Return a server of all backends' APIs on the recording *pack*; its tables are read now; raises DatapackError."""
        backends = Backends(recorded(pack), MachineLock()).read()
        return cls(lambda: backends)

    @classmethod
    def live(cls, get_view: Callable[[], View]) -> ApiServer:
        """Return a server of all backends' APIs on a running system; *get_view* is called every `REFRESH_S` s at most."""
        return cls(_Latest(get_view))

    def alone(self, name: str) -> ApiServer:
        """Return a server of the one backend *name*, with its paths at the root of the URL."""
        return ApiServer(self._current, name)

    def serve(self, connection: Socket) -> None:
        """Answer the one HTTP request of *connection*; a running query is cancelled when the client hangs up."""
        with suppress(OSError):
            try:
                call, sends_body = self._read_call(connection)
            except UnreadableError as error:
                reply, call = failed(PromqlError(str(error), "bad_data", error.status)), None
                send_content(connection, reply.status, reply.content, reply.kind)
                drain(connection)
            if call is not None:
                reply = self.reply(call)
                content = reply.content if sends_body else b""
                send_content(connection, reply.status, content, reply.kind)

    def reply(self, call: ApiCall) -> ApiReply:
        """Return the reply to *call* by the backend that its path names: 404 without one, 500 or 503 for a failure."""
        if call.method not in {"GET", "HEAD", "POST"}:
            return ApiReply(405, b"Method Not Allowed\n", TEXT)
        if call.path == ("",):
            return ApiReply(200, _INDEX.encode(), TEXT)
        name, call = (self._alone, call) if self._alone is not None else _backend_of(call)
        try:
            reply = self._current().get_backend(name).reply_to(call) if name is not None else None
        except OperationError:
            _LOG.warning("what is served cannot be asked any more")
            return failed(PromqlError("the telemetry cannot be had now", "unavailable", 503))
        except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - our fault, which the log explains
            _LOG.exception("a request could not be answered")
            return failed(PromqlError("internal error", "internal", 500))
        return reply if reply is not None else ApiReply(404, b"404 page not found\n", TEXT)

    def _read_call(self, connection: Socket) -> tuple[ApiCall | None, bool]:
        """Read one request; return (call, whether its reply has a body: not for HEAD), call None when the client sent none.

        Raises UnreadableError for a request that cannot be read.
        """
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


class _Latest:
    """Returns the backends over the latest view; it calls *now* for a new view after `REFRESH_S` seconds."""

    def __init__(self, now: Callable[[], View]) -> None:
        self._now, self._turns, self._lock = now, MachineLock(), threading.Lock()
        self._backends: Backends | None = None
        self._seen_s = 0.0

    def __call__(self) -> Backends:
        with self._lock:
            if self._backends is None or time.monotonic() - self._seen_s > REFRESH_S:
                self._seen_s = time.monotonic()
                self._backends = Backends(self._now(), self._turns)
            return self._backends


def _backend_of(call: ApiCall) -> tuple[str | None, ApiCall]:
    """Return (backend of the path of *call*, call without its prefix), (None, *call*) for an unknown path."""
    match call.path:
        case ("api", "v1", *_) | ("-", *_):
            return "prometheus", call
        case ("api", "v2", *_):
            return "alertmanager", call
        case ("loki", *_) | ("ready",):
            return "loki", call
        case ("api", *_):
            return "jaeger", call
        case (first, *rest) if first == TEMPO:
            return TEMPO, call._replace(path=tuple(rest))
    return None, call


def api_urls(url: str) -> dict[str, str]:
    """Return backend name to the URL of its API, for a server at *url*."""
    return {**dict.fromkeys(("prometheus", "jaeger", "loki", "alertmanager"), url), TEMPO: f"{url}/{TEMPO}"}


@contextmanager
def serving_on_port(server: ApiServer, port: int = 0) -> Iterator[str]:
    """Serve *server* on *port* of 127.0.0.1, any free one for 0, and yield its URL; raises StartError."""
    listener = listen_on_port(port)
    with Acceptor(listener, server.serve):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def serving_on_socket(server: ApiServer, path: Path) -> Iterator[Path]:
    """Serve *server* at the Unix socket *path* while the block runs; raises UserError when it cannot be made."""
    require_socket_path(path)
    listener = listen_on_socket(path)
    try:
        with Acceptor(listener, server.serve):
            yield path
    finally:
        path.unlink(missing_ok=True)
