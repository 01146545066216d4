"""Programs of a team's own as services: real processes that know nothing of OpsAssay, started, reached, broken, ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from live import state_folder, strays
from opsassay.core.errors import StartError
from opsassay.core.schema.incident import FaultPlan
from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.state import SystemState, marked_processes
from opsassay.testbed.substrates.local.capabilities import probe
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]

PAIR = """
system: pair
hosts: [host-a, host-b]
services:
  front:
    program:
      command: [python3, own_program.py]
      environment: {BACK_URL: "http://back:8080"}
      ports: {http: 8080}
      ready: {http: GET /health}
      calls: [back]
  back:
    replicas: 2
    config: {COLOUR: green}
    program: {command: [python3, own_program.py], ports: {http: 8080}, ready: {tcp: 8080}, calls: []}
load:
  rate_rps: 20
  timeout_s: 3
  mix: [{request: "front GET /items/{int:9}"}]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    if not (level := probe()["namespaced"]).available:
        pytest.skip(f"no namespaces here: {level.reason}")
    folder = tmp_path_factory.mktemp("project")
    folder.chmod(0o755)
    shutil.copy(Path(__file__).with_name("own_program.py"), folder)
    (folder / "system.yaml").write_text(PAIR)
    return folder


@pytest.fixture(scope="module")
def running(project):
    with state_folder(), pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENAI_API_KEY", "sk-not-for-programs")
        system = load_system(str(project / "system.yaml"))
        with LocalSubstrate().deployed(system, "pair") as running:
            yield running


def ask(running, path, service="front"):
    (url,) = running.status().endpoints[service]
    try:
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def inject(running, fault, service, **parameters):
    time.sleep(6)  # an effect is measured against quiet moments before
    plan = {"fault": fault, "target": {"service": service}, "duration_s": 12, "parameters": parameters}
    events = {event["event"]: event for event in running.inject(FaultPlan.model_validate(plan))}
    return events["effect"], events["done"]


def test_a_program_sees_its_folder_and_its_variables_and_nothing_else(running):
    status, seen = ask(running, "/report")
    assert status == 200
    assert "OPENAI_API_KEY" not in seen["environment"]
    assert seen["environment"]["OTEL_SERVICE_NAME"] == "front"
    assert seen["writable"] == ["/tmp"]
    assert 1 in seen["processes"]
    assert len(seen["processes"]) < 5, "the machine's processes are not there"
    assert not {"shadow", "hostname", "apt"} & set(seen["etc"])
    assert not {"var", "srv", "boot", "sys", "run"} & set(seen["root"])
    assert seen["port_below_1024"]
    if os.geteuid() == 0:
        assert seen["user"] != 0


def test_names_lead_to_all_ready_replicas_and_unknown_ones_nowhere(running):
    status, addresses = ask(running, "/addresses")
    assert (status, len(addresses)) == (200, 2)
    assert ask(running, "/nobody")[0] == 404
    assert ask(running, "/items/3") == (200, {"item": "/items/3"})


def test_output_is_log_records_and_the_load_is_spans(running, tmp_path):
    running.receiver.open_session(tmp_path / "s", "s")
    pid = running.status().pids["back-1"]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while running.status().pids["back-1"] in (pid, None) or running.status().not_ready:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(2)
    running.flush()
    running.receiver.close_session("s")
    frames = decode_spool(tmp_path / "s")
    logs = {(row["service_name"], row["level"], row["message"]) for row in frames["logs"].iter_rows(named=True)}
    assert ("back", "WARN", "starting") in logs
    assert ("back", "WARN", "WARN this is no JSON") in logs
    metrics = set(frames["metrics"].filter(frames["metrics"]["service_name"] == "front")["metric"].to_list())
    assert {"container.cpu.usage", "k8s.pod.ready"} <= metrics


def test_its_processes_are_in_its_control_group(running):
    front = running.status().pids["front-0"]
    (program,) = [
        process for process in psutil.Process(front).children(recursive=True) if process.name().startswith("python")
    ]
    group = Path(f"/proc/{program.pid}/cgroup").read_text()
    if "opsassay-pair" not in group:
        pytest.skip("no control groups here")
    assert "front-0" in group
    assert "front-0" not in Path(f"/proc/{front}/cgroup").read_text(), "what watches it is not limited with it"


@pytest.mark.parametrize(
    ("fault", "service", "parameters"),
    [
        ("PodFailure", "front", {}),
        ("NetworkPartition", "front", {"direction": "inbound"}),
        ("NetworkDelay", "front", {"delay_ms": 300, "direction": "inbound"}),
    ],
)
def test_faults_act_and_are_undone(running, fault, service, parameters):
    effect, done = inject(running, fault, service, **parameters)
    assert effect["passed"], effect
    assert done["recovered"], done
    assert ask(running, "/items/1")[0] == 200


def test_lookups_of_a_program_fail_while_the_fault_lasts(running):
    plan = FaultPlan.model_validate({"fault": "DNSError", "target": {"service": "front"}, "duration_s": 6})
    answered = [ask(running, "/items/1")[0] for event in running.inject(plan) if event["event"] == "applied"]
    answered.append(ask(running, "/items/1")[0])
    assert answered == [502, 200], "it sends no spans: what its users get tells"


def test_a_restart_brings_settings_into_the_environment(running):
    running.operate("config set", {"target": "back", "key": "COLOUR", "value": "blue"})
    result = running.operate("restart", {"target": "back", "rolling": True})
    assert result["not_ready"] == []
    back = running.status().pids["back-0"]
    program = psutil.Process(back).children(recursive=True)[-1]
    assert program.environ()["COLOUR"] == "blue"


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("{command: [python3, -c, 'raise SystemExit(\"no such setting\")'], ports: {h: 8080}, ready: {tcp: 8080}}",
         "no such setting"),
        ("{command: [python3, missing.py], ports: {h: 8080}, ready: {tcp: 8080}}", "missing.py"),
    ],
)  # fmt: skip
def test_a_program_that_ends_is_named_with_its_last_words(project, program, says):
    path = project / "broken.yaml"
    path.write_text(
        f"system: broken\nservices: {{one: {{program: {program}}}}}\nload: {{mix: [{{request: one GET /}}]}}\n"
    )
    with state_folder() as state, pytest.raises(StartError, match="Service one ended 3 times while starting") as raised:
        LocalSubstrate().deploy(load_system(str(path)), "broken")
    assert says in str(raised.value)
    assert strays(state) == []


@pytest.mark.parametrize("victim", ["supervisor", "template", "program"])
def test_kill_9_leaves_nothing(project, victim):
    with state_folder() as state:
        system = load_system(str(project / "system.yaml"))
        running = LocalSubstrate().deploy(system, "killed")
        programs = [
            process.pid
            for process in psutil.process_iter()
            if _mentions(process, "own_program.py") and _marked(process, SystemState.for_system("killed"))
        ]
        assert len(programs) >= 3
        if victim == "program":
            former = running.status().pids
            os.kill(programs[0], signal.SIGKILL)
            deadline = time.monotonic() + 60
            while running.status().pids == former or running.status().not_ready:
                assert time.monotonic() < deadline, "it was not started again"
                time.sleep(0.05)
            LocalSubstrate().remove("killed")
        else:
            of_system = marked_processes(SystemState.for_system("killed"))
            forks = [one for one in of_system if _mentions(one, "local.supervisor")]
            forks.sort(key=lambda one: one.create_time())
            forks[["supervisor", "template"].index(victim)].kill()  # the template is the supervisor's first fork
            LocalSubstrate().status()
        deadline = time.monotonic() + 60
        while LocalSubstrate().names() or any(
            psutil.pid_exists(pid) and _mentions(psutil.Process(pid), "own_program.py") for pid in programs
        ):
            assert time.monotonic() < deadline, "a program outlived its system"
            time.sleep(0.1)
        LocalSubstrate().status()
        assert strays(state) == []


def _mentions(process, word):
    with contextlib.suppress(psutil.Error):
        return word in " ".join(process.cmdline())
    return False


def _marked(process, state):
    with contextlib.suppress(psutil.Error):
        return process.environ().get("OPSASSAY_SYSTEM") == str(state.dir)
    return False


def test_a_job_that_has_ended_well_is_not_started_again_and_nothing_misses_it(project):
    job = """  seed:
    program: {command: [python3, -c, "print('seeded', flush=True)"], ready: {log: seeded}, restarts: false}
load:"""
    (project / "jobs.yaml").write_text(PAIR.replace("load:", job, 1))
    substrate = LocalSubstrate()
    with state_folder(), substrate.deployed(load_system(str(project / "jobs.yaml")), "jobs") as running:
        deadline = time.monotonic() + 30
        while "seed-0" in running.status().pids and time.monotonic() < deadline:
            time.sleep(0.2)
        status = running.status()
        assert (status.replicas, status.ready, status.not_ready) == (3, 3, ())
        assert {row["service"] for row in running.operate("ps", {})["replicas"]} == {"front", "back"}
        assert running.operate("restart", {"target": "all"})["not_ready"] == []
        assert "seed-0" not in running.status().pids
        assert running.state.log("seed-0").read_text().count("seeded") == 1
