"""Upstreams that answer exactly the bytes that a test wants, and clients that see exactly the bytes that come."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import contextmanager

Handler = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


class Received:
    """One request as it arrived at the upstream."""

    def __init__(self, head: bytes, body: bytes) -> None:
        line, *fields = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = line.split(" ")
        self.headers = [tuple(field.split(": ", 1)) for field in fields if field]
        self.body = body

    def header(self, name):
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@contextmanager
def upstream(handler: Handler):
    """Give (base URL, list of received requests) of a raw HTTP/1.1 server that runs in a thread."""
    loop, ports, started, seen = asyncio.new_event_loop(), [], threading.Event(), []
    until = asyncio.Event()

    async def connection(reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                request = Received(head, b"")
                if length := request.header("content-length"):
                    request.body = await reader.readexactly(int(length))
                elif (request.header("transfer-encoding") or "") == "chunked":
                    request.body = await _chunked(reader)
                seen.append(request)
                await handler(request, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def main():
        server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=2048)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        await until.wait()
        server.close()

    thread = threading.Thread(target=_run, args=(loop, main), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield f"http://127.0.0.1:{ports[0]}", seen
    finally:
        loop.call_soon_threadsafe(until.set)
        thread.join(10)


def _run(loop, main):
    loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()


async def _chunked(reader):
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


def answering(response: bytes) -> Handler:
    async def handler(_, writer):
        writer.write(response)

    return handler


def plain(body: bytes, status="200 OK", extra="") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def chunked(parts, content_type="text/event-stream") -> bytes:
    fields = ("server: Odd-Case", f"Content-Type: {content_type}", "X-Request-ID: r-1", "Transfer-Encoding: chunked")
    head = "\r\n".join(("HTTP/1.1 200 OK", *fields)) + "\r\n\r\n"
    return head.encode() + b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


def event(value) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def delta(text) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}}]})


def send(base: str, token: str, body: bytes, path="/v1/chat/completions", method="POST", headers=()) -> socket.socket:
    """Return a socket on which a request was sent."""
    host, port = base.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {token}", *headers]
    if body or method in {"POST", "PUT"}:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
    return connection


def receive(connection: socket.socket, until: bytes | int | None = None, *, keep=False) -> bytes:
    """Return what comes until *until* stands in it, or that many bytes came, or the other side closes; then hang up."""
    data = bytearray()
    while not (isinstance(until, bytes) and until in data) and not (isinstance(until, int) and len(data) >= until):
        piece = connection.recv(1 << 20)
        if not piece:
            break
        data += piece
    if not keep:
        connection.close()
    return bytes(data)
