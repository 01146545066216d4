"""The tutorials: every command of theirs is run as it stands, and the first agrees with the README."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from live import state_folder
from opsassay.cli import run
from opsassay.telemetry.backends.serving import ApiServer, api_urls, serving_on_port
from opsassay.telemetry.importers.backends.settings import PastIncident
from telemetry.packs import make_tree
from telemetry.past_incidents.test_round_trip import recorded, window
from test_docs import ROOT, blocks, commands_in

DOCS = ROOT / "docs"
FIRST = DOCS / "grade-my-agent.md"
RECORDED = ROOT / "tests" / "recordings" / "demo"
"""What `opsassay demo` of that page recorded once, without the ledger: the catalogue's packets 100 ms late."""


def typed(page):
    """Return every command of the first block of *page*, installation included."""
    return [line[2:] for line in blocks(page, "console")[0].splitlines()]


def test_the_first_graded_agent_takes_five_commands_and_the_readme_has_the_same(capsys):
    assert len(typed(FIRST)) <= 5
    readme = [block for block in blocks(ROOT / "README.md", "console") if "pip install" in block]
    assert readme == [blocks(FIRST, "console")[0]]  # which `test_the_readme_is_run_word_for_word` runs


def improve_agent(folder):
    """Do to the agent in *folder* as the tutorial says, and return the command that follows."""
    page = FIRST.read_text()
    (question,) = blocks(FIRST, "sql")
    (folder / "look.sql").write_text(question)
    (last,) = commands_in(page.partition("## Until it is right")[2])
    return last


def grades_of(incidents):
    """Return the values of the metrics of each run of my-agent, by its cell."""
    found = {}
    for verdict in incidents.glob("runs/*/1/verdicts/default.json"):
        solver = json.loads((verdict.parents[1] / "run.json").read_text())["solver"]
        if solver["name"] == "my-agent":
            metrics = json.loads(verdict.read_text())["metrics"]
            found[verdict.parents[2].name] = {name: one.get("value") for name, one in metrics.items()}
    return found


RIGHT = {
    "any_service": 1.0,
    "exact_match": 1.0,
    "path_reachability": 1.0,
    "ungrounded": 0.0,
    "evidence_relevant": 1.0,
}  # fmt: skip


@pytest.mark.slow
def test_the_agent_of_the_tutorial_is_wrong_and_then_right(tmp_path, monkeypatch, capsys):
    """All commands but the recording of the incident, which is one of that command."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RECORDED, "incidents")
    for line in typed(FIRST):
        if line.startswith("opsassay") and not line.startswith("opsassay demo"):
            assert run(shlex.split(line)[1:]) == 0, line
    (wrong,) = grades_of(tmp_path / "incidents").values()
    assert (wrong["any_service"], wrong["exact_match"]) == (0.0, 0.0)
    assert run(shlex.split(improve_agent(tmp_path / "my-agent"))[1:]) == 0
    (right,) = [one for one in grades_of(tmp_path / "incidents").values() if one != wrong]
    assert {name: right[name] for name in RIGHT} == RIGHT


@pytest.mark.slow
@pytest.mark.parametrize(("page", "incidents"), [("grade-my-method", 2), ("choose-an-agent", 6)])
def test_its_commands_are_run_on_incidents_as_they_stand(page, incidents, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_tree(tmp_path / "incidents", count=incidents)  # a comparison of fewer than six passes no gate
    shutil.copytree(ROOT / "examples" / "agents", tmp_path / "agents")
    assert run(["incident", "annotate", "incidents"]) == 0
    for line in commands_in((DOCS / f"{page}.md").read_text()):
        capsys.readouterr()
        code = run(shlex.split(line)[1:])
        out, err = capsys.readouterr()
        assert code == 0, f"{line}\n{out}\n{err}"
    assert (tmp_path / "scores.csv").stat().st_size > 0


def test_the_runbook_of_the_tutorial_is_the_one_that_is_run():
    (shown,) = blocks(DOCS / "test-my-runbook.md", "python")
    kept = (ROOT / "examples" / "pytest" / "test_runbook.py").read_text()  # which tests/test_pytest_plugin.py runs
    assert shown.partition("import pytest")[2] == kept.partition("import pytest")[2]


@pytest.mark.slow
def test_a_past_incident_is_made_of_its_backends_as_the_page_has_it(tmp_path, monkeypatch, capsys):
    """The addresses and the windows of the page become those of a recorded incident that is served."""
    monkeypatch.chdir(tmp_path)
    pack = recorded(tmp_path / "pack")
    *_, file = blocks(DOCS / "own-system.md", "yml")
    assert PastIncident.model_validate(yaml.safe_load(file)).windows()
    with serving_on_port(ApiServer.over(pack)) as url:
        urls = api_urls(url)
        for name, port in (("prometheus", 9090), ("loki", 3100), ("tempo", 3200)):
            file = file.replace(f"http://{name}:{port}", urls[name])
        for period in ("normal", "abnormal"):
            file = re.sub(rf"^{period}: .*$", f"{period}: {window(getattr(pack.incident, period))}", file, flags=re.M)
        (tmp_path / "incident.yaml").write_text(file)
        said = {}
        for line in commands_in((DOCS / "own-system.md").read_text().partition("## A past incident")[2]):
            code = run(shlex.split(line)[1:])
            out, err = capsys.readouterr()
            assert code == 0, f"{line}\n{out}\n{err}"
            said[line.split()[2]] = out
    assert "is borne out by the recording" in said["annotate"]
    assert (tmp_path / "scores.csv").stat().st_size > 0


@pytest.mark.long
@pytest.mark.live
@pytest.mark.timeout(1200)
def test_from_an_empty_environment_to_the_first_graded_agent(tmp_path):
    """With a real pip and the tutorial as the only text, in a folder of its own: the checkout is named by its path."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    path = f"{tmp_path / 'env' / 'bin'}:{os.environ['PATH']}"
    (tmp_path / "work").mkdir()
    began = time.monotonic()
    with state_folder() as state:
        for command in (*typed(FIRST), None):
            line = command or improve_agent(tmp_path / "work" / "my-agent")
            words = shlex.split(line.replace("'.[", f"'{ROOT}["))
            variables = {**os.environ, "PATH": path, "OPSASSAY_STATE": str(state)}
            program = str(tmp_path / "env" / "bin" / words[0])
            done = subprocess.run(
                [program, *words[1:]], cwd=tmp_path / "work", env=variables, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    print(f"{len(typed(FIRST)) + 1} commands in {time.monotonic() - began:.0f} s")
    assert sorted(one["exact_match"] for one in grades_of(tmp_path / "work" / "incidents").values()) == [0.0, 1.0]


def test_tutorials_are_read_in_their_order():
    site = (ROOT / "mkdocs.yml").read_text()
    start = site[site.index("Tutorials:") :].splitlines()[0]
    assert [Path(name.strip(" []")).stem for name in start.split(":")[1].split(",")] == [
        "own-system", "grade-my-agent", "grade-my-method", "test-my-runbook", "choose-an-agent",
    ]  # fmt: skip
