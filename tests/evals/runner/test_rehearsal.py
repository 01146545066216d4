"""`opsassay agent check --task`: one agent.yaml in the rehearsal of every domain, with the tools of its runs there."""

from __future__ import annotations

import json

import pytest

from opsassay.cli import run as command_line
from opsassay.solvers.sandbox import sealing_refusal

MAIN = """
import json, subprocess, sys
from pathlib import Path
described = json.loads(Path(sys.argv[1]).read_text())["mcpServers"]["opsassay"]
words = [described["command"], *described["args"]]
server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(method, **params):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())["result"]
ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "any", "version": "1"})
tools = {tool["name"]: tool for tool in ask("tools/list")["tools"]}
print(json.dumps(list(tools)), file=sys.stderr)
for name, given in CALLS:
    if name in tools:
        ask("tools/call", name=name, arguments=given)
if "submit" in tools:
    ask("tools/call", name="submit", arguments={key: [] for key in tools["submit"]["inputSchema"]["properties"]})
"""
POLICY = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: x}\nspec: {rules: []}\n"
CALLS = [
    ("ps", {}), ("kubectl_read", {"args": ["get", "pods"]}), ("list_tables", {}), ("costs", {}),
    ("write_file", {"path": "policies/x.yaml", "content": POLICY}),
]  # fmt: skip


@pytest.fixture
def agent(tmp_path):
    """Return the path of an agent.yaml in a folder of its own, which says nothing of a domain."""

    def agent(calls=CALLS):
        (tmp_path / "any").mkdir()
        (tmp_path / "any" / "main.py").write_text(MAIN.replace("CALLS", repr(calls)))
        path = tmp_path / "any" / "agent.yaml"
        path.write_text(
            'agent: any\ncommand: ["{python}", "{agent}/main.py", "{mcp}"]\nfiles: [main.py]\nneeds: [mcp]\n'
        )
        return path

    return agent


@pytest.fixture
def check(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths are those of the file, wherever the command is typed

    def check(*words, code=0):
        assert command_line(["agent", "check", *map(str, words), "--json"]) == code
        found = json.loads(capsys.readouterr().out)
        return found, {item["check"]: item for item in found["items"]}

    return check


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("task", "tools"),
    [
        (None, {"list_tables", "get_schema", "query_sql", "think", "submit"}),
        ("category-cost", {"query_sql", "detect_anomalies", "submit"}),
        ("new-kyverno-host-network", {"write_file", "kyverno_apply", "kubectl", "submit"}),
        ("bad-release", {"ps", "release", "alerts", "report_diagnosis"}),
        ("bad-image-rollout", {"kubectl", "kubectl_read", "wait", "report_diagnosis"}),
        ("cost-idle", {"ps", "costs", "budget_set"}),
    ],
)
def test_one_agent_yaml_rehearses_tasks_of_every_domain(check, agent, task, tools):
    found, checks = check(agent(), *(["--task", task] if task else []))
    assert found["passed"], checks
    assert found["task"] == task
    assert {tool["name"] for tool in found["tools"]} >= tools
    assert found["isolation"] == ("sealed" if sealing_refusal() is None else "unsealed")
    assert "1 step," in checks["trace"]["said"]


@pytest.mark.slow
def test_what_a_desk_refuses_is_said_and_an_agent_that_does_nothing_is_no_operator(check, agent, tmp_path):
    path = agent([("ps", {"everything": True})])
    _, checks = check(path, "--task", "bad-release", code=1)
    assert "1 of 1 call refused: Error: invalid arguments of ps: everything" in checks["tools"]["said"]
    (tmp_path / "any" / "main.py").write_text("raise SystemExit(3)")
    _, checks = check(path, "--task", "bad-release", code=1)
    assert "exit code 3" in checks["ended"]["said"]
    assert "none was called" in checks["tools"]["said"]


@pytest.mark.slow
def test_the_tools_that_are_listed_are_those_that_the_agent_sees(check, agent, tmp_path):
    """By what it writes to its standard error, which is quoted where a run fails."""
    path = agent([])
    (tmp_path / "any" / "main.py").write_text(MAIN.replace("CALLS", "[]").split("for name")[0] + "raise SystemExit(1)")
    found, checks = check(path, "--task", "category-cost", code=1)
    assert json.dumps([tool["name"] for tool in found["tools"]])[:150] in checks["ended"]["said"]
