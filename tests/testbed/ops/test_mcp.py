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

from assay.agents import mcp_bridge
from assay.agents.mcp_server import serving
from assay.bench.trials.contract import TrialAgent
from assay.bench.trials.desk import OpsDesk
from assay.bench.trials.outside import operate
from assay.bench.trials.tasks import Task
from assay.errors import UserError
from assay.testbed.ops.tools import TOOLS, Toolbox
from assay.testbed.scenarios import load_scenario

AGENT = Path(__file__).with_name("outside_agent.py")


class Running:
    """A system that answers every verb with what it was asked."""

    def operate(self, verb, arguments):
        if arguments.get("target") == "nobody":
            raise UserError("There is no service 'nobody'.")
        return {"verb": verb, **arguments}


@pytest.fixture
def desk():
    recorded = []
    toolbox = Toolbox(Running(), None, None, recorded.append)
    return OpsDesk(toolbox), recorded, toolbox


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


@pytest.mark.parametrize("sealing", ["auto", "off"])
def test_a_command_reads_its_task_and_operates(desk, tmp_path, sealing):
    _, recorded, toolbox = desk
    task = Task(load_scenario("drained-pool"), "Alert: orders fail.", 60.0, 0, tmp_path)
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


def test_a_command_that_does_not_end_is_ended(desk, tmp_path):
    _, _, toolbox = desk
    task = Task(load_scenario("drained-pool"), "Alert.", 3.0, 0, tmp_path)
    agent = TrialAgent(name="mine", command=("sleep", "600"), settings={"sealing": "off"})
    began = time.monotonic()
    operate(agent, task, toolbox)
    assert time.monotonic() - began < 60
    assert "killed" in json.loads((tmp_path / "agent.json").read_text())["ended"]
