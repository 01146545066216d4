"""Reads a proxy's record: every request with its answer, as bytes and parsed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.json_lines import follow_json_lines, read_json_lines
from opsassay.core.schema.validation_errors import reason
from opsassay.solvers.proxy import sse
from opsassay.solvers.proxy.apis import Asked, ModelAnswer, ModelApi, api_of
from opsassay.solvers.proxy.codings import decoded
from opsassay.solvers.proxy.record import RECORD


@dataclass(frozen=True)
class Exchange:
    """One request and its answer; *chunks* are (time in ns of UTC, bytes) of the answer as sent to the client.

    *sent_body* is the request's body after an intervention, None without one. *outcome* is "cut" when the proxy was killed
    before the end. *differences* says how the request differs from the recorded one in a replay.
    """

    id: str
    method: str
    path: str
    request_headers: tuple[tuple[str, str], ...]
    request_body: bytes
    sent_body: bytes | None
    status: int | None
    reason: str
    headers: tuple[tuple[str, str], ...]
    chunks: tuple[tuple[int, bytes], ...]
    started_ns: int
    ended_ns: int
    outcome: str
    error: str | None
    differences: tuple[str, ...] = ()

    @property
    def api(self) -> ModelApi | None:
        """The LLM API that the request speaks, None for any other path."""
        return api_of(self.method, self.path)

    @property
    def answer_body(self) -> bytes:
        """All received bytes of the response's body, still content-encoded."""
        return b"".join(data for _, data in self.chunks)

    @property
    def is_stream(self) -> bool:
        """Whether the response is server-sent events, by its first bytes or by its Content-Type."""
        return sse.is_sse(self._decode_body()) or self.header("content-type").startswith("text/event-stream")

    def header(self, name: str) -> str:
        """Return the value of the response header *name*, both in small letters, '' when it is missing."""
        return _find_header(self.headers, name)

    def asked(self) -> Asked | None:
        """Return the parsed request, None when it is no LLM request or cannot be parsed."""
        plain = decoded(self.request_body, _find_header(self.request_headers, "content-encoding"))
        body = json_object(plain if self.sent_body is None else self.sent_body)
        return self.api.asked(self.path, body) if self.api and body is not None else None

    def message(self) -> dict[str, Any] | None:
        """Return the response as one JSON object, a stream assembled; None when it is no JSON."""
        data = self._decode_body()
        if (found := json_object(data)) is not None or self.api is None:
            return found  # an error may be an object where a stream was asked for
        if data.lstrip().startswith(b"["):
            return self.api.assemble(sse.array_events(data))
        return self.api.assemble(sse.events(data)) if self.is_stream else None

    def is_cut(self) -> bool:
        """Whether the response is a stream that ends without a stop reason or end mark."""
        answer, data = self.answer(), self._decode_body()
        is_part = self.is_stream or data.lstrip().startswith(b"[")
        return (
            is_part
            and json_object(data) is None
            and answer is not None
            and answer.finish_reason is None
            and not sse.is_closed(data)
        )

    def _decode_body(self) -> bytes:
        """Return the response's body without its Content-Encoding."""
        return decoded(self.answer_body, self.header("content-encoding"))

    def answer(self) -> ModelAnswer | None:
        """Return the parsed response, None when it is no LLM answer."""
        message = self.message()
        return self.api.read_answer(message) if self.api and message is not None else None


def _find_header(headers: Iterable[tuple[str, str]], name: str) -> str:
    """Return the value, in small letters, of the first of *headers* called *name* (small letters too); "" for none."""
    return next((value for key, value in headers if key.lower() == name), "").lower()


def request_hash(method: str, path: str, body: bytes) -> str:
    """Return the hash that identifies a request: method, path with query, and body.

    JSON bodies are compared as values, so that the order of keys and spaces do not matter; others byte by byte.
    """
    value = json_object(body)
    text = body if value is None else json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(b"\0".join([method.encode(), path.encode("utf-8", "surrogateescape"), text])).hexdigest()


def read_session(folder: Path) -> list[Exchange]:
    """Return the exchanges of a recorded session in the order of their requests; raises UserError, DatapackError."""
    path = folder if folder.is_file() else folder / RECORD
    if not path.exists():
        raise UserError(
            f"{folder} is not a recorded session: it has no {RECORD}; record one with `opsassay trace proxy`."
        )
    drafts: dict[str, _Draft] = {}
    try:
        clock = _Clock()
        for event in map(clock.stamped, read_json_lines(path)):
            if event["event"] == "request":
                drafts[event["id"]] = _Draft(event)
            elif event["event"] != "opened":
                drafts[event["id"]].add_event(event)
    except (KeyError, TypeError, ValueError) as error:
        raise DatapackError(
            f"{path}: an event is not in the form of a record ({reason(error)}); restore the file."
        ) from error
    return [draft.build_exchange() for draft in drafts.values()]


class SessionTail:
    """Follows the record of a session in *folder* while it is written: each exchange is read once, when it has ended.

    Only unfinished exchanges are held in memory. An incomplete line is read by the next call.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._offset = folder / RECORD, 0
        self._drafts: dict[str, _Draft] = {}
        self._clock = _Clock()

    def ended(self) -> Iterator[Exchange]:
        """Yield the requests and answers completed since the last call; raises DatapackError for a damaged record."""
        try:
            for offset, line in follow_json_lines(self._path, self._offset):
                self._offset = offset
                event = self._clock.stamped(line)
                if event["event"] == "request":
                    self._drafts[event["id"]] = _Draft(event)
                elif event["event"] != "opened":
                    self._drafts[event["id"]].add_event(event)
                    if event["event"] == "end":
                        yield self._drafts.pop(event["id"]).build_exchange()
        except (KeyError, TypeError, ValueError) as error:
            raise DatapackError(f"{self._path}: an event is not in the form of a record ({reason(error)}).") from error


def json_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in *body*, None for anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class _Clock:
    """Times of events: wall time of the first event since boot, plus monotonic time since, which cannot jump."""

    def __init__(self) -> None:
        self._base: tuple[int, int] | None = None
        self._boot: str | None = None

    def stamped(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return *event* with ``at_ns``: its time in ns of UTC, from the monotonic clock of its boot."""
        if event["event"] == "opened" and (self._base is None or event["boot_id"] != self._boot):
            self._base, self._boot = (event["time_ns"], event["monotonic_ns"]), event["boot_id"]
        if self._base is None:
            raise ValueError("the record does not begin with `opened`")
        return event | {"at_ns": self._base[0] + event["monotonic_ns"] - self._base[1]}


@dataclass
class _Draft:
    request: dict[str, Any]
    asked: list[bytes] = field(default_factory=list)
    edited: list[bytes] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    last_ns: int = 0

    def add_event(self, event: dict[str, Any]) -> None:
        """Add one *event* of the record: part of a body, the response's head, differences, or the end."""
        self.last_ns = event["at_ns"]
        if event["event"] == "body":
            data = event["text"].encode() if "text" in event else base64.b64decode(event["base64"])
            if event["part"] == "answer":
                self.chunks.append((event["at_ns"], data))
            else:
                (self.asked if event["part"] == "request" else self.edited).append(data)
        elif event["event"] == "answer":
            self.answer = event
        elif event["event"] == "differs":
            self.differences = tuple(event["differences"])
        elif event["event"] == "end":
            self.end = event

    def build_exchange(self) -> Exchange:
        """Return the request with its response from the events so far; its outcome is "cut" without an end."""
        return Exchange(
            id=self.request["id"],
            method=self.request["method"],
            path=self.request["path"],
            request_headers=tuple((name, value) for name, value in self.request["headers"]),
            request_body=b"".join(self.asked),
            sent_body=b"".join(self.edited) if self.edited else None,
            status=self.answer.get("status"),
            reason=self.answer.get("reason", ""),
            headers=tuple((name, value) for name, value in self.answer.get("headers", ())),
            chunks=tuple(self.chunks),
            started_ns=self.request["at_ns"],
            ended_ns=self.end.get("at_ns", self.last_ns or self.request["at_ns"]),
            outcome=self.end.get("outcome", "cut"),
            error=self.end.get("error"),
            differences=self.differences,
        )
