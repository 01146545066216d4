"""ATIF: what is written is judged by the models of others, what they write is read, and a trace comes back the same."""

from __future__ import annotations

import json
from pathlib import Path

import atif
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.cli import run
from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.solvers.proxy.formats import read_one, read_traces
from opsassay.solvers.proxy.formats.atif import atif_traces
from opsassay.solvers.proxy.formats.atif_writing import atif_of
from opsassay.solvers.proxy.formats.export import write_trace
from opsassay.solvers.proxy.steps import render_messages
from with_harbor import run_with_harbor

ASKED = [("system", "You find faults."), ("user", "Find it.")]


def step(number, messages, said="", *calls, **changes):
    made = {
        "step_id": number, "agent_id": "0", "agent_name": "finder", "input_context": render_messages(messages),
        "output_content": said, "tool_logs": calls, "kind": "tool" if calls else "plain", **changes,
    }  # fmt: skip
    return TraceStep.model_validate(made)


def conversation():
    """A trace with tools, a failed and an unanswered call, another agent, and an input that follows from nothing."""
    look = ToolCall(tool="grep", arguments={"q": "x", "deep": {"n": [1, None]}}, output="nothing\n\n[user]\nno")
    bad = ToolCall(tool="grep", arguments={}, output="no such file", status="error")
    gone = ToolCall(tool="grep", arguments={"q": "y"}, output="", status="unanswered")
    told = [*ASKED, ("assistant", "Looking.\n[calls tail {}]"), ("tool", "line")]
    return Trace(
        task_id="i0", task_instruction="Find it.", system_name="team", outcome="done", reference_answer="cart",
        agent_configuration={"finder": {"model": "m"}},
        steps=(
            step(1, ASKED, "Looking.", ToolCall(tool="tail", arguments={}, output="line"), model="m",
                 started_at=1_795_404_373_514_864_946, ended_at=1_795_404_373_514_864_999,
                 usage={"input_tokens": 7, "output_tokens": 2, "reasoning_tokens": 1}),
            step(2, [*told, ("user", "And now?")], "", look, bad, gone, model="m"),
            step(3, [("developer", "You conclude."), ("user", "What is it?")], "cart", agent_name="judge", agent_id="1"),
            step(4, [("user", "u"), ("assistant", "compacted"), ("tool", "t")], "again", error="HTTP 500", request_id="r"),
            step(5, [], "said without an input"),
        ),
    )  # fmt: skip


HARBOR = """
import json, sys
from harbor.models.trajectories.trajectory import Trajectory
print(json.dumps(Trajectory.model_validate(json.loads(sys.argv[1])).model_dump(mode="json")))
"""


def judged_by_atif(written):
    return atif.Trajectory.model_validate(written).model_dump(mode="json")


def judged_by_harbor(written):
    return json.loads(run_with_harbor(HARBOR, json.dumps(written)))


@pytest.mark.parametrize("judge", [judged_by_atif, judged_by_harbor])
def test_what_is_written_is_what_others_take(judge):
    read = judge(atif_of(conversation()))
    steps = read["steps"]
    assert [s["source"] for s in steps] == [
        "system", "user", "agent", "user", "agent", "system", "user", "agent", "agent", "agent"
    ]  # fmt: skip
    assert steps[3]["message"] == "And now?"
    assert [call["function_name"] for call in steps[4]["tool_calls"]] == ["grep"] * 3
    assert [result["content"] for result in steps[4]["observation"]["results"]] == [
        "nothing\n\n[user]\nno", "no such file"
    ]  # fmt: skip
    assert (steps[2]["metrics"]["prompt_tokens"], steps[2]["metrics"]["completion_tokens"]) == (7, 2)
    assert steps[2]["timestamp"] == "2026-11-23T03:26:13.514864+00:00"
    assert (read["final_metrics"]["total_prompt_tokens"], read["final_metrics"]["total_steps"]) == (7, 10)


def test_a_trace_comes_back_the_same(tmp_path):
    write_trace(conversation(), tmp_path / "trajectory.json", "atif")
    assert read_one(tmp_path / "trajectory.json") == conversation()


_TEXT = st.text(alphabet="ab\n []userx", max_size=12)
_MESSAGES = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), _TEXT), max_size=4)


@given(st.lists(st.tuples(_MESSAGES, _TEXT, st.booleans()), min_size=1, max_size=4))
def test_any_trace_comes_back_the_same_and_is_valid(drawn):
    calls = (ToolCall(tool="t", arguments={"a": 1}, output="out"),)
    steps = [step(n, messages, said, *(calls if called else ())) for n, (messages, said, called) in enumerate(drawn, 1)]
    trace = Trace(task_id="i", task_instruction="x", system_name="s", steps=tuple(steps))
    written = json.loads(json.dumps(atif_of(trace)))
    atif.Trajectory.model_validate(written)
    assert atif_traces(written, Path("t.json")) == [trace]


def foreign(**changes):
    """A trajectory as another agent writes it, made with the models of the package atif."""
    made = atif.Trajectory.model_validate(
        {
            "schema_version": "ATIF-v1.8",
            "session_id": "s1",
            "agent": {"name": "openhands", "version": "1.0", "model_name": "m"},
            "steps": [
                {"step_id": 1, "source": "system", "message": "Be brief."},
                {"step_id": 2, "source": "user", "message": [
                    {"type": "text", "text": "Find it."},
                    {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
                ]},
                {"step_id": 3, "source": "agent", "message": "old", "is_copied_context": True},
                {"step_id": 4, "source": "agent", "message": "I look.", "reasoning_content": "Where?",
                 "timestamp": "2025-10-16T14:30:00Z",
                 "tool_calls": [
                     {"tool_call_id": "b", "function_name": "grep", "arguments": {"q": "x"}},
                     {"tool_call_id": "a", "function_name": "cat", "arguments": {}},
                     {"tool_call_id": "c", "function_name": "ask", "arguments": {}},
                 ],
                 "observation": {"results": [
                     {"source_call_id": "a", "content": "text"},
                     {"source_call_id": "c", "subagent_trajectory_ref": [{"trajectory_id": "sub"}]},
                     {"content": [{"type": "text", "text": "a clock rang"}]},
                 ]},
                 "metrics": {"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 3, "extra": {"reasoning": 1}}},
                {"step_id": 5, "source": "agent", "message": "cart"},
            ],
            "subagent_trajectories": [
                {"schema_version": "ATIF-v1.8", "trajectory_id": "sub", "agent": {"name": "helper", "version": "1"},
                 "steps": [{"step_id": 1, "source": "agent", "message": "done"}]},
            ],
            **changes,
        }
    )  # fmt: skip
    return made.to_json_dict()


def test_what_another_agent_wrote_is_read(tmp_path):
    (tmp_path / "trajectory.json").write_text(json.dumps(foreign()))
    found, helper = read_traces(tmp_path / "trajectory.json")
    assert (found.task_id, found.system_name, found.agents()) == ("s1", "openhands", ("openhands",))
    assert found.task_instruction.startswith("Find it.")
    first, second = found.steps
    assert first.input_context == "[system]\nBe brief.\n\n[user]\nFind it.\n[image]\n\n[assistant]\nold"
    assert first.output_content == "Where?\n\nI look."
    assert first.started_at == 1_760_625_000_000_000_000
    assert first.usage == {"input_tokens": 9, "output_tokens": 4, "cached_tokens": 3, "reasoning": 1}
    assert [(call.tool, call.output, call.status) for call in first.tool_logs] == [
        ("grep", "", "unanswered"), ("cat", "text", "ok"), ("ask", "[trajectory sub]", "ok"),
        ("observation", "a clock rang", "ok"),
    ]  # fmt: skip
    assert second.input_context.startswith(first.input_context)
    assert second.input_context.count("[tool]\n") == 4
    assert (second.step_id, second.model, second.output_content) == (2, "m", "cart")
    assert (helper.task_id, helper.steps[0].output_content) == ("sub", "done")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"schema_version": "ATIF-v2.0"}, "is ATIF-v2.0; what is read is ATIF-v1.0 to ATIF-v1.8"),
        ({"schema_version": "ATIF-v1.9"}, "is ATIF-v1.9; what is read"),
        ({"steps": [{"step_id": 1, "source": "robot", "message": ""}]}, "ATIF-v1.8: steps.0.source: expected"),
        ({"agent": {}}, "ATIF-v1.8: agent.name: this key is required"),
        ({"extra": {"opsassay": {"outcome": 3}}}, "ATIF-v1.8: outcome: expected text, found 3"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(tmp_path, capsys, changes, sentence):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**foreign(), **changes}))
    with pytest.raises(DatapackError, match=r"^[^\n]*$") as found:
        read_one(path)
    assert sentence in str(found.value)
    assert run(["trace", "convert", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_what_expands_is_measured_before_it_is_expanded(tmp_path):
    steps = [{"step_id": n, "source": "agent", "message": "x" * 100_000} for n in range(1, 201)]
    whole = foreign(steps=steps[:30], subagent_trajectories=None)
    for count, refused in ((30, False), (200, True)):  # 20 MB that would be 2 GB of inputs
        (tmp_path / "t.json").write_text(json.dumps({**whole, "steps": steps[:count]}))
        if refused:
            with pytest.raises(DatapackError, match="expands to more than 1024 MiB"):
                read_one(tmp_path / "t.json")
        else:
            assert len(read_one(tmp_path / "t.json").steps[-1].input_context) > 29 * 100_000


def test_every_version_that_is_read_says_so(tmp_path):
    for minor in range(9):
        path = tmp_path / f"{minor}.json"
        path.write_text(json.dumps(foreign(schema_version=f"ATIF-v1.{minor}")))
        assert len(read_traces(path)) == 2


def test_the_command_writes_what_the_command_reads(tmp_path, capsys):
    write_trace(conversation(), tmp_path / "trace.json", "json")
    out = tmp_path / "out" / "trajectory.json"
    assert run(["trace", "export", "atif", str(tmp_path / "trace.json"), "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == [{"trace": "i0", "steps": 5}]
    assert run(["trace", "convert", str(out), "-o", str(tmp_path / "again.json")]) == 0
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "trace.json").read_bytes()
    assert run(["trace", "export", "atif", str(tmp_path / "none"), "-o", str(out)]) == 2
