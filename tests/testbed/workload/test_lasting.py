"""Connections of a service last, until they are wanted not to."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from opsassay.testbed.workload.runtime.clients import Clients, Names
from opsassay.testbed.workload.runtime.settings import Settings


class Here(Names):
    """Services are on this machine, at *ports*."""

    def __init__(self, ports):
        self.ports = ports

    async def pick(self, service):
        return "127.0.0.1", self.ports[service]


async def connections_of(lasting, settings=None):
    """Return from how many ports three requests came."""
    ports, asked = set(), set()

    async def answer(request):
        asked.add(request.headers.get("Connection", "keep-alive"))
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.json_response({})

    application = web.Application()
    application.add_routes([web.get("/", answer)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    clients = Clients(Here({"any": runner.addresses[0][1]}), 4, {}, Settings(settings))
    clients.lasting = lasting
    for _ in range(3):
        await clients.request("any", "GET", "/", {"X-Mine": "1"}, 5.0)
    await clients._http.close()
    await runner.cleanup()
    assert asked == {"keep-alive" if lasting else "close"}
    return len(ports)


@pytest.mark.parametrize(("lasting", "expected"), [(True, 1), (False, 3)])
def test_calls_share_a_connection_unless_none_shall_last(lasting, expected):
    assert asyncio.run(connections_of(lasting)) == expected


@pytest.mark.parametrize(("value", "expected"), [("on", 1), ("off", 3)])
def test_a_setting_says_whether_calls_share_a_connection_which_the_caller_closes(value, expected):
    assert asyncio.run(connections_of(lasting=True, settings={"KEEP_ALIVE": value})) == expected
