"""Incidents as Harbor tasks: what its own loader and their scripts say, and where the truth is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from opsassay.cli import run
from opsassay.evals.diagnosis.harnesses.harbor import verify
from opsassay.evals.runner.harbor import files_below
from with_harbor import run_with_harbor

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parents[1] / "golden" / "diagnosis_store"
ITEM = "28a6d673b4bcc31b"
LOADS = """
import sys
from harbor.models.task.task import Task
task = Task(sys.argv[1])
assert Task.is_valid_dir(sys.argv[1])
print(task.name, task.config.verifier.environment_mode.value, len(task.instruction))
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harbor")
    assert run(["incident", "export", "harbor", str(GOLDEN), "-o", str(folder / "tasks")]) == 0
    return folder / "tasks" / ITEM


def graded_by_the_script(task, tmp_path, answer=None):
    """Run tests/test.sh as the verifier's container does, and return its exit code with the rewards and what it printed."""
    (tmp_path / "artifacts").mkdir()
    if answer is not None:
        (tmp_path / "artifacts" / "answer.json").write_text(answer)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HARBOR_LOGS": str(tmp_path)}
    done = subprocess.run([task / "tests" / "test.sh"], env=environment, capture_output=True, text=True, check=False)
    reward = tmp_path / "verifier" / "reward.json"
    return done.returncode, json.loads(reward.read_text()) if reward.exists() else None, done.stdout + done.stderr


@pytest.mark.slow
def test_the_right_answer_of_the_solution_is_worth_1(task, tmp_path):
    assert "cp" in (task / "solution" / "solve.sh").read_text()
    code, rewards, said = graded_by_the_script(task, tmp_path, (task / "solution" / "answer.json").read_text())
    assert (code, rewards["reward"], rewards["exact_match"]) == (0, 1, 1), said
    assert all(isinstance(value, float) for value in rewards.values())


@pytest.mark.slow
def test_a_wrong_answer_is_worth_0(task, tmp_path):
    answer = json.loads((task / "solution" / "answer.json").read_text())
    answer["root_causes"][0]["service"] = "frontend"
    code, rewards, said = graded_by_the_script(task, tmp_path, json.dumps(answer))
    assert (code, rewards["reward"]) == (0, 0), said


@pytest.mark.slow
def test_an_empty_answer_and_none_are_worth_0(task, tmp_path):
    code, rewards, said = graded_by_the_script(task, tmp_path)
    assert (code, rewards) == (0, {"reward": 0}), said
    answer = tmp_path / "answer.json"
    for text in ("", "no JSON", "{}"):
        answer.write_text(text)
        assert verify(task / "tests" / "case", answer, tmp_path / "reward.json") == {"reward": 0}
    answer.unlink()
    answer.symlink_to(task / "solution" / "answer.json")
    assert verify(task / "tests" / "case", answer, tmp_path / "reward.json") == {"reward": 0}


@pytest.mark.slow
def test_a_task_with_missing_files_is_an_error_and_no_reward(task, tmp_path):
    broken = tmp_path / "task"
    shutil.copytree(task, broken)
    shutil.rmtree(broken / "tests" / "case" / "truth")
    (tmp_path / "logs").mkdir()
    code, rewards, said = graded_by_the_script(broken, tmp_path / "logs", "{}")
    assert (code, rewards) == (2, None)
    assert said.count("\n") == 1
    assert "write the task again" in said


def test_no_truth_is_where_the_agent_is(task):
    truth = json.loads((GOLDEN / "truth" / ITEM / "truth.json").read_text())
    fault = truth["faults"][0]["type"]
    seen = [
        task / "task.toml",
        task / "instruction.md",
        *(path for path in (task / "environment").rglob("*") if path.is_file()),
    ]
    assert {path.name for path in seen} >= {"Dockerfile", "incident.json", "abnormal_traces.parquet"}
    assert not [
        path for path in seen if path.name in ("truth.json", "annotation.json", "causal_graph.json", "ledger.parquet")
    ]
    assert not [path for path in seen if fault.encode() in path.read_bytes()]
    assert tomllib.loads((task / "task.toml").read_text())["verifier"]["environment_mode"] == "separate"
    assert (task / "tests" / "case" / "truth" / ITEM / "truth.json").exists()


def test_without_a_truth_nothing_is_written(tmp_path, capsys):
    shutil.copytree(GOLDEN / "incidents", tmp_path / "tree" / "incidents")
    assert run(["incident", "export", "harbor", str(tmp_path / "tree"), "-o", str(tmp_path / "out")]) == 2
    assert "has no truth beside it" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_harbors_own_loader_takes_it(task):
    name, mode, length = run_with_harbor(LOADS, str(task)).split()
    assert (name, mode) == (f"opsassay/{ITEM}", "separate")
    assert int(length) > 1000


def test_the_verifier_installs_the_wheel_that_lies_beside_its_dockerfile(task):
    dockerfile = (task / "tests" / "Dockerfile").read_text()
    (wheel,) = (task / "tests").glob("*.whl")
    assert f"COPY {wheel.name} /opt/wheels/\n" in dockerfile
    assert f"pip install --no-cache-dir '/opt/wheels/{wheel.name}[data]'" in dockerfile
    assert not list((task / "environment").rglob("*.whl"))


def test_a_wheel_or_what_pip_fetches_is_installed_as_it_is_named(tmp_path, capsys):
    wheel = tmp_path / "opsassay-9.9-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    for number, (given, installed, kept) in enumerate(
        [
            (str(wheel), "/opt/wheels/opsassay-9.9-py3-none-any.whl[data]", [wheel.name]),
            (f"{wheel}[data,audit]", "/opt/wheels/opsassay-9.9-py3-none-any.whl[data,audit]", [wheel.name]),
            ("opsassay[data] @ https://host/x.whl", "opsassay[data] @ https://host/x.whl", []),
        ]
    ):
        out = tmp_path / str(number)
        assert run(["incident", "export", "harbor", str(GOLDEN), "-o", str(out), "--install", given]) == 0
        tests = out / ITEM / "tests"
        assert f"pip install --no-cache-dir '{installed}'" in (tests / "Dockerfile").read_text()
        assert [path.name for path in tests.glob("*.whl")] == kept
        assert all(path.read_bytes() == b"a wheel" for path in tests.glob("*.whl"))


@pytest.mark.parametrize(
    ("named", "sentence"), [("none.whl", "name a wheel that is there"), (".", "make a wheel of it with `pip wheel")]
)
def test_what_no_container_sees_is_refused_in_a_sentence(named, sentence, tmp_path, capsys):
    given = ["--install", str(tmp_path / named), "-o", str(tmp_path / "out")]
    assert run(["incident", "export", "harbor", str(GOLDEN), *given]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_wheel_has_nothing_that_is_installed_in_an_example(tmp_path):
    for name in ("app.py", ".installed", ".venv/bin/python", "node_modules/a/b.js", "web/__pycache__/app.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert files_below(tmp_path) == {"app.py": b"app.py"}


def test_the_wheel_is_the_one_that_the_build_makes(task, tmp_path):
    """Held against hatchling's own, but for the name of who made it and the order of its list."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (theirs,), (ours,) = tmp_path.glob("*.whl"), (task / "tests").glob("*.whl")
    assert theirs.name == ours.name
    with zipfile.ZipFile(theirs) as a, zipfile.ZipFile(ours) as b:
        assert set(a.namelist()) == set(b.namelist())
        same = [name for name in a.namelist() if not name.endswith(("/WHEEL", "/RECORD", "/METADATA"))]
        assert [name for name in same if a.read(name) != b.read(name)] == []
        (record,) = (name for name in a.namelist() if name.endswith("/RECORD"))
        lines = [[line for line in one.read(record).splitlines() if b".dist-info" not in line] for one in (a, b)]
        assert sorted(lines[0]) == sorted(lines[1])


@pytest.mark.slow
def test_pip_installs_the_wheel_and_the_verifier_runs_from_it(task, tmp_path):
    (wheel,) = (task / "tests").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(tmp_path)]
    subprocess.run([*pip, f"{wheel}[data]"], check=True)
    program = "import opsassay; print(opsassay.__file__, flush=True); from opsassay.cli import run; run(['methods'])"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))
