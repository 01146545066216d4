"""The arm `recommend`: the agent hands in a plan, a fresh copy carries it out, and the copy is judged."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from functools import partial

import pytest
import yaml

from live import skip_if_starved, state_folder
from opsassay.cli import run
from opsassay.core.errors import NotFoundError, OperationError, StartError
from opsassay.core.schema.compose import ComposeProject
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.run_folder import ACTIONS, ASKED, DIAGNOSES, OUTCOMES, PHASES, PLAN, TRACE
from opsassay.core.schema.scenario import Oracle
from opsassay.core.schema.trajectory import SettingsReading
from opsassay.evals.remediation import plan as plan_module
from opsassay.evals.remediation.modelled.trial import ModelledTrial
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.trial import recommended
from opsassay.evals.remediation.trial.contract import REPORT, TrialAgent
from opsassay.evals.remediation.trial.recommended import perform, plan_of_script
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.store import RunStore
from opsassay.scoring.verifiers import certify
from opsassay.testbed.operations.environment import LiveEnvironment
from opsassay.testbed.operations.recommending import RecommendToolSession
from opsassay.testbed.operations.tools import VerbToolSession
from opsassay.testbed.scenarios import load_scenario, system_of
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

from . import recommender

SCRIPTED = TrialAgent(name="sre", model=f"scripted:{recommender.__file__}")


class MadeEnvironment(LiveEnvironment):
    """A system that keeps which verbs reached it; *events* are those of all systems of the test."""

    def __init__(self, events, starts, scenario, seed, run_dir, settings=None):
        super().__init__(scenario, seed, run_dir, settings or {})
        self.name = "asked" if run_dir.name == ASKED else "copy"
        self.events, self.starts = events, starts

    def operate(self, verb, given):
        self.events.append((self.name, verb, self.drawn_seed))
        if given.get("service") == "nowhere":
            raise NotFoundError("service", "nowhere", ["catalog"])
        return {}

    @contextmanager
    def deployed(self):
        if self.name not in self.starts:
            raise StartError(f"The {self.name} did not start.")
        self.events.append((self.name, "deployed", self.drawn_seed))
        yield
        self.events.append((self.name, "removed", self.drawn_seed))

    @contextmanager
    def operated(self):
        yield VerbToolSession(self, None, partial(append_line, self.run_dir / ACTIONS))

    @contextmanager
    def broken(self):
        self.events.append((self.name, "broken", self.drawn_seed))
        yield

    @contextmanager
    def observed(self, *, probes):
        del probes
        yield

    def verify(self):
        return []

    def health_problem(self):
        return None

    def read_settings(self):
        return SettingsReading(time_ns=time.time_ns(), settings={})

    def require_alive(self):
        """It lives."""


@pytest.fixture
def performed(tmp_path, monkeypatch):
    """Perform a trial of an agent on made systems; those that are named can start. Return what happened in order."""

    def performed(agent, *starts, **oracles):
        events = []
        monkeypatch.setattr(recommended, "environment_for", partial(MadeEnvironment, events, starts))
        made = load_scenario("bad-release")
        quick = {"warmup_s": 0.0, "settle_s": 0.0, "aftermath_s": 0.0}
        verification = made.verification.model_copy(update={"settling": None, "alerts": None})
        made = made.model_copy(
            update={
                "environment": made.environment.model_copy(update=quick),
                "verification": verification,
                "oracles": {**made.oracles, **oracles},
            }
        )
        perform(made, agent, "baseline", probes=True, seed=0, run_dir=tmp_path)
        assert len({seed for *_, seed in events}) == 1
        return [event[:2] for event in events]

    return performed


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_plan_is_carried_out_on_a_copy_once_the_first_system_is_gone(performed, tmp_path):
    assert performed(SCRIPTED, "asked", "copy") == [
        ("asked", "deployed"), ("asked", "broken"), ("asked", "ps"), ("asked", "removed"),
        ("copy", "deployed"), ("copy", "broken"), ("copy", "release"), ("copy", "scale"), ("copy", "removed"),
    ]  # fmt: skip
    assert json.loads((tmp_path / PLAN).read_text()) == {"steps": recommender.PLAN}
    done = [(one["tool"], one["status"], one["mutating"]) for one in lines_of(tmp_path / ACTIONS)]
    assert done == [("release", "ok", True), ("scale", "error", True), ("wait", "ok", False)]
    assert not any(one["mutating"] for one in lines_of(tmp_path / ASKED / ACTIONS))
    calls = [call["tool"] for step in lines_of(tmp_path / TRACE) for call in step["tool_logs"]]
    assert calls.count("submit_plan") == 2
    assert (tmp_path / REPORT).exists()
    assert (tmp_path / ASKED / DIAGNOSES).read_text()
    assert not (tmp_path / DIAGNOSES).exists()  # the times of the copy say nothing about it
    assert [one["phase"] for one in lines_of(tmp_path / PHASES)].count("agent_started") == 1


def test_an_empty_plan_is_an_operator_who_does_nothing(performed, tmp_path):
    events = performed(TrialAgent(name="mine", command=("true",), settings={"sealing": "off"}), "asked", "copy")
    assert events[-3:] == [("copy", "deployed"), ("copy", "broken"), ("copy", "removed")]
    assert json.loads((tmp_path / PLAN).read_text()) == {"steps": None}
    assert [one["outcome"] for one in lines_of(tmp_path / OUTCOMES)] == ["agent_idle"]
    assert not (tmp_path / ACTIONS).exists()


BY_MCP = """
import json, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[2])
lines = server.makefile("rw", encoding="utf-8")
hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "mine", "version": "1"}}
step = {"tool": "restart", "arguments": {"target": "catalog"}}
called = "submit_plan" if "`submit_plan`" in open(sys.argv[1]).read() else "nothing"
calls = [("initialize", hello), ("tools/list", {}), ("tools/call", {"name": called, "arguments": {"steps": [step]}})]
for number, (method, params) in enumerate(calls):
    lines.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\\n")
    lines.flush()
    print(lines.readline())
"""


def test_a_command_reads_what_is_asked_and_hands_its_plan_in_over_mcp(performed, tmp_path):
    (tmp_path / "mine.py").write_text(BY_MCP)
    command = (sys.executable, str(tmp_path / "mine.py"), "{prompt}", "{tools}")
    events = performed(TrialAgent(name="mine", command=command, settings={"sealing": "off"}), "asked", "copy")
    assert ("copy", "restart") in events
    assert ("asked", "restart") not in events
    said = (tmp_path / "agent.log").read_text()
    assert "Taken: a plan of 1 steps." in said
    assert '"const":"restart"' in said.replace(" ", "")


@pytest.mark.parametrize("starts", [(), ("asked",)])
def test_a_system_that_does_not_start_is_no_fault_of_the_agent(performed, starts):
    with pytest.raises(StartError):
        performed(SCRIPTED, *starts)


def test_an_oracle_whose_plan_is_not_taken_is_no_result(performed):
    wrong = Oracle.model_validate({"expect": "certified", "steps": [{"verb": "restart"}]})
    with pytest.raises(OperationError, match="step 1: invalid arguments of restart: target"):
        performed(TrialAgent(name="oracle:wrong"), "asked", "copy", wrong=wrong)


def test_a_wait_of_a_script_becomes_calls_that_the_tool_takes():
    script = Oracle.model_validate({"expect": "certified", "steps": [{"verb": "config get", "wait_s": 130}]})
    calls = [(call.tool, call.arguments.get("seconds")) for call in plan_of_script(script)]
    assert calls == [("config_get", None), ("wait", 60.0), ("wait", 60.0), ("wait", 10.0)]


def plan_of(*scenarios, **fields):
    return TrialPlan.model_validate({"scenarios": scenarios, "agents": ["oracle:gentle"], **fields})


def test_it_is_an_arm_of_its_own_in_the_key_of_a_run():
    acting, asked, undoing, both = cells_of(plan_of("bad-release", recommend=[False, True], rollback=[False, True]))
    (alone,) = cells_of(plan_of("bad-release"))
    assert acting.cell.hash == alone.cell.hash
    assert len({cell.cell.hash for cell in (acting, asked, undoing, both)}) == 4
    assert [cell.cell.arm.label for cell in (acting, asked)] == [
        "baseline/probes-on", "baseline/probes-on/recommend-on",
    ]  # fmt: skip
    assert "restart" not in asked.operator_tools()
    assert "submit_plan" in asked.operator_tools()
    assert asked.granted_s == 2 * acting.granted_s


REFUSED = {
    "a cluster": ({"scenarios": ["bad-image-rollout"]}, "happens on kubernetes"),
    "a control": ({"scenarios": ["bad-release"], "agents": ["oracle:control-no-op"]}, "is about when somebody acts"),
    "a project that runs": ({"scenarios": ["wrong-upstream-port"]}, "happens on the project my-shop itself"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_where_nothing_can_be_copied_it_is_refused(tmp_path, capsys, monkeypatch, what):
    fields, said = REFUSED[what]
    project = ComposeProject(engine=("docker",), attached="my-shop")
    attached = system_of(load_scenario("bad-release")).model_copy(update={"compose": project})
    if what == "a project that runs":
        monkeypatch.setattr(plan_module, "system_of", lambda _: attached)
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump({"agents": ["oracle:gentle"], **fields, "recommend": [True]}))
    assert run(["run", "trials", str(plan), "-o", str(tmp_path / "out"), "--dry-run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "leave `recommend` out" in line


@pytest.mark.parametrize("name", ["report-holds-locks", "wrong-upstream-port", "dns-wrong-backend"])
def test_on_a_modelled_system_only_the_plan_of_the_right_repair_is_certified(name):
    scenario = load_scenario(name)
    for script in (*scenario.oracles.values(), Oracle(fails=("v_outcome",))):
        session = RecommendToolSession(VerbToolSession(None, None, lambda _: None))
        steps = [call.model_dump() for call in plan_of_script(script)]
        assert session.call("submit_plan", {"steps": steps}).status == "ok"
        planned = [{"verb": call.tool.replace("_", " "), "arguments": call.arguments} for call in session.plan]
        played = ModelledTrial(scenario).play(Oracle.model_validate({"fails": ["v_outcome"], "steps": planned}))
        assert certify(played, scenario).judgement("certificate").passed is script.certified


@pytest.mark.live
@pytest.mark.drawn
@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["gentle", "idle"])
def test_a_right_plan_is_certified_and_an_empty_one_is_not(tmp_path, capsys, name):
    scenario = load_scenario("bad-release")
    idle = Oracle(fails=("v_depth",), description="An empty plan.")
    scenario = scenario.model_copy(update={"oracles": {**scenario.oracles, "idle": idle}})
    agent = TrialAgent(name=ORACLE + name)
    job = TrialRun(scenario, agent, "baseline", probes=True, seed=0, cluster=ClusterSettings(), recommend=True)
    store = RunStore(tmp_path)
    with state_folder():
        run_trials(store, [job], 1, progress=ProgressLines(print))
    if (folder := store.finished(job.cell.hash)) is None:
        skip_if_starved(capsys.readouterr().out)
    verdict = grade_trial(folder, scenario)
    assert verdict.judgement("certificate").passed is (name == "gentle"), verdict.judgements
    assert not any(one["mutating"] for one in lines_of(folder / ASKED / ACTIONS))
    steps = json.loads((folder / PLAN).read_text())["steps"]
    assert [step["tool"] for step in steps] == (["describe", "release"] if name == "gentle" else [])
