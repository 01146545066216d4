"""Live scenarios as Harbor tasks: what its loader says, who may read what, and a trial by the container's own scripts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

import opsassay
from live import state_folder
from opsassay.cli import run
from opsassay.core.errors import UserError
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.harbor.trial import collect
from opsassay.testbed.scenarios import load_scenario
from with_harbor import run_with_harbor

NAME = "wrong-upstream-port"
LOADS = """
import sys
from harbor.models.task.task import Task
for path in sys.argv[1:]:
    assert Task.is_valid_dir(path)
    config = Task(path).config
    print(Task(path).name, config.agent.user, config.verifier.user, config.environment.mcp_servers[0].transport)
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harbor")
    assert run(["incident", "export", "harbor", "--scenario", "all", "-o", str(folder / "tasks")]) == 0
    return folder / "tasks"


def script(path, *arguments):
    """Run a script of a task where `python3` has OpsAssay, as in the container."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run([path, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_the_scenario_in_a_task_is_the_one_that_ships(tasks):
    assert len(list(tasks.iterdir())) >= 15
    for task in tasks.iterdir():
        kept = yaml.safe_load((task / "environment" / "private" / "scenario.yaml").read_text())
        digest = tomllib.loads((task / "task.toml").read_text())["metadata"]["scenario"]
        assert Scenario.model_validate(kept).digest() == load_scenario(task.name).digest() == digest


def test_what_the_agent_finds_names_no_cause_and_no_repair(tasks):
    scenario = load_scenario(NAME)
    texts = [(tasks / NAME / "instruction.md").read_text()]
    texts += [path.read_text() for path in (tasks / NAME / "environment" / "open").iterdir()]
    assert scenario.alert.strip() in texts[0]
    for secret in (scenario.title, "9090", "UPSTREAM_WEB", *scenario.truth.root_causes):
        assert not any(secret in text for text in texts), secret
    assert "chmod -R go= /opt/opsassay/private" in (tasks / NAME / "environment" / "Dockerfile").read_text()


def test_the_wheel_lies_where_the_agent_cannot_read_and_is_the_same_in_every_task(tasks):
    dockerfile = (tasks / NAME / "environment" / "Dockerfile").read_text()
    (wheel,) = (tasks / NAME / "environment").rglob("*.whl")
    assert wheel.parent.name == "private"
    assert f"COPY private/{wheel.name} /opt/wheels/\n" in dockerfile
    assert f"'/opt/wheels/{wheel.name}[testbed,agents,apis]' && rm -r /opt/wheels \\\n" in dockerfile
    assert len({path.read_bytes() for path in tasks.rglob("*.whl")}) == 1


def test_what_cannot_happen_in_one_plain_container_is_left_out(tmp_path, capsys):
    payload = yaml.safe_load(
        Path(opsassay.__file__).with_name("testbed").joinpath("scenarios", f"{NAME}.yaml").read_text()
    )
    payload |= {"id": "own-system", "environment": {**payload["environment"], "system": "mine.yaml"}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(payload))
    named = ["--scenario", str(tmp_path / "own.yaml"), "--scenario", "all-on-kubernetes"]
    assert run(["incident", "export", "harbor", *named, "-o", str(tmp_path / "tasks")]) == 2
    assert "its system is the file mine.yaml" in capsys.readouterr().err
    assert run(["incident", "export", "harbor", *named, "--scenario", NAME, "-o", str(tmp_path / "tasks")]) == 0
    assert "it needs kubernetes; a task of Harbor is one container" in capsys.readouterr().err
    assert [task.name for task in (tmp_path / "tasks").iterdir()] == [NAME]


def test_incidents_or_scenarios_are_named(tmp_path, capsys):
    for given in ([], [str(tmp_path), "--scenario", NAME]):
        assert run(["incident", "export", "harbor", *given, "-o", str(tmp_path / "tasks")]) == 2
        assert "Name what becomes tasks" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trial_without_a_result_is_an_error_and_no_reward(tasks, tmp_path):
    done = script(tasks / NAME / "tests" / "test.sh", str(tmp_path / "task"), str(tmp_path / "logs"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "holds no trial" in done.stderr
    (tmp_path / "task" / "private").mkdir(parents=True)
    for log, said in ((None, "it did not begin"), ("Error: no PostgreSQL\n", "Error: no PostgreSQL")):
        if log is not None:
            (tmp_path / "task" / "private" / "trial.log").write_text(log)
        with pytest.raises(UserError, match=f"came to no result: {said}"):
            collect(tmp_path / "task", tmp_path / "logs" / "verifier" / "reward.json")
    assert not list((tmp_path / "logs" / "verifier").iterdir())


def test_harbors_own_loader_takes_them(tasks):
    said = run_with_harbor(LOADS, *map(str, sorted(tasks.iterdir()))).splitlines()
    assert f"opsassay/{NAME} agent root stdio" in said


@pytest.mark.long
@pytest.mark.live
def test_the_solution_is_certified_by_the_containers_own_scripts(tasks):
    with state_folder() as folder:
        task = folder / "task"
        shutil.copytree(tasks / NAME / "environment", task)
        assert script(task / "entry.sh", "true").returncode == 0
        deadline = time.monotonic() + 240
        while not (task / "open" / "ready").exists() and time.monotonic() < deadline:
            time.sleep(0.5)
        solved = script(tasks / NAME / "solution" / "solve.sh", str(task))
        assert solved.returncode == 0, solved.stdout + solved.stderr
        assert "PROMETHEUS_URL=http://127.0.0.1:" in (task / "open" / "apis.env").read_text()
        done = script(tasks / NAME / "tests" / "test.sh", str(task), str(folder / "logs"))
        rewards = json.loads((folder / "logs" / "verifier" / "reward.json").read_text())
        assert (done.returncode, rewards["reward"], rewards["certificate"]) == (0, 1, 1), done.stdout
        late = script(task / "open" / "ops", "ps")
        assert late.returncode == 1
