"""Spans, trajectories and sessions as others write them: calls in messages are calls, and nothing is lost in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsassay.cli import main
from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.solvers.proxy.formats import read_one, read_traces
from opsassay.solvers.proxy.formats.export import write_trace

CALL = {"type": "tool_call", "id": "c1", "name": "ls", "arguments": {"p": 1}}
USER = {"role": "user", "parts": [{"type": "text", "content": "hi"}]}
BACK = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "a.txt"}]}
LS = ToolCall(tool="ls", arguments={"p": 1}, output="a.txt")


def any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": value if isinstance(value, str) else json.dumps(value)}


def span(number: int, events: list[tuple[str, dict[str, Any]]] | None = None, **fields: Any) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "chat",
        **{f"gen_ai.{key.replace('__', '.')}": v for key, v in fields.items()},
    }
    pairs = [{"key": key, "value": any_value(value)} for key, value in attributes.items()]
    made = [
        {"name": name, "attributes": [{"key": k, "value": any_value(v)} for k, v in given.items()]}
        for name, given in events or ()
    ]
    times = {"startTimeUnixNano": str(number), "endTimeUnixNano": str(number + 1)}
    return {
        "traceId": "a1" * 16,
        "spanId": f"{number:016x}",
        "name": "chat m",
        **times,
        "attributes": pairs,
        "events": made,
    }


def trace_of(tmp_path: Path, *spans: dict[str, Any], skipped: list[str] | None = None) -> Trace:
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}))
    return read_one(path, skipped)


def assistant(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "parts": list(parts), "finish_reason": "stop"}


def test_calls_that_stand_only_in_messages_are_calls_with_their_results(tmp_path: Path) -> None:
    first = span(1, input__messages=[USER], output__messages=[assistant(CALL)])
    done = assistant({"type": "text", "content": "done"})
    second = span(2, input__messages=[USER, assistant(CALL), BACK], output__messages=[done])
    one, two = trace_of(tmp_path, first, second).steps
    assert (one.tool_logs, one.output_content, one.finish_reason) == ((LS,), "", "stop")
    assert (two.tool_logs, two.output_content) == ((), "done")
    assert "[calls ls {'p': 1}]" in two.input_context
    assert two.input_context.count("a.txt") == 1


@pytest.mark.parametrize("id_", ["c1", None])
def test_a_call_with_a_span_of_its_tool_is_one_call(id_: str | None, tmp_path: Path) -> None:
    named = {} if id_ is None else {"tool__call__id": id_}
    tool = span(2, operation__name="execute_tool", tool__name="ls", tool__call__result="a.txt", **named)
    (step,) = trace_of(tmp_path, span(1, output__messages=[assistant(CALL)]), tool).steps
    assert step.tool_logs == (LS,)


def test_a_part_of_an_unknown_type_is_a_call_of_that_name(tmp_path: Path) -> None:
    (step,) = trace_of(tmp_path, span(1, output__messages=[assistant({"type": "teleport", "to": "mars"})])).steps
    assert step.tool_logs[0].tool == "teleport"
    assert "mars" in step.tool_logs[0].arguments["raw"]


CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"p": 1}'}}
SAID = {"content": "ok", "tool_calls": [CHAT_CALL]}
OLDER = {
    "events with JSON": [
        ("gen_ai.user.message", {"gen_ai.event.content": {"content": "hi", "role": "user"}}),
        ("gen_ai.choice", {"gen_ai.event.content": {"message": SAID, "finish_reason": "stop", "index": 0}}),
    ],
    "events with attributes": [
        ("gen_ai.user.message", {"content": "hi"}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **SAID}}),
    ],
    "an event of details": [
        (
            "gen_ai.client.inference.operation.details",
            {
                "gen_ai.input.messages": [USER],
                "gen_ai.output.messages": [assistant({"type": "text", "content": "ok"}, CALL)],
            },
        )
    ],
}


@pytest.mark.parametrize("form", OLDER)
def test_older_forms_of_messages_are_read(form: str, tmp_path: Path) -> None:
    (step,) = trace_of(tmp_path, span(1, OLDER[form])).steps
    assert (step.input_context, step.output_content, step.finish_reason) == ("[user]\nhi", "ok", "stop")
    assert [(call.tool, call.arguments) for call in step.tool_logs] == [("ls", {"p": 1})]


def test_numbered_attributes_of_instrumentations_are_read(tmp_path: Path) -> None:
    fields = {
        "prompt.0.role": "user", "prompt.0.content": "hi", "completion.0.content": "ok",
        "completion.0.finish_reason": "stop",
        "completion.0.tool_calls.0.id": "c1", "completion.0.tool_calls.0.name": "ls",
        "completion.0.tool_calls.0.arguments": '{"p": 1}', "usage.prompt_tokens": 7, "usage.completion_tokens": 3,
    }  # fmt: skip
    (step,) = trace_of(tmp_path, span(1, **fields)).steps
    assert (step.input_context, step.output_content, step.finish_reason) == ("[user]\nhi", "ok", "stop")
    assert [(call.tool, call.arguments) for call in step.tool_logs] == [("ls", {"p": 1})]
    assert step.usage == {"input_tokens": 7, "output_tokens": 3}


@pytest.mark.parametrize("form", ["otel", "atif", "json"])
def test_counts_and_reasons_survive_an_export(form: str, tmp_path: Path) -> None:
    usage = {
        "input_tokens": 30, "output_tokens": 12, "cached_tokens": 20, "cache_write_tokens": 3, "reasoning_tokens": 4,
        "tool_tokens": 2, "audio_input_tokens": 1, "audio_output_tokens": 1, "other_tokens": 5,
    }  # fmt: skip
    step = TraceStep(
        step_id=1, agent_id="0", agent_name="a", input_context="[user]\nhi", output_content="ok", usage=usage,
        finish_reason="length", tool_logs=(LS,), kind="tool", started_at=1000, ended_at=2000,
    )  # fmt: skip
    trace = Trace(task_id="t", task_instruction="hi", system_name="s", steps=(step,))
    write_trace(trace, tmp_path / "t.json", form)
    assert read_one(tmp_path / "t.json") == trace
    text = (tmp_path / "t.json").read_text()
    names = {
        "otel": "gen_ai.usage.cache_read.input_tokens",
        "atif": '"total_cached_tokens": 20',
        "json": "cached_tokens",
    }
    assert names[form] in text


def atif(**more: Any) -> dict[str, Any]:
    steps = [{"step_id": 1, "source": "user", "message": "hi"}, {"step_id": 2, "source": "agent", "message": "yo"}]
    return {"session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": steps, **more}


@pytest.mark.parametrize("version", [{}, {"schema_version": None}, {"schema_version": "ATIF-v1.8"}])
def test_a_trajectory_without_a_version_is_read_as_harbor_reads_it(version: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(atif(**version)))
    assert [step.output_content for step in read_one(tmp_path / "a.json").steps] == ["yo"]


def test_a_trajectory_without_a_step_of_an_agent_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(atif(steps=[{"step_id": 1, "source": "user", "message": "hi"}])))
    with pytest.raises(DatapackError, match="none of an agent"):
        read_one(tmp_path / "a.json")


def test_spans_that_gave_nothing_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skipped: list[str] = []
    other = {**span(2, operation__name="embeddings"), "traceId": "b1" * 16}
    trace_of(tmp_path, span(1), other, {**span(3), "traceId": "xyz"}, skipped=skipped)
    said = "; ".join(skipped)
    assert "embeddings (1)" in said
    assert 'traceId "xyz" is no hexadecimal id' in said
    assert "1 step without text, call, error or reason: 1" in said
    with pytest.raises(SystemExit):
        main(["trace", "convert", str(tmp_path / "spans.json"), "--json"])
    assert json.loads(capsys.readouterr().out)["skipped"] == skipped


@pytest.mark.parametrize("body", ["not json", "[1]"])
def test_a_record_whose_requests_give_no_step_is_an_error(body: str, tmp_path: Path, capsys: Any) -> None:
    lines = [
        {"event": "opened", "boot_id": "b", "time_ns": 1, "monotonic_ns": 1},
        {
            "event": "request",
            "id": "1",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [],
            "monotonic_ns": 2,
        },
        {"event": "body", "id": "1", "part": "request", "text": body, "monotonic_ns": 3},
        {"event": "end", "id": "1", "outcome": "complete", "error": None, "monotonic_ns": 4},
    ]
    (tmp_path / "record.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DatapackError, match=r"1 request and none is a readable request.*chat/completions \(1\)"):
        read_one(tmp_path)


@pytest.mark.parametrize("has_event", [True, False])
def test_a_call_in_a_log_of_inspect_ai_is_one_with_or_without_its_event(has_event: bool, tmp_path: Path) -> None:
    call = {"id": "c1", "function": "ls", "arguments": {"p": 1}}
    back = {"role": "tool", "tool_call_id": "c1", "content": "a.txt"}

    def model(message: dict[str, Any], stop: str, *asked: dict[str, Any]) -> dict[str, Any]:
        output = {"choices": [{"message": {"role": "assistant", **message}, "stop_reason": stop}]}
        return {"event": "model", "input": list(asked), "output": output}

    tool = {"event": "tool", "id": "c1", "function": "ls", "arguments": {"p": 1}, "result": "a.txt"}
    first = model({"content": "", "tool_calls": [call]}, "tool_calls")
    events = [first, *([tool] if has_event else []), model({"content": "done"}, "max_tokens", back)]
    log = {"version": 2, "eval": {"task": "t"}, "samples": [{"id": 1, "epoch": 1, "input": "hi", "events": events}]}
    (tmp_path / "log.json").write_text(json.dumps(log))
    one, two = read_one(tmp_path / "log.json").steps
    assert (one.tool_logs, two.tool_logs, two.finish_reason) == ((LS,), (), "max_tokens")


def inspect_sample(number: int, content: Any, **more: Any) -> dict[str, Any]:
    """Return a sample of inspect_ai with one answer of *content*, none where it is None."""
    output = {"choices": [{"message": {"role": "assistant", "content": content}, "stop_reason": "stop"}]}
    events = [] if content is None else [{"event": "model", "model": "m", "input": [], "output": output}]
    return {"id": number, "epoch": 1, "input": "hi", "target": "", "events": events, **more}


def inspect_log(tmp_path: Path, **content: Any) -> Path:
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"version": 2, "status": "success", "eval": {"task": "t"}, **content}))
    return path


@pytest.mark.parametrize("content", [{"samples": [inspect_sample(1, None)]}, {"samples": []}, {}])
def test_a_log_of_inspect_ai_without_a_model_event_is_an_error(content: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DatapackError, match="and no model event"):
        read_traces(inspect_log(tmp_path, **content))


def test_a_sample_without_a_model_event_is_named_beside_others(tmp_path: Path) -> None:
    skipped: list[str] = []
    found = read_traces(inspect_log(tmp_path, samples=[inspect_sample(1, "yo"), inspect_sample(2, None)]), skipped)
    assert [len(trace.steps) for trace in found] == [1, 0]
    assert skipped == ["1 sample without a model event: t/2/1"]


def test_thoughts_are_no_text_in_a_log_of_inspect_ai_and_hosted_tools_are_calls(tmp_path: Path) -> None:
    hosted = {"tool_type": "web_search", "id": "w", "name": "search", "arguments": '{"q": "attachment://a1"}'}
    parts = [
        {"type": "reasoning", "reasoning": "hm"}, {"type": "tool_use", **hosted, "result": "found"},
        {"type": "text", "text": "attachment://a1"}, {"type": "text", "text": "yo"},
    ]  # fmt: skip
    step = read_one(inspect_log(tmp_path, samples=[inspect_sample(1, parts, attachments={"a1": "long"})])).steps[0]
    assert step.output_content == "long\nyo"
    assert step.tool_logs == (ToolCall(tool="search", arguments={"q": "long"}, output="found"),)


@pytest.mark.parametrize(
    "content",
    [
        {"trajectory": [], "history": [], "info": {}},
        {"trajectory_format": "mini-swe-agent-1", "messages": [{"role": "user", "content": "hi"}], "info": {}},
        {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": []},
    ],
)
def test_a_file_without_a_step_is_not_converted(content: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.json").write_text(json.dumps(content))
    with pytest.raises(SystemExit) as ended:
        main(["trace", "convert", str(tmp_path / "in.json"), "-o", str(tmp_path / "out.json")])
    assert ended.value.code == 2
    assert "holds no step of an agent" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
