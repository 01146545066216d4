"""Reads one HTTP request of a connection and writes its response, limited in size and time.

The standard library's server limits neither the time of a whole request nor the size of its head.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from opsassay.core.errors import UserError
from opsassay.core.untrusted import read_json

MOST_HEAD_BYTES = 2**14
"""Most bytes of the request line and the headers together."""

MOST_HEADERS = 100
MOST_BODY_BYTES = 3 * 2**20
"""Most bytes of a body, as of a real API server."""

REQUEST_TIMEOUT_S, ANSWER_TIMEOUT_S, DRAIN_S = 10.0, 30.0, 1.0
_CHUNK_BYTES = 2**16
_REASONS: Mapping[int, str] = {one.value: one.phrase for one in HTTPStatus}
_LONG_HEAD = f"the head of a request may have {MOST_HEAD_BYTES} bytes"


class UnreadableError(UserError):
    """The client sent no request that can be answered; *status* is the HTTP status of the response."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class RequestHead(NamedTuple):
    """A request line and its headers; *rest* are bytes read beyond them, *length* is the bytes of the whole body.

    *query* has the first value of each parameter, *query_text* is the query string as sent.
    """

    method: str
    path: str
    query: dict[str, str]
    query_text: str
    headers: dict[str, str]
    length: int
    rest: bytes


def read_head(connection: socket.socket, deadline: float) -> RequestHead | None:
    """Read the request line and headers of one HTTP request; return None when the client closes *connection* first.

    *deadline* is in seconds of the monotonic clock. Raises UnreadableError for bytes that are no HTTP or a head that is
    too long, TimeoutError after *deadline*.
    """
    read = bytearray()
    while (end := read.find(b"\r\n\r\n", max(0, len(read) - _CHUNK_BYTES - 4))) < 0:
        if len(read) > MOST_HEAD_BYTES:
            raise UnreadableError(431, _LONG_HEAD)
        if not (chunk := _receive_before(connection, deadline)):
            if read:
                raise UnreadableError(400, "the request ends within its head")
            return None
        read += chunk
        _require_http(read)
    if end > MOST_HEAD_BYTES:
        raise UnreadableError(431, _LONG_HEAD)
    first, *lines = read[:end].decode("iso-8859-1").split("\r\n")
    if len(lines) > MOST_HEADERS:
        raise UnreadableError(431, f"a request may have {MOST_HEADERS} headers")
    headers = dict(_parse_header_line(line) for line in lines)
    method, path, query, query_text = _parse_request_line(first)
    return RequestHead(method, path, query, query_text, headers, _parse_content_length(headers), bytes(read[end + 4 :]))


def read_body(connection: socket.socket, head: RequestHead, deadline: float) -> Any:
    """Read the body that *head* announces and return its JSON value, None without a body.

    *deadline* is in seconds of the monotonic clock. Raises as `read_head`.
    """
    if "protobuf" in header(head.headers, "Content-Type"):
        raise UnreadableError(415, "protobuf is not read here; send JSON, as `kubectl create -f` does")
    content = read_content(connection, head, deadline)
    try:
        return read_json(content) if content else None
    except ValueError as error:
        raise UnreadableError(400, f"the body is no JSON that is read here: {error}") from error


def read_content(connection: socket.socket, head: RequestHead, deadline: float) -> bytes:
    """Read the body that *head* announces and return its bytes (b"" without one); *deadline*, errors as in `read_head`."""
    if header(head.headers, "Expect").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    read = bytearray(head.rest)
    while len(read) < head.length:
        if not (chunk := _receive_before(connection, deadline)):
            raise UnreadableError(400, "the request ends within its body")
        read += chunk
    return bytes(read[: head.length])


def header(headers: Mapping[str, str], name: str) -> str:
    """Return the value of the header *name* in *headers*, ignoring case; '' when it is missing."""
    return next((value for key, value in headers.items() if key.lower() == name.lower()), "")


def send_answer(connection: socket.socket, outcome: tuple[int, Any]) -> None:
    """Send *outcome*, (status, content), as the HTTP response; raises OSError when the client is gone.

    Bytes are sent as plain text, a list as one JSON object per line (a Kubernetes watch), other content as JSON.
    """
    status, content = outcome
    if isinstance(content, list):  # the events of a watch, whose end is that of the connection
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.sendall(f"{_format_response_head(status, 'application/json')}\r\n".encode())
        for event in content:
            connection.sendall(json.dumps(event).encode() + b"\n")
    elif isinstance(content, bytes):
        send_content(connection, status, content, "text/plain")
    else:
        send_content(connection, status, json.dumps(content).encode() + b"\n", "application/json")


def send_content(connection: socket.socket, status: int, content: bytes, media_type: str) -> None:
    """Send an HTTP response of *status* with the body *content* on *connection*; raises OSError when the client is gone."""
    connection.settimeout(ANSWER_TIMEOUT_S)
    connection.sendall(
        f"{_format_response_head(status, media_type)}Content-Length: {len(content)}\r\n\r\n".encode() + content
    )


def _format_response_head(status: int, media_type: str) -> str:
    """Return the status line and headers (Content-Type, Connection) of a response, without the blank line after them."""
    return f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: {media_type}\r\nConnection: close\r\n"


def drain(connection: socket.socket) -> None:
    """End the response, then read and drop the rest of the request, for a second at most, so that the response arrives."""
    deadline = time.monotonic() + DRAIN_S
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while _receive_before(connection, deadline):
            pass


def _receive_before(connection: socket.socket, deadline: float) -> bytes:
    """Return the next bytes of *connection*, b"" at its end; raises TimeoutError after *deadline* (s, monotonic clock)."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    connection.settimeout(remaining)
    return connection.recv(_CHUNK_BYTES)


def _require_http(received: bytearray) -> None:
    """Raise UnreadableError (400, or 505 for another version) when *received* cannot begin an HTTP/1.0 or 1.1 request."""
    line, end, _ = received[:MOST_HEAD_BYTES].partition(b"\r\n")
    method = line.split(b" ", 1)[0]
    if not (method.isalpha() and method.isupper() and len(method) <= 16):
        raise UnreadableError(400, "this is no HTTP")
    if end and not line.endswith((b" HTTP/1.0", b" HTTP/1.1")):
        raise UnreadableError(505, "HTTP/1.0 and HTTP/1.1 are spoken here")


def _parse_request_line(line: str) -> tuple[str, str, dict[str, str], str]:
    """Parse an HTTP request line into (method, path, query parameters, raw query); raises UnreadableError (400)."""
    parts = line.split(" ")
    if len(parts) != 3 or not parts[1].startswith("/"):
        raise UnreadableError(400, "the request line is no method, path and version")
    try:
        target = urlsplit(f"http://server/{parts[1].lstrip('/')}")
        query = parse_qs(target.query, keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise UnreadableError(400, f"the path cannot be read: {error}") from error
    return parts[0], target.path, {key: values[0] for key, values in query.items()}, target.query


def _parse_header_line(line: str) -> tuple[str, str]:
    """Return (name, value) of the header *line*; raises UnreadableError (400) when it is none."""
    name, colon, value = line.partition(":")
    if not colon or not name or name != name.strip():
        raise UnreadableError(400, "a header is no name and value")
    return name, value.strip()


def _parse_content_length(headers: Mapping[str, str]) -> int:
    """Return the length of the body in bytes, 0 without a Content-Length; raises UnreadableError (400, 411, 413)."""
    if header(headers, "Transfer-Encoding"):
        raise UnreadableError(411, "a body is taken with its Content-Length only")
    text = header(headers, "Content-Length") or "0"
    if not (text.isascii() and text.isdigit()):
        raise UnreadableError(400, "Content-Length is no number of bytes")
    if len(text) > 18 or int(text) > MOST_BODY_BYTES:
        raise UnreadableError(413, f"the body of a request may have {MOST_BODY_BYTES} bytes")
    return int(text)
