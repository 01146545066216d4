"""What a cluster's receiver records is fetched whole, piece by piece, through its door."""

from __future__ import annotations

import asyncio
import base64
import threading
import urllib.request

import pytest
from aiohttp import ClientSession, web
from tiny_api import write_kubeconfig

from assay.errors import LostError, OperationError, RefusedError
from assay.telemetry.otlp.client import ReceiverControl, start_receiver
from assay.telemetry.otlp.spool import read_frames
from assay.testbed.kubernetes.api.client import Api
from assay.testbed.kubernetes.doors import remote_receiver
from assay.testbed.kubernetes.doors.remote_receiver import RemoteReceiver
from assay.testbed.kubernetes.pods.receiver import door

KEY = "k" * 32
PROXY = "/api/v1/namespaces/shop-watch/pods/receiver-1:9090/proxy"


class Cluster:
    """An API server that knows one receiver, and passes on what is meant for its door."""

    def __init__(self, folder):
        self.folder, self.ready, self.pod = folder, True, "receiver-1"
        self.process = start_receiver(folder / "state", die_with_stdin=True, timeout_s=120)
        self.control = ReceiverControl(folder / "state")
        self.data = f"http://127.0.0.1:{self.control.port}/v1/traces"
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(30)

    def api(self):
        return Api.connect(write_kubeconfig(self.folder / "config", self.url))

    def stop(self):
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self.process.stdin.close()
        self.process.wait()

    async def _serve(self):
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self.url = await self._site(web.Application(), self._routes)
        self.door = await self._site(door(self.control, self.folder / "spools", KEY))
        self._started.set()
        await self._ended.wait()
        for runner in self._runners:
            await runner.cleanup()

    _runners: tuple = ()

    async def _site(self, application, routes=None):
        if routes:
            application.add_routes(routes())
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._runners = (*self._runners, runner)
        return f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"

    def _routes(self):
        async def pods(_):
            conditions = [{"type": "Ready", "status": "True" if self.ready else "False"}]
            return web.json_response(
                {"items": [{"metadata": {"name": self.pod}, "status": {"conditions": conditions}}]}
            )

        async def secret(_):
            return web.json_response({"data": {"key": base64.b64encode(KEY.encode()).decode()}})

        async def proxied(request):
            target = self.door + request.path_qs.removeprefix(PROXY)
            headers = {"X-Door-Key": request.headers["X-Door-Key"]}
            async with ClientSession() as session, session.request(request.method, target, headers=headers) as answer:
                return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)

        return [
            web.get("/api/v1/namespaces/shop-watch/pods", pods),
            web.get("/api/v1/namespaces/shop-watch/secrets/door", secret),
            web.route("*", PROXY + "/{path:.*}", proxied),
        ]


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


def export(cluster, body):
    """Send *body* to the receiver as a request of traces."""
    sent = urllib.request.Request(cluster.data, data=body, method="POST")
    sent.add_header("Content-Type", "application/x-protobuf")
    with urllib.request.urlopen(sent) as answer:
        return answer.status


def test_a_session_is_recorded_there_and_its_spool_lies_here_when_it_is_closed(cluster, tmp_path, monkeypatch):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    monkeypatch.setattr(remote_receiver, "PIECE_BYTES", 64)
    receiver, folder = RemoteReceiver(cluster.api(), "shop-watch"), tmp_path / "here"
    receiver.open_session(folder, ".recording-1")
    request = ExportTraceServiceRequest()
    for number in range(10):
        request.resource_spans.add().scope_spans.add().spans.add(name=f"span {number}", span_id=bytes(8))
        assert export(cluster, request.SerializeToString()) == 200
    stats = receiver.close_session(".recording-1")
    assert stats.signals["traces"].kept_items == sum(range(1, 11))
    (spool,) = [path for path in folder.iterdir() if "traces" in path.name]
    assert spool.stat().st_size > 64
    payloads = [frame.payload for frame in read_frames(spool)]
    assert request.SerializeToString() in payloads
    assert not list((tmp_path / "spools").iterdir()), "nothing of it stays there"


def test_the_door_opens_to_the_key_and_to_plain_names_alone(cluster):
    for name, key, status in (("a", "guessed", 404), ("..%2F..%2Fetc", KEY, 422), ("b", KEY, 200)):
        sent = urllib.request.Request(f"{cluster.door}/sessions/{name}", method="PUT")
        sent.add_header("X-Door-Key", key)
        try:
            code = urllib.request.urlopen(sent).status
        except urllib.error.HTTPError as error:
            code = error.code
            error.close()
        assert code == status, name


def test_a_receiver_that_is_not_there_or_does_not_know_the_session_is_named(cluster, tmp_path):
    receiver = RemoteReceiver(cluster.api(), "shop-watch")
    cluster.ready = False
    with pytest.raises(RefusedError, match="no receiver that is ready"):
        receiver.open_session(tmp_path / "here", "one")
    cluster.ready = True
    receiver.open_session(tmp_path / "here", "one")
    cluster.control.close_session("one")
    with pytest.raises(OperationError, match="one"):
        receiver.close_session("one")


def test_what_a_receiver_on_a_lost_node_had_recorded_is_told_to_be_gone(cluster, tmp_path):
    receiver = RemoteReceiver(cluster.api(), "shop-watch")
    receiver.open_session(tmp_path / "here", "one")
    cluster.pod = "receiver-2"
    with pytest.raises(LostError, match="shop-watch was replaced: what receiver-1 had recorded went with it"):
        receiver.close_session("one")
    assert not (tmp_path / "here").exists()
