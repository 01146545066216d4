"""A probe of the cluster and one of this machine: slow answers are waited for, connections that nobody accepts are not."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import pytest

from opsassay.testbed.core.probes import REACHABLE_WITHIN_S
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.substrates.kubernetes.agent import probe
from opsassay.testbed.substrates.local import probes

SLOW_S = 0.6
CONNECTED_WITHIN_S = 0.3


@contextmanager
def full_port():
    """Give a port whose queue is full: what is sent there is dropped, as a firewall would."""
    with ExitStack() as open_:
        listening = open_.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = open_.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


@contextmanager
def slow_port():
    """Give a port that accepts at once and answers late."""

    class Late(BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(SLOW_S)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Late) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def of_the_cluster(port, monkeypatch):
    monkeypatch.setattr(probe, "CONNECTED_WITHIN_S", CONNECTED_WITHIN_S)
    outcome = probe.probe(f"http://127.0.0.1:{port}/", 10.0)
    return outcome["status"], outcome["latency_s"]


def of_this_machine(port, monkeypatch):
    monkeypatch.setattr(probes, "PROBE_TIMEOUT", aiohttp.ClientTimeout(10.0, sock_connect=CONNECTED_WITHIN_S))

    async def once():
        async with probes.LocalProbes(OneEntrance(f"http://127.0.0.1:{port}")) as probing:
            return await probing.request("front")

    sent = asyncio.run(once())
    return sent.status, sent.latency_s


class OneEntrance:
    """A system whose entrance is at *url*."""

    def __init__(self, url):
        self.url = url

    def status(self):
        backends = {"front": [self.url]}
        return SystemStatus(name="a", phase="ready", endpoints=backends, backends=backends, probe_paths={"front": "/"})


@pytest.mark.parametrize("sent", [of_the_cluster, of_this_machine])
def test_a_connection_that_nobody_accepts_is_no_slow_answer(sent, monkeypatch):
    with full_port() as port:
        status, latency_s = sent(port, monkeypatch)
    assert status is None
    assert CONNECTED_WITHIN_S * 0.9 < latency_s < 5.0
    with slow_port() as port:
        status, latency_s = sent(port, monkeypatch)
    assert status == 200
    assert latency_s >= SLOW_S > CONNECTED_WITHIN_S


def test_the_limits_are_those_that_a_reachable_service_has():
    assert probe.CONNECTED_WITHIN_S == REACHABLE_WITHIN_S == probes.PROBE_TIMEOUT.sock_connect
