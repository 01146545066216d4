"""`opsassay trace blame` and `opsassay trace proxy` as users call them: one sentence for wrong use, JSON for scripts."""

from __future__ import annotations

import json

import pytest
from benchmarks.papers.blame.__main__ import cli as bench_cli
from click.testing import CliRunner

from opsassay.cli import cli
from opsassay.core.errors import ConfigError, OperationError, OpsAssayError, UserError
from opsassay.core.schema.trajectory import Attribution, Trace, TraceStep
from opsassay.solvers.agents.models import model_named
from opsassay.solvers.agents.models.base import Message
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.telemetry.tree import write_noun


def opsassay(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def labelled(tmp_path):
    for number in (1, 2):
        steps = tuple(
            TraceStep(
                step_id=i, agent_id="0", agent_name="A", input_context="", output_content="Error: x" if i == 3 else ""
            )
            for i in range(1, 5)
        )
        for folder in ("traces", "labels"):
            (tmp_path / folder).mkdir(exist_ok=True)
        write_noun(
            tmp_path / "traces" / f"{number}.json",
            Trace(task_id="t", task_instruction="", system_name="s", steps=steps),
        )
        write_noun(tmp_path / "labels" / f"{number}.json", Attribution(agent_name="A", step_id=2))
    return tmp_path


def test_bench_prints_one_json_object_with_the_rules_always(labelled):
    done = CliRunner().invoke(bench_cli, ["bench", str(labelled), "--json"])
    payload = json.loads(done.stdout)
    rows = {row["technique"]: row for row in payload["items"]}
    assert (done.exit_code, payload["command"], payload["scoring"]) == (0, "bench", "exact")
    assert rows["before-error-text"]["step_accuracy"] == 1.0
    assert rows["last-step"]["step_accuracy"] == 0.0
    assert rows["chance"]["calls"] == 0
    assert {"subset", "technique", "n", "agent_accuracy", "step_accuracy", "intervals", "calls", "tokens"} <= set(
        payload["items"][0]
    )


def test_a_batch_goes_on_after_a_trace_that_cannot_be_read(labelled):
    (labelled / "bad.json").write_text("{")
    done = opsassay(
        "trace",
        "blame",
        labelled / "traces" / "1.json",
        labelled / "bad.json",
        "--technique",
        "before-error-text",
        "--json",
    )
    payload = json.loads(done.stdout)
    assert (done.exit_code, [(i["agent"], i["step"]) for i in payload["items"]]) == (1, [("A", 2)])
    assert "bad.json:1" in payload["problems"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "blame", "nothing.json"], "There is no nothing.json"),
        (["trace", "blame", "traces/1.json", "--technique", "all-at-onse"], "did you mean 'all-at-once'"),
        (["trace", "blame", "traces/1.json", "--technique", "static"], "name one with --model"),
        (["trace", "blame", "traces/1.json", "--technique", "joined"], "give the folder of a run"),
        (["trace", "blame", "view", "traces/1.json", "-o", "x.html", "--run", "gone"], "There is no run folder gone"),
        (["trace", "proxy", "--upstream", "https://me:pw@x", "-o", "rec", "--", "true"], "holds a password"),
        (["trace", "proxy", "--upstream", "ftp://x", "-o", "rec", "--", "true"], "is no upstream"),
        (["trace", "proxy", "--upstream", "http://x", "-o", "rec", "--intervene", "i.yaml"], "name it with --replay"),
        (["trace", "proxy", "--upstream", "http://x", "-o", "rec", "--replay", "rec"], "not a recorded session"),
        (["trace", "proxy", "token", "../up", "-o", "rec"], "cannot name a session"),
    ],
)
def test_wrong_use_is_one_sentence(labelled, monkeypatch, arguments, message):
    monkeypatch.chdir(labelled)
    done = opsassay(*arguments)
    assert isinstance(done.exception, OpsAssayError)
    assert done.exception.exit_code == 2
    assert message in str(done.exception)
    assert not (labelled / "rec").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "."], "holds no labelled traces"),
        (["bench", "..", "--technique", "dynamic"], "say how with --reruns FILE"),
        (["bench", "..", "--technique", "joined"], "reads run folders"),
    ],
)
def test_wrong_use_of_the_comparison_is_one_sentence(labelled, monkeypatch, arguments, message):
    monkeypatch.chdir(labelled / "traces")
    done = CliRunner().invoke(bench_cli, arguments)
    assert isinstance(done.exception, OpsAssayError)
    assert done.exception.exit_code == 2
    assert message in str(done.exception)


def test_scripts_are_rules_or_functions_and_say_what_is_wrong_with_them(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        'rules:\n  - {when: "two", after: "one", reply: "both"}\n  - {when: "", tool: {tool: t, arguments: {a: 1}}}\n'
    )
    model = model_named(f"scripted:{rules}")
    assert model.complete([Message(role="system", content="one"), Message(role="user", content="two")]).text == "both"
    reply = model.complete([Message(role="user", content="two")])
    assert (reply.tool_requests[0].tool, reply.tool_requests[0].arguments, reply.input_tokens) == ("t", {"a": 1}, 1)
    rules.write_text("rules:\n  - when: '('\n")
    with pytest.raises(ConfigError, match=r"rules\.yaml:2: .*no regular expression"):
        ScriptedModel.from_file(rules)
    rules.write_text("rules: [{when: never, reply: x}]")
    with pytest.raises(OperationError, match="No rule of the script fits 'hello'"):
        ScriptedModel.from_file(rules).complete([Message(role="user", content="hello")])
    (tmp_path / "s.py").write_text("answer = 1\n")
    with pytest.raises(UserError, match="no function respond"):
        model_named(f"scripted:{tmp_path / 's.py'}")


def test_a_real_model_needs_a_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="set OPENAI_API_KEY"):
        model_named("gpt-4o")


def test_traces_of_the_same_name_are_annotated_apart_and_settled_apart(labelled):
    for folder in ("a", "b"):
        (labelled / folder).mkdir()
        (labelled / folder / "1.json").write_text((labelled / "traces" / "1.json").read_text())
    page = labelled / "page.html"
    opsassay(
        "trace",
        "blame",
        "annotate",
        labelled / "a" / "1.json",
        labelled / "b" / "1.json",
        "--annotator",
        "ada",
        "-o",
        page,
    )
    assert '"name":"a/1"' in page.read_text()
    assert '"name":"b/1"' in page.read_text()
    said = {"a/1": {"agent_name": "A", "step_id": 1}, "b/1": {"agent_name": "A", "step_id": 2}}
    for who in ("ada", "ben"):
        told = {"schema_version": 1, "annotator": who, "attributions": said}
        (labelled / f"{who}.json").write_text(json.dumps(told))
    out = labelled / "out"
    done = opsassay(
        "trace", "blame", "agree", labelled / "ada.json", labelled / "ben.json", "--traces", labelled, "-o", out
    )
    assert done.exit_code == 0
    assert sorted(p.name for p in (out / "labels").iterdir()) == ["a-1.json", "b-1.json"]
    assert json.loads((out / "labels" / "b-1.json").read_text())["step_id"] == 2
