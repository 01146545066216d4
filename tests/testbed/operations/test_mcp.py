"""An operator's tools over MCP, spoken by the official client: the same tools, the same record; an outside command."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from opsassay.core.errors import UserError
from opsassay.evals.remediation.trial import external as external_agents
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.remediation.trial.external import operate
from opsassay.evals.remediation.trial.operators import Assignment, Diagnoses
from opsassay.solvers.agents import mcp_bridge
from opsassay.solvers.agents.mcp_server import serving
from opsassay.telemetry.schema import MODALITIES, empty
from opsassay.testbed.operations import tool_session as toolbox_module
from opsassay.testbed.operations.telemetry_view import TelemetryView
from opsassay.testbed.operations.tool_session import specs_of
from opsassay.testbed.operations.tools import TOOLS, VerbToolSession
from opsassay.testbed.scenarios import load_scenario

AGENT = Path(__file__).with_name("outside_agent.py")


class Running:
    """A system that answers every verb with what it was asked."""

    def operate(self, verb, arguments):
        if arguments.get("target") == "nobody":
            raise UserError("There is no service 'nobody'.")
        return {"verb": verb, **arguments}


class Misled:
    """A system whose name server answers for catalog with orders."""

    def operate(self, _verb, arguments):
        return {"settings": {"catalog": "orders", "web": "web"}} if arguments.get("target") == "names" else {}


@pytest.mark.parametrize(
    ("service", "method", "touched"),
    [("catalog", "POST", ("catalog", "orders")), ("web", "POST", ("web",)), ("catalog", "GET", ())],
)
def test_a_request_that_may_write_touches_the_service_to_which_its_name_leads(service, method, touched):
    recorded = []
    given = {"source": "web", "url": f"http://{service}:8080/orders", "method": method}
    assert VerbToolSession(Misled(), None, recorded.append).call("exec_curl", given).status == "ok"
    assert recorded[0].touched == touched


@pytest.fixture
def desk():
    recorded = []
    toolbox = VerbToolSession(Running(), None, recorded.append)
    return toolbox, recorded, toolbox


def talk(path, *said):
    async def session():
        server = StdioServerParameters(command=sys.executable, args=[mcp_bridge.__file__, str(path)])
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, arguments) for name, arguments in said]

    return anyio.run(session)


def test_any_client_operates_and_every_call_is_recorded(desk, tmp_path):
    tools, recorded, _ = desk
    with serving(tools, tmp_path / "s.sock") as path:
        offered, (fine, wrong, nobody) = talk(
            path,
            ("restart", {"target": "orders", "rolling": True}),
            ("restart", {"target": "../x"}),
            ("describe", {"target": "nobody"}),
        )
    assert {tool.name for tool in offered} == set(TOOLS)
    assert json.loads(fine.content[0].text) == {"verb": "restart", "target": "orders", "replica": None, "rolling": True}
    assert (fine.is_error, wrong.is_error, nobody.is_error) == (False, True, True)
    assert [(a.tool, a.status, a.mutating, a.touched) for a in recorded] == [
        ("restart", "ok", True, ("orders",)),
        ("restart", "error", True, ()),
        ("describe", "error", False, ()),
    ]


class Quiet:
    """Telemetry in which nothing has arrived, and alert rules by which nothing fires."""

    def tables(self):
        return {name: empty(name) for name in MODALITIES}

    def firing(self):
        return 0, []


EACH_TOOL = {
    "alerts": {}, "metrics": {"metric": "cpu"}, "traces": {"service": "web"}, "search_logs": {"pattern": "("},
    "summarise": {"since_s": 5.0}, "topology": {}, "wait": {"seconds": 0.01}, "ps": {}, "describe": {"target": "nobody"},
    "logs": {"target": "web", "lines": 3}, "exec_curl": {"source": "web", "url": "http://catalog:8080/items"},
    "config_get": {"target": "web"}, "firewall_list": {}, "restart": {"target": "web", "replica": 1},
    "scale": {"service": "web", "replicas": 99}, "config_set": {"target": "web", "key": "A", "value": "1"},
    "config_unset": {"target": "web", "key": "A"}, "release": {"service": "web", "version": "v2"},
    "firewall_delete": {"rule": "rule-1"}, "kill": {"target": "web", "process": "python"},
}  # fmt: skip
"""A call of every tool; some are wrong."""


def test_every_tool_says_and_records_over_mcp_what_it_does_when_it_is_called_directly(tmp_path):
    assert set(EACH_TOOL) == set(TOOLS)
    recorded = {"direct": [], "mcp": []}
    boxes = {
        name: VerbToolSession(Running(), TelemetryView(Quiet(), Quiet()), kept.append)
        for name, kept in recorded.items()
    }
    direct = [boxes["direct"].call(name, arguments) for name, arguments in EACH_TOOL.items()]
    with serving(boxes["mcp"], tmp_path / "s.sock") as path:
        offered, answers = talk(path, *EACH_TOOL.items())
    assert [(tool.name, tool.description, tool.input_schema) for tool in offered] == [
        (tool.name, tool.description, tool.parameters) for tool in specs_of(TOOLS, changing=True)
    ]
    said = [(answer.content[0].text, "error" if answer.is_error else "ok") for answer in answers]
    assert said == [(outcome.output, outcome.status) for outcome in direct]
    assert {status for _, status in said} == {"ok", "error"}
    moments = {"started_ns", "ended_ns"}
    plain = {name: [action.model_dump(exclude=moments) for action in kept] for name, kept in recorded.items()}
    assert plain["mcp"] == plain["direct"]
    assert len(plain["mcp"]) == len(TOOLS)


def test_calls_without_end_fill_neither_the_record_nor_the_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(toolbox_module, "CALLS_LIMIT", 5)
    monkeypatch.setattr(external_agents, "CALLS_LIMIT", 8)
    recorded = []
    toolbox = VerbToolSession(Running(), None, recorded.append)
    task = Assignment(load_scenario("drained-pool"), "Alert.", 60.0, 0, tmp_path)
    desk = external_agents.CommandToolSession(toolbox, Diagnoses(task, toolbox))
    huge = {"propagation": ["x" * 10**5] * 100, "root_causes": [10**5] * 100, "condition": "y" * 10**6}
    for _ in range(4):
        desk.call("ps", {"stray": "z" * 10**6})
        desk.call("report_diagnosis", huge)
    for _ in range(20):
        desk.call("ps", {})
        desk.call("report_diagnosis", huge)
    assert (len(recorded), len(desk.calls)) == (4, 8)
    assert desk.call("ps", {}).output == "Error: there are no more than 8 calls."
    assert len("".join(call.model_dump_json() for call in desk.calls)) < 200_000
    assert (tmp_path / "diagnoses.jsonl").read_text().count("\n") == 4
    assert (tmp_path / "diagnoses.jsonl").stat().st_size < 200_000
    for _ in range(3):
        answer = toolbox.call("ps", {})
    assert (len(recorded), answer.output) == (5, "Error: there are no more than 5 calls.")


@pytest.mark.parametrize("sealing", ["auto", "off"])
def test_a_command_reads_its_task_and_operates(desk, tmp_path, sealing):
    _, recorded, toolbox = desk
    task = Assignment(load_scenario("drained-pool"), "Alert: orders fail.", 60.0, 0, tmp_path)
    settings = {"files": [str(AGENT)], "sealing": sealing}
    agent = TrialAgent(
        name="mine", command=("{python}", f"{{agent}}/{AGENT.name}", "{prompt}", "{tools}"), settings=settings
    )
    operate(agent, task, toolbox)
    assert [action.tool for action in recorded] == ["restart"], (tmp_path / "agent.log").read_text()
    assert recorded[0].arguments == {"target": "orders"}
    (step,) = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert step["tool_logs"][0]["tool"] == "restart"
    assert toolbox.call("restart", {"target": "orders"}).status == "error"  # its time is over


@pytest.mark.slow
def test_a_command_that_does_not_end_is_ended(desk, tmp_path):
    _, _, toolbox = desk
    task = Assignment(load_scenario("drained-pool"), "Alert.", 3.0, 0, tmp_path)
    agent = TrialAgent(name="mine", command=("sleep", "600"), settings={"sealing": "off"})
    began = time.monotonic()
    operate(agent, task, toolbox)
    assert time.monotonic() - began < 60
    assert "killed" in json.loads((tmp_path / "agent.json").read_text())["ended"]
