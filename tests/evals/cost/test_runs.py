"""Runs of tasks on cost data: who answers, what a store keeps, what an agent can reach, and what is never on its disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run as command_line
from opsassay.core.errors import DatapackError, OpsAssayError, UserError
from opsassay.evals.cost.environment import DIALECT, CostTablesEnvironment
from opsassay.evals.cost.focus.schema import TABLES
from opsassay.evals.cost.tasks import CostTask, kept_task, published
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.json_answers import ANSWER
from opsassay.evals.runner.run import open_session
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.solvers.agents.limits import Limits, Meter

PUBLISHED = CostTask(name="category-cost", seed=1)


def run_plan(tmp_path, capsys, part, code=0):
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"domain": "finops", **part}))
    arguments = ["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "store"), "--json"]
    assert command_line(arguments) == code
    return {item["solver"]: item for item in json.loads(capsys.readouterr().out)["items"]}


@pytest.fixture
def session(tmp_path):
    with open_session(CostTablesEnvironment(PUBLISHED, tmp_path, Meter(Limits(tool_calls=4)))) as found:
        yield found


def test_there_are_sixteen_tasks_on_cost_data_and_seven_kpis_each_with_four_wrong_oracles():
    heads = [one.task_info for one in published()]
    assert [sum(head.task_class == name for head in heads) for name in ("insight", "anomaly", "kpi")] == [10, 6, 7]
    assert {head.stratum for head in heads} == {"easy", "medium", "hard"}
    for head in heads:
        assert head.oracles[0] == "right"
        assert len(head.oracles) >= 5
    assert len({head.commitment for head in heads}) == 23


def test_each_prompt_is_an_arm_and_a_terse_one_leaves_out_conventions(tmp_path, capsys):
    part = {"tasks": ["category-cost", "anomalies-credits"], "agents": ["oracle:right"], "prompts": ["full", "terse"]}
    jobs = domain_named("finops").jobs(part, tmp_path, "plan.yaml")
    full, terse = ({job.task.name: job for job in jobs if job.arm.label == label} for label in ("default", "terse"))
    assert set(full) == set(terse) == {"category-cost", "anomalies-credits"}
    for name, word in (("category-cost", "exchange_rates"), ("anomalies-credits", "15%")):
        assert word in full[name].goal
        assert word not in terse[name].goal
        fields = full[name].goal.partition("Answer with")[2]
        assert terse[name].goal.endswith(fields)
        assert terse[name].goal in terse[name].prompt({"view": "v", "answer": "a"}, with_tools=False)
        assert full[name].cell.hash != terse[name].cell.hash
    assert run_plan(tmp_path, capsys, part | {"tasks": ["category-cost"]}).keys() == {"oracle:right"}


@pytest.mark.slow
def test_a_plan_runs_oracles_and_baselines_and_is_gone_on_with(tmp_path, capsys):
    part = {"tasks": ["category-cost"], "agents": ["oracle:*", "constant", "chance", "detector"]}
    found = run_plan(tmp_path, capsys, part, code=1)  # a detector has no answer to a question
    passed = {name: item["metrics"]["passed"] for name, item in found.items()}
    assert passed.pop("oracle:right")["value"] == 1.0
    assert all(metric["value"] in (0.0, None) for metric in passed.values())
    assert "ListCost instead" in passed["oracle:list_cost"]["reason"]
    assert 'column "ApplicationName" not found' in passed["oracle:hallucinated_column"]["reason"]
    assert "a detector has no answer" in passed["detector"]["reason"]
    assert found["oracle:hallucinated_column"]["metrics"]["missed_names"]["value"] == 1.0
    assert found["chance"]["not_ranked"] == []
    assert found["oracle:right"]["not_ranked"]
    before = sorted(path.name for path in (tmp_path / "store" / "runs").iterdir())
    run_plan(tmp_path, capsys, part, code=1)
    assert sorted(path.name for path in (tmp_path / "store" / "runs").iterdir()) == before


def test_one_without_an_answer_counts_as_not_passed():
    domain = domain_named("finops")
    failed = {"passed": {"status": "failed", "reason": "no answer", "value": None}}
    from opsassay.core.schema.run import Metric

    assert domain.succeeded({"passed": Metric.model_validate(failed["passed"])}) is False
    assert domain.succeeded({}) is None


@pytest.mark.slow
def test_held_out_seeds_follow_from_a_secret_and_are_nowhere_on_the_agents_disk(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef")
    one, two = CostTask.held_out_ones("category-cost", secret, 2)
    assert one.seed != two.seed
    assert one.seed > 2**64
    assert CostTask.held_out_ones("category-cost", secret, 1) == [one]
    assert CostTask.held_out_ones("top-applications", secret, 1)[0].seed != one.seed
    secret.write_text("another secret, another seed")
    assert CostTask.held_out_ones("category-cost", secret, 1)[0].seed != one.seed
    environment = CostTablesEnvironment(one, tmp_path)
    with open_session(environment):
        folder = environment.folder
        names = {path.name for path in folder.rglob("*") if path.is_file()}
        assert names == {"schema.md", *(f"{table}.parquet" for table in TABLES)}
        for path in folder.rglob("*.*"):
            assert str(one.seed).encode() not in path.read_bytes()
    assert str(one.seed) not in one.task_info.canonical_json()


@pytest.mark.parametrize(("content", "said"), [(None, "There is no secret"), ("short", "could be guessed")])
def test_a_secret_that_is_none_is_refused(tmp_path, content, said):
    if content is not None:
        (tmp_path / "secret").write_text(content)
    with pytest.raises(UserError, match=said):
        CostTask.held_out_ones("category-cost", tmp_path / "secret", 1)


def test_a_store_keeps_the_body_and_refuses_another(tmp_path):
    PUBLISHED.keep(tmp_path)
    assert kept_task(tmp_path, PUBLISHED.commitment) == PUBLISHED
    file = tmp_path / "cost_tasks" / f"{PUBLISHED.commitment}.json"
    file.write_text(file.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(DatapackError, match="not what its name says"):
        kept_task(tmp_path, PUBLISHED.commitment)
    file.write_text(file.read_text().replace('"generator": "2"', '"generator": "0"'))
    with pytest.raises(DatapackError, match="generator 0"):
        kept_task(tmp_path, PUBLISHED.commitment)
    with pytest.raises(DatapackError, match="cannot be read"):
        kept_task(tmp_path, "0" * 64)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"tasks": ["category-costs"], "agents": ["chance"]}, "did you mean 'category-cost'"),
        ({"tasks": ["category-cost"], "agents": ["chanc"]}, "did you mean 'chance'"),
        ({"tasks": ["category-cost"], "agents": ["oracle:list_costs"]}, "did you mean 'list_cost'"),
        ({"tasks": ["category-cost"], "agents": ["finops"]}, "asks a model"),
        ({"tasks": ["category-cost"], "agents": ["chance"], "settings": {"limits": {"token": 3}}}, "token"),
        ({"tasks": ["category-cost"], "agents": ["chance"], "held_out": {"secret": "none"}}, "There is no secret"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_before_anything_runs(tmp_path, part, said):
    with pytest.raises(OpsAssayError, match=said):
        domain_named("finops").jobs(part, tmp_path, "plan")


def test_the_session_names_its_dialect_and_describes_the_schema(session):
    specs = {spec.name: spec for spec in session.specs()}
    assert list(specs) == ["list_tables", "get_schema", "query_sql", "detect_anomalies", "think", "submit"]
    assert DIALECT in specs["query_sql"].description
    assert "costs: " in session.call("list_tables", {}).output
    assert "BilledCost DECIMAL(18,6): what is invoiced" in session.call("get_schema", {"table": "costs"}).output
    assert "did you mean 'costs'" in session.call("get_schema", {"table": "cost"}).output
    assert session.call("query_sql", {"sql": "DROP TABLE costs"}).status == "error"


@pytest.mark.slow
def test_the_session_runs_the_detector_over_a_statement(session):
    columns = "date_trunc('day', ChargePeriodStart) AS time, 'all' AS slice, sum(BilledCost) AS value"
    series = f"SELECT {columns} FROM costs GROUP BY ALL"
    found = session.call("detect_anomalies", {"sql": series, "method": "isolation_forest", "contamination": 0.1})
    assert found.status == "ok"
    assert len(found.output.splitlines()) > 2
    for sql, said in (
        ("SELECT 1 AS value", "time, slice and value"),
        ("SELECT 'x' AS time, 'a' AS slice, 1 AS value", "cannot be read"),
        ("SELECT ChargePeriodStart AS time, 'a' AS slice, 1 AS value FROM costs", "more than"),
    ):
        assert said in session.call("detect_anomalies", {"sql": sql}).output
    assert "hard cap of 4 tool calls" in session.call("query_sql", {"sql": "SELECT 1"}).output


def test_an_answer_that_is_refused_leaves_the_earlier_one(session):
    good = {"rows": [{"category": "Compute", "cost_usd": 1.0}]}
    assert session.call("submit", good).output == "Taken."
    refused = session.call("submit", {"rows": [{"category": "Compute", "cost_usd": float("nan")}]})
    assert "NaN is no number" in refused.output
    assert session.answer == good


SOLVER = """
import json, sys
import polars as pl
view, answer = sys.argv[1:]
costs = pl.read_parquet(view + "/costs.parquet")
assert "seed" not in open(view + "/schema.md").read()
open(answer, "w").write(json.dumps({"rows": [{"category": "Compute", "cost_usd": costs.height}]}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("printed", ["", "no JSON at all"])
def test_an_external_agent_answers_by_file_or_not_at_all(tmp_path, capsys, printed):
    (tmp_path / "solver.py").write_text(SOLVER if not printed else f"print({printed!r})")
    words = [sys.executable if printed else "{python}", "{agent}/solver.py", "{view}", "{answer}"]
    described = {"agent": "reader", "command": ["{python}", *words[1:]], "files": ["solver.py"]}
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(described))
    part = {"tasks": ["category-cost"], "agents": ["agent.yaml"], "settings": {"sealing": "off"}}
    item = run_plan(tmp_path, capsys, part, code=1 if printed else 0)["reader"]
    assert item["isolation"] == "unsealed"
    if printed:
        assert item["status"] == "failed"
        assert "the answer is no JSON" in item["error"]
        return
    assert json.loads((Path(item["run"]) / ANSWER).read_text())["rows"][0]["cost_usd"] > 100_000
    assert item["metrics"]["passed"]["value"] == 0.0


TWIN = """
rules:
  - when: "What did each of the service categories"
    tool: {tool: get_schema, arguments: {table: costs}}
  - when: "BilledCost DECIMAL"
    tool: {tool: query_sql, arguments: {sql: "SELECT ServiceCategories FROM costs"}}
  - when: "Binder Error"
    tool: {tool: submit, arguments: {rows: [{category: Compute, cost_usd: "1.234,56"}]}}
  - when: "is text"
    tool: {tool: submit, arguments: {rows: [{category: Compute, cost_usd: 1234.56}]}}
  - when: ""
    reply: "A schema with 57 columns, BilledCost DECIMAL among them."
"""


def test_the_built_in_agent_mends_what_the_linter_and_the_contract_refuse(tmp_path, capsys):
    (tmp_path / "twin.yaml").write_text(TWIN)
    part = {"tasks": ["category-cost"], "agents": [{"name": "finops", "model": "scripted:twin.yaml"}]}
    item = run_plan(tmp_path, capsys, part)["finops (scripted:twin.yaml)"]
    assert json.loads((Path(item["run"]) / ANSWER).read_text())["rows"] == [
        {"category": "Compute", "cost_usd": 1234.56}
    ]
    assert item["metrics"]["missed_names"]["value"] == 1.0
    assert item["metrics"]["tokens"]["value"] > 0
    run = read_run(Path(item["run"]))
    assert run.domain == "finops"
    assert RunStore(tmp_path / "store").domains() == {"finops"}


BY_MCP = """
import json, subprocess, sys
described = json.load(open(sys.argv[1]))["mcpServers"]["opsassay"]
server = subprocess.Popen([described["command"], *described["args"]], stdin=-1, stdout=-1, text=True)
def ask(number, method, params):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())
ask(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}})
server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\\n")
print([tool["name"] for tool in ask(2, "tools/list", {})["result"]["tools"]])
print(ask(3, "tools/call", {"name": "query_sql", "arguments": {"sql": "SELECT count(*) FROM costs"}}))
for value in ("1.234,56", 1234.56):
    rows = {"rows": [{"category": "Compute", "cost_usd": value}]}
    print(ask(4, "tools/call", {"name": "submit", "arguments": rows})["result"]["content"])
"""


def test_an_external_agent_looks_and_submits_by_mcp(tmp_path, capsys):
    (tmp_path / "solver.py").write_text(BY_MCP)
    described = {
        "agent": "by-mcp", "command": ["{python}", "{agent}/solver.py", "{mcp}"], "files": ["solver.py"], "needs": ["mcp"],
    }  # fmt: skip
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(described))
    part = {"tasks": ["category-cost"], "agents": ["agent.yaml"], "settings": {"sealing": "off"}}
    item = run_plan(tmp_path, capsys, part)["by-mcp"]
    assert item["spent"]["tool_calls"] == 1
    assert json.loads((Path(item["run"]) / ANSWER).read_text())["rows"] == [
        {"category": "Compute", "cost_usd": 1234.56}
    ]
    printed = (Path(item["run"]) / "solver.log").read_text()
    assert "'detect_anomalies'" in printed
    assert "without unit, separators or range" in printed
    assert "Taken." in printed


def test_an_agent_that_would_see_the_secret_is_refused(tmp_path):
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "secret").write_text("0123456789abcdef0123456789abcdef")
    described = {"agent": "peeping", "command": ["{python}"], "readable": [str(tmp_path / "seen")]}
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(described))
    part = {"tasks": ["category-cost"], "agents": ["agent.yaml"], "held_out": {"secret": "seen/secret"}}
    with pytest.raises(UserError, match="is not apart from"):
        domain_named("finops").jobs(part, tmp_path, "plan")
