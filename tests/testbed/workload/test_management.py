"""The management interface: a process whose background work fails ends, rather than go on without it."""

from __future__ import annotations

import asyncio
import json

import pytest

from opsassay.testbed.workload.runtime import management


async def answers(path, background=()):
    """Serve *ping* to a supervisor that asks once and hangs up; return what it was told."""
    told, gone = [], asyncio.Event()

    async def supervise(reader, writer):
        told.append(json.loads(await reader.readline()))
        writer.write(b'{"id": 1, "op": "ping"}\n')
        told.append(json.loads(await reader.readline()))
        if not background:
            writer.close()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    async def ping(_):
        return "here"

    async with await asyncio.start_unix_server(supervise, path):
        try:
            await management.serve(path, {"id": "a"}, {"ping": ping}, [asyncio.create_task(one) for one in background])
        finally:
            await gone.wait()
    return told


def test_requests_are_answered_until_the_supervisor_hangs_up(tmp_path):
    hello, answer = asyncio.run(answers(str(tmp_path / "s")))
    assert hello["hello"]["id"] == "a"
    assert answer == {"id": 1, "result": "here"}


def test_work_that_fails_in_the_background_is_not_swallowed(tmp_path):
    async def failing():
        await asyncio.sleep(0.2)
        raise ValueError("the load stopped")

    with pytest.raises(ValueError, match="the load stopped"):
        asyncio.run(answers(str(tmp_path / "s"), [failing()]))
