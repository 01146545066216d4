"""The keeper of a pod does what it is ordered until the order's end, whoever is still there."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from conftest import until
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.system import System

TINY = load_yaml(Path(__file__).parents[1] / "testbed" / "tiny.yaml", System)
POD = """
import json, os, sys
from pathlib import Path
from opsassay.testbed.substrates.kubernetes.agent import __main__ as pod
from opsassay.testbed.substrates.kubernetes.agent import pod_agent
pod_agent.HOME, pod_agent.AGENT_PORT = Path(sys.argv[1]), int(sys.argv[2])
raise SystemExit(pod_agent.keep(pod._run, json.loads(sys.argv[3])))
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class Pod:
    """A pod's process 1 and its child, on this machine: ``front`` of the tiny system, whose callee does not exist."""

    def __init__(self, home):
        self.home, self.door_port, self.port = home, free_port(), free_port()
        order = {
            "id": "front-abc", "service": "front", "system": TINY.model_dump(mode="json"), "seed": 0,
            "endpoint": "http://127.0.0.1:1", "address": "127.0.0.1", "port": self.port, "inside": "",
            "ledger": str(home / "ledger" / "replica.jsonl"), "stores": {}, "token": "t", "release": "v1", "settings": {},
            "clock_offset_ns": 0,
            "resource": {"service.name": "front", "k8s.pod.name": "front-abc", "k8s.node.name": "here"},
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", POD, str(home), str(self.door_port), json.dumps(order)],
            env={"ENDPOINT_KEY": "secret"},
        )
        until(lambda: self.status("GET", "")[0] == 200 or self.process.poll() is not None, 60)

    def status(self, method, path, body=None, key="secret"):
        url = f"http://127.0.0.1:{self.door_port}/{path}"
        sent = urllib.request.Request(url, method=method, data=None if body is None else json.dumps(body).encode())
        sent.add_header("X-Endpoint-Key", key)
        try:
            with urllib.request.urlopen(sent, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return None, str(error)

    def answer(self):
        """Return the status with which the service answers, and after how many seconds."""
        began = time.monotonic()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=20) as answer:
                return answer.status, time.monotonic() - began
        except urllib.error.HTTPError as error:
            return error.code, time.monotonic() - began


@pytest.fixture
def pod():
    with tempfile.TemporaryDirectory(prefix="pod-") as home:  # short, for its Unix socket
        pod = Pod(Path(home))
        yield pod
        pod.process.kill()
        pod.process.wait()


@pytest.mark.slow
def test_an_order_lasts_until_its_end_and_only_who_has_the_key_can_give_one(pod):
    aborting = {"injection": "1", "type": "abort_request", "parameters": {"code": 418}}
    order = {"until": time.time() + 4, "hooks": [aborting]}
    assert pod.status("PUT", "desired", order, key="guessed")[0] == 404
    assert pod.answer()[0] == 500, "it calls who is not there"
    assert pod.status("PUT", "desired", order)[0] == 200
    assert pod.answer()[0] == 418
    told = json.loads(pod.status("GET", "")[1])
    assert told["desired"]["hooks"] == [aborting]
    assert told["stats"]["server"][0] >= 2
    assert "memory_bytes" in told["gauges"]
    until(lambda: pod.answer()[0] == 500, 60)
    assert time.time() >= order["until"], "it ended by itself, and not before"
    assert not json.loads(pod.status("GET", "")[1])["desired"]["hooks"]
    assert '"error"' in pod.status("GET", "ledger")[1]


@pytest.mark.slow
def test_look_ups_fail_while_that_is_wanted_and_an_order_that_is_none_is_refused(pod):
    code, words = pod.status("PUT", "desired", {"until": time.time() + 60, "names": {"middle": "explode"}})
    assert code == 422
    assert "names.middle" in words
    assert pod.status("PUT", "desired", {"until": time.time() + 60, "names": {"middle": "fail"}})[0] == 200
    until(lambda: pod.answer() and '"kind":"lookup"' in pod.status("GET", "ledger")[1], 60)
    assert pod.status("PUT", "desired", {"until": 0})[0] == 200
    assert json.loads(pod.status("GET", "")[1])["desired"]["names"] == {}


def test_no_connection_lasts_while_a_policy_parts_the_pod_from_its_peers(pod):
    def lasts():
        """Return whether a second request goes through the connection of the first."""
        connection = http.client.HTTPConnection("127.0.0.1", pod.port, timeout=20)
        connection.request("GET", "/")
        connection.getresponse().read()
        stands = connection.sock is not None
        connection.close()
        return stands

    assert lasts()
    parted = {"injection": "1", "type": "short_connections", "parameters": {"direction": "from"}}
    assert pod.status("PUT", "desired", {"until": time.time() + 60, "hooks": [parted]})[0] == 200
    assert not lasts()
    assert pod.status("PUT", "desired", {"until": 0})[0] == 200
    assert lasts()


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_container_and_a_new_one_is_another_start(pod):
    assert json.loads(pod.status("GET", "")[1])["starts"] == 1
    assert pod.status("POST", "kill") == (200, "{}")
    assert pod.process.wait(30) == 128 + 9
    again = Pod(pod.home)
    try:
        assert json.loads(again.status("GET", "")[1])["starts"] == 2
    finally:
        again.process.terminate()
        assert again.process.wait(30) == 0, "a pod that is told to end does so"
