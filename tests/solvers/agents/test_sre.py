"""The SRE agent on scripted models and plain tools: two agents in sequence, linting, reflection, summaries, limits."""

from __future__ import annotations

import json

import pytest

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import ToolCall
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.conversing import LONG_OUTPUT, TURNS
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.models.base import Reply, ToolRequest
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.sre import SreAgent
from opsassay.solvers.agents.sre_lint import lint

DIAGNOSIS = {"propagation": ["orders", "web"], "root_causes": ["orders"], "condition": "pool drained"}
MITIGATION = {"plan": "restart", "steps": ["restart orders"], "verified": "alerts cleared"}
TARGET = {"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"]}
LOOK = ToolSpec(name="describe", parameters=TARGET)
ACT = ToolSpec(
    name="restart",
    parameters={
        **TARGET,
        "properties": {
            "target": {"type": "string", "pattern": "^[a-z-]+$"},
            "replica": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
            "rolling": {"type": "boolean"},
        },
    },
)


class Tools:
    """Two plain tools that remember their calls."""

    def __init__(self, outputs=()) -> None:
        self.calls, self.offered, self._outputs = [], [], list(outputs)

    def specs(self, *, changing):
        self.offered.append(changing)
        return (LOOK, ACT) if changing else (LOOK,)

    def call(self, tool, arguments, step_id):
        self.calls.append((tool, dict(arguments), step_id))
        output, status = self._outputs.pop(0) if self._outputs else ("fine", "ok")
        return ToolCall(tool=tool, arguments=dict(arguments), output=output, status=status)


def calls(tool, **arguments):
    return Reply(tool_requests=(ToolRequest(id="1", tool=tool, arguments=arguments),))


def work(replies, tools, folder, **limits):
    """Let the agent work with a model that gives *replies* in order; return its report and what the model was sent."""
    left, sent = list(replies), []

    def respond(messages, offered):
        sent.append((messages, [spec.name for spec in offered]))
        return left.pop(0) if left else Reply(text="...")

    asker = Asker(ScriptedModel(respond), Meter(Limits(**limits)), AgentRecorder(folder))
    return SreAgent(asker, tools, ("orders", "web")).run("Alert: orders fail."), sent


def test_diagnosis_looks_and_mitigation_acts(tmp_path):
    tools = Tools()
    report, sent = work(
        [
            calls("describe", target="orders"),
            calls("report_diagnosis", **DIAGNOSIS),
            calls("restart", target="orders", rolling=True),
            calls("report_mitigation", **MITIGATION),
        ],
        tools,
        tmp_path,
    )
    assert (report.diagnosis, report.mitigation, report.notes) == (DIAGNOSIS, MITIGATION, [])
    assert [(name, step) for name, _, step in tools.calls] == [("describe", 1), ("restart", 3)]
    assert "restart" not in sent[0][1]
    assert sent[2][1] == ["describe", "restart", "report_mitigation"]
    assert "pool drained" in sent[2][0][-1].content
    steps = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [step["agent_name"] for step in steps] == ["diagnosis", "diagnosis", "mitigation", "mitigation"]


def test_the_linter_stops_a_call_and_the_model_mends_it(tmp_path):
    tools = Tools()
    report, sent = work(
        [
            calls("restart", target="orders"),  # only looking is allowed yet
            calls("describe", target="ordres"),
            calls("report_diagnosis", root_causes=["orders"]),
            calls("report_diagnosis", **DIAGNOSIS),
            calls("report_mitigation", **MITIGATION),
        ],
        tools,
        tmp_path,
    )
    assert tools.calls == []
    told = [messages[-1].content for messages, _ in sent[1:4]]
    assert "there is no tool 'restart'" in told[0]
    assert "did you mean 'orders'" in told[1]
    assert "needs the argument 'propagation'" in told[2]
    assert report.diagnosis == DIAGNOSIS


def test_what_is_asked_for_beside_a_report_comes_too_late(tmp_path):
    tools = Tools()
    both = (
        ToolRequest(id="1", tool="restart", arguments={"target": "web"}),
        ToolRequest(id="2", tool="report_mitigation", arguments=MITIGATION),
        ToolRequest(id="3", tool="restart", arguments={"target": "orders"}),
    )
    report, _ = work([calls("report_diagnosis", **DIAGNOSIS), Reply(tool_requests=both)], tools, tmp_path)
    assert report.mitigation == MITIGATION
    assert [arguments["target"] for _, arguments, _ in tools.calls] == ["web"]


def test_an_error_of_the_system_is_reflected_on_but_not_for_ever(tmp_path):
    failing = [calls("describe", target="orders")] * 5
    _, sent = work(failing, Tools([("Error: no", "error")] * 5), tmp_path, model_calls=6)
    told = [messages[-1].content for messages, _ in sent[1:6]]
    assert ["Reflect" in one for one in told] == [True, True, True, False, False]


def test_a_long_output_is_summarised(tmp_path):
    long = "x" * (LONG_OUTPUT + 1)
    replies = [calls("describe", target="orders"), Reply(text="orders fail"), calls("report_diagnosis", **DIAGNOSIS)]
    _, sent = work(replies, Tools([(long, "ok")]), tmp_path, model_calls=4)
    assert sent[1][0][-1].content == long
    assert sent[2][0][-1].content == "(summary)\norders fail"


def test_one_that_never_reports_is_ended(tmp_path):
    report, sent = work([], Tools(), tmp_path)
    assert len(sent) == 2 * TURNS
    assert report.notes == [f"diagnosis: no report after {TURNS} turns", f"mitigation: no report after {TURNS} turns"]
    report, sent = work([], Tools(), tmp_path, model_calls=3)
    assert len(sent) == 3
    assert "limit of model_calls" in report.notes[0]


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("restart", {"target": "orders"}, None),
        ("restart", {"target": "orders-1", "replica": None}, "pattern"),
        ("describe", {"target": "orders-1"}, None),
        ("describe", {"target": "all"}, None),
        ("restart", {"target": "orders", "replica": -1}, "minimum"),
        ("restart", {"target": "orders", "replica": "0"}, "is str, not integer"),
        ("restart", {"target": "orders", "rolling": 1}, "is int, not boolean"),
        ("restart", {"target": "orders", "roling": True}, "did you mean 'rolling'"),
        ("restart", {}, "needs the argument 'target'"),
        ("describe", {"target": 5}, "is int, not string"),
        ("descrbe", {"target": "orders"}, "did you mean 'describe'"),
    ],
)
def test_lint(tool, arguments, problem):
    found = lint(tool, arguments, {"describe": LOOK, "restart": ACT}, ("orders", "web"))
    assert (found is None) == (problem is None), found
    assert problem is None or problem in found
