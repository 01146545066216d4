"""The management interface: how a process of a system reports to its supervisor and takes orders, off the data path.

One Unix socket per process, JSON lines both ways. The process says hello, then answers requests
``{"id", "op", ...}`` with ``{"id", "result"}`` or ``{"id", "error"}``. When the supervisor goes away, so does the process.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


async def serve(
    socket_path: str,
    hello: dict[str, Any],
    handlers: Mapping[str, Handler],
    background: Iterable[asyncio.Task[None]] = (),
) -> None:
    """Connect to *socket_path*, send *hello*, and answer requests by *handlers* ({op: function}) until it closes.

    An error in a task of *background* is raised, and ends this process.
    """
    serving = asyncio.create_task(_serve_requests(socket_path, hello, handlers))
    tasks = {serving, *background}
    try:
        while not serving.done():
            ended, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def _serve_requests(socket_path: str, hello: dict[str, Any], handlers: Mapping[str, Handler]) -> None:
    """Connect to *socket_path*, send *hello*, answer each request by the handler of its ``op`` in *handlers*."""
    reader, writer = await asyncio.open_unix_connection(socket_path)
    try:
        writer.write(encode({"hello": {"pid": os.getpid(), **hello}}))
        while line := await reader.readline():
            request = json.loads(line)
            try:
                answer = {"id": request["id"], "result": await handlers[request["op"]](request)}
            except Exception as error:  # noqa: BLE001 - the supervisor is informed, whatever it was
                answer = {"id": request["id"], "error": f"{type(error).__name__}: {error}"}
            writer.write(encode(answer))
            await writer.drain()
    finally:
        writer.close()


async def ping(_: dict[str, Any]) -> dict[str, Any]:
    """Return {}: the process runs."""
    return {}


def encode(message: dict[str, Any]) -> bytes:
    """Return *message* as a line of JSON, in bytes."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
