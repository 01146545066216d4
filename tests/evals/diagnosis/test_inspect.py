"""inspect_ai both ways: its own runner on our task, its own reader on what we write, and its log as runs of a store."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opsassay.cli import run
from opsassay.core.schema.run import RunStatus
from opsassay.core.zstandard import zipfile
from opsassay.evals.diagnosis.tasks import oracle_of
from opsassay.evals.runner.store import read_diagnosis, read_run
from opsassay.solvers.proxy.formats import read_one
from opsassay.telemetry.tree import resolve

GOLDEN = Path(__file__).parents[1] / "golden" / "diagnosis_store"
ITEM = "28a6d673b4bcc31b"
PROGRAM = """
import json, sys
from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model

said = json.loads(sys.stdin.read())
usage = ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10)

def output(tool, arguments):
    if tool is None:
        return ModelOutput.from_content("mockllm", arguments).model_copy(update={"usage": usage})
    return ModelOutput.for_tool_call("mockllm", tool, arguments).model_copy(update={"usage": usage})

model = get_model("mockllm/model", custom_outputs=[output(*one) for one in said["outputs"]])
solver = None
if "agent" in said:
    from opsassay.inspect_plugin import agent
    solver = agent(said["agent"])
(log,) = eval("opsassay/diagnosis", task_args={"incidents": said["incidents"]}, model=model, log_dir=said["logs"],
              display="none", epochs=said.get("epochs", 3), max_samples=1, message_limit=10, solver=solver)
print(json.dumps({"status": log.status, "location": log.location,
                  "scores": [sample.scores["grades"].value for sample in log.samples]}))
"""
"""Our task, run by inspect_ai three times in a process of its own, with its own model that says what it is told to say."""


@pytest.fixture
def store(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "store")
    return tmp_path / "store"


def right_answer(store):
    answer = oracle_of(resolve(store)[0], "right").diagnosis.model_dump(mode="json", by_alias=True)
    sql = "SELECT count(*) FROM abnormal_traces WHERE service_name = 'store'"
    for part in ("root_causes", "propagation"):
        for claim in answer[part]:
            claim["evidence"] = [{"kind": "trace", "sql": sql, "claim": "it is there"}]
    return json.dumps({key: answer[key] for key in ("root_causes", "propagation")})


@pytest.mark.slow
def test_our_own_agent_works_with_inspects_model_and_is_in_its_log(store, tmp_path, capsys):
    pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
    answer = right_answer(store)
    outputs = [["list_tables", {}], ["query_sql", {"sql": "SELEC 1"}], [None, "It is the store."], [None, answer]]
    asked = {"incidents": str(store), "logs": str(tmp_path / "logs"), "outputs": outputs, "agent": "rca", "epochs": 1}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["status"], [one["success"] for one in said["scores"]]) == ("success", [1]), done.stdout
    assert run(["incident", "import", "inspect", said["location"], "-o", str(store), "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    steps = read_one(Path(item["detail"])).steps
    assert [step.output_content for step in steps][2:] == ["It is the store.", answer]
    assert "abnormal_traces" in steps[1].input_context  # what list_tables said
    assert read_run(Path(item["detail"])).spent["input_tokens"] == 28


@pytest.mark.slow
def test_inspect_runs_our_task_and_its_log_becomes_runs(store, tmp_path, capsys):
    pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
    answer = right_answer(store)
    blames = [
        {
            "service": "frontend",
            "fault_kind": "cpu_stress",
            "evidence": [{"kind": "trace", "sql": "SELECT 1", "claim": ""}],
        }
    ]
    wrong = json.dumps({"root_causes": blames, "propagation": []})
    outputs = [
        *(
            ["list_tables", {}],
            ["query_sql", {"sql": "SELEC 1"}],
            ["submit", {"answer": "the store"}],
            ["submit", {"answer": answer}],
        ),
        ["submit", {"answer": wrong}],
        *[[None, "I do not know."]] * 5,
    ]
    asked = {"incidents": str(store), "logs": str(tmp_path / "logs"), "outputs": outputs}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["status"] == "success"
    assert [one["success"] for one in said["scores"]] == [1, 0, 0]
    assert [one["any_service"] for one in said["scores"]] == [1, 0, 0]
    assert math.isnan(said["scores"][2]["sql_exec"])

    log = Path(said["location"])
    truth = next((store / "truth").rglob("truth.json")).read_text()
    with zipfile.ZipFile(log) as archive:
        prompt = json.loads(archive.read(f"samples/{ITEM}_epoch_2.json"))
    assert prompt["target"] == ""
    assert json.loads(truth)["faults"][0]["type"] not in json.dumps(prompt)

    assert run(["incident", "import", "inspect", str(log), "-o", str(store), "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [(item["case"], item["status"]) for item in items] == [(f"{ITEM}/{n}", "imported") for n in (1, 2, 3)]
    right, other, none = (Path(item["detail"]) for item in items)
    assert [(read_run(path).status, read_run(path).seed) for path in (right, other, none)] == [
        (RunStatus.DONE, 0), (RunStatus.DONE, 1), (RunStatus.FAILED, 2)
    ]  # fmt: skip
    assert read_run(right).isolation == "unsealed"
    assert read_run(right).spent["input_tokens"] == 28
    assert read_run(none).limits_hit == ("message",)
    assert read_diagnosis(right).root_causes[0].service == "store"
    calls = [(call.tool, call.status) for step in read_one(right).steps for call in step.tool_logs]
    assert calls == [("list_tables", "ok"), ("query_sql", "error"), ("submit", "error"), ("submit", "ok")]

    assert run(["incident", "import", "inspect", str(log), "-o", str(store), "--json"]) == 0
    assert {item["status"] for item in json.loads(capsys.readouterr().out)["items"]} == {"skipped"}
    assert run(["score", "run", str(right), "--json"]) == 0
    graded = json.loads(capsys.readouterr().out)["items"][0]
    assert graded["metrics"]["exact_match"]["value"] == 1
    assert graded["not_ranked"]


@pytest.mark.slow
def test_inspect_reads_the_logs_of_a_store_and_so_do_we(store, tmp_path, capsys):
    reading = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed")
    (path,) = store.rglob("trace.jsonl")
    first, answer = path.read_text().splitlines()
    calls = [
        {"tool": "query_sql", "arguments": {"sql": "SELECT 1"}, "output": "1", "status": "ok"},
        {"tool": "query_sql", "arguments": {"sql": "SELEC"}, "output": "no SQL", "status": "error"},
    ]
    path.write_text(json.dumps(json.loads(first) | {"tool_logs": calls, "kind": "tool"}) + f"\n{answer}\n")
    assert run(["trace", "export", "inspect", str(store), "-o", str(tmp_path / "logs"), "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert len(items) == 4  # loudest, constant in two arms, and the agent
    logs = [reading.read_eval_log(item["log"]) for item in items]
    assert all(log.status == "success" and len(log.samples) == 1 for log in logs)
    assert [info.name for info in reading.list_eval_logs(str(tmp_path / "logs"))]
    (agent,) = [log for log in logs if log.eval.solver.startswith("rca")]
    sample = agent.samples[0]
    (folder,) = [path.parent for path in store.rglob("trace.jsonl")]
    verdict = json.loads((folder / "verdicts" / "default.json").read_text())["metrics"]
    value = sample.scores["opsassay"].value
    assert {n: v for n, v in value.items() if n != "success" and not math.isnan(v)} == {
        name: metric["value"] for name, metric in verdict.items() if metric["value"] is not None
    }
    assert agent.results.scores[0].name == "success"
    assert sample.output.completion == sample.messages[-1].text
    assert json.loads(sample.output.completion)["root_causes"][0]["service"] == "store"
    ours, theirs = read_one(folder), read_one(Path(next(i["log"] for i in items if i["solver"].startswith("rca"))))
    assert [(s.agent_name, s.input_context, s.output_content, s.tool_logs) for s in theirs.steps] == [
        (s.agent_name, s.input_context, s.output_content, s.tool_logs) for s in ours.steps
    ]


@pytest.mark.slow
def test_what_is_no_log_of_our_task_is_said_in_one_sentence(store, tmp_path, capsys):
    (tmp_path / "torn.eval").write_bytes(b"PK\x03\x04 torn")
    assert run(["incident", "import", "inspect", str(tmp_path / "torn.eval"), "-o", str(tmp_path / "out")]) == 2
    assert "cannot be read as a log of inspect_ai" in capsys.readouterr().err
    other = {"version": 2, "eval": {"task": "x", "model": "m"}, "samples": [{"id": 1, "epoch": 1, "input": "1+1?"}]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert (
        run(["incident", "import", "inspect", str(tmp_path / "other.json"), "-o", str(tmp_path / "out"), "--json"]) == 1
    )
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert "no sample of opsassay/diagnosis" in item["detail"]
    assert not (tmp_path / "out" / "runs").exists()
    assert run(["trace", "export", "inspect", str(tmp_path / "nothing"), "-o", str(tmp_path / "logs")]) == 2
    assert not (tmp_path / "logs").exists()
