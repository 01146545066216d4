"""A small API server: answers from a script over real HTTP, within bounds, and remembers what it was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket as Socket  # noqa: N812 - the class; the argument of that name is a path
from typing import Any, NamedTuple, TypeVar

import yaml

from opsassay.core.http.acceptor import Acceptor, listen_on_port, listen_on_socket
from opsassay.core.http.one_request import (
    REQUEST_TIMEOUT_S,
    RequestHead,
    UnreadableError,
    drain,
    read_body,
    read_head,
    send_answer,
)
from opsassay.testbed.substrates.kubernetes.api.statuses import Outcome, failure

Script = Callable[[str, str, dict[str, str]], Outcome | None]
"""(method, path, query) -> (status, body), a watch has a list of events, bytes are plain text; None hangs up."""

MOST_ASKED = 2000
"""Requests that are remembered, the latest ones."""

MOST_TAKEN_BYTES = 64 * 2**20
"""Bytes of all bodies that one server takes in its life: objects are kept, and somebody may write without end."""


class ApiRequest(NamedTuple):
    """A request as it came; *headers* as they were written, *body* decoded."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class SmallApi:
    """Answers by *script* while it is `served`; ``asked`` holds the last requests.

    It listens on any free port of 127.0.0.1, which ``url`` names, or at the path *socket*: then ``url`` is None. Raises
    UserError when no socket can be there.
    """

    def __init__(self, script: Script, socket: Path | None = None) -> None:
        self.asked: list[ApiRequest] = []
        self._script, self._socket, self._taken = script, socket, 0
        self._of_thread = threading.local()
        self.listener = listen_on_port() if socket is None else listen_on_socket(socket)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}" if socket is None else None

    @property
    def request(self) -> ApiRequest:
        """The request that the calling thread answers."""
        return self._of_thread.request  # type: ignore[no-any-return]

    def refused(self, _method: str, _path: str) -> Outcome | None:
        """Return the response to a request that is refused before its body is read; None here, for subclasses."""
        return None

    def remove_socket(self) -> None:
        """Remove the Unix socket at which the server listened, if any."""
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    def serve(self, connection: Socket) -> None:
        """Read one request from *connection* and send the response of the script."""
        request = None
        with suppress(OSError):  # the other end went away, or took too long
            try:
                request = self._heard(connection)
            except UnreadableError as error:
                send_answer(connection, failure(error.status, str(error)))
                drain(connection)
        if request is None:
            return
        self._of_thread.request = request
        outcome = self._script(request.method, request.path, request.query)
        if outcome is not None:
            with suppress(OSError):
                send_answer(connection, outcome)

    def _heard(self, connection: Socket) -> ApiRequest | None:
        """Read and record a request; return None without one or after refusing it; raises UnreadableError."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        if (head := read_head(connection, deadline)) is None:
            return None
        if (refusal := self.refused(head.method, head.path)) is not None:
            self._note_request(head, None)
            send_answer(connection, refusal)
            drain(connection)
            return None
        if head.method == "GET" and head.length:
            raise UnreadableError(400, "a GET has no body here")
        if head.length and self._taken + head.length > MOST_TAKEN_BYTES:
            raise UnreadableError(413, "no more bodies are taken")
        self._taken += head.length
        return self._note_request(head, read_body(connection, head, deadline))

    def _note_request(self, head: RequestHead, body: Any) -> ApiRequest:
        """Append the request to `asked`, which keeps the last ones, and return it."""
        request = ApiRequest(head.method, head.path, head.query, head.headers, body)
        self.asked.append(request)
        del self.asked[:-MOST_ASKED]
        return request


Served = TypeVar("Served", bound=SmallApi)


@contextmanager
def served(api: Served) -> Iterator[Served]:
    """Serve *api* while the block runs; its connections and threads end with the block."""
    try:
        with Acceptor(api.listener, api.serve):
            yield api
    finally:
        api.remove_socket()


def write_kubeconfig(path: Path, url: str, token: str = "abc") -> Path:  # noqa: S107 - no secret: nothing asks for it
    """Write a kubeconfig with the one context ``here`` for *url* to *path*; return *path*."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": url}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path
