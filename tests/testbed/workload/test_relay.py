"""The relay between a real client and a real server in this process."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from opsassay.testbed.workload.runtime.ledger import LedgerWriter
from opsassay.testbed.workload.runtime.relay import Relay


async def echo(reader, writer):
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class Bench:
    """A relay with one link ``a>b`` to an echo server."""

    async def __aenter__(self):
        self.server = await asyncio.start_server(echo, "127.0.0.1", 0)
        self.relay = Relay(LedgerWriter(self.ledger, "relay"))
        ports = await self.relay.open({"links": [["a", "b"]]})
        self.port = ports["a>b"]
        address = self.server.sockets[0].getsockname()
        await self.relay.upstream({"destination": "b", "address": list(address[:2])})
        return self

    def __init__(self, ledger):
        self.ledger = str(ledger)

    async def __aexit__(self, *_):
        for server in [self.server, *self.relay.servers]:
            server.close()
        for link in self.relay.links.values():
            for pipe in list(link.connections):
                pipe.close()
        await asyncio.sleep(0.05)

    async def impair(self, impairment, direction="forward"):
        return await self.relay.impair({"fault": "f", "streams": [["a>b", direction]], "impairment": impairment})

    async def heal(self):
        await self.relay.heal({"fault": "f"})

    async def exchange(self, payload):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        started = time.monotonic()
        writer.write(payload)
        back = await reader.readexactly(len(payload))
        writer.close()
        await writer.wait_closed()
        return back, time.monotonic() - started


def test_bytes_pass_unchanged_and_large_ones_too(tmp_path):
    async def scenario():
        async with Bench(tmp_path / "ledger") as bench:
            payload = bytes(range(256)) * 20_000
            back, _ = await bench.exchange(payload)
            assert back == payload

    asyncio.run(scenario())


def test_a_delay_holds_both_ways_and_is_entered_into_the_ledger(tmp_path):
    async def scenario():
        async with Bench(tmp_path / "ledger") as bench:
            assert await bench.impair({"kind": "delay", "delay_s": 0.12, "jitter_s": 0.0}) == 1
            _, seconds = await bench.exchange(b"hello")
            assert seconds >= 0.12
            await bench.heal()
            assert (tmp_path / "ledger").read_text().count('"packet_delay"') == 1
            assert '"ns":120000000' in (tmp_path / "ledger").read_text()
            before = (tmp_path / "ledger").stat().st_size
            await bench.exchange(b"hello")
            assert (tmp_path / "ledger").stat().st_size == before  # without a rule nothing is a fault's doing

    asyncio.run(scenario())


def test_jitter_never_reorders_a_stream(tmp_path):
    async def scenario():
        async with Bench(tmp_path / "ledger") as bench:
            await bench.impair({"kind": "delay", "delay_s": 0.02, "jitter_s": 0.02})
            reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
            sent = b"".join(b"%04d" % i for i in range(60))
            for i in range(60):
                writer.write(b"%04d" % i)
                await asyncio.sleep(0.002)
            assert await reader.readexactly(len(sent)) == sent
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    asyncio.run(scenario())


def test_a_destination_that_is_gone_resets_the_caller(tmp_path):
    async def scenario():
        async with Bench(tmp_path / "ledger") as bench:
            await bench.relay.upstream({"destination": "b", "address": None})
            reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
            writer.write(b"hello")
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(5)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    asyncio.run(scenario())


def test_a_partition_holds_everything_back_until_it_is_healed(tmp_path):
    async def scenario():
        async with Bench(tmp_path / "ledger") as bench:
            for direction in ("forward", "backward"):
                reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
                writer.write(b"before")
                assert await reader.readexactly(6) == b"before"
                await bench.impair({"kind": "loss", "share": 1.0}, direction)
                writer.write(b"first")
                writer.write(b"second")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.3)
                fresh = asyncio.create_task(bench.exchange(b"new connection"))
                await asyncio.sleep(0.1)
                assert not fresh.done()
                await bench.heal()
                assert await asyncio.wait_for(reader.readexactly(11), 5) == b"firstsecond"
                assert (await asyncio.wait_for(fresh, 5))[0] == b"new connection"
                writer.close()
                await writer.wait_closed()
            assert '"packet_loss"' in (tmp_path / "ledger").read_text()

    asyncio.run(scenario())


def test_a_narrow_link_passes_its_rate_and_what_queues_comes_free_when_it_is_healed(tmp_path):
    async def scenario():
        async with Bench(tmp_path / "ledger") as bench:
            await bench.impair({"kind": "bandwidth", "bytes_per_s": 20_000})
            _, seconds = await bench.exchange(b"x" * 4_000)
            assert seconds >= 0.2
            slow = asyncio.create_task(bench.exchange(b"x" * 2_000_000))  # 100 seconds' worth
            await asyncio.sleep(0.3)
            assert not slow.done()
            await bench.heal()
            back, _ = await asyncio.wait_for(slow, 5)
            assert len(back) == 2_000_000

    asyncio.run(scenario())
