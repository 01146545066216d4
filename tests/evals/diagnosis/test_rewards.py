"""opsassay trace export rewards: what stands in its lines, and that the readers of TRL's data read them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from opsassay.cli import run
from opsassay.core.schema.trajectory import ToolCall, TraceStep
from opsassay.evals.diagnosis.results.rewards import messages_of
from opsassay.evals.runner.store import RunStore
from opsassay.solvers.proxy.steps import render_messages

GOLDEN = Path(__file__).parents[1] / "golden" / "diagnosis_store"
EVIDENCE = "SELECT count(*) FROM abnormal_traces WHERE service_name = 'store'"


def searching(step: TraceStep, number: int, *calls: tuple[str, str]) -> TraceStep:
    logs = tuple(ToolCall(tool="query_sql", arguments={"sql": sql}, output="1", status=was) for sql, was in calls)  # type: ignore[arg-type]
    return step.model_copy(update={"step_id": number, "tool_logs": logs, "output_content": f"thought {number}"})


@pytest.fixture
def store(tmp_path):
    """A store of one run of an agent with three steps of searching before its answer, and three of methods."""
    shutil.copytree(GOLDEN, tmp_path / "store")
    (path,) = (tmp_path / "store").rglob("trace.jsonl")
    first, answer = (TraceStep.model_validate_json(line) for line in path.read_text().splitlines())
    about = "SELECT 1 FROM abnormal_logs WHERE service_name = '{}'"
    steps = (
        searching(first, 1, (about.format("frontend"), "ok"), (about.format("cart"), "ok")),
        searching(first, 2, (EVIDENCE, "ok")),
        searching(first, 3, (EVIDENCE, "ok"), ("SELEC", "error")),
        answer.model_copy(update={"step_id": 4}),
    )
    path.write_text("".join(step.model_dump_json() + "\n" for step in steps))
    return tmp_path / "store"


def exported(store, tmp_path):
    assert run(["trace", "export", "rewards", str(store), "-o", str(tmp_path / "out" / "r.jsonl")]) == 0
    return [json.loads(line) for line in (tmp_path / "out" / "r.jsonl").read_text().splitlines()]


def test_each_step_has_what_the_model_saw_and_said_and_what_it_was_worth(store, tmp_path, capsys):
    lines = exported(store, tmp_path)
    printed = capsys.readouterr()
    assert "4 steps of 1 run" in printed.out
    assert printed.err.count("wrote down no steps") == 3
    assert [(line["edges"], line["evidence"], line["answer"], line["wasted"]) for line in lines] == [
        (0.5, 0, 0, 0), (0.5, 1, 0, 0), (0, 0, 0, 0.4), (0, 0, 0, 0)
    ]  # fmt: skip
    assert [line["reward"] for line in lines] == [0.5, 1.5, -0.4, 0]
    assert all(line["right"] and line["steps"] == 4 for line in lines)
    assert [message["role"] for message in lines[0]["prompt"]] == ["system", "user"]
    assert lines[0]["prompt"][0]["content"].startswith("You are a Root Cause Analysis")
    assert lines[1]["completion"][0]["content"] == f"thought 2\n[calls query_sql { ({'sql': EVIDENCE}) }]"
    assert not list(store.rglob("verdicts/default.*.json"))


@pytest.mark.slow
def test_datasets_reads_them_as_conversational_prompt_completion(store, tmp_path):
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    lines = exported(store, tmp_path)
    path = str(tmp_path / "out" / "r.jsonl")
    read = datasets.load_dataset("json", data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
    assert read.num_rows == 4
    assert read.to_list() == lines
    assert read.features["reward"].dtype == "float64"
    for (
        row
    ) in read:  # a conversational prompt-completion: lists of messages with a role and a content, and no other key
        assert row["prompt"][-1]["role"] in ("user", "tool")
        assert [message["role"] for message in row["completion"]] == ["assistant"]
        assert all(message.keys() == {"role", "content"} for message in row["prompt"] + row["completion"])


def test_the_input_of_a_step_is_cut_into_its_messages():
    said = [("system", "You are it."), ("user", "a\n\nb [user] c"), ("assistant", ""), ("tool", "[1]\n[user]\nno")]
    assert messages_of(render_messages(said)) == [{"role": role, "content": text} for role, text in said]
    assert messages_of(render_messages([("developer", "x")])) == [{"role": "system", "content": "x"}]
    assert messages_of("plain text") == [{"role": "user", "content": "plain text"}]
    assert messages_of("", "Find it.") == [{"role": "user", "content": "Find it."}]


def test_what_has_no_verified_cascade_is_said_in_one_sentence(store, tmp_path, capsys):
    for path in store.rglob("annotation.json"):
        path.unlink()
    assert run(["trace", "export", "rewards", str(store), "-o", str(tmp_path / "out" / "r.jsonl")]) == 2
    said = capsys.readouterr().err
    assert "has no verified cascade; annotate it" in said
    assert not (tmp_path / "out").exists()
    assert list(RunStore(store).runs())
    assert run(["trace", "export", "rewards", str(tmp_path / "none"), "-o", str(tmp_path / "r.jsonl")]) == 2
    assert "Traceback" not in capsys.readouterr().err
