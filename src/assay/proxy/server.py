"""The proxy process: agents speak to it as to the API itself; it records, answers or edits, and never delays a stream.

Order of every request: it is attributed by its token, recorded, sent on; every piece of the answer is handed to the
operating system before it leaves for the client. Method, query and body go on unchanged; the agent's token is replaced
by the real key. The answer keeps its status line, headers in their order and case, and its bytes.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from assay.errors import OperationError, UserError
from assay.proxy import sse
from assay.proxy.apis import Api, api_of
from assay.proxy.exchanges import inflated
from assay.proxy.policies import Forward, Policy, Record, Refuse, Serve
from assay.proxy.record import SessionLog, session_folder
from assay.proxy.secrets import StreamMask, mask, safe_headers, safe_path
from assay.proxy.tokens import Tokens

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_LARGE_BYTES = 512 * 1024
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade"}
)
_NOT_SENT_ON = _HOP_BY_HOP | {
    "host",
    "authorization",
    "x-api-key",
    "api-key",
    "proxy-authorization",
    "content-length",
    "expect",
}
_KEY_HEADERS = ("x-api-key", "api-key")
_UNKNOWN_AGENT = (
    "This key was not issued by the proxy; get one with `assay proxy token SESSION -o DIR` and give it to the agent as "
    "its API key."
)
_READABLE_ENCODINGS = frozenset({"gzip", "deflate", "identity", "*"})


@dataclass(frozen=True)
class ProxySettings:
    """Where the proxy sends requests and keeps its record.

    *key* is the real key, which stays here. *idle_s* is how long the upstream may be silent. *policy* makes the policy
    of each session. Clocks are ns.
    """

    upstream: str
    directory: Path
    key: str | None = None
    idle_s: float = 600.0
    connect_s: float = 30.0
    policy: Callable[[], Policy] = Record
    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns

    def __post_init__(self) -> None:
        """Raise UserError for an upstream that is no URL, before anything is written."""
        parts = urlsplit(self.upstream)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise UserError(f"{self.upstream!r} is no upstream; give a URL such as https://api.openai.com.")


@dataclass
class _Session:
    log: SessionLog
    policy: Policy


@dataclass
class _Call:
    """One request on its way."""

    id: str
    session: _Session
    request: web.BaseRequest
    path: str
    body: bytes
    masks: tuple[bytes, ...]
    outcome: str = "cut"
    error: str | None = None
    kept: list[bytes] = field(default_factory=list)
    kept_bytes: int = 0

    @property
    def api(self) -> Api | None:
        return api_of(self.request.method, self.path)


class _Relayed(web.StreamResponse):
    """An answer with exactly the headers of the upstream: the server adds none of its own."""

    def __init__(self, status: int, reason: str, headers: CIMultiDict[str], *, chunked: bool) -> None:
        super().__init__(status=status, reason=reason, headers=headers)
        self._own = frozenset(name.lower() for name in headers)
        if chunked:
            self.enable_chunked_encoding()
        if headers.get("Connection", "").lower() == "close":
            self.force_close()

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        for name in ("Date", "Server", "Content-Type", "Connection"):
            if name.lower() not in self._own:
                self.headers.popall(name, None)


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
        """Open the connections to the upstream; call it inside the loop that serves."""
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=self._settings.connect_s, sock_read=self._settings.idle_s
        )
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            auto_decompress=False,
            timeout=limits,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        )

    async def close(self) -> None:
        """Close the connections and the records."""
        if self._client is not None:
            await self._client.close()
        for session in self._sessions.values():
            session.log.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request of an agent."""
        token = _token_of(request)
        name = self._tokens.session_of(token) if token else None
        if token is None or name is None:
            return _problem(api_of(request.method, request.path_qs), 401, _UNKNOWN_AGENT)
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await request.content.read()
        try:
            session = self._session(name)
            call = self._begin(session, request, body, token)
        except OSError as error:  # what cannot be recorded is not sent on
            message = f"The proxy cannot write its record ({error.strerror}); nothing was sent on."
            return _problem(api_of(request.method, request.path_qs), 507, message)
        try:
            return await self._decide(call)
        except asyncio.CancelledError:
            call.outcome = "client_gone"
            raise
        finally:
            session.log.write("end", id=call.id, outcome=call.outcome, error=call.error)

    def _session(self, name: str) -> _Session:
        if name not in self._sessions:
            folder = session_folder(self._settings.directory, name)
            log = SessionLog(folder, self._settings.wall_ns, self._settings.monotonic_ns)
            self._sessions[name] = _Session(log, self._settings.policy())
        return self._sessions[name]

    def _begin(self, session: _Session, request: web.BaseRequest, body: bytes, token: str) -> _Call:
        key = self._settings.key
        masks = (token.encode("utf-8", "surrogateescape"), *((key.encode(),) if key else ()))
        call = _Call(next(self._ids), session, request, request.raw_path, body, masks)
        headers = [(_text(name), _text(value)) for name, value in request.raw_headers]
        session.log.write(
            "request",
            id=call.id,
            method=request.method,
            path=safe_path(call.path, masks),
            headers=safe_headers(headers, masks),
        )
        session.log.body(call.id, "request", mask(body, masks))
        return call

    async def _decide(self, call: _Call) -> web.StreamResponse:
        decision = call.session.policy.decide(call.request.method, call.path, mask(call.body, call.masks[:1]))
        if isinstance(decision, Serve):
            return await self._serve(call, decision)
        if isinstance(decision, Refuse):
            call.outcome, call.error = "refused", decision.message
            return self._told(call, decision.status, decision.message)
        unchanged = decision.body == mask(call.body, call.masks[:1])
        if not unchanged:
            call.session.log.body(call.id, "edited", mask(decision.body, call.masks))
        return await self._forward(call, Forward(call.body) if unchanged else decision)

    async def _forward(self, call: _Call, decision: Forward) -> web.StreamResponse:
        assert self._client is not None
        try:
            upstream = await self._client.request(
                call.request.method,
                self._url(call.path),
                headers=self._outgoing(call.request),
                data=_payload(decision.body),
                allow_redirects=False,
            )
        except TimeoutError:
            call.outcome, call.error = "timeout", "the upstream did not answer in time"
            return self._told(call, 504, f"The upstream {self._base} did not answer in time.")
        except aiohttp.ClientError as error:
            call.outcome, call.error = "upstream_failed", str(error)
            return self._told(call, 502, f"The upstream {self._base} cannot be reached: {error}.")
        try:
            return await self._relay(call, upstream)
        finally:
            upstream.close() if call.outcome != "complete" else upstream.release()

    async def _relay(self, call: _Call, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = CIMultiDict((_text(name), _text(value)) for name, value in upstream.raw_headers)
        self._log_answer(call, upstream.status, upstream.reason or "", headers)
        response = _Relayed(upstream.status, upstream.reason or "", headers, chunked="Transfer-Encoding" in headers)
        await response.prepare(call.request)
        stream = StreamMask(call.masks, headers.get("Content-Encoding", "").lower())
        try:
            async for chunk, _ in upstream.content.iter_chunks():
                if chunk:
                    self._log_chunk(call, stream.feed(chunk), chunk)
                    await response.write(chunk)
        except TimeoutError:
            return self._broken(call, response, "timeout", "the upstream fell silent")
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            return self._broken(call, response, "upstream_failed", f"the answer ended early: {error}")
        except ConnectionError:
            call.outcome = "client_gone"
            return response
        call.session.log.body(call.id, "answer", stream.rest())
        self._log_message(call, headers)
        call.outcome = "complete"
        await response.write_eof()
        return response

    def _broken(self, call: _Call, response: web.StreamResponse, outcome: str, error: str) -> web.StreamResponse:
        """Give the client half an answer as half an answer: its connection ends without the end of the body."""
        call.outcome, call.error = outcome, error
        if call.request.transport is not None:
            call.request.transport.close()
        return response

    async def _serve(self, call: _Call, decision: Serve) -> web.StreamResponse:
        recorded = decision.exchange
        headers = CIMultiDict(recorded.headers)
        self._log_answer(call, recorded.status or 502, recorded.reason, headers)
        response = _Relayed(recorded.status or 502, recorded.reason, headers, chunked="Transfer-Encoding" in headers)
        await response.prepare(call.request)
        try:
            for _, chunk in recorded.chunks:
                self._log_chunk(call, chunk, chunk)
                await response.write(chunk)
        except ConnectionError:
            call.outcome = "client_gone"
            return response
        if recorded.outcome not in {"complete", "refused"}:
            return self._broken(call, response, recorded.outcome, "the recorded answer ended here")
        self._log_message(call, headers)
        call.outcome = "complete"
        await response.write_eof()
        return response

    def _told(self, call: _Call, status: int, message: str) -> web.StreamResponse:
        response = _problem(call.api, status, message)
        self._log_answer(call, status, response.reason or "", response.headers)
        call.session.log.body(call.id, "answer", bytes(response.body))  # type: ignore[arg-type]
        return response

    def _log_answer(self, call: _Call, status: int, reason: str, headers: CIMultiDict[str]) -> None:
        kept = safe_headers(headers.items(), call.masks)
        call.session.log.write("answer", id=call.id, status=status, reason=reason, headers=kept)

    def _log_chunk(self, call: _Call, recorded: bytes, sent: bytes) -> None:
        call.session.log.body(call.id, "answer", recorded)
        call.kept_bytes += len(sent)
        if call.kept_bytes <= MAX_MESSAGE_BYTES:
            call.kept.append(recorded)

    def _log_message(self, call: _Call, headers: CIMultiDict[str]) -> None:
        """Record a stream put together; one that is too long for memory is put together on reading."""
        if call.api is None or not headers.get("Content-Type", "").startswith("text/event-stream"):
            return
        if call.kept_bytes <= MAX_MESSAGE_BYTES:
            data = inflated(b"".join(call.kept), headers.get("Content-Encoding", "").lower())
            call.session.log.write("message", id=call.id, message=call.api.assemble(sse.events(data)))

    def _url(self, path: str) -> str:
        from yarl import URL

        return URL(self._base + path, encoded=True)  # type: ignore[return-value]

    def _outgoing(self, request: web.BaseRequest) -> CIMultiDict[str]:
        """Return the headers as they came, but for those of this connection, the token, and encodings nobody could read."""
        headers = CIMultiDict(
            (_text(name), _text(value))
            for name, value in request.raw_headers
            if _text(name).lower() not in _NOT_SENT_ON
        )
        if "Accept-Encoding" in headers:
            accepted = [c.strip() for c in headers["Accept-Encoding"].split(",")]
            headers["Accept-Encoding"] = (
                ", ".join(c for c in accepted if c.partition(";")[0] in _READABLE_ENCODINGS) or "identity"
            )
        if self._settings.key:
            found = next((name for name in _KEY_HEADERS if name in request.headers), None)
            headers[found or "Authorization"] = self._settings.key if found else f"Bearer {self._settings.key}"
        return headers


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Hold *directory* for one proxy; raises UserError when another one records there."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "proxy.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"Another proxy records into {directory}; end it or choose another folder with -o."
            ) from error
        yield
    finally:
        os.close(descriptor)


async def serve(
    settings: ProxySettings, host: str, port: int, ready: Callable[[int], None], until: asyncio.Event
) -> None:
    """Serve on *host* and *port* (0 takes a free one), call *ready* with the port, end when *until* is set."""
    proxy = ProxyServer(settings)
    with lock(settings.directory):
        await proxy.open()
        server = web.Server(
            proxy.handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        )
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=2.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port, backlog=4096)
            try:
                await site.start()
            except OSError as error:
                raise OperationError(f"The proxy cannot listen on {host}:{port}: {error.strerror}.") from error
            ready(int(runner.addresses[0][1]))
            await until.wait()
        finally:
            with suppress(asyncio.CancelledError):
                await runner.cleanup()
            await proxy.close()


def _token_of(request: web.BaseRequest) -> str | None:
    for name in _KEY_HEADERS:
        if name in request.headers:
            return request.headers[name]
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


def _problem(api: Api | None, status: int, message: str) -> web.Response:
    """Return an error that is the proxy's own, in the form of the API that was spoken to."""
    error = {"type": "assay_proxy", "message": message}
    body = {"type": "error", "error": error} if api is not None and api.name == "messages" else {"error": error}
    return web.Response(
        status=status,
        body=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "X-Assay-Proxy": "own", "x-should-retry": "false"},
    )


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    """Return what the client library takes: none for no body, a file for a large one, which it sends in pieces."""
    if not body:
        return None
    return io.BytesIO(body) if len(body) > _LARGE_BYTES else body


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
