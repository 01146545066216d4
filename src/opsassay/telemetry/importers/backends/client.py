"""Requests to one backend within limits, tried again with pauses; what fails is one sentence without any token."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp

from opsassay.core.errors import OperationError
from opsassay.core.schema.backends import NAMES, Backend, ImportLimits
from opsassay.core.text import plural
from opsassay.telemetry.importers.backends.redaction import Redaction

LONGEST_PAUSE_S = 30.0
SHORTEST_SECRET = 6
"""Characters of a token that is looked for in texts; a shorter one would be found in words."""

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_CHUNK = 2**16


class BackendError(OperationError):
    """A backend that cannot be read: which one, what it does, what to do next."""


class TooLargeError(BackendError):
    """An answer that is longer than one may be; whoever asked asks for less."""


class RejectedError(BackendError):
    """A request that the backend does not take; *status* is HTTP's, *said* the first line of its answer."""

    def __init__(self, message: str, status: int, said: str) -> None:
        self.status, self.said = status, said
        super().__init__(message)


@dataclass
class ImportUsage:
    """What an import asked for so far, of the *most* bytes that it may have."""

    most: int
    size: int = 0
    requests: dict[str, int] = field(default_factory=dict)


def token_variable(name: str) -> str:
    """Return the name of the environment variable with the token of the backend *name*."""
    return f"OPSASSAY_{name.upper()}_TOKEN"


def tokens() -> dict[str, str]:
    """Return backend name to token, read from the environment."""
    found = {name: os.environ.get(token_variable(name), "").strip() for name in NAMES}
    return {name: token for name, token in found.items() if token}


def secrets_in(tokens: Mapping[str, str]) -> list[str]:
    """Return all texts that must be redacted for *tokens*: each with and without its scheme, such as ``Basic``."""
    return [
        part for token in tokens.values() for part in (token, token.rpartition(" ")[2]) if len(part) >= SHORTEST_SECRET
    ]


class _AgainError(Exception):
    """Ask again, after *pause_s* at least."""

    def __init__(self, what: str, pause_s: float = 0.0) -> None:
        self.pause_s = pause_s
        super().__init__(what)


class BackendClient:
    """Asks the backend *name*; `get` raises BackendError for what cannot be had within the limits."""

    def __init__(
        self, session: aiohttp.ClientSession, name: str, backend: Backend, limits: ImportLimits, usage: ImportUsage,
        redaction: Redaction,
    ) -> None:  # fmt: skip
        self.name, self.backend, self.limits, self.redaction = name, backend, limits, redaction
        self._session, self._usage = session, usage
        self._room, self._next_s = asyncio.Semaphore(limits.at_once), 0.0
        self._headers = {"Accept": "application/json"}
        if token := tokens().get(name):
            self._headers["Authorization"] = token if " " in token else f"Bearer {token}"
        if backend.tenant:
            self._headers["X-Scope-OrgID"] = backend.tenant

    @property
    def requests(self) -> int:
        """The number of requests sent so far."""
        return self._usage.requests.get(self.name, 0)

    async def get(self, path: str, parameters: Mapping[str, Any] | None = None, *, post: bool = False) -> Any:
        """Return the JSON response of *path*; with *post* the *parameters* are sent as a form. Raises BackendError."""
        deadline = time.monotonic() + self.limits.retry_s
        for attempt in count():
            try:
                async with self._room:
                    await self._wait_for_turn()
                    content = await self._ask_once(path, parameters or {}, post=post)
            except (_AgainError, aiohttp.ClientError, TimeoutError) as error:
                pause_s = max(min(0.5 * 2**attempt, LONGEST_PAUSE_S), getattr(error, "pause_s", 0.0))
                if time.monotonic() + pause_s > deadline:
                    raise self.failed(
                        f"{self._describe_error(error)}, also after {plural(attempt + 1, 'try').replace('trys', 'tries')}"
                    ) from error
                await asyncio.sleep(pause_s)
            else:
                return self._parse_json(content)
        raise AssertionError

    def read(self, reader: Callable[[Any], Any], answer: Any) -> Any:
        """Return ``reader(answer)``; raises BackendError when *answer* has another form than *reader* expects."""
        try:
            return reader(answer)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self.failed("answers in a form that is not its own") from error

    def failed(self, problem: str) -> BackendError:
        """Return a BackendError that names this backend and its *problem*."""
        return BackendError(self._format_problem(problem))

    def _format_problem(self, problem: str) -> str:
        """Return one sentence on *problem* with this backend, and what to do next."""
        way_out = f"check its URL and {token_variable(self.name)}, then run the command again: it goes on from here."
        return f"{self.name} at {self.backend.url} {problem}; {way_out}"

    async def _wait_for_turn(self) -> None:
        """Wait so long that at most requests_per_s requests a second are sent."""
        now = time.monotonic()
        self._next_s = max(now, self._next_s) + 1 / self.limits.requests_per_s
        if (wait_s := self._next_s - 1 / self.limits.requests_per_s - now) > 0:
            await asyncio.sleep(wait_s)

    async def _ask_once(self, path: str, parameters: Mapping[str, Any], *, post: bool) -> bytes:
        """Send one request and return its content; raises _AgainError, RejectedError or TooLargeError."""
        self._usage.requests[self.name] = self.requests + 1
        url = self.backend.url.rstrip("/") + path
        asked = {"data": parameters} if post else {"params": parameters}
        options: Any = {"headers": self._headers, "allow_redirects": False, **asked}
        async with asyncio.timeout(self.limits.timeout_s):
            async with self._session.request("POST" if post else "GET", url, **options) as reply:
                content = await self._read_content(reply)
                if reply.status < 300:
                    return content
                said = self.redaction.sentence(content[:4096].decode("utf-8", "replace"))
                if reply.status in _AGAIN and not _is_too_much(said):
                    raise _AgainError(f"answers {reply.status}", _pause_s(reply.headers.get("Retry-After", "")))
                what = (
                    "redirects elsewhere" if reply.status < 400 else f"answers {reply.status} ({said or reply.reason})"
                )
                raise RejectedError(self._format_problem(what), reply.status, said)

    async def _read_content(self, reply: aiohttp.ClientResponse) -> bytes:
        """Return the body of *reply*; raises an error when it or the whole import grows too large."""
        content = bytearray()
        async for chunk in reply.content.iter_chunked(_CHUNK):
            content += chunk
            self._usage.size += len(chunk)
            if self._usage.size > self._usage.most:
                raise self.failed(
                    f"and the others gave {self._usage.most} bytes, the most of limits.total_bytes in one go"
                )
            if len(content) > self.limits.answer_bytes:
                reply.close()
                raise TooLargeError(
                    self._format_problem(f"answers with more than {self.limits.answer_bytes} bytes at once")
                )
        return bytes(content)

    def _parse_json(self, content: bytes) -> Any:
        """Return *content* as JSON; raises BackendError."""
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self.failed("answers with something that is not JSON") from error

    def _describe_error(self, error: BaseException) -> str:
        """Return what went wrong with a request, without secrets."""
        match error:
            case _AgainError():
                return str(error)
            case TimeoutError():
                return f"gives no answer within {self.limits.timeout_s:g} s"
            case aiohttp.ClientConnectorError():
                return "cannot be reached"
        return f"breaks off ({self.redaction.sentence(error)})"


def _is_too_much(message: str) -> bool:
    """Return whether the error *message* of a backend says that the result is too large, whatever the status."""
    return any(word in message for word in ("too many samples", "timed out", "max entries", "exceeds"))


def is_too_much(error: BackendError) -> bool:
    """Return whether *error* would not occur if less were asked for."""
    return isinstance(error, TooLargeError) or (isinstance(error, RejectedError) and _is_too_much(error.said))


def _pause_s(text: str) -> float:
    """Return the seconds that a Retry-After header asks for, 0 for a date or none."""
    return min(float(text), LONGEST_PAUSE_S) if text.isascii() and text.isdigit() else 0.0
