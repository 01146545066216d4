"""What cost runs are shown as: tables in the shape of the paper's, a page for each run, and the page of the docs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run as command_line
from opsassay.evals.cost.domain import FINOPS_DOMAIN
from opsassay.evals.cost.live.tasks import TASKS
from opsassay.evals.cost.plan import CostPlan
from opsassay.testbed.operations.cost_tools import COST_TOOLS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cost.md").read_text()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cost")
    part = {
        "domain": "finops", "tasks": ["top-applications", "anomalies-credits"],
        "agents": ["oracle:right", "oracle:everything", "constant", "detector"],
    }  # fmt: skip
    parts = [
        {**part, "tasks": ["anomalies-credits"]},
        {**part, "tasks": ["top-applications"], "agents": ["oracle:right", "constant"]},
    ]
    (folder / "plan.yaml").write_text(yaml.safe_dump({"parts": parts}))
    assert command_line(["run", str(folder / "plan.yaml"), "-o", str(folder / "store")]) == 0
    return folder / "store"


def tables_of(store, capsys):
    capsys.readouterr()
    assert command_line(["score", "table", str(store), "--json"]) == 0
    return {item["table"]: item for item in json.loads(capsys.readouterr().out)["items"]}


@pytest.mark.slow
def test_one_command_prints_table_6_and_tables_30_to_32(store, capsys):
    found = tables_of(store, capsys)
    assert list(found) == [6, 30, 31, 32]
    overview = {row["solver"]: row for row in found[6]["rows"]}
    assert overview["oracle:right"]["data insights pass@1 %"] == "100.0"
    assert overview["oracle:right"]["anomaly F1"] == "1.00 ± 0.00"
    assert overview["constant"]["data insights pass@1 %"] == "0.0"
    assert overview["oracle:right"]["mitigation pass@1 %"] is None
    assert {row["solver"] for row in found[31]["rows"]} == {"constant", "detector", "oracle:everything", "oracle:right"}


@pytest.mark.slow
def test_grading_again_gives_the_same_and_names_a_body_that_is_gone(store, tmp_path, capsys):
    shutil.copytree(store, tmp_path / "store")
    assert command_line(["score", "run", str(tmp_path / "store"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["items"]) == 6
    shutil.rmtree(tmp_path / "store" / "cost_tasks")
    assert command_line(["score", "run", str(tmp_path / "store"), "--json"]) == 1
    assert "cannot be read" in json.loads(capsys.readouterr().out)["problems"][0]


@pytest.mark.slow
def test_a_page_shows_the_cost_over_time_with_planted_and_claimed_anomalies(store, tmp_path):
    assert command_line(["report", str(store), "-o", str(tmp_path)]) == 0
    pages = {re.search(r"<title>(.*?)</title>", path.read_text())[1]: path.read_text() for path in tmp_path.iterdir()}
    right, constant = pages["anomalies-credits, oracle:right"], pages["anomalies-credits, constant"]
    assert right.count('class="planted"') == right.count('class="claimed"') == constant.count('class="planted"') > 3
    assert constant.count('class="claimed"') == 1
    assert ">passed<" in right
    assert "not passed" in constant
    assert right.count('class="cost"') == 5
    for page in pages.values():
        assert "<script" not in page
        assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "The right answer" in pages["top-applications, constant"]


@pytest.mark.slow
def test_what_a_solver_wrote_is_shown_as_text(store, tmp_path):
    shutil.copytree(store, tmp_path / "store")
    for file in (tmp_path / "store").rglob("answer.json"):
        if "application" in file.read_text() or '"total"' in file.read_text():
            file.write_text(json.dumps({"rows": [{"application": "<script>alert(1)</script>", "cost_usd": 1}]}))
    assert command_line(["report", str(tmp_path / "store"), "-o", str(tmp_path / "pages")]) == 0
    text = "".join(path.read_text() for path in (tmp_path / "pages").iterdir())
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_the_page_on_cost_names_every_task_tool_metric_and_key():
    names = [*TASKS, *COST_TOOLS, *CostPlan.model_fields]
    names += [one.name for one in FINOPS_DOMAIN.metrics() if not one.name.endswith("_clamped")]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_on_cost_is_run_word_for_word(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns(".venv", "node_modules"))
    monkeypatch.chdir(tmp_path)
    lines = [line[2:] for line in PAGE.splitlines() if line.startswith("$ opsassay")]
    assert len(lines) == 7
    for line in lines:
        wrong = line.startswith("opsassay run ")  # a wrong oracle hands in nothing, which is the point of it
        assert command_line(shlex.split(line)[1:]) == int(wrong), line
    assert len(list((tmp_path / "cost-pages").iterdir())) > 10


@pytest.mark.slow
def test_the_scripted_twin_mends_its_statement_and_answers_right(tmp_path, capsys):
    shutil.copytree(ROOT / "examples" / "cost", tmp_path / "cost")
    plan = yaml.safe_load((tmp_path / "cost" / "plan.yaml").read_text())
    plan |= {"tasks": ["category-cost"], "agents": [plan["agents"][-1]]}
    (tmp_path / "cost" / "plan.yaml").write_text(yaml.safe_dump(plan))
    assert command_line(["run", str(tmp_path / "cost" / "plan.yaml"), "-o", str(tmp_path / "store"), "--json"]) == 0
    [item] = json.loads(capsys.readouterr().out)["items"]
    assert item["metrics"]["passed"]["value"] == 1.0, item["metrics"]["passed"]
    assert item["metrics"]["missed_names"]["value"] == 1.0
