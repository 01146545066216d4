"""`opsassay new`: what it writes works as it is, under the name that was given, and nothing is overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from opsassay.cli import run
from opsassay.evals.runner.plan import load_plan
from telemetry.packs import make_tree

ROOT = Path(__file__).parents[2]


def written(tmp_path, capsys, kind, name="my-own"):
    assert run(["new", kind, name, "-o", str(tmp_path / "made")]) == 0
    said = capsys.readouterr().out
    (path,) = (tmp_path / "made").iterdir()
    assert str(path) in said.replace("\n", "")
    return path


@pytest.mark.slow
def test_a_new_agent_is_checked_and_passes(tmp_path, capsys):
    path = written(tmp_path, capsys, "agent")
    assert sorted(one.name for one in path.iterdir()) == ["agent.yaml", "look.sql", "main.py"]
    assert run(["agent", "check", str(path / "agent.yaml"), "--json"]) == 0
    assert "my-own" in capsys.readouterr().out


def test_a_new_method_diagnoses_under_its_name(tmp_path, capsys):
    path = written(tmp_path, capsys, "method")
    assert path.name == "my_own.py"
    tree = make_tree(tmp_path / "tree", count=1).root
    assert run(["run", "diagnose", str(tree), "-m", f"{path}:MyOwn", "-o", str(tmp_path / "store"), "--json"]) == 0
    assert {item["method"] for item in json.loads(capsys.readouterr().out)["items"]} == {"my-own"}


def test_a_new_scenario_is_one(tmp_path, capsys):
    path = written(tmp_path, capsys, "scenario")
    assert run(["task", "check", str(path)]) == 0
    assert "my-own" in path.read_text()


def test_a_new_plan_names_tasks_that_there_are(tmp_path, capsys):
    path = written(tmp_path, capsys, "plan")
    jobs = load_plan(path)
    assert {job.task_name for job in jobs} == {"wrong-upstream-port", "drained-pool"}


@pytest.mark.parametrize("name", ["", "My", "a b", "../up", "a--b", "-x", "é"])
def test_what_is_no_name_is_said_and_nothing_is_written(tmp_path, capsys, name):
    assert run(["new", "plan", "-o", str(tmp_path), "--", name]) == 2
    assert "is no name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["agent", "method", "scenario", "plan"])
def test_nothing_is_overwritten(tmp_path, capsys, kind):
    path = written(tmp_path, capsys, kind)
    before = sorted((one, one.stat().st_mtime_ns) for one in (path.parent).rglob("*"))
    assert run(["new", kind, "my-own", "-o", str(path.parent)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert sorted((one, one.stat().st_mtime_ns) for one in (path.parent).rglob("*")) == before


def test_the_wheel_brings_the_examples(tmp_path):
    """Built by the backend that the project names, when it is at hand."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "opsassay/examples/agents/by_mcp/agent.yaml" in names
    assert not [name for name in names if "__pycache__" in name]
