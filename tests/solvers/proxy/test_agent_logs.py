"""What agents write themselves, read as traces: mini-swe-agent 2.4.6 and AutoGen 0.7.5 wrote the two logs that are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsassay.core.errors import DatapackError
from opsassay.solvers.proxy.formats import read_one

LOGS = Path(__file__).with_name("logs")


def written(folder: Path, name: str, *payloads: Any) -> Path:
    path = folder / name
    path.write_text("\n".join(map(json.dumps, payloads)))
    return path


def test_a_trajectory_of_mini_swe_agent_has_a_step_for_each_answer_and_what_its_commands_printed():
    trace = read_one(LOGS / "mend.traj.json")
    assert (trace.system_name, trace.task_id, trace.outcome) == ("mini-swe-agent", "mend", "Submitted")
    assert trace.task_instruction == "Task: mend it"
    first, last = trace.steps
    assert first.output_content == "I look."
    assert first.input_context == "[system]\nYou fix code.\n\n[user]\nTask: mend it"
    assert [(log.tool, log.output, log.status) for log in first.tool_logs] == [("bash", "one\n", "error")]
    assert first.tool_logs[0].arguments == {"command": "echo one; exit 3"}
    assert [(log.output, log.status) for log in last.tool_logs] == [("done\n", "ok")]
    assert "<returncode>3</returncode>" in last.input_context
    assert first.ended_at > 1_700_000_000 * 10**9


def mini(*messages: dict[str, Any]) -> dict[str, Any]:
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    return {"trajectory_format": "mini-swe-agent-1.1", "info": {}, "messages": [*asked, *messages]}


def test_its_answers_of_the_responses_api_and_the_counts_of_its_provider_are_read(tmp_path):
    call = {"type": "function_call", "call_id": "c", "name": "bash", "arguments": '{"command": "ls"}'}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    act = {"actions": [{"command": "ls", "tool_call_id": "c"}]}
    seen = {
        "type": "function_call_output",
        "call_id": "c",
        "output": "a",
        "extra": {"raw_output": "a", "returncode": 0},
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}
    whole = {
        "id": "r",
        "model": "m",
        "choices": [{"message": {"content": "end"}, "finish_reason": "stop"}],
        "usage": usage,
    }
    payload = mini(
        {"object": "response", "output": [said, call], "extra": act}, seen,
        {"role": "assistant", "content": "end", "extra": {"actions": [{"command": "x"}], "response": whole}},
    )  # fmt: skip
    first, last = read_one(written(tmp_path, "t.traj.json", payload)).steps
    assert (first.output_content, first.tool_logs[0].output) == ("I look.", "a")
    assert "I look." in last.input_context
    assert last.input_context.endswith("[tool]\na")
    assert (last.usage, last.model, last.finish_reason) == (
        {"input_tokens": 7, "output_tokens": 3, "cached_tokens": 5}, "m", "stop",
    )  # fmt: skip
    assert [(log.arguments, log.status) for log in last.tool_logs] == [({"command": "x"}, "unanswered")]


def test_a_former_trajectory_without_actions_has_the_command_of_its_text(tmp_path):
    payload = mini(
        {"role": "assistant", "content": "I look.\n```bash\nls\n```"}, {"role": "user", "content": "a.py"},
        {"role": "assistant", "content": "done"},
    )  # fmt: skip
    first, last = read_one(written(tmp_path, "t.json", payload)).steps
    assert [(log.tool, log.output) for log in first.tool_logs] == [("code", "a.py")]
    assert last.tool_logs == ()


@pytest.mark.parametrize("key", ["query", "messages"])
def test_a_trajectory_of_swe_agent_has_a_step_for_each_turn(tmp_path, key):
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "mend it"}]
    turns = [
        {"response": "I look.\nls -F", "thought": "I look.", "action": "ls -F\n", "observation": "a.py\n", key: asked},
        {"response": "submit", "thought": "", "action": "submit", "observation": None, key: asked},
        {"response": "", "thought": "I give up", "action": "", "observation": "", key: asked},
    ]
    payload = {"trajectory": turns, "history": asked, "info": {"exit_status": "submitted"}, "environment": "e"}
    trace = read_one(written(tmp_path, "pkg__1.traj", payload))
    assert (trace.system_name, trace.task_id, trace.outcome) == ("SWE-agent", "pkg__1", "submitted")
    assert trace.task_instruction == "mend it"
    assert [step.output_content for step in trace.steps] == ["I look.\nls -F", "submit", "I give up"]
    assert trace.steps[0].input_context == "[system]\ns\n\n[user]\nmend it"
    assert [[(log.tool, log.arguments, log.output, log.status) for log in step.tool_logs] for step in trace.steps] == [
        [("ls", {"command": "ls -F"}, "a.py\n", "ok")], [("submit", {"command": "submit"}, "", "unanswered")], [],
    ]  # fmt: skip


def test_events_of_autogen_are_steps_of_the_agents_that_called_and_the_others_are_counted():
    skipped: list[str] = []
    trace = read_one(LOGS / "autogen.jsonl", skipped)
    assert [(step.agent_name, step.output_content) for step in trace.steps] == [
        ("planner", "Plan: weigh the lamp."), ("weigher", "I look."), ("weigher", "A lamp weighs 3 kg. TERMINATE"),
    ]  # fmt: skip
    (log,) = trace.steps[1].tool_logs
    assert (log.tool, log.arguments, log.output, log.status) == ("weigh", {"item": "lamp"}, "3 kg", "ok")
    assert trace.steps[1].usage == {"input_tokens": 19, "output_tokens": 6}
    assert trace.task_instruction == "How heavy is a lamp?"
    assert skipped == ["2 events that are no call: Message (2)"]


def test_a_stream_of_autogen_has_the_messages_of_its_start_and_a_call_the_result_of_its_event(tmp_path):
    asked = [{"role": "user", "content": "weigh it"}]
    call = [{"id": "c", "name": "weigh", "arguments": '{"item": "lamp"}'}]
    ended = {"finish_reason": "function_calls", "content": call, "usage": {}, "cached": False}
    last = {"id": "m", "role": "assistant", "type": "message", "content": [{"type": "text", "text": "3 kg"}],
            "usage": {"input_tokens": 4, "output_tokens": 2}}  # fmt: skip
    lines = [
        {"type": "LLMStreamStart", "messages": asked, "agent_id": "a/1"},
        {"type": "LLMStreamEnd", "response": ended, "prompt_tokens": 9, "completion_tokens": 2, "agent_id": "a/1"},
        {"type": "ToolCall", "tool_name": "weigh", "arguments": {"item": "lamp"}, "result": "3 kg", "agent_id": "a/1"},
        {
            "type": "LLMCall",
            "messages": asked,
            "response": last,
            "prompt_tokens": 4,
            "completion_tokens": 2,
            "agent_id": None,
        },
    ]
    first, second = read_one(written(tmp_path, "events.jsonl", *lines)).steps
    assert (first.agent_name, first.input_context) == ("a", "[user]\nweigh it")
    assert [(log.arguments, log.output) for log in first.tool_logs] == [({"item": "lamp"}, "3 kg")]
    assert first.usage == {"input_tokens": 9, "output_tokens": 2}
    assert (second.agent_name, second.output_content) == ("agent", "3 kg")


def test_events_of_autogen_in_the_order_in_which_calls_ended_belong_to_the_calls_of_their_arguments(tmp_path):
    calls = [{"id": str(n), "name": "weigh", "arguments": json.dumps({"item": n})} for n in (1, 2)]
    ended = {"finish_reason": "function_calls", "content": calls, "usage": {}, "cached": False}
    ran = [{"type": "ToolCall", "tool_name": "weigh", "arguments": {"item": n}, "result": f"{n} kg"} for n in (2, 1)]
    asked = {"type": "LLMStreamStart", "messages": [{"role": "user", "content": "weigh both"}]}
    lines = [asked, {"type": "LLMStreamEnd", "response": ended}, *ran]
    (step,) = read_one(written(tmp_path, "events.jsonl", *lines)).steps
    assert [(log.arguments, log.output) for log in step.tool_logs] == [({"item": 1}, "1 kg"), ({"item": 2}, "2 kg")]


@pytest.mark.parametrize(
    "payload",
    [{"trajectory": "none"}, {"trajectory_format": "mini-swe-agent-9"}, {"trajectory_format": "other", "messages": []}],
)
def test_another_form_is_refused_in_a_sentence(tmp_path, payload):
    with pytest.raises(DatapackError, match=r"not in the form|no known format"):
        read_one(written(tmp_path, "x.json", payload))


def test_what_swe_agent_observed_without_an_action_is_kept(tmp_path):
    turn = {"action": "", "observation": "no command was found", "response": "I think"}
    (tmp_path / "a.traj").write_text(json.dumps({"trajectory": [turn], "info": {}}))
    (call,) = read_one(tmp_path / "a.traj").steps[0].tool_logs
    assert (call.tool, call.arguments, call.output) == ("observation", {}, "no command was found")


def test_one_event_of_autogen_is_a_trace_whatever_its_file_is_called(tmp_path):
    event = {"type": "LLMCall", "messages": [{"role": "user", "content": "hi"}], "response": {"content": "yo"}}
    (tmp_path / "events.log").write_text(json.dumps(event) + "\n")
    assert [step.output_content for step in read_one(tmp_path / "events.log").steps] == ["yo"]
