"""Serves pages with truth to the user who started the server only: on loopback, with a key, with limited requests.

Other programs on the machine, such as an agent outside a sandbox, can connect to the loopback; the key keeps them out. It
is in the printed URL and then in a cookie, so that no link and no page contains it.
"""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from opsassay.core.errors import UserError

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
KEY = "key"
LARGEST_BODY = 1_000_000
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with "no-referrer" a browser's form has "null" for its origin
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_READING = ("GET", "HEAD")


class LoopbackOnly:
    """ASGI middleware that admits requests with *key* and a host name of this machine, bodies to *largest_body* bytes."""

    def __init__(self, app: ASGIApp, key: str, largest_body: int = LARGEST_BODY) -> None:
        self._app, self._key, self._largest_body = app, key, largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        answer = self._refuse_foreign(request) or self._check_key(request)
        send = with_safe_headers(send)
        if answer is not None:
            await answer(scope, receive, send)
            return
        await self._app(scope, _limit_body(receive, self._largest_body), send)

    def _refuse_foreign(self, request: Request) -> Response | None:
        """Return an error for another host name or a form of another site, None for a permitted request."""
        host = request.headers.get("host", "")
        if _without_port(host) not in HOSTS:
            return PlainTextResponse(
                "This server answers to the names of this machine's loopback only.", status_code=400
            )
        origin = request.headers.get("origin")
        if request.method not in _READING and origin not in (None, f"http://{host}"):
            return PlainTextResponse("Only pages of this server may send something to it.", status_code=403)
        return None

    def _check_key(self, request: Request) -> Response | None:
        """Return a redirect that sets the cookie for a key in the URL, 403 without a key; None with the cookie."""
        name = _cookie_name(request)
        if self._is_key(request.query_params.get(KEY)):
            others = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != KEY])
            path = "/" + request.url.path.lstrip("/")  # "//host" would be another server
            answer = RedirectResponse(f"{path}?{others}" if others else path, status_code=303)
            answer.set_cookie(name, self._key, httponly=True, samesite="strict")
            return answer
        if self._is_key(request.cookies.get(name)):
            return None
        text = "Open the address that was printed when this server was started: it holds the key."
        return PlainTextResponse(text, status_code=403)

    def _is_key(self, candidate: str | None) -> bool:
        """Whether *candidate* is the key, compared in constant time."""
        return candidate is not None and secrets.compare_digest(candidate.encode(), self._key.encode())


class SafeHeaders:
    """ASGI middleware that adds HEADERS to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with HEADERS added to its response."""
        await self._app(scope, receive, with_safe_headers(send) if scope["type"] == "http" else send)


def serve_on_loopback(
    app: ASGIApp, port: int, announce: Callable[[str], None], ending: Callable[[], None] = lambda: None
) -> None:
    """Serve *app* on 127.0.0.1 with a new access key until SIGINT or SIGTERM; *announce* is called with the URL.

    *ending* is called at the signal and must end responses that stream without end. *port* 0 is any free one. Raises
    UserError when the port cannot be used.
    """
    import uvicorn

    with closing(bound(port)) as listener:
        key = secrets.token_urlsafe(24)
        announce(f"http://127.0.0.1:{listener.getsockname()[1]}/?{KEY}={key}")
        config = uvicorn.Config(
            LoopbackOnly(app, key), log_level="error", server_header=False, h11_max_incomplete_event_size=65_536
        )
        server = uvicorn.Server(config)
        handle_exit = server.handle_exit

        def end(signal_number: int, frame: FrameType | None) -> None:
            """Handle a signal: call *ending*, then stop the server."""
            ending()
            handle_exit(signal_number, frame)

        server.handle_exit = end  # type: ignore[method-assign,assignment]
        server.run(sockets=[listener])


def bound(port: int, address: str = "127.0.0.1") -> socket.socket:
    """Return a socket listening on *port* of *address* (0: any free port); raises UserError when it cannot."""
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen()  # so that an address which was announced answers, if late
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        if getattr(error, "errno", None) == errno.EADDRNOTAVAIL:
            raise UserError(f"{address} is no address of this machine; give one that is, as 127.0.0.1.") from error
        raise UserError(f"Port {port} cannot be used ({reason}); give --port 0 for a free one.") from error
    return listener


def _without_port(host: str) -> str:
    """Return the host name without ":port"."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _cookie_name(request: Request) -> str:
    """Return the name of the session cookie, one for each port, since browsers share cookies between ports."""
    server = request.scope.get("server") or ("", 0)
    return f"opsassay-{server[1]}"


def _limit_body(receive: Receive, most: int) -> Receive:
    """Return *receive* limited to *most* bytes in all, beyond which it raises HTTPException 413."""
    seen = 0

    async def receiving() -> Message:
        """Return the next message; raises HTTPException 413 beyond the limit."""
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise HTTPException(413, f"The request is larger than {most:,} bytes.")
        return message

    return receiving


def with_safe_headers(send: Send) -> Send:
    """Return the ASGI function *send*, extended to add the security HEADERS that a response lacks."""

    async def sending(message: Message) -> None:
        """Send *message*; to the start of a response, add the safe headers first."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
