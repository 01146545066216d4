"""What operators say is the cause is taken down at its moment, and graded from the run folder up to the table."""

from __future__ import annotations

import json
import time

import pytest

from evals.remediation.performers import write
from evals.remediation.test_trials import MADE, TESTS, write_scenario
from opsassay.cli import run
from opsassay.core.schema.run import Run, Solver
from opsassay.core.schema.run_folder import DIAGNOSES
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.report import Trials
from opsassay.evals.remediation.score import read_recording
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.remediation.tables import per_agent, per_run
from opsassay.evals.remediation.trial import operators as built_in
from opsassay.evals.remediation.trial.contract import TrialAgent, mark_phase
from opsassay.evals.remediation.trial.external import CommandToolSession
from opsassay.evals.remediation.trial.operators import REPORT_DIAGNOSIS, Assignment, Diagnoses
from opsassay.evals.runner.store import RunStore
from opsassay.scoring.verifiers import certify
from opsassay.solvers.agents.models import Reply, ToolRequest
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.scenarios import load_scenario
from scoring.verifiers.made import recording, timeline

GIVEN = {"propagation": ["catalog", "web"], "root_causes": ["names"], "condition": "a wrong record"}


class NoTools(OperatorToolSession):
    """An operator's desk at which there is nothing to do."""

    def __init__(self):
        super().__init__({}, lambda _: None)

    def carry_out(self, _tool, _asked):
        raise AssertionError


@pytest.fixture
def task(tmp_path):
    store = RunStore(tmp_path / "store")
    begun = Run(
        cell="c", attempt=0, item="i", item_hash="h", system="desk", solver=Solver(name="sre"), solver_hash="s",
        arm="baseline/probes-on",
    )  # fmt: skip
    run_dir, _ = store.begin(begun)
    write(run_dir, recording(timeline([1.0] * 5)))
    return Assignment(load_scenario("dns-wrong-backend"), "It burns.", 60.0, 1, run_dir)


def says(*replies):
    left = list(replies)
    return ScriptedModel(lambda *_: left.pop(0) if left else Reply(error_status=400))


def call(tool, **arguments):
    return Reply(tool_requests=(ToolRequest(id="1", tool=tool, arguments=arguments),))


def grades(task):
    metrics = certify(read_recording(task.run_dir), task.scenario).metrics
    return metrics["diagnosis_right"].value, metrics["time_to_diagnosis_s"].value


def test_the_built_in_agents_diagnosis_has_its_moment_however_its_second_part_ends(task, monkeypatch):
    monkeypatch.setattr(built_in, "model_named", lambda *_, **__: says(call("report_diagnosis", **GIVEN)))
    began = mark_phase(task.run_dir, "agent_started")
    built_in.run_sre(TrialAgent(name="sre", model="m"), task, NoTools())
    ended = time.time_ns()
    right, after_s = grades(task)
    assert right == 1.0
    assert 0 < after_s <= (ended - began) / 1e9
    (line,) = (task.run_dir / DIAGNOSES).read_text().splitlines()
    assert json.loads(line)["propagation"] == ["catalog", "web"]


def test_an_agent_that_was_asked_and_says_nothing_is_not_right(task, monkeypatch):
    monkeypatch.setattr(built_in, "model_named", lambda *_, **__: says())
    mark_phase(task.run_dir, "agent_started")
    built_in.run_sre(TrialAgent(name="sre", model="m"), task, NoTools())
    assert grades(task) == (0.0, None)


def test_a_command_hands_its_diagnosis_in_at_the_tools_and_is_told_what_is_wrong_with_it(task):
    desk = CommandToolSession(NoTools(), Diagnoses(task, NoTools()))
    assert desk.specs()[-1] == REPORT_DIAGNOSIS
    refused = desk.call("report_diagnosis", {"root_causes": "names"})
    assert (refused.status, "needs the argument" in refused.output) == ("error", True)
    refused = desk.call("report_diagnosis", {**GIVEN, "root_causes": "names"})
    assert (refused.status, "is str, not array" in refused.output) == ("error", True)
    assert read_recording(task.run_dir).diagnoses == ()
    mark_phase(task.run_dir, "agent_started")
    assert desk.call("report_diagnosis", GIVEN).output == "Taken."
    assert [one.tool for one in desk.calls] == ["report_diagnosis"] * 3
    assert grades(task)[0] == 1.0


def test_names_that_a_scenario_leaves_open_are_put_down_as_it_has_them(task):
    scenario = load_scenario("node-not-ready")
    (open_name,) = scenario.truth.root_causes
    assert "{" in open_name
    session = NoTools()
    session.fill = lambda name: name.format(worker2="node-7")
    diagnoses = Diagnoses(Assignment(scenario, "", 60.0, 1, task.run_dir), session)
    diagnoses.take({**GIVEN, "root_causes": ["node-7", "web"]})
    (found,) = read_recording(task.run_dir).diagnoses
    assert found.root_causes == (open_name, "web")


@pytest.mark.slow
def test_the_tables_have_the_mean_time_over_right_ones_with_their_number(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    write_scenario(tmp_path / "made.yaml", committed_depth="D3", truth={"root_causes": ["cart"]})
    agents = ["oracle:gentle", {"name": "sre", "model": "m"}]
    plan = TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": agents, "repeats": 3})
    store = RunStore(tmp_path / "store")
    run_trials(store, cells_of(plan, tmp_path), performer=MADE + "diagnosing")
    rows = Trials(store.root).rows
    told = {row[0]: row[-3] for row in per_agent(rows).rows}
    assert told == {"oracle:gentle": None, "sre": "5 ± 1 s (2/3)", "All": "5 ± 1 s (2/3)"}
    every = [row[-4:-2] for row in per_run(rows).rows]
    assert sorted(every, key=str) == [("×", None), ("✓", "4.0 s"), ("✓", "6.0 s"), *[(None, None)] * 3]


def test_steps_are_put_down_with_condition_and_effect_and_what_is_none_is_left_out(task):
    steps = [
        {"source": "names", "target": "catalog", "condition": "c", "effect": "e", "further": 1},
        {"source": "catalog"}, "web", {"source": 1, "target": "web"}, {"source": "catalog", "target": "web"},
    ]  # fmt: skip
    Diagnoses(task, NoTools()).take({**GIVEN, "edges": steps})
    (found,) = read_recording(task.run_dir).diagnoses
    assert [one.model_dump() for one in found.edges] == [
        {"source": "names", "target": "catalog", "condition": "c", "effect": "e"},
        {"source": "catalog", "target": "web", "condition": "", "effect": ""},
    ]
    assert found.chain() == (("names", "catalog"), ("catalog", "web"))


@pytest.mark.slow
def test_tables_come_with_the_trials_and_table_4_by_the_script_of_the_papers(tmp_path, monkeypatch, capsys):
    from benchmarks.papers.itbench import command  # workers of trials import this file
    from benchmarks.papers.running import run as run_script

    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    chain = [{"source": "cart", "target": "frontend"}]
    write_scenario(tmp_path / "made.yaml", committed_depth="D3", truth={"root_causes": ["cart"], "propagation": chain})
    (tmp_path / "script.py").write_text("def respond(*_):\n    return None\n")
    agent = {"name": "sre", "model": f"scripted:{tmp_path}/script.py"}
    plan = {"scenarios": ["made.yaml"], "agents": [agent], "repeats": 3}
    (tmp_path / "plan.yaml").write_text(json.dumps(plan))
    store = RunStore(tmp_path / "store")
    run_trials(store, cells_of(TrialPlan.model_validate(plan), tmp_path), performer=MADE + "diagnosing")
    assert run(["run", "trials", str(tmp_path / "plan.yaml"), "-o", str(store.root), "--table", "11", "--json"]) == 0
    assert [one["table"] for one in json.loads(capsys.readouterr().out)["tables"]] == [11]
    assert run_script(command, [str(store.root), "-t", "4", "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["items"]
    (row,) = table["rows"]
    # two of three name the cause alone, the third a neighbour: FL is the mean over the trials of the one scenario
    assert (row["agent"], row["trials"], row["diagnosis pass@1 (%)"]) == ("sre", 3, "66.67")
    assert 0.6 < float(row["FL (NTAM)"]) <= 1
    assert 0 < float(row["FPC (NTAM)"]) < 1
