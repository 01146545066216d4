"""`opsassay agent list`: the list, and the dry run of the contract with agents that keep it and agents that do not."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from evals.commands import agent
from opsassay.cli import run as command_line
from opsassay.evals.diagnosis.setups.dry_run import DRY_RUN_MODEL, tiny_incident
from opsassay.solvers.agents import base
from opsassay.solvers.agents.ready import ready_files
from opsassay.solvers.methods.base import method_named
from telemetry.packs import make_tree

EXAMPLES = Path(__file__).parents[3] / "examples" / "agents"


@pytest.fixture
def call(capsys):
    def call(*arguments, code=0):
        found = command_line([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert found == code, err
        return out, err

    return call


def test_the_list_names_the_agents_and_whether_the_machine_seals(call):
    printed = json.loads(call("agent", "list", "--json")[0])
    assert [item["agent"] for item in printed["items"]] == ["rca", "sre", "ciso", "finops", "triage", *ready_files()]
    assert printed["sealing"]["possible"] == (printed["sealing"]["reason"] is None)
    shown = call("agent", "list")[0]
    assert all(name in shown for name in ("rca", "sre", "ciso", "finops", "deny-all", "detector"))


def test_every_agent_that_comes_with_opsassay_is_listed():
    folder = Path(base.__file__).parent
    classes = {
        f"opsassay.solvers.agents.{path.stem}:{node.name}"
        for path in folder.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "source" for one in node.body)
    }
    listed = {base.AGENTS.load(name) for name in base.AGENTS.builtin_names()}
    assert classes >= {*base.TASK_AGENTS.values()}
    assert classes - {*base.TASK_AGENTS.values()} <= {f"{one.__module__}:{one.__name__}" for one in listed}


@pytest.mark.slow
def test_the_built_in_agent_keeps_the_contract_with_the_packaged_script(call):
    printed = json.loads(call("agent", "check", "rca", "--json")[0])
    assert printed["passed"]
    checks = {item["check"]: item for item in printed["items"]}
    assert all(checks[name]["passed"] for name in ("ended", "answer", "evidence", "trace", "canary"))
    assert "2 statements run" in checks["evidence"]["said"]
    assert (checks["right"]["passed"], checks["right"]["said"][:10]) == (None, "yes: stock")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('print(\'{"root_causes": [], "propagation": []}\')', "NO: it says nothing is wrong; right is stock"),
        ("print(json.dumps(GOOD).replace('cart', 'front'))", "NO: it says front (http_"),
    ],
)
def test_a_wrong_answer_keeps_the_contract_and_is_said_to_be_wrong(call, tmp_path, code, said):
    printed = json.loads(call("agent", "check", str(agent(tmp_path / "agent", code)), "--json")[0])
    (right,) = (item for item in printed["items"] if item["check"] == "right")
    assert right["passed"] is None
    assert right["said"].startswith(said)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("code", "check", "said"),
    [
        ("print('no')", "ended", "no answer by the contract"),
        ("raise ValueError('tired')", "ended", "ValueError: tired"),
        ("print('Well, ' + json.dumps(GOOD).replace('cart', 'stock'))", "answer", "prose around the JSON"),
        ("print(json.dumps(GOOD))", "answer", "there is no service 'cart' in the data"),
        (
            "print(json.dumps(GOOD).replace('cart', 'stock').replace('abnormal_traces', 'no_such_table'))",
            "evidence",
            "no_such_table",
        ),
    ],
)
def test_what_is_broken_is_named(call, tmp_path, code, check, said):
    path = agent(tmp_path / "agent", code)
    printed = json.loads(call("agent", "check", path, "-c", "sealing=off", "--json", code=1)[0])
    broken = {item["check"]: item["said"] for item in printed["items"] if item["passed"] is False}
    assert check in broken
    assert said in broken[check]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "further"),
    [
        ("by_mcp", ()),
        ("by_prometheus", ()),
        ("by_model", ("--model", f"scripted:{EXAMPLES / 'by_model' / 'model.yaml'}")),
    ],
)
def test_the_examples_keep_the_contract(call, name, further):
    printed = json.loads(call("agent", "check", EXAMPLES / name / "agent.yaml", *further, "--json")[0])
    assert printed["passed"]


def test_the_example_of_a_scripted_model_finds_the_service_that_fails(call, tmp_path):
    tree = make_tree(tmp_path / "t", count=1)
    model = f"scripted:{EXAMPLES / 'analyst.py'}"
    (item,) = json.loads(call("run", "diagnose", tree.root, "-a", "rca", "--model", model, "--json")[0])["items"]
    assert item["answer"] == "store"


def test_a_method_is_no_agent_to_check(call):
    assert "opsassay run diagnose DIR -m constant" in call("agent", "check", "constant", code=2)[1]


def test_the_made_up_incident_can_be_solved(tmp_path):
    pack = tiny_incident(tmp_path / "incident")
    assert pack.services() == ["front", "stock"]
    assert pack.warnings == ()
    assert method_named("loudest").diagnose(pack).ranking
    assert DRY_RUN_MODEL.endswith("dry_run.yaml")
