"""Tasks of every domain as environments of Gymnasium: checked by its own checker, driven by hand, gone when closed."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from gymnasium.utils.env_checker import check_env

from live import state_folder, strays
from opsassay.core.errors import ConfigError, NotFoundError, UserError
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.runner.stepping import SteppedRun
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.gym import SUBMIT, TaskEnv, action_of, typed_function

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "evals" / "golden" / "diagnosis_store"
ROWS = [{"category": "Storage", "cost_usd": 1.0}]
COST = {"tasks": ["category-cost"]}


def waiting():
    """Return the commands that wait for an agent, of this process."""
    return [p for p in psutil.Process().children(recursive=True) if any("waiting_agent.py" in w for w in p.cmdline())]


@pytest.fixture
def env_of():
    """Return environments that are closed at the end; nothing of them is left."""
    made = []

    def make(domain, **part):
        made.append(TaskEnv(domain, **part))
        return made[-1]

    yield make
    for env in made:
        env.close()
    assert waiting() == []


@pytest.mark.slow
@pytest.mark.filterwarnings("error::UserWarning")
def test_gymnasiums_own_checker_finds_nothing(env_of):
    check_env(env_of("finops", **COST), skip_render_check=True)


@pytest.mark.slow
def test_an_answer_is_graded_as_in_any_run_and_the_run_is_in_the_store(tmp_path, env_of):
    env = env_of("finops", store=tmp_path / "store", **COST)
    prompt, info = env.reset(seed=4)
    assert "Databases and Storage" in prompt
    assert info["task"] == "category-cost"
    assert list(env.tools)[-2:] == [SUBMIT, "finish"]
    said, reward, terminated, truncated, about = env.step(env.tools["list_tables"]())
    assert (reward, terminated, truncated, about) == (0.0, False, False, {"status": "ok"})
    assert said
    assert env.step(env.tools["query_sql"](sql="SELECT nonsense"))[4] == {"status": "error"}
    assert env.step("{")[0].startswith("Error: an action is a JSON object")
    assert env.step(json.dumps({"tool": "ghost"}))[4] == {"status": "error"}
    said, reward, terminated, truncated, about = env.step(env.tools[SUBMIT](rows=ROWS))
    assert (reward, terminated, truncated, about["succeeded"]) == (0.0, True, False, False)
    assert about["metrics"]["passed"] == 0.0
    with pytest.raises(RuntimeError, match="reset first"):
        env.step(env.tools["finish"]())
    (run,) = [read_run(folder) for folder in RunStore(tmp_path / "store").runs()]
    assert (run.seed, run.solver.name, run.isolation) == (4, "stepped", "unsealed")


@pytest.mark.slow
def test_an_incident_is_diagnosed_in_steps(tmp_path, env_of):
    shutil.copytree(GOLDEN, tmp_path / "suite")
    incident = sorted((tmp_path / "suite" / "incidents").iterdir())[0]
    env = env_of("diagnosis", incidents=[str(incident)])
    prompt, _ = env.reset(seed=1)
    assert "FOLDER" in prompt, "the folder of a run is another one each time"
    assert str(tmp_path) not in prompt
    broken = env.step(action_of(SUBMIT, {"root_causes": "nothing"}))
    assert (broken[2], broken[4]) == (False, {"status": "error"}), "an answer that breaks the contract ends nothing"
    _, reward, terminated, _, info = env.step(env.tools[SUBMIT](root_causes=[], propagation=[]))
    assert (reward, terminated) == (0.0, True)
    assert info["metrics"]


@pytest.mark.slow
def test_a_rule_is_written_in_steps(env_of):
    env = env_of("ciso", tasks=["new-kyverno"], settings={"limits": {"seconds": 60}})
    with pytest.raises(UserError, match=r"names \d+ runs of ciso; name one task"):
        env.reset()


@pytest.mark.slow
def test_an_agent_whose_time_is_over_has_its_episode_truncated(env_of):
    env = env_of("finops", settings={"limits": {"seconds": 3}}, **COST)
    env.reset()
    time.sleep(6)
    _, reward, terminated, truncated, _ = env.step(env.tools["list_tables"]())
    assert (reward, terminated, truncated) == (0.0, False, True)


def test_a_task_that_is_none_is_refused_before_anything_runs():
    with pytest.raises(NotFoundError):
        TaskEnv("finnops", **COST)
    with pytest.raises(NotFoundError):
        TaskEnv("sre", scenarios=["bad-relase"]).reset()
    with pytest.raises(ConfigError):
        TaskEnv("finops", takss=["x"]).reset()


def test_tools_are_functions_with_types_that_return_actions():
    properties = {"target": {"type": "string"}, "rolling": {"type": "boolean", "default": False}}
    spec = ToolSpec(
        name="restart", description="Restart it.", parameters={"properties": properties, "required": ["target"]}
    )
    restart = typed_function(spec)
    assert str(inspect.signature(restart)) == "(*, target: str, rolling: bool = False) -> str"
    assert (restart.__name__, restart.__doc__) == ("restart", "Restart it.")
    assert json.loads(restart(target="web")) == {"tool": "restart", "arguments": {"target": "web"}}
    with pytest.raises(TypeError):
        restart(rolling=True)
    with pytest.raises(TypeError):
        restart(target="web", hosts=3)


@pytest.mark.live
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_a_live_system_is_repaired_in_steps_and_nothing_of_it_is_left(tmp_path):
    """The right repair of wrong-upstream-port, call by call."""
    env = TaskEnv("sre", scenarios=["wrong-upstream-port"])
    try:
        prompt, _ = env.reset(seed=1)
        assert "502" in prompt
        tools = env.tools
        for action in (
            tools["config_set"](target="proxy", key="UPSTREAM_WEB", value="web:8080"),
            tools["restart"](target="proxy", rolling=True),
            tools["wait"](seconds=5),
        ):
            assert env.step(action)[4] == {"status": "ok"}
        _, reward, terminated, truncated, info = env.step(tools["finish"]())
    finally:
        env.close()
    assert (reward, terminated, truncated) == (1.0, True, False), info
    assert info["metrics"]["certificate"] == 1.0
    assert psutil.Process().children(recursive=True) == []


def systems(folder):
    """Return the names of the systems of trials in the state folder *folder*."""
    return {path.name for path in folder.glob("systems/trial-*")}


@pytest.mark.live
@pytest.mark.drawn
@pytest.mark.timeout(400)
def test_the_next_system_is_deployed_ahead_and_broken_when_its_episode_begins():
    with state_folder() as folder:
        env = TaskEnv("sre", scenarios=["wrong-upstream-port"], ahead=True)
        try:
            env.reset(seed=1)
            until(lambda: len(systems(folder)) == 2)
            before = systems(folder)
            prompt, _ = env.reset(seed=1)
            assert "502" in prompt
            assert len(systems(folder) & before) == 1
            assert env.step(env.tools["wait"](seconds=1))[4] == {"status": "ok"}
            until(lambda: len(systems(folder)) == 2)
            env.reset(seed=2)  # another run than the one that was prepared
            assert not systems(folder) & before
        finally:
            env.close()
        assert strays(folder) == []


def until(condition, limit_s=120.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.slow
def test_what_was_prepared_ahead_is_taken_once_and_ends_with_the_environment(env_of):
    env = env_of("finops", ahead=True, **COST)
    for seed in (4, 4, 5):
        env.reset(seed=seed)
        _, reward, terminated, _, _ = env.step(action_of(SUBMIT, {"rows": ROWS}))
        assert (reward, terminated) == (0.0, True)
    with pytest.raises(UserError, match="A store keeps a run once"):
        TaskEnv("finops", ahead=True, store="s", **COST)


def test_a_stepped_trial_is_attempted_once():
    """A second attempt has no agent, and waits for the machine that a system prepared ahead shares."""
    run = SteppedRun("sre", {"scenarios": ["wrong-upstream-port"]})
    try:
        assert run.job.retries == 0
    finally:
        run.close()


KILLED = """
from opsassay.gym import TaskEnv
env = TaskEnv("sre", scenarios=["wrong-upstream-port"])
env.reset(seed=1)
print("begun", flush=True)
import time; time.sleep(300)
"""


@pytest.mark.live
@pytest.mark.timeout(300)
def test_who_is_killed_leaves_no_system_behind(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as owner:
        assert owner.stdout.readline() == "begun\n"
        began = psutil.Process(owner.pid).children(recursive=True)
        owner.send_signal(signal.SIGKILL)
    assert len(began) > 10
    assert not psutil.wait_procs(began, timeout=60)[1]
