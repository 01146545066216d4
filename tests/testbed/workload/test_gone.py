"""A replica that is behind drops the requests whose callers have gone, and serves the others."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from opsassay.testbed.workload.runtime.replica import caller_has_gone

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def seen_by_a_process_that_was_behind() -> list[bool]:
    """Have two callers ask while the loop stands still, of whom the first hangs up; return who was seen to have gone."""
    seen = []

    async def handle(request):
        seen.append(await caller_has_gone(request))
        return Response(b"{}")

    listener = socket.create_server(("127.0.0.1", 0))
    settings = uvicorn.Config(
        Starlette(routes=[Route("/", handle)]), log_level="warning", lifespan="off", http="httptools", ws="none"
    )
    server = uvicorn.Server(settings)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:  # noqa: ASYNC110 - uvicorn offers no event to wait for
        await asyncio.sleep(0.01)
    gone, waiting = (socket.create_connection(listener.getsockname()) for _ in range(2))
    gone.sendall(REQUEST)
    gone.close()
    waiting.sendall(REQUEST)
    time.sleep(0.2)  # noqa: ASYNC251 - the loop stands still: that is what is tried
    answer = await asyncio.to_thread(waiting.recv, 100)
    assert answer.startswith(b"HTTP/1.1 200")
    waiting.close()
    server.should_exit = True
    await serving
    return seen


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_who_hung_up_is_seen_to_have_gone_before_the_work_begins(loop):
    assert sorted(loop(seen_by_a_process_that_was_behind())) == [False, True]
