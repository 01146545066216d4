"""The example of a GitHub workflow: its commands are run as a runner runs them, sealed and unsealed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib

import junitparser
import pytest
import yaml

from opsassay.cli import run
from opsassay.solvers.sandbox import sealing_refusal
from telemetry.packs import make_tree
from test_action import BASH
from test_docs import ROOT

WORKFLOW = yaml.safe_load((ROOT / "examples" / "github" / "grade-agent.yml").read_text())
JOB = WORKFLOW["jobs"]["grade"]
MATRIX = {one["runner"]: one for one in JOB["strategy"]["matrix"]["include"]}
NOT_HERE = ("Install OpsAssay", "Let this runner seal")
"""Steps that change the machine."""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def filled(text, cell):
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: cell[found[1]], text)


@pytest.fixture
def repository(tmp_path, monkeypatch, capsys):
    """Make a checkout with an agent, a suite of six incidents, and the base of the change in base/."""
    monkeypatch.chdir(tmp_path)
    make_tree(tmp_path / "suite", count=6, traces=12)
    assert run(["new", "agent", "my-agent"]) == 0
    shutil.copytree("my-agent", "base/my-agent")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "opsassay").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m opsassay "$@"\n')
    (tmp_path / "bin" / "opsassay").chmod(0o755)
    return tmp_path


def steps_run(repository, cell):
    """Run the steps of the job for a *cell* of its matrix until one fails; return the exit code of each by its name."""
    variables = {name: filled(text, cell) for name, text in JOB["env"].items()}
    variables["GITHUB_STEP_SUMMARY"] = str(repository / "summary.md")
    variables["PATH"] = f"{repository / 'bin'}{os.pathsep}{os.environ['PATH']}"
    codes = {}
    for step in JOB["steps"]:
        if "run" in step and step["name"] not in NOT_HERE:
            done = subprocess.run(
                [*BASH, "-c", step["run"]], cwd=repository, env={**os.environ, **variables}, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            codes[step["name"]] = done.returncode
            if done.returncode:
                break
    return codes


def test_the_workflow_is_one_whose_inputs_are_in_no_script():
    assert WORKFLOW[True] == "pull_request"  # `on` is a truth value of YAML 1.1
    for step in JOB["steps"]:
        assert {"run", "uses"} & step.keys()
        assert "${{" not in step.get("run", ""), "what is put into a script could be a command"
        assert subprocess.run(["bash", "-n"], input=step.get("run", ""), text=True, check=False).returncode == 0
    assert {name: one["sealing"] for name, one in MATRIX.items()} == {"sealed": "required", "unsealed": "off"}
    (install,) = (step["run"] for step in JOB["steps"] if step.get("name") == "Install OpsAssay")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.search(r"opsassay\[([\w,]+)\]", install)[1].split(",")) <= known.keys()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("runner", MATRIX)
def test_the_gate_lets_the_same_agent_pass_and_fails_a_worse_one(runner, repository):
    if runner == "sealed" and (why := sealing_refusal()):
        pytest.skip(f"this machine gives no seal: {why}")
    codes = steps_run(repository, MATRIX[runner])
    assert list(codes.values()) == [0, 0, 0, 0], codes
    assert "passed" in (repository / "summary.md").read_text()
    shutil.rmtree(repository / "graded" / "after")
    look = repository / "my-agent" / "look.sql"
    look.write_text(look.read_text().replace("LIMIT 1", "LIMIT 1 OFFSET 1"))  # names another service
    codes = steps_run(repository, MATRIX[runner])
    assert (list(codes)[-1], codes["Gate"]) == ("Gate", 1), codes
    assert "failed" in (repository / "summary.md").read_text()
    assert junitparser.JUnitXml.fromfile(str(repository / "graded" / "compare.xml")).failures == 1
