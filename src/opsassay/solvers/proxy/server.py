"""The proxy: agents call it instead of the LLM API; it records, answers or edits requests, and streams without delay.

Each request is attributed to a session by its token, recorded, and forwarded; each chunk of the answer is recorded
before it is sent to the client. Method, query and body are unchanged; the real key replaces the agent's token. The
answer's status line, headers (order and case) and bytes are unchanged.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from opsassay.core.errors import UserError
from opsassay.core.logs import Log
from opsassay.core.schema.locks import folder_lock
from opsassay.core.untrusted import require_socket_path
from opsassay.solvers.proxy import sse
from opsassay.solvers.proxy.apis import ModelApi, api_of
from opsassay.solvers.proxy.codings import decoded
from opsassay.solvers.proxy.policies import Policy, Record, Refuse, Serve
from opsassay.solvers.proxy.record import SessionLog, session_folder
from opsassay.solvers.proxy.secrets import (
    Secret,
    StreamMask,
    is_placeholder,
    mask,
    mask_coded,
    safe_headers,
    safe_path,
    safe_text,
    secret,
)
from opsassay.solvers.proxy.tokens import Tokens
from opsassay.solvers.proxy.wire import (
    MAX_HEADER_BYTES,
    Relayed,
    as_text,
    outgoing_headers,
    payload,
    problem,
    token_of,
    unrelayable,
)

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_UNKNOWN_AGENT = (
    "This key was not issued by the proxy; get one with `opsassay trace proxy token SESSION -o DIR` and give it to the "
    "agent as its API key."
)


_log = Log(__name__)


@dataclass(frozen=True)
class ProxySettings:
    """Where the proxy sends requests and stores its record.

    *key* is the real API key, never recorded. *idle_s* is how long the upstream may be silent. *policy* makes the policy
    of each session. *socket* is a Unix socket that is served besides the port. *passed_on* are the only headers, in small
    letters, that go upstream; all when None. Clocks are ns.
    """

    upstream: str
    directory: Path
    key: str | None = None
    idle_s: float = 600.0
    connect_s: float = 30.0
    policy: Callable[[], Policy] = Record
    socket: Path | None = None
    passed_on: frozenset[str] | None = None
    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns

    def __post_init__(self) -> None:
        """Raise UserError for an upstream that is no URL, before anything is written."""
        parts = urlsplit(self.upstream)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise UserError(f"{self.upstream!r} is no upstream; give a URL such as https://api.openai.com.")
        if "@" in parts.netloc:
            raise UserError("The upstream's URL holds a password; give it as the key instead: see --key-env.")


@dataclass
class _Session:
    log: SessionLog
    policy: Policy


@dataclass
class _Call:
    """One request in progress; *masks*, its token and the real key, are removed from the record."""

    id: str
    session: _Session
    request: web.BaseRequest
    body: bytes
    masks: tuple[Secret, ...]
    outcome: str = "cut"
    error: str | None = None
    kept: list[bytes] = field(default_factory=list)
    kept_bytes: int = 0

    @property
    def path(self) -> str:
        """The request's path and query as sent."""
        return self.request.raw_path

    @property
    def api(self) -> ModelApi | None:
        """The LLM API of the request, None for another path."""
        return api_of(self.request.method, self.path)


class ProxyServer:
    """The handler of all requests, with the state of its sessions; `serve` runs it."""

    def __init__(self, settings: ProxySettings) -> None:
        parts = urlsplit(settings.upstream)
        self._settings = settings
        self._base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._tokens = Tokens(settings.directory)
        self._sessions: dict[str, _Session] = {}
        self._ids = (f"{settings.wall_ns():x}-{number}" for number in itertools.count(1))
        self._client: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Open the client session to the upstream; must run in the event loop that serves."""
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=self._settings.connect_s, sock_read=self._settings.idle_s
        )
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            auto_decompress=False,
            timeout=limits,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    async def close(self) -> None:
        """Close the client session and the records of all sessions."""
        if self._client is not None:
            await self._client.close()
        for session in self._sessions.values():
            session.log.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request of an agent: record it, then forward, replay, edit or refuse it."""
        token = token_of(request)
        name = self._tokens.session_of(token) if token else None
        if token is None or name is None:
            return problem(api_of(request.method, request.path_qs), 401, _UNKNOWN_AGENT)
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await request.content.read()
        try:
            session = self._open_session(name)
            call = self._begin_call(session, request, body, token)
        except OSError as error:  # what cannot be recorded is not sent on
            message = f"The proxy cannot write its record ({error.strerror}); nothing was sent on."
            return problem(api_of(request.method, request.path_qs), 507, message)
        try:
            return await self._decide_call(call)
        except asyncio.CancelledError:
            call.outcome = "client_gone"
            raise
        finally:
            reason = safe_text(call.error, call.masks) if call.error else None
            session.log.write("end", id=call.id, outcome=call.outcome, error=reason)

    def _open_session(self, name: str) -> _Session:
        """Return the session *name*; at its first request its folder, log and policy are made."""
        if name not in self._sessions:
            folder = session_folder(self._settings.directory, name)
            log = SessionLog(folder, self._settings.wall_ns, self._settings.monotonic_ns)
            self._sessions[name] = _Session(log, self._settings.policy())
        return self._sessions[name]

    def _begin_call(self, session: _Session, request: web.BaseRequest, body: bytes, token: str) -> _Call:
        """Record the request under the next id, with *token* and the API key masked; return it with its session."""
        key = self._settings.key
        call = _Call(
            next(self._ids),
            session,
            request,
            body,
            (secret(token), *((secret(key),) if key and not is_placeholder(key) else ())),
        )
        headers = [(as_text(name), as_text(value)) for name, value in request.raw_headers]
        session.log.write(
            "request",
            id=call.id,
            method=request.method,
            path=safe_path(call.path, call.masks),
            headers=safe_headers(headers, call.masks),
        )
        session.log.body(call.id, "request", mask_coded(body, call.masks, request.headers.get("Content-Encoding", "")))
        return call

    async def _decide_call(self, call: _Call) -> web.StreamResponse:
        """Carry out the decision of the session's policy: refuse, serve a recorded answer, or forward."""
        if (unfit := unrelayable(call.request)) is not None:
            return self._refuse_call(call, *unfit)
        asked = mask(call.body, call.masks[:1])
        path = safe_path(call.path, call.masks)  # as it stands in a record
        decision = call.session.policy.decide(call.request.method, path, asked)
        if isinstance(decision, Refuse):
            return self._refuse_call(call, decision.status, decision.message)
        if decision.differences:
            named = [safe_text(difference, call.masks) for difference in decision.differences]
            call.session.log.write("differs", id=call.id, differences=named)
        if isinstance(decision, Serve):
            return await self._serve_recorded(call, decision)
        unchanged = decision.body == asked
        if not unchanged:
            call.session.log.body(call.id, "edited", mask(decision.body, call.masks))
        return await self._forward_call(call, call.body if unchanged else decision.body)

    async def _forward_call(self, call: _Call, body: bytes) -> web.StreamResponse:
        """Send *body* to the upstream and relay the answer; 504 on a timeout, 502 when it is unreachable."""
        assert self._client is not None
        try:
            upstream = await self._client.request(
                call.request.method,
                URL(self._base + call.path, encoded=True),
                headers=outgoing_headers(call.request, self._settings.key, self._settings.passed_on),
                data=payload(body),
                allow_redirects=False,
            )
        except TimeoutError:
            call.outcome, call.error = "timeout", "the upstream did not answer in time"
            return self._send_problem(call, 504, f"The upstream {self._base} did not answer in time.")
        except (aiohttp.ClientError, ValueError) as error:
            call.outcome, call.error = "upstream_failed", str(error)
            reason = safe_text(str(error), call.masks)
            return self._send_problem(call, 502, f"The upstream {self._base} cannot be reached: {reason}.")
        try:
            return await self._relay_answer(call, upstream)
        finally:
            upstream.close() if call.outcome != "complete" else upstream.release()

    async def _relay_answer(self, call: _Call, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        """Send the upstream's answer to the agent chunk by chunk; each is recorded before it is sent."""
        headers = CIMultiDict((as_text(name), as_text(value)) for name, value in upstream.raw_headers)
        self._log_answer(call, upstream.status, upstream.reason or "", headers)
        response = Relayed(call.request, upstream.status, upstream.reason or "", headers)
        stream = StreamMask(call.masks, headers.get("Content-Encoding", ""))
        try:
            await response.prepare(call.request)
            async for chunk in _read_chunks(upstream.content):
                self._log_chunk(call, stream.feed(chunk), chunk)
                await response.write(chunk)
        except TimeoutError:
            return self._abort_answer(call, response, "timeout", "the upstream fell silent")
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            return self._abort_answer(call, response, "upstream_failed", f"the answer ended early: {error}")
        except ConnectionError:
            call.outcome = "client_gone"
            return response
        finally:
            self._log_chunk(call, stream.rest(), b"")
        return await self._complete_call(call, response, headers)

    def _abort_answer(self, call: _Call, response: web.StreamResponse, outcome: str, error: str) -> web.StreamResponse:
        """Close the agent's connection within the body, as the upstream did; store *outcome* and *error* in *call*."""
        call.outcome, call.error = outcome, error
        _log.warning("answer broken off", call=call.id, outcome=outcome, reason=error)
        if call.request.transport is not None:
            call.request.transport.close()
        return response

    async def _serve_recorded(self, call: _Call, decision: Serve) -> web.StreamResponse:
        """Send the recorded answer of *decision* in its recorded chunks; one that was cut off is cut off again."""
        recorded = decision.exchange
        headers = CIMultiDict(recorded.headers)
        self._log_answer(call, recorded.status or 502, recorded.reason, headers)
        response = Relayed(call.request, recorded.status or 502, recorded.reason, headers)
        try:
            await response.prepare(call.request)
            for _, chunk in recorded.chunks:
                self._log_chunk(call, chunk, chunk)
                await response.write(chunk)
        except ConnectionError:
            call.outcome = "client_gone"
            return response
        if recorded.outcome not in {"complete", "refused"}:
            return self._abort_answer(call, response, recorded.outcome, "the recorded answer ended here")
        return await self._complete_call(call, response, headers)

    async def _complete_call(self, call: _Call, response: Relayed, headers: CIMultiDict[str]) -> web.StreamResponse:
        """Finish *response*, record a stream (by *headers*) as a parsed message and mark the call as complete."""
        await response.write_eof()
        self._log_message(call, headers)
        call.outcome = "complete"
        return response

    def _refuse_call(self, call: _Call, status: int, message: str) -> web.StreamResponse:
        """Answer with an error of the proxy's own, *status* and *message*, and mark the call as refused."""
        call.outcome, call.error = "refused", message
        _log.warning("request refused", call=call.id, status=status, reason=message)
        return self._send_problem(call, status, message)

    def _send_problem(self, call: _Call, status: int, message: str) -> web.StreamResponse:
        """Return an error with *status* and *message* in the form of the call's API, recorded as its answer."""
        response = problem(call.api, status, message)
        self._log_answer(call, status, response.reason or "", response.headers)
        call.session.log.body(call.id, "answer", bytes(response.body))  # type: ignore[arg-type]
        return response

    def _log_answer(self, call: _Call, status: int, reason: str, headers: CIMultiDict[str]) -> None:
        """Record *status*, *reason* and *headers* of the response to *call*, with secrets masked."""
        kept = safe_headers(headers.items(), call.masks)
        said = safe_text(reason, call.masks)
        call.session.log.write("answer", id=call.id, status=status, reason=said, headers=kept)

    def _log_chunk(self, call: _Call, recorded: bytes, sent: bytes) -> None:
        """Record *recorded*, the chunk *sent* without secrets; keep it for `_log_message` up to MAX_MESSAGE_BYTES."""
        call.session.log.body(call.id, "answer", recorded)
        call.kept_bytes += len(sent)
        if call.kept_bytes <= MAX_MESSAGE_BYTES:
            call.kept.append(recorded)

    def _log_message(self, call: _Call, headers: CIMultiDict[str]) -> None:
        """Record the message that a stream's chunks make together; nothing if they exceed MAX_MESSAGE_BYTES."""
        if call.api is None or not headers.get("Content-Type", "").lower().startswith("text/event-stream"):
            return
        if call.kept_bytes <= MAX_MESSAGE_BYTES:
            data = decoded(b"".join(call.kept), headers.get("Content-Encoding", ""), MAX_MESSAGE_BYTES)
            call.session.log.write("message", id=call.id, message=call.api.assemble(sse.events(data)))


async def _read_chunks(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the body in the chunks in which the upstream sent it.

    All responses without a body share one empty reader, whose own iteration would never end after the first (aiohttp
    3.14).
    """
    if content.at_eof():
        return
    async for chunk, _ in content.iter_chunks():
        if chunk:
            yield chunk


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Hold *directory* for one proxy process during the block; raises UserError when another one holds it."""
    directory.mkdir(parents=True, exist_ok=True)
    refusal = UserError(f"Another proxy records into {directory}; end it or choose another folder with -o.")
    with folder_lock(directory, name="proxy.lock", wait=False, refusal=refusal):
        yield


async def serve(
    settings: ProxySettings, listener: socket.socket, ready: Callable[[int], None], until: asyncio.Event
) -> None:
    """Serve on *listener* until the event *until* is set; call *ready* with the port once it listens."""
    proxy = ProxyServer(settings)
    with lock(settings.directory):
        await proxy.open()
        server = web.Server(
            proxy.handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=2.0)
        await runner.setup()
        try:
            await web.SockSite(runner, listener, backlog=4096).start()
            port = int(listener.getsockname()[1])
            if settings.socket is not None:
                require_socket_path(settings.socket)
                await web.UnixSite(runner, settings.socket, backlog=4096).start()
            _log.info("ready", port=port, record=str(settings.directory))
            ready(port)
            await until.wait()
        finally:
            with suppress(asyncio.CancelledError):
                await runner.cleanup()
            await proxy.close()
            _log.info("stopped")
