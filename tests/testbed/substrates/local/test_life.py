"""Starting, stopping and killing systems: nothing is left behind, nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from live import Recording, run_opsassay, state_folder, strays
from opsassay.core.errors import StartError, UserError
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System
from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.state import SystemState, marked_processes
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed import TINY

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]


@pytest.fixture
def state():
    with state_folder() as folder:
        yield folder


def wait_for(condition, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


def process_of(state, word):
    """Return the process of a running system whose log is called *word*, or whose program has it in its path."""
    for process in marked_processes(state):
        with contextlib.suppress(psutil.Error, OSError):
            log = Path(f"/proc/{process.pid}/fd/2").readlink()
            if log.stem == word or word in process.exe():
                return process
    raise AssertionError(f"no process with {word}")


def test_up_status_down_leave_nothing(state):
    up = run_opsassay("system", "up", TINY, "--name", "one", "--json")
    assert up.returncode == 0, up.stderr
    (item,) = json.loads(up.stdout)["items"]
    assert (item["phase"], item["ready"], item["replicas"]) == ("ready", 3, 3)
    again = run_opsassay("system", "up", TINY, "--name", "one")
    assert again.returncode == 2
    assert "already running" in again.stderr
    shown = json.loads(run_opsassay("system", "status", "--json").stdout)
    assert [system["name"] for system in shown["items"]] == ["one"]
    assert shown["isolation"]["plain"]["available"] is True
    assert run_opsassay("system", "down", "one").returncode == 0
    assert strays(state) == []
    assert list((state / "systems").glob("[!.]*")) == []


def test_two_instances_side_by_side(state):
    substrate, app = LocalSubstrate(), load_system(TINY)
    first = substrate.deploy(app, "first", owned=True)
    second = substrate.deploy(app, "second", owned=True)
    assert first.status().receiver != second.status().receiver
    substrate.remove("first")
    assert second.status().ready == 3
    substrate.remove("second")


def test_what_is_forked_has_been_imported_before(state, monkeypatch):
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # each process writes its imports into its log
    substrate = LocalSubstrate()
    running = substrate.deploy(load_system(TINY), "forked", owned=True)
    wait_for(lambda: running.status().ready == 3)
    time.sleep(2.0)  # they serve, and send what they have seen
    imported = {log.stem: imports(log) for log in (state / "systems" / "forked").glob("**/*.log")}
    substrate.remove("forked")
    assert {"requests", "uvloop"} <= imported["supervisor"]
    names = ("template", "receiver", "front-0", "middle-0", "back-0", "loadgenerator")
    late = {name: imported[name] for name in names}
    assert not any(late.values()), late


def imports(log):
    """Return what CPython's import times in *log* name."""
    lines = [line.split("|") for line in log.read_text().splitlines() if line.startswith("import time:")]
    return {fields[2].strip() for fields in lines}


@pytest.mark.parametrize(
    "victim",
    ["supervisor", "template", *(pytest.param(name, marks=pytest.mark.long) for name in ("receiver", "valkey"))],
)
def test_kill_9_of_any_process_in_mid_fault_leaves_nothing_and_loses_nothing(state, tmp_path, victim):
    running = LocalSubstrate().deploy(load_system(TINY), "kill", seed=1)
    receiver = running.receiver
    receiver.open_session(tmp_path / "spool", "s")
    plan = FaultPlan.model_validate({"fault": "CPUStress", "target": {"service": "back"}, "duration_s": 60})
    events = running.inject(plan)
    assert next(events)["event"] == "applied"
    time.sleep(2.5)
    acknowledged = receiver.stats().sessions["s"].signals["traces"].kept_items
    assert acknowledged > 0
    process_of(running.state, victim).kill()
    events.close()
    wait_for(lambda: not running.state.running())
    status = json.loads(run_opsassay("system", "status", "--json").stdout)["items"]
    LocalSubstrate().status()
    assert all(system["phase"] == "cleared" for system in status)
    if victim == "supervisor":
        assert status[0]["faults_undone"] == ["CPUStress"]
    assert strays(state) == []
    assert list((state / "systems").glob("[!.]*")) == []
    assert decode_spool(tmp_path / "spool")["traces"].height >= acknowledged


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        signal.SIGKILL,
    ],
)
def test_however_a_recording_ends_its_system_goes_with_it(state, tmp_path, number):
    fault = tmp_path / "fault.yaml"
    fault.write_text("fault: HTTPResponseDelay\ntarget: {service: back}\nparameters: {delay_ms: 100}\n")
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "opsassay",
        "record",
        TINY,
        str(fault),
        "-o",
        str(out),
        "--warmup",
        "1",
        "--normal",
        "3",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recording:
        assert recording.stderr is not None
        for line in recording.stderr:
            if "abnormal window" in line:
                break
        time.sleep(1.5)
        recording.send_signal(number)
        _, said = recording.communicate(timeout=60)
    assert recording.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    wait_for(lambda: not strays(state))
    run_opsassay("system", "status")
    assert list((state / "systems").glob("[!.]*")) == []
    assert not (out / "incidents").exists() or list((out / "incidents").glob("[!.]*")) == []
    (spool,) = out.glob(".recording-*")
    assert number == signal.SIGKILL or f"What was recorded until then is in {spool}." in said
    assert decode_spool(spool)["traces"].height > 0  # what was acknowledged is there


def test_a_killed_replica_comes_back_as_the_same_service(state):
    running = LocalSubstrate().deploy(load_system(TINY), "heal", owned=True)
    pids = {p.pid for p in marked_processes(running.state)}
    with contextlib.ExitStack() as stack:
        stack.callback(LocalSubstrate().remove, "heal")
        psutil.Process(running.status().pids["middle-0"]).kill()
        wait_for(lambda: {p.pid for p in marked_processes(running.state)} - pids)
        wait_for(lambda: running.status().not_ready == ())


def test_a_service_that_crashes_in_a_loop_is_named_with_its_log(state):
    broken = System.model_validate(load_system(TINY).model_dump() | {"stores": {"cache": {"engine": "valkey"}}})
    steps = [{"sql": "SELECT 1"}]
    services = broken.model_dump()["services"]
    services["back"]["operations"]["GET /"]["steps"] = steps
    app = broken.model_dump() | {
        "services": services,
        "stores": {"db": {"engine": "postgresql", "setup": ["SELECT wrong"]}},
    }
    with pytest.raises(StartError, match="Store db: setup statement 'SELECT wrong' failed"):
        LocalSubstrate().deploy(System.model_validate(app), "loop")
    assert strays(state) == []


def test_a_wrong_system_or_fault_is_one_sentence_and_exit_2(state, tmp_path):
    for arguments, words in [
        (("system", "up", "shp"), "There is no system 'shp'; did you mean 'shop'?"),
        (("incident", "record", "shop", str(tmp_path / "none.yaml"), "-o", str(tmp_path / "o")), "Cannot read"),
        (("system", "down", "nobody"), "There is no running system 'nobody'"),
        (("system", "injct"), "did you mean 'system inject'?"),
    ]:
        done = run_opsassay(*arguments)
        assert done.returncode == 2, arguments
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "o").exists()


def test_a_state_path_that_is_too_long_for_sockets_is_named(monkeypatch):
    monkeypatch.setenv("OPSASSAY_STATE", "/tmp/" + "x" * 90)
    with pytest.raises(UserError, match="set OPSASSAY_STATE to a shorter one"):
        SystemState.for_system("a")


def test_the_receiver_keeps_spans_of_before_and_after_a_restart(state, tmp_path):
    substrate = LocalSubstrate()
    running = substrate.deploy(load_system(TINY), "pods", owned=True)
    with Recording(running, tmp_path / "spool") as recording:
        time.sleep(2)
        plan = FaultPlan.model_validate({"fault": "PodKill", "target": {"service": "middle"}, "duration_s": 5})
        events = {event["event"]: event for event in running.inject(plan)}
    assert events["done"]["recovered"]
    pods = recording.tables["traces"].filter(recording.tables["traces"]["service_name"] == "middle")[
        "attr.k8s.pod.name"
    ]
    assert pods.n_unique() == 2
    assert recording.stats.drop_rate == 0
    substrate.remove("pods")


def test_a_busy_control_socket_refuses_unknown_commands(state):
    substrate = LocalSubstrate()
    running = substrate.deploy(load_system(TINY), "ask", owned=True)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(running.state.socket))
        connection.sendall(b'{"op": "explode"}\n')
        assert "There is no command 'explode'" in json.loads(connection.recv(4096))["error"]
    substrate.remove("ask")
    assert os.environ["OPSASSAY_STATE"] == str(state)
