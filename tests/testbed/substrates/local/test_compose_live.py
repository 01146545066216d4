"""A compose project with a real engine, in a network namespace of its own: checked, broken, killed; nothing stays."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from testbed.substrates.local.compose_machine import REASON, WITHOUT, containers_of, machine_in, wait_for
from testbed.substrates.local.trials_page import (
    certificates,
    commands_of_the_page,
    plan_of_the_page,
    scenario_of_the_page,
)

pytestmark = [
    pytest.mark.live,
    pytest.mark.alone,
    pytest.mark.drawn(most=2),
    pytest.mark.timeout(400),
    pytest.mark.skipif(WITHOUT, reason=REASON),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("engine")) as machine:
        yield machine


def test_a_project_is_checked_and_the_users_own_is_as_it_was(machine):
    before = (machine.project / "compose.yaml").read_text()
    found = json.loads(machine.opsassay("system", "check", "compose.yaml", "--seconds", "10", "--rate", "8", "--json"))
    services = {one["service"]: one for one in found["items"]}
    assert not found["findings"]
    assert services["stock"]["callers"] == ["orders"]
    assert services["front"]["callers"] == ["loadgenerator"]
    assert set(services) == {"front", "orders", "catalog", "stock"}  # jobs have ended
    assert {"PodKill", "NetworkDelay", "CPUStress", "MemoryStress", "DNSError"} <= set(services["stock"]["faults"])
    assert "HTTPResponseAbort" not in services["stock"]["faults"]
    assert (machine.project / "compose.yaml").read_text() == before
    assert not list((machine.project / "data").iterdir())  # containers wrote to a copy
    assert machine.left() == []


SYSTEM = """
system: my-shop
compose: compose.yaml
services:
  orders: {ready: {http: GET /}}
load: {rate_rps: 8, mix: [{request: front GET /}]}
"""


@pytest.fixture
def scenario(machine):
    """Return the folder of the project with the scenario of the page in it."""
    written = {"system.yaml": SYSTEM, "orders-hang.yaml": scenario_of_the_page(), "trials.yaml": plan_of_the_page()}
    for name, text in written.items():
        (machine.project / name).write_text(text)
    yield machine.project
    for name in written:
        (machine.project / name).unlink()


@pytest.mark.drawn
@pytest.mark.timeout(900)
def test_the_commands_of_the_page_certify_the_right_repair_and_reject_the_harmful_one(machine, scenario):
    before = digests(scenario)
    for line in commands_of_the_page():
        machine.opsassay(*shlex.split(line)[1:], limit_s=800)
    assert certificates(scenario / "trials") == {
        "oracle:right": True, "oracle:silenced": False, "oracle:careless": False,
    }  # fmt: skip
    assert {name: digest for name, digest in digests(scenario).items() if not name.startswith("trials/")} == before
    assert machine.left() == []


@pytest.mark.drawn
def test_a_trial_that_is_killed_leaves_the_project_as_it_was(machine, scenario):
    before = digests(scenario)
    words = [sys.executable, "-m", "opsassay", "run", "trials", "trials.yaml", "-o", "killed"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    runner = psutil.Popen(machine.entered(scenario, *words), env=machine.variables, **quiet)
    folder = scenario / "killed"
    assert wait_for(lambda: any("triggered" in path.read_text() for path in folder.glob("runs/*/*/phases.jsonl")), 150)
    assert machine.left()
    for process in (*runner.children(), runner):  # the trial and who waits for it; the system is in other hands
        process.kill()
    runner.wait()
    assert wait_for(lambda: not machine.left(), 90), machine.left()
    shutil.rmtree(folder)
    assert digests(scenario) == before


def digests(folder: Path) -> dict[str, str]:
    """Return what is in the files of *folder*, by their names."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.drawn
def test_an_operator_stops_limits_and_asks_containers(machine, tmp_path):
    machine.opsassay("system", "up", "compose.yaml", "--name", "mine", "--rate", "8")
    script = tmp_path / "operate.py"
    script.write_text(OPERATE)
    found = json.loads(machine.run(sys.executable, str(script)))
    machine.opsassay("system", "down", "mine")
    assert found["stopped"] == {"stock-0": "stopped", "front-0": "ready"}
    assert found["answer"]["status"] == 200
    assert found["limit"] == found["limit_after_restart"] == "25000"
    assert found["as_written"] == "100000"
    assert found["refused"] == "The compose file says what stock is given; its settings are cpu_limit, memory_limit_mb."
    assert "scale does not act on containers" in found["scaled"]
    assert found["stopped_by_docker"] == "stopped"
    assert found["updated"] == ["50000", 300]
    assert json.loads(found["curl"])["status"] == 200
    assert found["wrong"].startswith("Error: There is no `docker rm` here")
    assert found["actions"][0] == ["docker", True, ["stock", "stock-0"]]
    assert [mutating for _, mutating, _ in found["actions"]] == [True, True, True, False, False, False]


OPERATE = """
import json
from pathlib import Path
from opsassay.core.errors import RefusedError
from opsassay.testbed.apps import load_system
from opsassay.testbed.kernel.cgroups import CPU, memberships, mounted_groups
from opsassay.testbed.operations.tools import VerbToolSession, operator_tools
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

running = LocalSubstrate().running("mine")

def states():
    return {row["replica"]: row["state"] for row in running.operate("ps", {})["replicas"]}

def quota():
    pid, groups = running.status().pids["stock-0"], mounted_groups()
    inside = memberships(Path(f"/proc/{pid}/cgroup").read_text())
    place = groups.parents[CPU] / inside.get(CPU, inside.get("", "/")).strip("/")
    file = place / ("cpu.max" if groups.versions[CPU] == 2 else "cpu.cfs_quota_us")
    return file.read_text().split()[0]

def refusal(verb, **arguments):
    try:
        return str(running.operate(verb, arguments))
    except RefusedError as error:
        return str(error)

found, actions = {}, []
session = VerbToolSession(running, None, actions.append, operator_tools(load_system("compose.yaml")))

def docker(*words):
    return session.call("docker", {"args": list(words)}).output

running.operate("stop", {"target": "stock"})
found["stopped"] = {name: state for name, state in states().items() if name in ("stock-0", "front-0")}
running.operate("start", {"target": "stock"})
asked = {"source": "orders", "service": "stock", "port": 8000, "path": "/", "method": "GET", "timeout_s": 5.0}
found["answer"] = running.operate("exec curl", asked)
running.operate("config set", {"target": "stock", "key": "cpu_limit", "value": "0.25"})
found["limit"] = quota()
running.operate("restart", {"target": "stock"})
found["limit_after_restart"] = quota()
running.operate("config unset", {"target": "stock", "key": "cpu_limit"})
found["as_written"] = quota()
found["refused"] = refusal("config set", target="stock", key="CALLEES", value="front")
found["scaled"] = refusal("scale", service="stock", replicas=2)
docker("compose", "stop", "stock")
found["stopped_by_docker"] = states()["stock-0"]
docker("start", "stock-0")
docker("update", "--cpus", "0.5", "--memory", "300m", "stock-0")
found["updated"] = [quota(), json.loads(docker("inspect", "stock-0"))["limits"]["memory_mb"]]
found["curl"] = docker("exec", "orders-0", "curl", "-s", "http://stock:8000/")
found["wrong"] = docker("rm", "-f", "stock-0")
found["actions"] = [[one.tool, one.mutating, one.touched] for one in actions]
print(json.dumps(found))
"""


@pytest.mark.drawn
def test_it_is_broken_and_recovers_and_a_killed_supervisor_leaves_nothing(machine, tmp_path):
    machine.opsassay("system", "up", "compose.yaml", "--name", "mine", "--rate", "8")
    for fault, parameters in {"NetworkPartition": {}, "PodFailure": {}}.items():
        plan = {"fault": fault, "target": {"service": "stock"}, "parameters": parameters, "duration_s": 10}
        (tmp_path / "fault.yaml").write_text(yaml.safe_dump(plan))
        printed = machine.opsassay("system", "inject", str(tmp_path / "fault.yaml"), "--on", "mine", "--json")
        events = json.loads(printed)["items"]
        (effect,) = (one for one in events if one["event"] == "effect")
        assert effect["passed"], events
        assert events[-1]["event"] == "done"
    (status,) = json.loads(machine.opsassay("system", "status", "--json"))["items"]
    psutil.Process(status["pid"]).kill()
    deadline = time.monotonic() + 60
    while machine.left() and time.monotonic() < deadline:
        time.sleep(1)
    assert machine.left() == []  # its guard took the project down, before any other command
    (cleared,) = json.loads(machine.opsassay("system", "status", "--json"))["items"]
    assert cleared["phase"] == "cleared"


def looked_up(machine, *names):
    """Return the address that the container of front finds for each of *names*, "" for none."""
    (front,) = machine.run(machine.engine, "ps", "-q", "--filter=label=com.docker.compose.service=front").split()
    script = "import socket, sys\nfor name in sys.argv[1:]:\n try: print(socket.gethostbyname(name))\n"
    script += " except OSError: print()"
    return machine.run(machine.engine, "exec", front, "python3", "-c", script, *names).splitlines()


@pytest.mark.drawn
def test_look_ups_of_a_container_go_wrong_for_one_name_and_come_right(machine, tmp_path):
    machine.opsassay("system", "up", "compose.yaml", "--name", "mine", "--rate", "8")
    time.sleep(8)
    plan = {"fault": "DNSError", "target": {"service": "orders"}, "parameters": {"hostname": "stock"}, "duration_s": 10}
    (tmp_path / "fault.yaml").write_text(yaml.safe_dump(plan))
    printed = machine.opsassay("system", "inject", str(tmp_path / "fault.yaml"), "--on", "mine", "--json")
    events = {one["event"]: one for one in json.loads(printed)["items"]}
    assert events["effect"]["passed"], events
    assert events["done"]["recovered"], events
    _, catalog, stock = before = looked_up(machine, "orders", "catalog", "stock")
    for fault, wrong in {"DNSError": {""}, "DNSRandom": {catalog, stock}}.items():
        plan = {"fault": fault, "target": {"service": "front"}, "parameters": {"hostname": "orders"}, "duration_s": 20}
        (tmp_path / "fault.yaml").write_text(yaml.safe_dump(plan))
        words = [sys.executable, "-m", "opsassay", "system", "inject", str(tmp_path / "fault.yaml"), "--on", "mine"]
        injecting = psutil.Popen(machine.entered(machine.project, *words), env=machine.variables)
        assert wait_for(lambda wrong=wrong: set(looked_up(machine, *machine.own_names)) <= wrong, 20)
        assert looked_up(machine, "catalog", "stock") == [catalog, stock]
        injecting.wait()
        assert looked_up(machine, "orders", "catalog", "stock") == before
    machine.opsassay("system", "down", "mine")
    assert machine.left() == []


OWN_LOAD = """
system: my-shop
compose: compose.yaml
load: {command: [python3, own_load.py], environment: {URL: "http://front:8000/"}}
"""


@pytest.mark.drawn
def test_a_load_generator_of_a_teams_own_reaches_containers_by_their_names(machine):
    written = [machine.project / name for name in ("own.yaml", "own_load.py")]
    written[0].write_text(OWN_LOAD)
    shutil.copy(Path(__file__).with_name("own_load.py"), written[1])
    try:
        found = json.loads(machine.opsassay("system", "check", "own.yaml", "--seconds", "8", "--json"))
    finally:
        for path in written:
            path.unlink()
    assert not found["findings"]
    assert "known from the spans of front alone" in found["not_known"][0]
    assert next(one for one in found["items"] if one["service"] == "front")["spans"] > 20
    assert machine.left() == []


ATTACHED = """
fault: {fault}
target: {{service: stock}}
duration_s: 30
"""


@pytest.fixture
def users_own(machine):
    """Start the user's own project as a user does; yield how its containers are."""
    machine.run("podman-compose", "-p", "own", "up", "--detach")
    try:
        assert wait_for(lambda: machine.run("curl", "-sf", "http://127.0.0.1:8000/", code=None), 60)
        wait_for(lambda: machine.run("podman", "ps", "-q", "--filter=name=seed", code=None) == "", 20)
        yield (before := containers_of(machine))
        assert containers_of(machine) == before, "whatever became of the test"
    finally:
        machine.run("podman-compose", "-p", "own", "down", "--volumes", "--timeout", "1", code=None)
        for name in ("running.yaml", "fault.yaml"):
            (machine.project / name).unlink(missing_ok=True)
        for name in ("recorded", "trials"):
            shutil.rmtree(machine.project / name, ignore_errors=True)


def attach(machine):
    words = ["--compose", "own", "--entry", "http://127.0.0.1:8000/", "-o", "running.yaml", "--json"]
    told = json.loads(machine.opsassay("system", "attach", *words))
    assert told["changes"]
    return {one["service"]: one for one in told["items"]}


def test_a_project_that_runs_is_attached_to_broken_and_put_back(machine, users_own):
    services = attach(machine)
    assert services["front"] == {"service": "front", "containers": 1, "port": 8000, "limited": False}
    assert set(services) == {"front", "orders", "catalog", "stock"}, "jobs that have ended are left out"
    assert containers_of(machine) == users_own
    found = json.loads(machine.opsassay("system", "check", "running.yaml", "--seconds", "8", "--rate", "8", "--json"))
    assert not found["findings"]
    faults = {one["service"]: one["faults"] for one in found["items"]}["stock"]
    assert "PodFailure" in faults
    assert "CPUStress" not in faults, "nothing limits it"
    assert containers_of(machine) == users_own
    (machine.project / "fault.yaml").write_text(ATTACHED.format(fault="PodFailure"))
    windows = ["--warmup", "2", "--normal", "15", "--abnormal", "10"]
    machine.opsassay("incident", "record", "running.yaml", "fault.yaml", "-o", "recorded", *windows)
    (truth,) = (machine.project / "recorded" / "truth").glob("*/truth.json")
    assert json.loads(truth.read_text())["effects"][0]["passed"]
    assert containers_of(machine) == users_own


@pytest.mark.drawn
@pytest.mark.parametrize("fault", ["NetworkDelay", "PodFailure"])
def test_a_killed_supervisor_leaves_a_project_that_runs_as_it_was(machine, users_own, fault):
    attach(machine)
    machine.opsassay("system", "up", "running.yaml", "--name", "mine", "--rate", "8")
    running = 'from opsassay.testbed.substrates.local.substrate import LocalSubstrate as L; r = L().running("mine"); '
    limit = 'r.operate("config set", {"target": "orders", "key": "cpu_limit", "value": "0.25"}); '
    hang = 'r.operate("hang", {"service": "catalog"})'
    machine.run(sys.executable, "-c", running + limit + hang)
    time.sleep(5)
    (machine.project / "fault.yaml").write_text(ATTACHED.format(fault=fault))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = [sys.executable, "-m", "opsassay", "system", "inject", "fault.yaml", "--on", "mine"]
    injecting = psutil.Popen(machine.entered(machine.project, *words), env=machine.variables, **quiet)
    time.sleep(4)
    assert containers_of(machine) != users_own
    (status,) = json.loads(machine.opsassay("system", "status", "--json"))["items"]
    psutil.Process(status["pid"]).kill()
    injecting.wait()
    assert wait_for(lambda: containers_of(machine) == users_own, 60), "the guard puts back, before any other command"
    machine.opsassay("system", "status")
    assert containers_of(machine) == users_own


@pytest.mark.drawn
def test_a_trial_on_a_project_that_runs_is_judged_and_leaves_it_as_it_was(machine, users_own):
    attach(machine)
    written = scenario_of_the_page().replace("system: system.yaml", "system: running.yaml")
    (machine.project / "orders-hang.yaml").write_text(written)
    (machine.project / "trials.yaml").write_text('{scenarios: [orders-hang.yaml], agents: ["oracle:right"]}')
    text = (machine.project / "running.yaml").read_text()
    ready = text.replace("  orders:\n", "  orders:\n    ready: {http: GET /}\n")
    (machine.project / "running.yaml").write_text(ready)
    try:
        machine.opsassay("run", "trials", "trials.yaml", "-o", "trials", limit_s=390)
        machine.opsassay("score", "trials", "trials")
        assert certificates(machine.project / "trials") == {"oracle:right": True}
    finally:
        for name in ("orders-hang.yaml", "trials.yaml"):
            (machine.project / name).unlink()
