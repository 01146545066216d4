"""Predictions of who failed and when, given to `opsassay score import`: Who&When's text, JSON lines, TraceElephant's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.papers.blame.score_table import score_table

from analysis.answers.test_rcabench_answers import put
from opsassay.analysis.blame.answers import read_answers
from opsassay.analysis.blame.labelled import read_labelled
from opsassay.cli import run

WHO_AND_WHEN = Path(__file__).parents[4] / "shared" / "data" / "whoandwhen"


def turn(name, content="x"):
    return {"name": name, "role": "assistant", "content": content}


@pytest.fixture
def traces(tmp_path):
    """Return a folder of Who&When with two subsets, in which a file of each has the same name."""
    for subset, files in (("generated", "12"), ("crafted", "1")):
        for file in files:
            history = [turn("Planner"), turn("Coder"), turn("Checker")]
            put(tmp_path / "who" / subset / f"{file}.json", {
                "history": history, "question": "?", "question_ID": f"{subset}-{file}", "ground_truth": "4",
                "mistake_agent": "Coder", "mistake_step": "1", "mistake_reason": "r",
            })  # fmt: skip
    return tmp_path / "who"


@pytest.fixture
def imports(traces, tmp_path, capsys):
    def imported(source, *options, cases=traces):
        words = ["score", "import", source, "--cases", cases, "-o", tmp_path / "kept", *options, "--json"]
        code = run([*map(str, words)])
        out, err = capsys.readouterr()
        whole = json.loads(out) if out.strip() else {"items": [], "problems": []}
        return code, whole["items"], whole["problems"], err

    return imported


TEXT = """\
--- Starting Analysis ---
Prediction for 1.json:
Agent Name: Coder
Step Number: 1
Reason for Mistake: It divided by zero.

Prediction for 2.json:
**Agent Name:** Planner
**Step Number:** Step 0
Prediction for 9.json:
Agent Name: Coder
Step Number: 1
"""


def test_the_text_of_who_and_when_is_read_with_steps_from_0(traces, tmp_path, imports, capsys):
    put(tmp_path / "all_at_once_generated.txt", TEXT)
    code, items, problems, err = imports(tmp_path / "all_at_once_generated.txt")
    assert (code, [(i["trace"], i["agent"], i["step"], i["agent_right"], i["step_right"]) for i in items]) == (
        1, [("generated/1", "Coder", 2, True, True), ("generated/2", "Planner", 1, False, False)],
    ), err  # fmt: skip
    assert "labelled trace at hand '9.json'" in problems[0]
    assert any("'Step 0' is read as step 0" in note for note in items[1]["notes"])
    table = score_table(tmp_path / "kept", read_labelled(traces), "step")
    assert table.select("case", "method", "score", "predicted").rows() == [
        ("generated/1", "all_at_once_generated", 1.0, "2"), ("generated/2", "all_at_once_generated", 0.0, "1"),
    ]  # fmt: skip
    page = tmp_path / "page.html"
    words = ["trace", "blame", "view", traces / "generated" / "1.json", "--answers", tmp_path / "kept", "-o", page]
    assert run([*map(str, words)]) == 0
    assert "step 2 suggested" in capsys.readouterr().out
    assert "It divided by zero." in page.read_text()
    assert run([*map(str, [*words, "--technique", "other"])]) == 2
    assert "there are: all_at_once_generated" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "said"), [("whoandwhen", 1), ("traceelephant", 2)])
@pytest.mark.parametrize(
    "keys",
    [
        ("file", "predicted_agent", "predicted_step"),
        ("question_ID", "mistake_agent", "mistake_step"),
        ("trace", "agent", "step"),
    ],
)
def test_lines_are_read_under_many_names_and_the_form_says_how_steps_count(form, said, keys, tmp_path, imports):
    name = "generated-1" if keys[0] == "question_ID" else "generated/1.json"
    row = dict(zip(keys, (name, "Coder", str(said)), strict=True)) | {"extra": [1], "method": "m", "model": "gpt"}
    put(tmp_path / "p.jsonl", json.dumps(row) + "\n")
    code, (item,), _, err = imports(tmp_path / "p.jsonl", "--form", form)
    assert (code, item["agent_right"], item["step_right"], item["technique"], item["notes"]) == (
        0,
        True,
        True,
        "m",
        [],
    ), err
    code, _, _, err = imports(tmp_path / "p.jsonl")
    assert (code, "say --form whoandwhen or --form traceelephant" in err) == (2, True)


def test_odd_values_are_noted_and_broken_lines_named(tmp_path, imports):
    rows = [
        {"trace": "generated/1", "agent": "coder", "step": 1},
        {"trace": "generated/1", "agent": None, "step": True},
        {"trace": "generated/2", "agent": 7, "step": "between 1 and 2"},
        {"trace": "generated/2", "agent": "Coder", "step": 99.0},
        {"trace": "1.json", "agent": "Coder", "step": 1},
        {"trace": "1.json", "agent": "Coder", "step": 1, "subset": "crafted"},
        {"trace": None, "agent": "Coder", "step": 1},
        {"trace": ["a"], "agent": "Coder", "step": 1},
        3,
    ]
    put(tmp_path / "in" / "x.jsonl", "\n".join([*map(json.dumps, rows), "{"]))
    put(tmp_path / "in" / "empty.jsonl", "")
    code, items, problems, _ = imports(tmp_path / "in", "--form", "whoandwhen")
    assert code == 1
    assert [(i["trace"], i["agent"], i["step"], i["run"]) for i in items] == [
        ("generated/1", "coder", 2, 1), ("generated/1", None, None, 2), ("generated/2", None, None, 1),
        ("generated/2", "Coder", 100, 2), ("crafted/1", "Coder", 2, 1),
    ]  # fmt: skip
    expected = [
        "did you mean 'Coder'",
        "names no agent",
        "names no one step",
        "no step 99; it has 3, the first being 0",
        "",
    ]
    for item, named in zip(items, expected, strict=True):
        assert named in " ".join(item["notes"])
    assert [problem.split(": ")[0].split()[0] for problem in problems] == [
        "in/x.jsonl",
        *(f"in/x.jsonl:{n}" for n in (7, 8, 9, 10)),
    ]
    assert "'1.json' is the name of 2 traces" in problems[0]
    before = len(read_answers(tmp_path / "kept"))
    again = imports(tmp_path / "in", "--form", "whoandwhen")
    assert {item["became"] for item in again[1]} == {"there already"}
    assert len(read_answers(tmp_path / "kept")) == before
    put(tmp_path / "in" / "x.jsonl", json.dumps({**rows[0], "step": 2}))
    assert "gave another answer" in imports(tmp_path / "in", "--form", "whoandwhen")[3]


def test_where_nothing_is_a_prediction_about_the_traces_nothing_is_written(traces, tmp_path, imports):
    put(tmp_path / "p.jsonl", json.dumps({"trace": "elsewhere", "agent": "a", "step": 1}))
    for words, named in (
        ((tmp_path / "p.jsonl", "--form", "traceelephant"), "no prediction about the traces at hand"),
        ((tmp_path / "nowhere", "--form", "traceelephant"), "is not there"),
        ((tmp_path / "p.jsonl", "--form", "traceelefant"), "did you mean 'traceelephant'"),
    ):
        code, _, _, err = imports(*words)
        assert (code, named in err) == (2, True), err
    assert not (tmp_path / "kept").exists()
    code, _, _, err = imports(tmp_path / "p.jsonl", "--form", "whoandwhen", cases=tmp_path)
    assert code == 2
    assert "holds no" in err


@pytest.mark.skipif(not WHO_AND_WHEN.is_dir(), reason="Who&When is not here")
def test_labels_given_as_predictions_are_all_right(tmp_path, imports):
    blocks = []
    for path in sorted((WHO_AND_WHEN / "hand-crafted").glob("*.json")):
        label = json.loads(path.read_text())
        blocks.append(
            f"Prediction for {path.name}:\nAgent Name: {label['mistake_agent']}\nStep Number: {label['mistake_step']}\n"
        )
    put(tmp_path / "labels.txt", "\n".join(blocks))
    code, items, problems, _ = imports(tmp_path / "labels.txt", cases=WHO_AND_WHEN / "hand-crafted")
    assert (code, len(items), problems) == (0, 29, [])
    assert all(item["agent_right"] and item["step_right"] for item in items)


def test_one_object_by_trace_is_a_prediction_for_each(tmp_path, imports):
    said = {"generated/1": {"agent": "Coder", "step": 1}, "crafted/1.json": {"agent": "Planner", "step": 0}}
    code, items, problems, err = imports(put(tmp_path / "answers.json", said), "--form", "whoandwhen")
    assert (code, problems) == (0, []), err
    assert [(one["agent"], one["step"]) for one in items] == [("Coder", 2), ("Planner", 1)]
