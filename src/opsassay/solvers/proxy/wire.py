"""HTTP of the proxy: the headers that it forwards, relayed answers, and its own errors."""

from __future__ import annotations

import io
import json
from typing import Any

from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from opsassay.solvers.proxy.apis import ModelApi
from opsassay.solvers.proxy.codings import readable

MAX_HEADER_BYTES = 64 * 1024
_LARGE_BYTES = 512 * 1024
_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")
_NOT_SENT_ON = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade", "host",
     "authorization", "proxy-authorization", "content-length", "expect", *_KEY_HEADERS}
)  # fmt: skip
_RETRIED_LIKE_A_LOST_CONNECTION = frozenset({502, 504})


class Relayed(web.StreamResponse):
    """An answer with exactly the headers of the upstream.

    A chunked answer is sent chunked; for an HTTP/1.0 client the connection closes at its end.
    """

    def __init__(self, request: web.BaseRequest, status: int, reason: str, headers: CIMultiDict[str]) -> None:
        super().__init__(status=status, reason=reason, headers=headers)
        chunked = "Transfer-Encoding" in headers
        if request.version < HttpVersion11:
            self.headers.popall("Transfer-Encoding", None)
            if "Content-Length" not in headers:
                self.force_close()
        elif chunked:
            self.enable_chunked_encoding()
        if headers.get("Connection", "").lower() == "close":
            self.force_close()
        self._own = frozenset(name.lower() for name in headers)

    async def _prepare_headers(self) -> None:
        """Remove default headers of aiohttp that the upstream's response did not have."""
        await super()._prepare_headers()
        for name in ("Date", "Server", "Content-Type", "Connection"):
            if name.lower() not in self._own:
                self.headers.popall(name, None)


def outgoing_headers(
    request: web.BaseRequest, key: str | None, passed_on: frozenset[str] | None = None
) -> CIMultiDict[str]:
    """Return the headers to forward: *key* as API key, no hop-by-hop headers, only *passed_on* (lower case) unless None."""
    headers = CIMultiDict(
        (as_text(name), as_text(value))
        for name, value in request.raw_headers
        if as_text(name).lower() not in _NOT_SENT_ON and (passed_on is None or as_text(name).lower() in passed_on)
    )
    if "Accept-Encoding" in headers:
        headers["Accept-Encoding"] = readable(", ".join(headers.getall("Accept-Encoding")))
    if key:
        found = next((name for name in _KEY_HEADERS if name in request.headers), None)
        headers[found or "Authorization"] = key if found else f"Bearer {key}"
    return headers


def token_of(request: web.BaseRequest) -> str | None:
    """Return the API key or token in the request, from any header that SDKs use; None without one."""
    for name in _KEY_HEADERS:
        if name in request.headers:
            return request.headers[name]
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


def unrelayable(request: web.BaseRequest) -> tuple[int, str] | None:
    """Return (status, reason) for a request that cannot be forwarded: an upgrade or a proxy request; else None."""
    if "upgrade" in request.headers.get("Connection", "").lower() and "Upgrade" in request.headers:
        asked = request.headers["Upgrade"]
        name = "WebSocket" if asked.lower() == "websocket" else asked
        return 501, f"The proxy does not relay {name} connections; use the API's HTTP endpoints."
    if request.method == "CONNECT" or not request.raw_path.startswith("/"):
        return 400, "The proxy stands where the API would be: give its address as the base URL, not as an HTTP proxy."
    return None


def problem(api: ModelApi | None, status: int, message: str) -> web.Response:
    """Return the proxy's own error *message* as a response with *status*, in the error form of *api*."""
    error = {"type": "opsassay_proxy", "message": message}
    body: dict[str, Any] = {"error": error}
    if api is not None and api.name == "messages":
        body = {"type": "error", "error": error}
    elif api is not None and api.name == "gemini":
        body = {"error": {"code": status, "message": message, "status": "FAILED_PRECONDITION"}}
    headers = {"Content-Type": "application/json", "X-OpsAssay-Proxy": "own"}
    if status not in _RETRIED_LIKE_A_LOST_CONNECTION:
        headers["x-should-retry"] = "false"
    return web.Response(status=status, body=json.dumps(body).encode(), headers=headers)


def payload(body: bytes) -> bytes | io.BytesIO | None:
    """Return the request *body* for aiohttp: None when empty, a file object when large."""
    if not body:
        return None
    return io.BytesIO(body) if len(body) > _LARGE_BYTES else body


def as_text(raw: bytes) -> str:
    """Return the header bytes *raw* as text that encodes back to the same bytes."""
    return raw.decode("utf-8", "surrogateescape")
