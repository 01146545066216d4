"""A load generator of a team's own in place of OpsAssay's: started, confined, recorded and ended with the system."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import psutil
import pytest
import yaml

from live import run_opsassay, skip_if_starved, state_folder, strays
from opsassay.core.errors import LostError, RefusedError, StartError
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.state import SystemState, marked_processes
from opsassay.testbed.substrates.local.capabilities import probe
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed.substrates.local.trials_page import certificates, scenario_of_the_page

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

ALONE = """
system: alone
services:
  front:
    program: {command: [python3, plain_program.py], ports: {http: 8080}, ready: {tcp: 8080}, calls: []}
load: {command: [python3, own_load.py, HOW], environment: {URL: "http://front:8080/items/1"}}
"""
"""Its entry sends a span of each request."""

PAIR = """
system: my-shop
hosts: [host-a, host-b]
services:
  front:
    config: {BACK_URL: "http://orders:8080"}
    program: {command: [python3, own_program.py], ports: {http: 8080}, ready: {http: GET /health}, calls: [orders]}
  orders:
    replicas: 2
    program: {command: [python3, own_program.py], ports: {http: 8080}, ready: {http: GET /health}, calls: []}
load:
  command: [python3, own_load.py]
  environment: {URL: "http://front.my-shop:8080/items/1"}
  mix: [{request: "front GET /items/1"}]
"""
"""Nothing of it sends spans."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    if not (level := probe()["namespaced"]).available:
        pytest.skip(f"no namespaces here: {level.reason}")
    folder = tmp_path_factory.mktemp("project")
    folder.chmod(0o755)
    for name in ("own_program.py", "plain_program.py", "own_load.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    for how in ("steady", "short", "failing"):
        (folder / f"{how}.yaml").write_text(ALONE.replace("HOW", how))
    (folder / "system.yaml").write_text(PAIR)
    with state_folder():
        yield folder


def run(project, *words, code=0, limit_s=280):
    done = run_opsassay(*words, cwd=project, timeout=limit_s)
    if done.returncode != code:
        skip_if_starved(done.stdout + done.stderr)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def load_processes(name):
    """Return the processes of the load's command in the system *name*."""
    return [
        one for one in marked_processes(SystemState.for_system(name)) if any("own_load.py" in w for w in one.cmdline())
    ]


def test_a_check_says_what_of_the_users_is_known_and_what_is_not(project):
    found = json.loads(run(project, "system", "check", "steady.yaml", "--seconds", "8", "--json"))
    assert not found["findings"]
    assert found["items"][0]["spans"] > 20, "its requests reach the entry by its name"
    known, judged = found["not_known"]
    assert "what users got is known from the spans of front alone" in known
    assert "v_users" in judged
    told = json.loads(run(project, "system", "check", "system.yaml", "--seconds", "5", "--json", code=1))
    assert told["not_known"][0].endswith("own_load.py`: what users got is not known.")


def test_it_is_confined_and_its_output_is_no_telemetry_and_a_rate_is_refused(project):
    with LocalSubstrate().deployed(load_system(str(project / "steady.yaml")), "confined") as running:
        assert running.status().rate_rps is None
        said = running.state.log("loadgenerator").read_text()
        assert "the load starts" in said
        if os.geteuid() == 0:
            assert "user 0," not in said
        (seen,) = (line for line in said.splitlines() if line.startswith("user "))
        assert int(seen.split()[2]) < 5, "the machine's processes are not there"
        (command,) = (one for one in load_processes("confined") if one.name().startswith("python"))
        group = Path(f"/proc/{command.pid}/cgroup").read_text()
        assert "opsassay-confined" not in group or "/load" in group
        for change in (
            lambda: running.set_rate(5),
            lambda: running.operate("load dip", {"factor": 2, "seconds": 1}),
            lambda: LocalSubstrate().deploy(running.definition(), "faster", rate_rps=5),
        ):
            with pytest.raises(RefusedError, match=r"which alone says how much it sends\.$"):
                change()


def test_a_recording_keeps_its_start_its_output_and_how_it_ended(project):
    (project / "down.yaml").write_text(yaml.safe_dump({"fault": "PodFailure", "target": {"service": "front"}}))
    windows = ["--warmup", "2", "--normal", "20", "--abnormal", "10"]
    run(project, "incident", "record", "steady.yaml", "down.yaml", "-o", "recorded", *windows)
    (folder,) = (project / "recorded" / "truth").iterdir()
    truth = json.loads((folder / "truth.json").read_text())
    (note,) = (one for one in truth["notes"] if one.startswith("the load is"))
    assert "requests that did not reach it are not counted" in note
    assert not any("not normal" in one for one in truth["notes"]), truth["notes"]
    log = (folder / "load.log").read_text()
    for words in ("the load starts", "\nfailed:", "\nsummary:"):
        assert words in log, "it was asked to end, and said its last"
    (ended,) = (json.loads(line) for line in log.splitlines() if "the load ended" in line)
    assert ended["status"] == 0
    (incident,) = (project / "recorded" / "incidents").iterdir()
    assert not list(incident.glob("load*"))
    assert json.loads((incident / "env.json").read_text())["load_rps"] is None


def wait_until_gone():
    deadline = time.monotonic() + 60
    while LocalSubstrate().names():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    LocalSubstrate().status()


def watch_until_lost(system, name):
    with LocalSubstrate().deployed(system, name) as running:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            running.status()
            time.sleep(0.2)


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("short", LostError, "ended with status 0 while the system was in use; have it go on until it is stopped"),
        ("failing", StartError, "ended with status 7 while the system was in use"),
    ],
)
def test_one_that_ends_too_early_is_one_sentence(project, how, error, words):
    with pytest.raises(error) as raised:
        watch_until_lost(load_system(str(project / f"{how}.yaml")), how)
    assert words in str(raised.value)
    assert how != "failing" or "no such scenario" in str(raised.value)
    wait_until_gone()


@pytest.mark.parametrize("victim", ["supervisor", "template"])
def test_kill_9_leaves_nothing_of_it(project, victim):
    with state_folder() as state:
        running = LocalSubstrate().deploy(load_system(str(project / "steady.yaml")), "killed")
        commands = load_processes("killed")
        assert commands
        if victim == "supervisor":
            psutil.Process(running.status().pid).kill()
        else:
            min(commands, key=lambda one: one.create_time()).parent().parent().kill()
        assert psutil.wait_procs(commands, timeout=60)[1] == []
        wait_until_gone()
        assert strays(state) == []


@pytest.mark.drawn
@pytest.mark.timeout(600)
def test_a_trial_is_judged_without_what_users_lost(project):
    (project / "orders-hang.yaml").write_text(scenario_of_the_page())
    (project / "trials.yaml").write_text('{scenarios: [orders-hang.yaml], agents: ["oracle:right"]}')
    run(project, "task", "check", "orders-hang.yaml")
    run(project, "run", "trials", "trials.yaml", "-o", "trials", limit_s=500)
    assert certificates(project / "trials") == {"oracle:right": True}
    run(project, "score", "trials", "trials")
    (verdict,) = (project / "trials" / "runs").glob("*/*/verdicts/*.json")
    judged = {one["predicate"]: one for one in json.loads(verdict.read_text())["judgements"]}
    assert judged["v_users"]["status"] == "not_applicable"
    assert judged["v_users"]["reason"] == "no request of users was counted: what they lost is not known"
    (log,) = (project / "trials" / "runs").glob("*/*/load.log")
    assert "the load ended" in log.read_text()
