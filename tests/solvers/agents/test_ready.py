"""Ready agents: what their YAML says, what is written for them, and runs of the real programs where they are installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib

import pytest

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.files import load_yaml
from opsassay.evals.diagnosis.setups.agents import agent_setup, read_settings
from opsassay.evals.diagnosis.setups.dry_run import check
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.plan import PlannedAgent
from opsassay.solvers.agents.ready import ReadyFile, external_agent, named_path, ready_files, resolve_ready_agent

NAMES = ("a2a", "claude-code", "codex", "gemini-cli", "holmes", "http", "mcp", "mini-swe-agent", "opencode")
PREFIXES = {
    "claude-code": "mcp__opsassay__",
    "codex": "mcp__opsassay.",
    "gemini-cli": "mcp_opsassay_",
    "opencode": "opsassay_",
}
TARGETED = ("a2a", "http", "mcp")
PLACES = {"work": "/work", "prompt": "/work/prompt.md", "mcp": "/work/mcp.json", "tools": "/run/opsassay/tools.sock",
          "python": "/usr/bin/python3", "model": 'gpt "5"', "model_url": "http://127.0.0.1:8000/v1"}  # fmt: skip

STAND_IN = """#!{python}
# Does what opencode does with its configuration: reads it, starts the MCP server that it names, and asks the model.
import json, os, subprocess, sys, urllib.request
if "--version" in sys.argv:
    print("0.0.7")
    sys.exit()
config = json.load(open(os.environ["OPENCODE_CONFIG"]))
server = subprocess.Popen(config["mcp"]["opsassay"]["command"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def asked(id, method, **params):
    server.stdin.write(json.dumps({{"jsonrpc": "2.0", "id": id, "method": method, "params": params}}) + "\\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())["result"]

asked(1, "initialize", protocolVersion="2025-06-18", capabilities={{}}, clientInfo={{"name": "x", "version": "1"}})
server.stdin.write(json.dumps({{"jsonrpc": "2.0", "method": "notifications/initialized"}}) + "\\n")
names = [tool["name"] for tool in asked(2, "tools/list")["tools"]]
assert "query_sql" in names, names
provider, model = sys.argv[sys.argv.index("--model") + 1].split("/", 1)
options = config["provider"][provider]["options"]
body = json.dumps({{"model": model, "messages": [{{"role": "user", "content": sys.argv[-1]}}]}}).encode()
headers = {{"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}}
with urllib.request.urlopen(urllib.request.Request(options["baseURL"] + "/chat/completions", body, headers)) as reply:
    answer = json.loads(json.load(reply)["choices"][0]["message"]["content"])
asked(3, "tools/call", name="submit", arguments=answer)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a program called opencode on PATH that is none, and return where."""
    folder = tmp_path / "programs"
    folder.mkdir()
    program = folder / "opencode"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return program


def scripted(folder, prefix=""):
    """Write the script of a model that asks for the services by SQL and then submits that nothing is wrong."""
    sql = {"sql": "SELECT DISTINCT service_name FROM abnormal_traces"}
    nothing = {"root_causes": [], "propagation": []}
    rules = [
        {"after": "Taken", "reply": "Submitted."},
        {"after": "stock", "tool": {"tool": f"{prefix}submit", "arguments": nothing}},
        {"tool": {"tool": f"{prefix}query_sql", "arguments": sql}},
    ]
    path = folder / "model.yaml"
    path.write_text(json.dumps({"rules": rules}))
    return f"scripted:{path}"


def test_each_is_described_whole():
    assert tuple(ready_files()) == NAMES
    for name, path in ready_files().items():
        file = load_yaml(path, ReadyFile)
        assert file.agent == name
        assert file.documentation.startswith("https://")
        assert file.target or "{program}" in file.command[0]


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(TARGETED)))
def test_a_program_that_is_not_there_is_one_sentence_before_anything_runs(name, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    file = load_yaml(ready_files()[name], ReadyFile)
    with pytest.raises(UserError) as raised:
        agent_setup(name, "scripted:none.yaml", read_settings(()))
    assert str(raised.value) == (
        f"The agent {name} needs the program {file.program}, which is not on PATH; install it with `{file.install}`."
    )


def test_names_stand_for_their_files_in_commands_and_plans():
    assert named_path("codex").endswith("/ready/codex.yaml")
    assert named_path("rca") == "rca"
    assert PlannedAgent.model_validate("opencode").is_file
    assert PlannedAgent.model_validate({"name": "rca"}).name == "rca"
    assert TrialAgent.model_validate({"name": "codex", "model": "m"}).is_outside
    assert resolve_ready_agent({"name": "codex", "command": ["x"]})["name"] == "codex"
    with pytest.raises(NotFoundError, match="did you mean 'codex'"):
        agent_setup("codexx", None, read_settings(()))


def test_what_is_written_is_in_the_form_of_its_reader(stand_in):
    agent = external_agent(ready_files()["opencode"])
    config = json.loads(agent.work_files(PLACES | {"model": "m"})["opencode.json"])
    assert config["provider"]["opsassay"]["options"] == {
        "baseURL": PLACES["model_url"],
        "apiKey": "{env:OPENAI_API_KEY}",
    }
    assert config["mcp"]["opsassay"]["command"] == [PLACES["python"], "/work/opsassay_mcp.py", PLACES["tools"]]
    assert agent.words(PLACES | {"model": "m"})[:4] == [str(stand_in), "run", "--model", "opsassay/m"]
    assert agent.variables(PLACES)["OPENCODE_CONFIG"] == "/work/opencode.json"
    assert agent.file.source.endswith("opencode-ai 0.0.7")
    assert agent.file.readable == (str(stand_in.parent),)
    codex = load_yaml(ready_files()["codex"], ReadyFile).writes[".codex/config.toml"]
    read = tomllib.loads(agent.filled(codex, PLACES))
    assert read["model_providers"]["opsassay"]["base_url"] == PLACES["model_url"]
    assert read["mcp_servers"]["opsassay"]["args"] == ["/work/opsassay_mcp.py", PLACES["tools"]]


def test_the_version_of_the_program_is_part_of_the_solver(stand_in):
    first = external_agent(ready_files()["opencode"]).source_hash
    assert external_agent(ready_files()["opencode"]).source_hash == first
    stand_in.write_text(stand_in.read_text().replace("0.0.7", "0.0.8"))
    assert external_agent(ready_files()["opencode"]).source_hash != first


@pytest.mark.slow
def test_a_run_has_its_tools_its_model_and_its_answer_by_what_was_written(stand_in, tmp_path):
    model = tmp_path / "model.yaml"
    model.write_text(json.dumps({"rules": [{"when": "prompt.md", "reply": '{"root_causes": [], "propagation": []}'}]}))
    found = check(agent_setup("opencode", f"scripted:{model}", read_settings(("sealing=off",))))
    assert {one.name: one.passed for one in found.checks if one.passed is not None} == dict.fromkeys(
        ("ended", "answer", "evidence", "trace", "canary"), True
    ), [one.said for one in found.checks]
    assert found.spent["model_calls"] == 1


@pytest.mark.parametrize("name", sorted(PREFIXES))
def test_the_real_program_uses_tools_and_submits(name, tmp_path):
    file = load_yaml(ready_files()[name], ReadyFile)
    if shutil.which(file.program) is None:
        pytest.skip(f"{file.program} is not installed: {file.install}")
    settings = read_settings(("limits.seconds=90",))
    found = check(agent_setup(name, scripted(tmp_path, PREFIXES[name]), settings))
    assert all(one.passed is not False for one in found.checks), [one.said for one in found.checks]
    assert found.spent["tool_calls"] >= 1
    assert found.spent["model_calls"] >= 3


MINI = """
from opsassay.solvers.agents.models.base import Reply, ToolRequest

def respond(messages, tools):
    answer = "echo '{\\"root_causes\\": [], \\"propagation\\": []}' > answer.json; ls /view $HOME"
    command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" if any(one.role == "assistant" for one in messages) else answer
    return Reply(text="THOUGHT: next", tool_requests=(ToolRequest(tool="bash", arguments={"command": command}, id="c1"),))
"""
HOLMES = """
from opsassay.solvers.agents.models.base import Reply, ToolRequest

TIMES = {"start": "2026-01-02T03:04:00Z", "end": "2026-01-02T03:06:00Z", "limit": 2}
ASKED = (("list_prometheus_rules", {}), ("tempo_search_traces_by_query", {"q": "{ status = error }", **TIMES}),
         ("grafana_loki_query", {"query": '{service_name=~".+"}', **TIMES}))

def respond(messages, tools):
    seen = [message.content for message in messages if message.role == "tool"]
    if len(seen) < len(ASKED):
        name, arguments = ASKED[len(seen)]
        return Reply(text="", tool_requests=(ToolRequest(tool=name, arguments=arguments, id=f"c{len(seen)}"),))
    found = "error_rate" in seen[0] and '"rootServiceName":"front"' in seen[1]
    return Reply(text='{"root_causes": [], "propagation": []}' if found else f"not found: {seen}")
"""


@pytest.mark.parametrize(("name", "script"), [("mini-swe-agent", MINI), ("holmes", HOLMES)])
def test_the_real_program_answers_without_mcp(name, script, tmp_path):
    file = load_yaml(ready_files()[name], ReadyFile)
    if shutil.which(file.program) is None:
        pytest.skip(f"{file.program} is not installed: {file.install}")
    (tmp_path / "model.py").write_text(script)
    found = check(agent_setup(name, f"scripted:{tmp_path}/model.py", read_settings(("limits.seconds=120",))))
    checks = {one.name: one.passed for one in found.checks}
    assert (checks["ended"], "limits" in checks) == (True, False), [one.said for one in found.checks]
    assert found.spent["model_calls"] >= 2


@pytest.mark.slow
def test_the_listing_has_them_all():
    done = subprocess.run(
        [sys.executable, "-m", "opsassay", "agent", "list", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    items = {one["agent"]: one for one in json.loads(done.stdout)["items"]}
    assert set(NAMES) <= set(items)
    assert items["codex"].keys() >= {"program", "command", "environment", "writes", "tools", "traffic", "answers",
                                     "documentation", "checked", "install", "installed"}  # fmt: skip
    assert {items[name]["checked"] for name in NAMES} == {"run"}
