"""`opsassay new schema`: what is written here is valid by it, what is misspelt is not, and no kind of file is missing."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run
from opsassay.cli.new.schema import KINDS, PARTS, schema_of
from opsassay.testbed.scenarios import names, scenario_path

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FILES = {
    "agent": sorted(EXAMPLES.glob("agents/*/agent.yaml")),
    "plan": [*EXAMPLES.glob("c*/plan.yaml"), EXAMPLES / "cost/live.yaml", *EXAMPLES.glob("*/plan.yaml")],
    "trials": [EXAMPLES / "trials/plan.yaml"],
    "fault": sorted(set(EXAMPLES.glob("*.yaml")) - {EXAMPLES / "campaign.yaml"}),
    "campaign": [EXAMPLES / "campaign.yaml", ROOT / "benchmarks/campaign.yaml"],
    "system": sorted((ROOT / "src/opsassay/testbed/apps").glob("*.yaml")),
    "scenario": [EXAMPLES / "extending/scenario.yaml", *map(scenario_path, names())],
    "task-set": [EXAMPLES / "platform/task_sets/bill.yaml"],
    "script": [EXAMPLES / "agents/by_model/model.yaml", EXAMPLES / "multi_agent/answers.yaml"],
    "recording": [EXAMPLES / "otlp/incident.yaml"],
    "resolutions": [EXAMPLES / "multi_agent/annotations/resolved.yaml"],
}
SHIPPED = {"ReadyFile", "LiveCostTask"}
"""Files that only this project writes."""
HANDED_IN = {"form": "AgentFile"}
"""Which model of a file that people write stands for the argument of this name."""


def problems(kind, value):
    return [error.message for error in jsonschema.Draft202012Validator(schema_of(kind)).iter_errors(value)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_is_a_schema_that_is_printed_and_written(kind, capsys, tmp_path):
    jsonschema.Draft202012Validator.check_schema(schema_of(kind))
    assert run(["new", "schema", kind]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of(kind)
    assert run(["new", "schema", kind, "-o", str(tmp_path / "x.json")]) == 0
    assert json.loads((tmp_path / "x.json").read_text()) == schema_of(kind)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", FILES)
def test_what_is_written_in_this_project_is_valid_and_a_misspelt_key_is_not(kind):
    for path in FILES[kind]:
        written = yaml.safe_load(path.read_text())
        assert problems(kind, written) == [], path
        if kind != "plan" or written.get("domain") in PARTS:
            assert problems(kind, {**written, "misspelt": 1}), path


def test_a_plan_of_parts_may_have_parts_of_every_domain_and_of_others():
    parts = [
        {"domain": "sre", "scenarios": ["bad-release"], "agents": ["oracle:*"]},
        {
            "domain": "diagnosis",
            "incidents": ["suite"],
            "agents": [{"name": "baro", "parameters": {"window": [5, 20]}}],
        },
        {"domain": "of-others", "anything": 1},
    ]
    assert problems("plan", {"parts": parts}) == []
    assert problems("plan", {"parts": [{**parts[1], "incidets": []}]})
    assert problems("plan", {"parts": []})


@pytest.mark.slow
def test_every_file_that_is_read_into_a_model_has_a_schema():
    read = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "load_yaml":
                read.add(ast.unparse(node.args[1]))
    assert {HANDED_IN.get(name, name) for name in read - SHIPPED} == {
        place.partition(":")[2] for place, _ in KINDS.values()
    }
