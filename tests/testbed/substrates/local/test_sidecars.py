"""The real Envoy in front of programs that know of no telemetry: spans, faults of HTTP, and no word of either."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from live import state_folder, strays
from opsassay.core.errors import ConfigError
from opsassay.core.schema.incident import FaultPlan
from opsassay.telemetry.otlp.requests import unpack
from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.telemetry.otlp.spool import read_frames, spool_path
from opsassay.testbed.apps import load_system
from opsassay.testbed.kernel.private_root import SIDECAR_UID
from opsassay.testbed.substrates.local.capabilities import probe
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

CHAIN = """
system: chain
services:
  front:
    sidecar: envoy
    program:
      command: [python3, plain_program.py]
      environment: {BACK_URL: "http://back:8080"}
      ports: {http: 8080}
      ready: {http: GET /health}
      calls: [back]
  back:
    sidecar: envoy
    program: {command: [python3, plain_program.py], ports: {http: 8080}, ready: {tcp: 8080}, calls: []}
load:
  rate_rps: 20
  timeout_s: 3
  mix: [{request: "front GET /items/{int:9}"}]
"""
MARKS = re.compile(rb"(?i)(?<!de)fault|envoy|inject|abort|response_flags|upstream|sidecar|ingress|timer")


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    if not (level := probe()["namespaced"]).available:
        pytest.skip(f"no namespaces here: {level.reason}")
    folder = tmp_path_factory.mktemp("chain")
    folder.chmod(0o755)
    shutil.copy(Path(__file__).with_name("plain_program.py"), folder)
    (folder / "system.yaml").write_text(CHAIN)
    try:
        return load_system(str(folder / "system.yaml"))
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def running(chain):
    with state_folder(), LocalSubstrate().deployed(chain, "chain") as running:
        yield running


def ask(running, path):
    (url,) = running.status().endpoints["front"]
    began = time.monotonic()
    try:
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    return status, body, time.monotonic() - began


def seen_by_front(running):
    """What the program of front gets when it calls the back: status, headers, body, seconds."""
    return json.loads(ask(running, "/seen")[1])


def plan_of(fault, seconds, **parameters):
    plan = {"fault": fault, "target": {"service": "back"}, "duration_s": seconds, "parameters": parameters}
    return FaultPlan.model_validate(plan)


def during(running, fault, **parameters):
    """What front sees of its back while *fault* acts, and after it."""
    events = running.inject(plan_of(fault, 3, **parameters))
    seen = [seen_by_front(running) for event in events if event["event"] == "applied"]
    return [*seen, seen_by_front(running)]


def envoys(state):
    return [one for one in strays(state) if one.name() == "envoy"]


def envoy_of(running, replica):
    (found,) = [
        one for one in psutil.Process(running.status().pids[replica]).children(recursive=True) if one.name() == "envoy"
    ]
    return found


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_requests_pass_unchanged(running):
    seen = seen_by_front(running)
    assert (seen["status"], seen["body"]) == (200, '{"item": "/items/1", "method": "GET"}')
    assert seen["headers"]["server"].startswith("BaseHTTP"), "the program's own"
    assert not [name for name in seen["headers"] if name.startswith("x-")]
    asked = json.loads(ask(running, "/asked")[1])
    assert not [name for name in asked if name.startswith("x-envoy") or name == "x-request-id"]


def test_an_abort_is_what_the_caller_gets_and_carries_no_mark(running):
    aborted, after = during(running, "HTTPRequestAbort", code=503)
    assert (aborted["status"], aborted["body"]) == (503, "")
    assert set(aborted["headers"]) <= {"connection", "content-length", "date", "server"}
    assert "envoy" not in aborted["headers"].get("server", "")
    assert after["status"] == 200


@pytest.mark.parametrize("fault", ["HTTPRequestDelay", "HTTPResponseDelay"])
def test_a_delay_is_what_the_caller_waits_for(running, fault):
    delayed, after = during(running, fault, delay_ms=700)
    assert delayed["status"] == after["status"] == 200
    assert 0.7 <= delayed["seconds"] < 1.2
    assert after["seconds"] < 0.5


@pytest.mark.parametrize(
    ("fault", "parameters", "status", "body"),
    [
        ("HTTPResponseAbort", {"code": 502}, 502, ""),
        ("HTTPResponseReplaceCode", {"code": 418}, 418, '{"item": "/items/1", "method": "GET"}'),
        ("HTTPRequestReplacePath", {"new_path": "/missing"}, 404, "{}"),
        ("HTTPRequestReplaceMethod", {"method": "PUT"}, 200, '{"item": "/items/1", "method": "PUT"}'),
    ],
)
def test_other_faults_change_what_they_say_and_nothing_else(running, fault, parameters, status, body):
    seen, after = during(running, fault, **parameters)
    assert (seen["status"], seen["body"]) == (status, body)
    assert (after["status"], after["body"]) == (200, '{"item": "/items/1", "method": "GET"}')


def test_packet_faults_act_on_connections_that_are_led_elsewhere(running):
    delayed, after = during(running, "NetworkDelay", delay_ms=300, direction="inbound")
    assert (delayed["status"], after["status"]) == (200, 200)
    assert delayed["seconds"] >= 0.3
    wait_until(lambda: seen_by_front(running)["seconds"] < 0.2)


@pytest.mark.parametrize(("fault", "parameters"), [("HTTPRequestAbort", {}), ("HTTPResponseDelay", {"delay_ms": 300})])
def test_effects_are_confirmed_and_telemetry_names_no_injector(running, tmp_path, fault, parameters):
    running.flush()  # what tests before this one asked for
    running.receiver.open_session(tmp_path / "s", "s")
    time.sleep(6)  # an effect is measured against quiet moments before
    events = {event["event"]: event for event in running.inject(plan_of(fault, 10, **parameters))}
    running.flush()
    running.receiver.close_session("s")
    assert events["effect"]["passed"], events["effect"]
    assert events["done"]["recovered"], events["done"]
    frames = decode_spool(tmp_path / "s")
    served = frames["traces"].filter(frames["traces"]["attr.span_kind"] == "Server")
    assert set(served["service_name"]) == {"front", "back"}
    names = set(served.select("service_name", "span_name").iter_rows())
    assert names == {("front", "GET /items/{id}"), ("back", "GET /items/:item")}, (
        "the program's own name, where it has one"
    )
    assert served["attr.http.response.status_code"].null_count() == 0
    back = served.filter(served["service_name"] == "back")
    callers = served.filter(served["service_name"] == "front")["span_id"]
    assert back["parent_span_id"].is_in(callers.to_list()).mean() > 0.9
    inner = frames["traces"].filter(frames["traces"]["attr.span_kind"] == "Internal")
    assert set(inner["service_name"]) == {"back"}, "the program's own spans are parts of the sidecar's"
    assert inner["parent_span_id"].is_in(back["span_id"].to_list()).mean() > 0.9
    if fault == "HTTPRequestAbort":
        assert (back["attr.http.response.status_code"] == 500).any()
        assert (back["attr.status_code"] == "Error").any()
    else:
        assert back["duration"].max() > 300e6
    recorded = b"".join(
        unpack(frame.kind, frame.payload)
        for signal in ("traces", "logs", "metrics")
        for frame in read_frames(spool_path(tmp_path / "s", signal))
    )
    assert b"/items/" in recorded
    assert set(MARKS.findall(recorded)) == set()


def test_the_program_cannot_reach_the_administration(running):
    report = json.loads(ask(running, "/reach")[1])
    assert report["admin"] == [], "a socket, a file or a port that tells or takes orders"
    admin = Path(f"/proc/{envoy_of(running, 'back-0').pid}/root/tmp/sidecar-admin").stat()
    assert stat.S_ISSOCK(admin.st_mode)
    assert stat.S_IMODE(admin.st_mode) == 0o600
    if os.geteuid() == 0:
        assert admin.st_uid == SIDECAR_UID != report["user"]


def test_a_replica_that_restarts_during_a_fault_gets_it_again(running):
    events = running.inject(plan_of("HTTPRequestAbort", 90, code=503))
    assert next(event for event in events if event["event"] == "applied")
    os.kill(running.status().pids["back-0"], signal.SIGKILL)
    wait_until(lambda: running.status().not_ready)
    wait_until(lambda: not running.status().not_ready)
    assert seen_by_front(running)["status"] == 503
    events.close()  # which ends the fault
    wait_until(lambda: seen_by_front(running)["status"] == 200)


def test_a_sidecar_that_ends_takes_its_replica_with_it_and_both_come_back(running):
    envoy_of(running, "back-0").kill()
    wait_until(lambda: running.status().not_ready)
    wait_until(lambda: not running.status().not_ready)
    assert seen_by_front(running)["status"] == 200


@pytest.mark.parametrize("ended", ["down", "supervisor"])
def test_nothing_is_left(chain, ended):
    with state_folder() as state:
        running = LocalSubstrate().deploy(chain, "left")
        assert len(envoys(state)) == 2
        if ended == "down":
            LocalSubstrate().remove("left")
        else:
            found = [one for one in strays(state) if "local.supervisor" in " ".join(one.cmdline())]
            min(found, key=lambda one: one.create_time()).kill()
            wait_until(lambda: not envoys(state), 10)
            LocalSubstrate().status()
        assert strays(state) == []
        assert running.state.name not in LocalSubstrate().names()
