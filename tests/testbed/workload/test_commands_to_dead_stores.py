"""Steps whose store is down, hangs or refuses: each is a failed call within its own limit, marked on its span."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from opentelemetry.trace import StatusCode

from opsassay.core.schema.system import Step
from opsassay.testbed.workload.runtime.clients import CallFailedError, Clients
from opsassay.testbed.workload.runtime.steps import Executor, Work

LIMIT_S = 0.6
HANGS_S = 60.0
"""What has no answer by then has no limit: a busy machine takes a few seconds."""
STEPS = {
    "postgresql": Step(sql="SELECT 1", timeout_s=LIMIT_S),
    "valkey": Step(cache="get", key="k", timeout_s=LIMIT_S),
    "nats": Step(publish="orders", timeout_s=LIMIT_S),
}


class Spans:
    """Instruments that keep the spans which were begun, each with its last status."""

    def __init__(self):
        self.begun = []

    @contextlib.contextmanager
    def span(self, *_):
        made = SimpleNamespace(status=None)
        made.set_status = lambda status: setattr(made, "status", status.status_code)
        self.begun.append(made)
        yield made

    def log(self, level, text):
        logging.getLogger(__name__).debug("%s %s", level, text)


async def no_delay(*_):
    return 0


def executor(port):
    return Executor(
        system=SimpleNamespace(store_of=lambda *_: "store"),
        service="front",
        clients=Clients(None, 4, {"store": {"address": "127.0.0.1", "port": port}}),
        instruments=Spans(),
        hooks=SimpleNamespace(check_statement=lambda *_: None, delay_ns=no_delay),
        ledger=None,
        stats=SimpleNamespace(add=lambda *_, **__: None),
        token="",
    )


def run_loop(work):
    """Run *work* in a loop of its own; what interrupted clients leave open is collected without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return asyncio.run(work)
        finally:
            gc.collect()


async def failed(of, *steps):
    with pytest.raises(CallFailedError) as caught:
        await asyncio.wait_for(of.run(steps, Work("op", "GET")), HANGS_S)
    assert [one.status for one in of.instruments.begun] == [StatusCode.ERROR]
    return caught.value


@contextlib.contextmanager
def port_where(*, listens):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen(16)
        yield server.getsockname()[1]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("engine", STEPS)
@pytest.mark.parametrize("listens", [False, True], ids=["nothing listens", "it takes connections and hangs"])
def test_the_first_command_to_a_store_ends_within_its_limit(engine, listens):
    with port_where(listens=listens) as port:
        error = run_loop(failed(executor(port), STEPS[engine]))
    assert error.timeout or not listens


@pytest.mark.sampled
@pytest.mark.parametrize("engine", STEPS)
def test_many_commands_that_wait_for_one_connection_all_end_within_their_limit(engine):
    async def many(of):
        runs = (of.run((STEPS[engine],), Work("op", "GET")) for _ in range(20))
        return await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), HANGS_S)

    with port_where(listens=True) as port:
        found = run_loop(many(executor(port)))
    assert {type(one) for one in found} == {CallFailedError}


def answers(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def queue_server(*options):
    with port_where(listens=False) as port:
        pass
    binary = Path(sys.executable).with_name("nats-server")
    command = [binary, "-a", "127.0.0.1", "-p", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + 30
            while not answers(port):
                assert time.monotonic() < until
                time.sleep(0.05)
            yield port, server
        finally:
            server.kill()


async def lost_for_good(of, server):
    """Publish once, kill the server and publish until the client takes no more."""
    await of.run((STEPS["nats"],), Work("op", "POST"))
    server.kill()
    server.wait()
    for _ in range(200_000):
        of.instruments.begun.clear()
        await of.run((STEPS["nats"],), Work("op", "POST"))


async def closed_connection(of, _):
    await (await of.clients.queue("store")).close()
    await of.run((STEPS["nats"],), Work("op", "POST"))


async def too_large_a_message(of, _):
    queue = await of.clients.queue("store")
    queue._max_payload = 1  # as a server says that takes no more
    await of.run((STEPS["nats"],), Work("op", "POST"))


@pytest.mark.sampled
@pytest.mark.parametrize("how", [lost_for_good, closed_connection, too_large_a_message])
def test_a_message_that_the_client_of_the_queue_refuses_is_a_failed_call(how):
    async def refused():
        of = executor(port)
        with pytest.raises(CallFailedError, match="publish orders: "):
            await how(of, server)
        with contextlib.suppress(OSError):  # its connection may be broken
            await (await of.clients.queue("store")).close()
        assert of.instruments.begun[-1].status is StatusCode.ERROR
        of.instruments.begun.clear()

    with queue_server() as (port, server):
        run_loop(refused())


def test_an_optional_message_that_is_refused_is_gone_without():
    with port_where(listens=False) as port:
        of = executor(port)
        optional = STEPS["nats"].model_copy(update={"optional": True})
        run_loop(of.run((optional,), Work("op", "GET")))
        assert [one.status for one in of.instruments.begun] == [StatusCode.ERROR]


def test_what_a_cache_misses_is_made_and_kept_once(monkeypatch):
    held, made = {}, []

    class Cache:
        async def get(self, key):
            return held.get(key)

        async def set(self, key, value, *, ex):
            held[key] = (value, ex)

    async def cache(_):
        return Cache()

    asking = executor(1)
    monkeypatch.setattr(asking.clients, "cache", cache)
    monkeypatch.setattr(asking, "_spend_time", lambda step, _: made.append(step) or no_delay())
    asking.stats = SimpleNamespace(add=lambda *_, **__: None)
    step = Step(cache="get", key="offer:1", ttl_s=40, on_miss=(Step(wait_ms=1),))
    for _ in range(2):
        asyncio.run(asking.run((step,), Work("GET /")))
    assert len(made) == 1
    assert held["offer:1"][1] == 40
