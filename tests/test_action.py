"""The GitHub Action: its file as a runner reads it, and its shell steps as a runner runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import junitparser
import polars as pl
import pytest
import yaml

from analysis.audit.made import drawn

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action" / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""How a runner runs a step whose shell is bash."""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def filled(text, inputs):
    """Return *text* with what a runner puts in the place of inputs, an empty string for one that there is not."""
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs.get(found[1], ""), text)


@pytest.fixture
def job(tmp_path):
    """Return a function that runs the step *id* with inputs, and gives its exit code, summary, outputs and errors."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "opsassay").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m opsassay "$@"\n')
    (binaries / "opsassay").chmod(0o755)

    def run(id_, **given):
        (step,) = (step for step in STEPS if step.get("id") == id_)
        inputs = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()} | given
        files = {"GITHUB_STEP_SUMMARY": tmp_path / "summary.md", "GITHUB_OUTPUT": tmp_path / "output"}
        for path in files.values():
            path.write_text("")
        environment = {name: filled(text, inputs) for name, text in step["env"].items()}
        script = tmp_path / "step.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            [*BASH, str(script)],
            cwd=tmp_path,
            env={
                **os.environ, **environment, **{name: str(path) for name, path in files.items()},
                "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            },
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return (
            done.returncode,
            files["GITHUB_STEP_SUMMARY"].read_text(),
            files["GITHUB_OUTPUT"].read_text(),
            done.stderr,
        )

    return run


@pytest.fixture
def tables(tmp_path):
    frame = drawn(sizes=(120, 120), families=("x", "x"), methods=("m",), seed=1)
    frame.write_csv(tmp_path / "good scores.csv")
    frame.with_columns(score=pl.lit(0.0)).write_csv(tmp_path / "-bad.csv")
    return tmp_path


def test_the_file_is_a_composite_action_whose_inputs_are_all_used_and_none_is_put_into_a_script():
    assert ACTION["runs"]["using"] == "composite"
    text = (ROOT / "action" / "action.yml").read_text()
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    for step in STEPS:
        assert {"run", "uses"} & step.keys(), step
        if "run" in step:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"], "an input in a script could be a command"
            assert subprocess.run(["bash", "-n"], input=step["run"], text=True, check=False).returncode == 0
    (value,) = (one["value"] for one in ACTION["outputs"].values())
    assert value == "${{ steps.compare.outputs.passed }}"
    assert all(one.get("required") or "default" in one for one in ACTION["inputs"].values())


@pytest.mark.slow
def test_a_worse_b_fails_the_step_and_its_summary_says_so(job, tables):
    code, summary, outputs, _ = job("compare", a="good scores.csv", b="-bad.csv")
    assert (code, outputs) == (1, "passed=false\n")
    assert summary.startswith("## opsassay compare: failed\n")
    assert junitparser.JUnitXml.fromfile(str(tables / "opsassay-compare.xml")).failures == 1


@pytest.mark.slow
def test_the_same_passes_and_a_margin_asks_for_more(job, tables):
    given = {"a": "good scores.csv", "b": "good scores.csv", "junit": "ci/x.xml", "markdown": "ci/x.md"}
    code, summary, outputs, _ = job("compare", **given)
    assert (code, outputs) == (0, "passed=true\n")
    assert summary.startswith("## opsassay compare: passed\n")
    assert (tables / "ci" / "x.md").read_text() == summary
    assert junitparser.JUnitXml.fromfile(str(tables / "ci" / "x.xml")).failures == 0
    assert job("compare", **given, margin="0.001")[0] == 1


@pytest.mark.slow
def test_unsealed_runs_are_compared_where_the_input_says_so(job, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(ROOT / "tests" / "evals" / "golden" / "diagnosis_store", store)
    for path in store.glob("runs/*/1/run.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"isolation": "unsealed"}))
    code, _, _, errors = job("compare", a=str(store), b=str(store))
    assert (code, "--allow-unsealed" in errors) == (2, True), errors
    code, summary, _, errors = job("compare", a=str(store), b=str(store), **{"allow-unsealed": "true"})
    assert (code, "too few cases (unsealed)" in summary) == (1, True), errors  # the small store has fewer than six


@pytest.mark.slow
def test_wrong_use_fails_with_its_sentence_and_shows_no_old_summary(job, tables):
    assert job("compare", a="good scores.csv", b="good scores.csv")[0] == 0
    code, summary, outputs, errors = job("compare", a="good scores.csv", b="$(touch pwned).csv")
    assert (code, summary, outputs) == (2, "", "passed=false\n")
    assert "There is no score table" in errors
    assert not (tables / "pwned").exists()
    store = str(ROOT / "tests" / "evals" / "golden" / "diagnosis_store")
    code, _, _, errors = job("compare", a=store, b=store, metric="f11")
    assert (code, "did you mean 'f1'" in errors) == (2, True), errors


@pytest.mark.parametrize(
    ("given", "installed"), [(ACTION["inputs"]["install"]["default"], f"{ROOT}[audit]"), ("a b.whl", "a b.whl")]
)
def test_what_is_installed_is_the_repository_of_the_action_or_what_is_given(given, installed, tmp_path):
    (step,) = (step for step in STEPS if step["name"] == "Install OpsAssay")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    variables = {
        "GITHUB_ACTION_PATH": str(ROOT / "action"),
        "INSTALL": filled(step["env"]["INSTALL"], {"install": given}),
    }
    done = subprocess.run(
        [*BASH, "-c", step["run"]],
        env={**os.environ, **variables, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["-m", "pip", "install", installed]


def test_the_readme_of_the_action_names_every_input():
    page = (ROOT / "docs" / "formats.md").read_text()
    section = page.partition("### As a GitHub Action")[2].partition("\n## ")[0]
    assert [name for name in (*ACTION["inputs"], *ACTION["outputs"]) if f"`{name}`" not in section] == []
    (example,) = re.findall(r"```yml\n(.*?)```", section, flags=re.DOTALL)
    (step,) = (one for one in yaml.safe_load(example)["jobs"]["gate"]["steps"] if "opsassay" in one["uses"])
    assert step["with"].keys() <= ACTION["inputs"].keys()
    assert {name for name, one in ACTION["inputs"].items() if one.get("required")} <= step["with"].keys()
