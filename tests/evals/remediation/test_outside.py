"""An external agent in a trial has what it has in an exam: its model behind the gateway, limits, the seal, its account."""

from __future__ import annotations

import json

import pytest
import yaml

from evals.remediation.test_trials import MADE, TESTS, write_scenario
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.evals.remediation.domain import SRE_DOMAIN
from opsassay.evals.remediation.plan import TrialPlan, cells_of, require_sound
from opsassay.evals.remediation.score import read_steps
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.solvers.sandbox import sealing_refusal

ASKS = """
import json, os, sys, urllib.error, urllib.request
MESSAGES = [{"role": "user", "content": "What now?"}]
def ask():
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": MESSAGES}).encode(),
        headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]
try:
    for _ in range(int(sys.argv[1])):
        print("model:", ask())
except urllib.error.HTTPError as error:
    print("refused:", error.read().decode())
"""


@pytest.fixture(autouse=True)
def _paths(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("OPENAI_API_KEY", "the-real-key")


@pytest.fixture
def trial(tmp_path):
    """Return a function that runs a trial of an agent that asks its model: the run, its folder, what it said."""
    write_scenario(tmp_path / "made.yaml", committed_depth="D3")
    (tmp_path / "asks.py").write_text(ASKS)
    (tmp_path / "model.yaml").write_text("rules:\n  - reply: restart the proxy\n")

    def trial(agent):
        plan = TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": [agent], "retries": 0})
        jobs = cells_of(plan, tmp_path)
        require_sound(jobs)
        (folder,) = run_trials(RunStore(tmp_path / "store"), jobs, performer=MADE + "operating")
        return read_run(folder), folder, (folder / "agent.log").read_text()

    return trial


LOOKS = """
import json, os, sys, urllib.request
said = open(sys.argv[1]).read()
print("named:", os.environ["PROMETHEUS_URL"] in said, "by Tempo" in said or "of Tempo at" in said)
logs = "/loki/api/v1/query_range?query=%7Blevel=%22ERROR%22%7D"
for name, path in (("JAEGER", "/api/services"), ("PROMETHEUS", "/api/v1/rules"), ("LOKI", logs)):
    with urllib.request.urlopen(os.environ[name + "_URL"] + path) as reply:
        print(name, json.dumps(json.load(reply)["data"]))
"""


@pytest.mark.slow
def test_in_a_trial_the_apis_are_over_what_the_tools_see(tmp_path):
    write_scenario(tmp_path / "made.yaml", committed_depth="D3")
    (tmp_path / "looks.py").write_text(LOOKS)
    agent = {"name": "mine", "command": ["{python}", "{agent}/looks.py", "{prompt}"],
             "settings": {"files": [str(tmp_path / "looks.py")], "needs": ["apis"]}}  # fmt: skip
    plan = TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": [agent], "retries": 0})
    jobs = cells_of(plan, tmp_path)
    require_sound(jobs)
    (folder,) = run_trials(RunStore(tmp_path / "store"), jobs, performer=MADE + "seeing")
    said = (folder / "agent.log").read_text()
    assert "named: True True" in said, said
    assert 'JAEGER ["cart", "front"]' in said
    assert "it broke" in said
    blind = RunStore(tmp_path / "blind")
    assert run_trials(blind, jobs, performer=MADE + "operating") == []
    (aborted,) = blind.runs()
    assert "there is no telemetry here to serve" in read_run(aborted).error


def asking(tmp_path, times, sealing, **settings):
    return {
        "name": "mine",
        "command": ["{python}", "{agent}/asks.py", str(times)],
        "model": f"scripted:{tmp_path / 'model.yaml'}",
        "settings": {"files": [str(tmp_path / "asks.py")], "needs": ["model"], "sealing": sealing, **settings},
    }


@pytest.mark.slow
@pytest.mark.parametrize("sealing", ["auto", "off"])
def test_it_reaches_its_model_and_the_run_has_what_was_spent(trial, tmp_path, sealing):
    run, folder, said = trial(asking(tmp_path, 2, sealing))
    assert said.count("model: restart the proxy") == 2, said
    sealed = sealing == "auto" and sealing_refusal() is None
    assert run.isolation == ("sealed" if sealed else "unsealed")
    assert run.spent["model_calls"] == 2
    assert run.spent["input_tokens"] > 0
    assert run.spent["output_tokens"] > 0
    assert run.limits_hit == ()
    steps = read_steps(folder)
    assert [step.output_content for step in steps] == ["restart the proxy"] * 2
    assert "the-real-key" not in "".join(path.read_text() for path in folder.glob("*.json*"))


def test_the_limit_of_tokens_refuses_further_calls(trial, tmp_path):
    run, _, said = trial(asking(tmp_path, 50, "auto", limits={"tokens": 20}))
    assert "refused:" in said
    assert "The limit of tokens of this run is reached" in said
    assert run.limits_hit == ("tokens",)
    assert 0 < run.spent["model_calls"] < 50
    assert run.spent["input_tokens"] + run.spent["output_tokens"] >= 20


@pytest.mark.slow
def test_an_agent_yaml_is_taken_as_it_is_for_exams(trial, tmp_path):
    told = {
        "agent": "written-down",
        "command": ["{python}", "{agent}/asks.py", "1"],
        "files": ["asks.py"],
        "needs": ["model"],
    }
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump({**told, "limits": {"model_calls": 1}}))
    agent = {"name": str(tmp_path / "agent.yaml"), "model": f"scripted:{tmp_path / 'model.yaml'}"}
    run, folder, said = trial(agent)
    assert "model: restart the proxy" in said
    assert run.solver.name == "written-down"
    assert run.spent["model_calls"] == 1
    assert json.loads((folder / "agent.json").read_text())["sealed"] == (sealing_refusal() is None)


def test_without_a_model_or_with_limits_that_are_none_nothing_begins(trial, tmp_path):
    agent = asking(tmp_path, 1, "auto")
    with pytest.raises(UserError, match="asks a model: name one with `model:`"):
        trial({**agent, "model": None})
    for limits, said in (({"seconds": 5}, "the scenario's agent_timeout_s"), ({"tokns": 5}, "tokns")):
        with pytest.raises(ValueError, match=said):
            trial(asking(tmp_path, 1, "auto", limits=limits))


def test_settings_of_a_plan_are_those_of_every_external_agent_beneath_its_own(tmp_path):
    (tmp_path / "agent.yaml").write_text("agent: g\ncommand: ['{python}']\n")
    own = {"name": "strict", "command": ["x"], "settings": {"sealing": "off", "limits": {"tokens": 5}}}
    part = {
        "scenarios": ["drained-pool"],
        "agents": ["oracle:*", str(tmp_path / "agent.yaml"), own],
        "settings": {"sealing": "required", "limits": {"tokens": 9}},
    }
    of = {job.agent.name: job.agent for job in SRE_DOMAIN.jobs(part, tmp_path, "part")}
    assert of[str(tmp_path / "agent.yaml")].settings == {"sealing": "required", "limits": {"tokens": 9}}
    assert of["strict"].settings == own["settings"]
    assert all(agent.settings == {} for name, agent in of.items() if name.startswith("oracle:"))
    with pytest.raises(OpsAssayError, match="settings"):
        list(SRE_DOMAIN.jobs({**part, "settings": {"seal": True}}, tmp_path, "part"))
