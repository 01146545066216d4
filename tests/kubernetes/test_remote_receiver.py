"""What a cluster's receiver records is fetched whole, piece by piece, through its endpoint."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request

import pytest
from aiohttp import ClientSession, web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from receiver_pod import SECOND, ReceiverPod, handled

from opsassay.core.errors import LostError, OperationError, RefusedError
from opsassay.telemetry.otlp.spool import read_frames, spool_path
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.small_api import write_kubeconfig
from opsassay.testbed.substrates.kubernetes.endpoints import remote_receiver
from opsassay.testbed.substrates.kubernetes.endpoints.remote_receiver import RemoteReceiver
from opsassay.testbed.substrates.kubernetes.running import KubernetesSystem

KEY = "k" * 32
PROXY = "/api/v1/namespaces/shop-watch/pods/receiver-1:9090/proxy"


class Cluster:
    """An API server that knows one receiver, and passes on what is meant for its endpoint."""

    def __init__(self, folder):
        self.folder, self.ready, self.pod = folder, True, "receiver-1"
        self.receiver = ReceiverPod(folder)
        self.control, self.asked = self.receiver.control, []
        self.address = self.receiver.address(KEY)
        application = web.Application()
        application.add_routes(self._routes())
        self.url = self.receiver.site(application)

    def api(self):
        return Api.connect(write_kubeconfig(self.folder / "config", self.url))

    def stop(self):
        self.receiver.stop()

    def _routes(self):
        async def pods(_):
            conditions = [{"type": "Ready", "status": "True" if self.ready else "False"}]
            return web.json_response(
                {"items": [{"metadata": {"name": self.pod}, "status": {"conditions": conditions}}]}
            )

        async def secret(_):
            return web.json_response({"data": {"key": base64.b64encode(KEY.encode()).decode()}})

        async def proxied(request):
            if self.pod not in PROXY:
                return web.json_response({"message": "pods not found"}, status=404)
            target = self.address + request.path_qs.removeprefix(PROXY)
            self.asked.append(request.path_qs.removeprefix(PROXY))
            headers = {"X-Endpoint-Key": request.headers["X-Endpoint-Key"]}
            async with ClientSession() as session, session.request(request.method, target, headers=headers) as answer:
                return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)

        return [
            web.get("/api/v1/namespaces/shop-watch/pods", pods),
            web.get("/api/v1/namespaces/shop-watch/secrets/endpoint-key", secret),
            web.route("*", PROXY + "/{path:.*}", proxied),
        ]


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


def test_a_session_is_recorded_there_and_its_spool_lies_here_when_it_is_closed(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_receiver, "PIECE_BYTES", 64)
    receiver, folder = RemoteReceiver(cluster.api(), "shop-watch"), tmp_path / "here"
    receiver.open_session(folder, ".recording-1")
    request = ExportTraceServiceRequest()
    for number in range(10):
        request.resource_spans.add().scope_spans.add().spans.add(name=f"span {number}", span_id=bytes(8))
        cluster.receiver.send(request)
    stats = receiver.close_session(".recording-1")
    assert stats.signals["traces"].kept_items == sum(range(1, 11))
    (spool,) = [path for path in folder.iterdir() if "traces" in path.name]
    assert spool.stat().st_size > 64
    payloads = [frame.payload for frame in read_frames(spool)]
    assert request.SerializeToString() in payloads
    assert not list((tmp_path / "spools").iterdir()), "nothing of it stays there"


def test_a_system_keeps_its_receiver_so_that_a_session_is_read_while_it_records(cluster, tmp_path):
    running = KubernetesSystem(cluster.api(), "shop")
    running.receiver.open_session(tmp_path / "here", "one")
    running.receiver.refresh("one")
    running.receiver.close_session("one")
    assert (tmp_path / "here").exists()


def test_the_door_opens_to_the_key_and_to_plain_names_alone(cluster):
    for name, key, status in (("a", "guessed", 404), ("..%2F..%2Fetc", KEY, 422), ("b", KEY, 200)):
        sent = urllib.request.Request(f"{cluster.address}/sessions/{name}", method="PUT")
        sent.add_header("X-Endpoint-Key", key)
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


def test_what_is_recorded_can_be_read_here_while_it_is_recorded_and_travels_once(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_receiver, "PIECE_BYTES", 256)
    receiver, folder = RemoteReceiver(cluster.api(), "shop-watch"), tmp_path / "here"
    folder.mkdir()
    spool = spool_path(folder, "traces")
    spool.write_bytes(b"left by a process that was killed")
    receiver.open_session(folder, ".live")
    for number in range(1, 4):
        cluster.receiver.send(handled("front", number * SECOND))
        receiver.refresh(".live")
        assert len([frame for frame in read_frames(spool) if frame.payload]) == number
    receiver.refresh(".live")
    offsets = [path for path in cluster.asked if "spool-traces" in path]
    assert len(offsets) == len(set(offsets)) > 3
    there = (tmp_path / "spools" / ".live" / spool.name).read_bytes()
    assert spool.read_bytes() == there
    receiver.close_session(".live")
    assert spool.read_bytes() == there


def test_whoever_reads_along_is_told_when_the_receiver_is_another_one(cluster, tmp_path):
    receiver = RemoteReceiver(cluster.api(), "shop-watch")
    receiver.open_session(tmp_path / "here", ".live")
    receiver.refresh(".live")
    cluster.address = cluster.receiver.address(
        KEY
    )  # a new container in the same pod: the session ended with the former
    with pytest.raises(OperationError, match=r"there is no session \.live; it ended with a receiver before this one"):
        receiver.refresh(".live")
    cluster.pod = "receiver-2"
    with pytest.raises(LostError, match="shop-watch was replaced"):
        receiver.refresh(".live")
