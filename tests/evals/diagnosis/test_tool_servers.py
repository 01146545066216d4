"""MCP servers whose tools join the exam: real server processes, and such as die, hang, talk nonsense or will not end."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
import yaml

from evals.remediation.test_trials import MADE, TESTS, write_scenario
from opsassay.cli import run
from opsassay.evals.cost.tasks import published
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.solvers.sandbox import sealing_refusal
from telemetry.packs import make_tree

EXAMPLES = Path(__file__).parents[3] / "examples" / "agents"
DEMO = Path(__file__).parents[2] / "recordings" / "demo"
ASKS = """
import json, subprocess, sys
from pathlib import Path
from main import Client
described = json.loads(Path(sys.argv[1]).read_text())["mcpServers"]["opsassay"]
words = [described["command"], *described["args"]]
client = Client(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
client.ask("initialize", dict(protocolVersion="2025-06-18", capabilities={}, clientInfo=dict(name="x", version="1")))
client.tell("notifications/initialized")
print("TOOLS", *(tool["name"] for tool in client.ask("tools/list", {})["tools"]), file=sys.stderr)
for name, arguments in json.loads(sys.argv[2]):
    client.call(name, **arguments)
client.call("submit", root_causes=[], propagation=[])
"""
ODD = """
import json, os, sys, time
mode = sys.argv[1]
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
if mode == "refuses":
    sys.exit("the table of pages is empty")
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        about = {"serverInfo": {"name": "odd", "version": "1"}}
        say(id=asked["id"], result={"protocolVersion": "2025-06-18", "capabilities": {}, **about})
    elif asked.get("method") == "tools/list":
        say(id=99, method="ping")
        name = {"misnames": "a tool", "clashes": "tables"}.get(mode, "look")
        say(id=asked["id"], result={"tools": [{"name": name, "inputSchema": {"type": "object"}}]})
    elif asked.get("method") == "tools/call" and mode == "dies":
        os._exit(3)
    elif asked.get("method") == "tools/call" and mode == "hangs":
        time.sleep(1000)
    elif asked.get("method") == "tools/call" and mode == "babbles":
        print("a line of a log", flush=True)
    elif asked.get("method") == "tools/call" and mode == "floods":
        while True:
            print("x" * 65536, end="")
    elif asked.get("method") == "tools/call" and mode == "looks":
        places = ["/view", "/work", "/opt/opsassay-agent", sys.argv[2]]
        seen = {place: sorted(os.listdir(place)) if os.path.isdir(place) else None for place in places}
        say(id=asked["id"], result={"content": [{"type": "text", "text": json.dumps(seen)}]})
    elif asked.get("method") == "tools/call":
        say(id=asked["id"], result={"content": [{"type": "text", "text": "here"}]})
while mode == "stays":
    time.sleep(1)
"""


@pytest.fixture
def exam(tmp_path, capsys):
    """Return a function that runs an agent with a server, and gives the exit code, the run, what it did, its log."""
    make_tree(tmp_path / "incidents", count=1)
    shutil.copytree(EXAMPLES / "by_mcp", tmp_path / "asks")
    (tmp_path / "asks" / "asks.py").write_text(ASKS)
    (tmp_path / "server").mkdir()

    def take(server, calls, name="odd", sealing="off", **settings):
        words = ["{python}", "{agent}/asks.py", "{mcp}", json.dumps(calls).replace("{", "{{").replace("}", "}}")]
        agent = {"agent": "asks", "command": words, "files": ["main.py", "asks.py"], "needs": ["mcp"]}
        (tmp_path / "asks" / "agent.yaml").write_text(yaml.safe_dump(agent))
        described = {"agent": name, "limits": {"query_seconds": 3}, **server}
        (tmp_path / "server" / "server.yaml").write_text(yaml.safe_dump(described))
        part = {"domain": "diagnosis", "incidents": ["incidents"], "agents": ["asks/agent.yaml", "constant"]}
        part |= {"tools": [{"mcp": "server/server.yaml"}], "settings": {"sealing": sealing, **settings}}
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"parts": [part]}))
        code = run(["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "store"), "--json"])
        printed = capsys.readouterr()
        for folder in (tmp_path / "store").glob("runs/*/1"):
            if (found := read_run(folder)).solver.kind == "agent":
                actions = folder / "actions.jsonl"
                done = [json.loads(line) for line in actions.read_text().splitlines()] if actions.exists() else []
                return code, found, done, printed.out + printed.err
        return code, None, [], printed.out + printed.err

    take.folder = tmp_path
    return take


def odd(take, mode, *more):
    (take.folder / "server" / "odd.py").write_text(ODD)
    return {"command": ["{python}", "{agent}/odd.py", mode, *more], "files": ["odd.py"]}


@pytest.mark.slow
def test_tools_of_a_real_server_join_under_its_name_and_are_recorded(exam):
    for name in ("server.py", "pages.json"):
        shutil.copy(EXAMPLES / "runbooks" / name, exam.folder / "server")
    server = yaml.safe_load((EXAMPLES / "runbooks" / "server.yaml").read_text())
    server = {"command": ["{python}", *server["command"][1:]], "files": server["files"]}  # with the mcp of these tests
    calls = [("runbooks_read", {"page": "late"}), ("runbooks_tables", {}), ("runbooks_read", {}), ("list_tables", {})]
    code, found, done, _ = exam(server, calls, "runbooks")
    assert (code, found.status, found.solver.name) == (0, "done", "asks + runbooks")
    assert [(call["tool"], call["status"]) for call in done] == [
        ("runbooks_read", "ok"), ("runbooks_tables", "ok"), ("runbooks_read", "error"), ("list_tables", "ok"),
        ("submit", "ok"),
    ]  # fmt: skip
    assert done[0]["output"].startswith("Find the service whose callers wait")
    assert "abnormal_traces.parquet" in done[1]["output"]
    assert found.spent["tool_calls"] == 4
    (log,) = exam.folder.glob("store/runs/*/1/solver.log")
    assert "TOOLS list_tables get_schema query_sql think runbooks_read runbooks_tables submit" in log.read_text()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("dies", "the MCP server odd has ended; its tools are gone"),
        ("hangs", "the MCP server odd gave no answer in 3 s; its tools are gone"),
        ("babbles", "the MCP server odd does not speak MCP; its tools are gone"),
        ("floods", "the MCP server odd does not speak MCP; its tools are gone"),
    ],
)
def test_a_server_that_goes_is_one_sentence_and_the_exam_goes_on(exam, mode, said):
    code, found, done, _ = exam(odd(exam, mode), [("odd_look", {}), ("odd_look", {}), ("list_tables", {})])
    assert (code, found.status, found.notes) == (0, "done", (said,))
    assert [call["output"] for call in done[:2]] == [f"Error: {said}."] * 2
    assert [call["status"] for call in done[2:]] == ["ok", "ok"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (
            "refuses",
            "The MCP server odd does not list its tools: it ended with exit code 1 (the table of pages is empty).",
        ),
        ("misnames", "The MCP server odd has a tool that no model can call: 'odd_a tool'."),
    ],
)
def test_a_server_that_cannot_join_is_one_sentence_and_no_result(exam, mode, said):
    code, found, _, printed = exam(odd(exam, mode), [])
    assert (code, found.status) == (1, "aborted")
    assert said in " ".join(printed.replace("\\n", " ").split())


@pytest.mark.slow
def test_a_server_that_would_not_end_is_ended(exam):
    began = time.monotonic()
    code, *_ = exam(odd(exam, "stays"), [("odd_look", {})])
    assert code == 0
    assert time.monotonic() - began < 120  # of a limit of 900 s


@pytest.mark.skipif(sealing_refusal() is not None, reason="this machine gives no seal")
def test_a_sealed_server_sees_the_incident_and_its_files_and_no_truth(exam):
    code, found, done, _ = exam(odd(exam, "looks", str(exam.folder)), [("odd_look", {})], sealing="required")
    assert (code, found.isolation) == (0, "sealed")
    seen = json.loads(done[0]["output"])
    assert seen[str(exam.folder)] is None
    assert seen["/opt/opsassay-agent"] == ["odd.py"]
    assert {Path(name).suffix for name in seen["/view"]} == {".json", ".parquet"}
    assert not {"truth.json", "causal_graph.json", "injection.json"} & set(seen["/view"])


def test_tools_are_for_agents_that_have_any_by_mcp(exam, capsys):
    odd(exam, "looks")
    (exam.folder / "server" / "server.yaml").write_text("agent: odd\ncommand: [x]\n")
    agent = {"name": str(EXAMPLES / "by_model" / "agent.yaml"), "model": f"scripted:{EXAMPLES / 'scripted.yaml'}"}
    tools = [{"mcp": "server/server.yaml"}]
    for part in ({"domain": "diagnosis", "incidents": ["incidents"]}, {"domain": "finops", "tasks": ["insight"]}):
        planned = {"parts": [{**part, "agents": [agent], "tools": tools}]}
        (exam.folder / "plan.yaml").write_text(yaml.safe_dump(planned))
        assert run(["run", str(exam.folder / "plan.yaml"), "-o", str(exam.folder / "store")]) == 2
        assert "by-model has no tools by MCP" in capsys.readouterr().err


SCRIPT = """
rules:
  - when: "Noted|here|exit code|Error"
    reply: '{"root_causes": [], "propagation": []}'
  - tool: {tool: odd_look, arguments: {}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("sealing", ["off", "auto"])
def test_the_built_in_agent_calls_tools_of_servers_too(exam, capsys, sealing):
    described = {"agent": "odd", **odd(exam, "works")}
    (exam.folder / "server" / "server.yaml").write_text(yaml.safe_dump(described))
    (exam.folder / "model.yaml").write_text(SCRIPT)
    agent = {"name": "rca", "model": f"scripted:{exam.folder / 'model.yaml'}"}
    part = {"domain": "diagnosis", "incidents": ["incidents"], "agents": [agent, "constant"]}
    part |= {"tools": [{"mcp": "server/server.yaml"}], "settings": {"sealing": sealing}}
    (exam.folder / "plan.yaml").write_text(yaml.safe_dump({"parts": [part]}))
    code = run(["run", str(exam.folder / "plan.yaml"), "-o", str(exam.folder / "store")])
    (folder,) = (one for one in exam.folder.glob("store/runs/*/1") if read_run(one).solver.kind == "agent")
    found = read_run(folder)
    assert (code, found.status, found.solver.name) == (0, "done", "rca + odd (scripted:model.yaml)"), (
        capsys.readouterr()
    )
    assert found.isolation == ("in_process" if sealing == "auto" and sealing_refusal() is None else "unsealed")
    done = [json.loads(line) for line in (folder / "actions.jsonl").read_text().splitlines()]
    assert [(call["tool"], call["output"]) for call in done] == [("odd_look", "here")]
    assert found.spent["tool_calls"] == 1


PARTS = {
    "finops": ({"tasks": [next(iter(published())).name]}, "constant", [("submit", {"rows": []})]),
    "ciso": (
        {"tasks": ["new-kyverno-privileged-containers"]},
        "deny-all",
        [("write_file", {"path": "policies/none.yaml", "content": "# none\n"}), ("submit", {})],
    ),
    "triage": ({"incidents": [str(DEMO)]}, "by-time", [("submit", {"groups": [], "noise": []})]),
}
"""What a plan of each domain names, a baseline, and the calls by which an agent answers."""


@pytest.mark.slow
@pytest.mark.parametrize("domain", PARTS)
def test_in_every_domain_tools_of_servers_are_counted_and_recorded(exam, capsys, domain):
    named, baseline, answering = PARTS[domain]
    calls = [("odd_look", {}), *answering]
    exam(odd(exam, "works"), [])
    words = ["{python}", "{agent}/asks.py", "{mcp}", json.dumps(calls * 2).replace("{", "{{").replace("}", "}}")]
    agent = {"agent": "asks", "command": words, "files": ["main.py", "asks.py"], "needs": ["mcp"]}
    (exam.folder / "asks" / "agent.yaml").write_text(
        yaml.safe_dump({**agent, "limits": {"tool_calls": len(answering)}})
    )
    part = {"domain": domain, **named, "agents": ["asks/agent.yaml", baseline]}
    part |= {"tools": [{"mcp": "server/server.yaml"}], "settings": {"sealing": "off"}}
    (exam.folder / "plan.yaml").write_text(yaml.safe_dump({"parts": [part]}))
    code = run(["run", str(exam.folder / "plan.yaml"), "-o", str(exam.folder / "costs")])
    runs = {read_run(one).solver.name: one for one in exam.folder.glob("costs/runs/*/1")}
    assert (code, sorted(runs)) == (0, ["asks + odd", baseline]), capsys.readouterr()
    found = read_run(runs["asks + odd"])
    assert (found.status, found.spent["tool_calls"], found.limits_hit) == ("done", len(answering), ("tool_calls",))
    done = [json.loads(line) for line in (runs["asks + odd"] / "actions.jsonl").read_text().splitlines()]
    made = [(name, "ok") for name, _ in calls]
    assert [(call["tool"], call["status"]) for call in done][: len(made) + 1] == [*made, ("odd_look", "error")]


TRIAL_SCRIPT = """
rules:
  - when: "here"
    tool: {tool: report_diagnosis, arguments: {root_causes: [cart], propagation: [], condition: slow}}
  - tool: {tool: odd_look, arguments: {}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "outcome"), [("works", ""), ("dies", "tools_gone")])
def test_in_a_trial_tools_of_servers_are_recorded_and_change_nothing(exam, monkeypatch, mode, outcome):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    write_scenario(exam.folder / "made.yaml", committed_depth="D3")
    described = {"agent": "odd", **odd(exam, mode, str(exam.folder))}
    (exam.folder / "server" / "server.yaml").write_text(yaml.safe_dump(described))
    (exam.folder / "model.yaml").write_text(TRIAL_SCRIPT)
    words = ["{python}", "{agent}/asks.py", "{mcp}", '[["odd_look", {{}}]]']
    (exam.folder / "asks").mkdir(exist_ok=True)
    (exam.folder / "asks" / "asks.py").write_text(ASKS)
    described = {"agent": "asks", "command": words, "files": ["main.py", "asks.py"], "needs": ["mcp"]}
    (exam.folder / "asks" / "agent.yaml").write_text(yaml.safe_dump(described))
    agents = [
        {"name": str(exam.folder / "asks" / "agent.yaml"), "settings": {"sealing": "off"}},
        {"name": "sre", "model": f"scripted:{exam.folder / 'model.yaml'}"},
        "oracle:gentle",
    ]
    plan = TrialPlan.model_validate(
        {"scenarios": ["made.yaml"], "agents": agents, "tools": [{"mcp": "server/server.yaml"}], "retries": 0}
    )
    jobs = cells_of(plan, exam.folder)
    assert [job.agent.solver_name for job in jobs] == ["asks + odd", "sre + odd", "oracle:gentle"]
    folders = run_trials(RunStore(exam.folder / "trials"), jobs[:2], performer=MADE + "operating")
    for folder in folders:
        calls = [json.loads(line) for line in (folder / "actions.jsonl").read_text().splitlines()]
        asked = [call for call in calls if call["tool"] == "odd_look"]
        assert asked[0]["mutating"] is False
        assert asked[0]["output"] == ("here" if mode == "works" else f"Error: {GONE}.")
        outcomes = folder / "outcomes.jsonl"
        assert outcome in (outcomes.read_text() if outcomes.exists() else "")
        assert read_run(folder).notes == ((f"tools_gone: {GONE}",) if outcome else ())
    if sealing_refusal() is None:
        assert [read_run(folder).isolation for folder in folders] == ["unsealed", "in_process"]


GONE = "the MCP server odd has ended; its tools are gone"


@pytest.mark.skipif(sealing_refusal() is not None, reason="this machine gives no seal")
@pytest.mark.slow
def test_in_a_trial_a_server_sees_nothing_of_the_run(exam, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    write_scenario(exam.folder / "made.yaml", committed_depth="D3")
    described = {"agent": "odd", **odd(exam, "looks", str(exam.folder))}
    (exam.folder / "server" / "server.yaml").write_text(yaml.safe_dump(described))
    (exam.folder / "model.yaml").write_text(TRIAL_SCRIPT)
    agent = {"name": "sre", "model": f"scripted:{exam.folder / 'model.yaml'}"}
    tools = [{"mcp": "server/server.yaml"}]
    plan = TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": [agent], "tools": tools, "retries": 0})
    jobs = cells_of(plan, exam.folder)
    (folder,) = run_trials(RunStore(exam.folder / "trials"), jobs, performer=MADE + "operating")
    calls = [json.loads(line) for line in (folder / "actions.jsonl").read_text().splitlines()]
    seen = json.loads(next(call for call in calls if call["tool"] == "odd_look")["output"])
    assert seen == {
        "/view": [], "/work": ["opsassay_host.py"], "/opt/opsassay-agent": ["odd.py"], str(exam.folder): None,
    }  # fmt: skip


def test_a_tool_of_a_server_hides_none_of_ours(exam):
    code, found, _, printed = exam(
        {**odd(exam, "think"), "command": ["{python}", "{agent}/odd.py", "clashes"]}, [], "list"
    )
    assert (code, found.status) == (1, "aborted")
    assert "has a tool list_tables, which would hide ours" in " ".join(printed.replace("\\n", " ").split())


def test_two_servers_of_one_name_are_refused(exam, capsys):
    odd(exam, "looks")
    (exam.folder / "server" / "server.yaml").write_text("agent: odd\ncommand: [x]\n")
    tools = [{"mcp": "server/server.yaml"}] * 2
    part = {"domain": "diagnosis", "incidents": ["incidents"], "agents": ["constant"], "tools": tools}
    (exam.folder / "plan.yaml").write_text(yaml.safe_dump({"parts": [part]}))
    assert run(["run", str(exam.folder / "plan.yaml"), "-o", str(exam.folder / "store")]) == 2
    assert "two MCP servers are called odd" in capsys.readouterr().err
