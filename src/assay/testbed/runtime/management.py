"""The management interface: how a process of a system reports to its supervisor and takes orders, off the data path.

One Unix socket per process, JSON lines both ways. The process says hello, then answers requests
``{"id", "op", ...}`` with ``{"id", "result"}`` or ``{"id", "error"}``. When the supervisor goes away, so does the process.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


async def serve(socket_path: str, hello: dict[str, Any], handlers: Mapping[str, Handler]) -> None:
    """Say *hello* to the supervisor and answer its requests with *handlers* by op until it hangs up."""
    reader, writer = await asyncio.open_unix_connection(socket_path)
    writer.write(encode({"hello": {**hello, "pid": os.getpid()}}))
    while line := await reader.readline():
        request = json.loads(line)
        try:
            answer = {"id": request["id"], "result": await handlers[request["op"]](request)}
        except Exception as error:  # noqa: BLE001 - the supervisor is told, whatever it was
            answer = {"id": request["id"], "error": f"{type(error).__name__}: {error}"}
        writer.write(encode(answer))
        await writer.drain()


def encode(message: dict[str, Any]) -> bytes:
    """Return *message* as one line of JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
