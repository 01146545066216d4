"""Agents that OPSASSAY_AGENT names: any MCP client, one behind HTTP, one with an agent card; real servers, real clients."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
import uvicorn
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, Part
from starlette.applications import Starlette

from opsassay.core.errors import RefusedError, UserError
from opsassay.evals.diagnosis.setups.agents import agent_setup, read_settings
from opsassay.evals.diagnosis.setups.dry_run import check
from opsassay.evals.runner.store import RunStore, read_run, read_verdicts
from opsassay.solvers.agents.ready import TARGET, external_agent, ready_files
from opsassay.solvers.agents.ready.post_task import answer_in
from opsassay.solvers.sandbox import sealing_refusal
from telemetry.packs import make_tree
from test_docs import ROOT

NOTHING = {"root_causes": [], "propagation": []}

MCP_CLIENT = """#!{python}
# An agent that speaks MCP by the official SDK alone: it reads the usual configuration, looks by SQL, and submits.
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main(config):
    (server,) = json.load(open(config))["mcpServers"].values()
    async with stdio_client(StdioServerParameters(**server)) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.call_tool("query_sql", dict(sql="SELECT DISTINCT service_name FROM abnormal_traces"))
        await session.call_tool("submit", dict(root_causes=[], propagation=[]))

asyncio.run(main(sys.argv[1]))
"""


def passed(setup):
    found = check(setup)
    assert all(one.passed is not False for one in found.checks), [one.said for one in found.checks]
    return found


def failed(setup, why):
    ended = check(setup).checks[0]
    assert ended.passed is False
    assert why in ended.said


@pytest.mark.parametrize("name", ["a2a", "http", "mcp"])
def test_which_agent_is_meant_has_to_be_said(name, monkeypatch):
    monkeypatch.delenv(TARGET, raising=False)
    with pytest.raises(UserError, match=f"The agent {name} is named by the variable OPSASSAY_AGENT: "):
        external_agent(ready_files()[name])
    monkeypatch.setenv(TARGET, "'open")
    with pytest.raises(UserError, match="close its quotes"):
        external_agent(ready_files()[name])


def test_what_a_command_names_it_is_offered(monkeypatch):
    monkeypatch.setenv(TARGET, f"{sys.executable} x.py --mcp {{mcp}} --model '{{model}}' --at {{prometheus}}")
    agent = external_agent(ready_files()["mcp"])
    assert agent.file.needs == ("mcp", "model", "apis")
    places = {"mcp": "/work/mcp.json", "model": "m", "prometheus": "http://127.0.0.1:9090"}
    assert agent.words(places)[1:] == [
        "x.py",
        "--mcp",
        "/work/mcp.json",
        "--model",
        "m",
        "--at",
        "http://127.0.0.1:9090",
    ]
    wrong_ones = (("cat {nowhere}", "means nothing"), ("cat {", "write {{ for a brace"), ("no-such-program", "on PATH"))
    for wrong, said in wrong_ones:
        monkeypatch.setenv(TARGET, wrong)
        with pytest.raises(UserError, match=said):
            external_agent(ready_files()["mcp"])


@pytest.mark.slow
def test_any_mcp_client_is_graded(tmp_path, monkeypatch):
    program = tmp_path / "my-agent"
    program.write_text(MCP_CLIENT.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv(TARGET, f"{program} {{mcp}}")
    run = passed(agent_setup("mcp", None, read_settings(("sealing=off", "limits.seconds=120"))))
    assert run.spent["tool_calls"] == 1


class Tasks(BaseHTTPRequestHandler):
    """Takes a task, is not done the first two times that it is asked, and then answers."""

    asked: ClassVar[list[str]] = []
    location = "/tasks/1"

    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["task"]
        self.asked.append(task)
        self._send(202, b"", {"Location": self.location, "Retry-After": "0.05"})

    def do_GET(self):
        self.asked.append(self.path)
        done = len(self.asked) > 3
        self._send(
            200 if done else 202, json.dumps({"answer": NOTHING}).encode() if done else b"", {"Retry-After": "x"}
        )

    def _send(self, status, body, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def http_agent(handler):
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_an_agent_behind_http_is_posted_the_task_and_asked_until_it_is_done(monkeypatch):
    with http_agent(Tasks) as url:
        monkeypatch.setenv(TARGET, f"{url}/tasks")
        passed(agent_setup("http", None, read_settings(("limits.seconds=60",))))
    assert "Identify the root cause" in Tasks.asked[0]
    assert "Prometheus at http://127.0.0.1:" in Tasks.asked[0]
    assert Tasks.asked[1:] == ["/tasks/1"] * 3


def test_what_runs_elsewhere_cannot_be_sealed(monkeypatch):
    monkeypatch.setenv(TARGET, "http://127.0.0.1:9")
    setup = agent_setup("http", None, read_settings(()))
    assert setup.refusal_to_seal == "it hands its task on to an agent elsewhere"
    with pytest.raises(RefusedError, match="http cannot be sealed here"):
        agent_setup("http", None, read_settings(("sealing=required",)))
    monkeypatch.setenv(TARGET, "cat {prompt}")
    assert agent_setup("mcp", None, read_settings(())).refusal_to_seal == sealing_refusal()


def test_one_that_sends_on_to_another_server_or_is_not_there_is_a_failed_run(monkeypatch):
    sends_on = type("SendsOn", (Tasks,), {"location": "http://127.0.0.1:9/elsewhere", "asked": []})
    with http_agent(sends_on) as url:
        monkeypatch.setenv(TARGET, url)
        failed(agent_setup("http", None, read_settings(("limits.seconds=60",))), "another server")


def test_a_body_is_an_answer_with_or_without_its_name():
    assert json.loads(answer_in(json.dumps({"answer": NOTHING}).encode())) == NOTHING
    assert json.loads(answer_in(json.dumps(NOTHING).encode())) == NOTHING
    assert answer_in(b'{"answer": "in words"}') == "in words"
    assert answer_in(b"\xff no JSON") == "� no JSON"


class Diagnosing(AgentExecutor):
    """An A2A agent, by the official SDK: works on its task and adds the answer as an artifact."""

    def __init__(self, fails=False):
        self.fails, self.asked = fails, []

    async def execute(self, context, event_queue):
        self.asked.append(context.get_user_input())
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if self.fails:
            await updater.failed()
            return
        await updater.add_artifact([Part(text=json.dumps(NOTHING))])
        await updater.complete()

    async def cancel(self, context, event_queue):
        raise NotImplementedError


@contextmanager
def a2a_agent(executor):
    server = uvicorn.Server(uvicorn.Config(Starlette(), port=0, log_level="error", lifespan="off"))
    server.config.load()
    socket = server.config.bind_socket()
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    card = AgentCard(
        name="made", description="made", version="1", capabilities=AgentCapabilities(streaming=False),
        default_input_modes=["text"], default_output_modes=["text"],
        supported_interfaces=[AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0")],
    )  # fmt: skip
    handler = DefaultRequestHandler(executor, InMemoryTaskStore(), card)
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")]
    server.config.loaded_app = Starlette(routes=routes)
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join(20)
        socket.close()


@pytest.mark.slow
def test_an_agent_with_an_agent_card_is_asked_by_the_official_sdk(monkeypatch):
    executor = Diagnosing()
    with a2a_agent(executor) as url:
        monkeypatch.setenv(TARGET, url)
        passed(agent_setup("a2a", None, read_settings(("limits.seconds=60",))))
    assert "Identify the root cause" in executor.asked[0]


@pytest.mark.slow
def test_a_task_that_failed_there_is_a_failed_run(monkeypatch):
    with a2a_agent(Diagnosing(fails=True)) as url:
        monkeypatch.setenv(TARGET, url)
        failed(agent_setup("a2a", None, read_settings(("limits.seconds=60",))), "TASK_STATE_FAILED")


MY_AGENT = """#!{python}
# A vendor's agent: it asks Prometheus which services have alerts, and hands in its answer by MCP. Standard library alone.
import json, subprocess, sys, urllib.request

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert "root cause" in open(options["--task-file"]).read()
(server,) = json.load(open(options["--mcp-config"]))["mcpServers"].values()
words = [server["command"], *server["args"]]
mcp = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def said(message):
    mcp.stdin.write(json.dumps(dict(message, jsonrpc="2.0")) + chr(10))
    mcp.stdin.flush()

def asked(id, method, **params):
    said(dict(id=id, method=method, params=params))
    return json.loads(mcp.stdout.readline())["result"]

asked(1, "initialize", protocolVersion="2025-06-18", capabilities=dict(), clientInfo=dict(name="mine", version="1"))
said(dict(method="notifications/initialized"))
with urllib.request.urlopen(options["--prometheus"] + "/api/v1/alerts", timeout=30) as reply:
    alerts = json.load(reply)["data"]["alerts"]
count = "SELECT count(*) AS n FROM abnormal_traces WHERE service_name = '" + alerts[0]["labels"]["service"] + "'"
evidence = [dict(kind="trace", sql=count, claim="its requests fail")]
root = dict(service=alerts[0]["labels"]["service"], fault_kind="http_response_status_modified", evidence=evidence)
assert "Taken" in json.dumps(asked(2, "tools/call", name="submit", arguments=dict(root_causes=[root], propagation=[])))
"""


@pytest.mark.long
def test_the_vendors_path_of_the_page_ends_with_a_graded_run(tmp_path):
    """The three commands of docs/adapters.md, as they stand there, by a shell; sealed where this machine can."""
    page = (ROOT / "docs" / "adapters.md").read_text()
    (block,) = re.findall(r"```text\n(export OPSASSAY_AGENT=.*?)```", page, flags=re.DOTALL)
    assert len(block.strip().splitlines()) == 3
    make_tree(tmp_path / "incidents", count=1)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "my-agent").write_text(MY_AGENT.format(python=sys._base_executable))
    (programs / "my-agent").chmod(0o755)
    (programs / "opsassay").write_text(f'#!/bin/sh\nexec {sys.executable} -m opsassay "$@"\n')
    (programs / "opsassay").chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["/bin/sh", "-ec", block],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (run_dir,) = RunStore(tmp_path / "runs").runs()
    run = read_run(run_dir)
    assert (run.status, run.isolation) == ("done", "sealed" if sealing_refusal() is None else "unsealed")
    (verdict,) = read_verdicts(run_dir)
    assert verdict.metrics
    assert list((tmp_path / "report").glob("*.html"))
