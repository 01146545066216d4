"""Traces of other tools, read from files that those tools wrote, and written so that they come back the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from opsassay.analysis.blame.labelled import read_labelled
from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.solvers.proxy.formats import read_one, read_traces
from opsassay.solvers.proxy.formats.export import write_trace
from opsassay.solvers.proxy.steps import persona, speaker, strip_role_suffix, tool_in_text

LOGS = Path(__file__).with_name("logs")


def test_logs_that_inspect_ai_wrote_are_read_in_both_of_its_forms():
    plain, packed = read_one(LOGS / "inspect.json"), read_one(LOGS / "inspect.eval")
    for trace in (plain, packed):
        assert (trace.task_instruction, trace.reference_answer, trace.outcome) == ("What is 1 + 2?", "3", "includes: I")
        assert [s.agent_name for s in trace.steps] == ["calculator"] * 3
        calls = [(c.tool, c.arguments, c.output, c.status) for s in trace.steps for c in s.tool_logs]
        assert calls == [
            ("add", {"x": -1, "y": 2}, "negative numbers are not supported", "error"),
            ("add", {"x": 1, "y": 2}, "3", "ok"),
            ("submit", {"answer": "4"}, "4", "ok"),
        ]
        first, _, third = (s.input_context for s in trace.steps)
        assert first.startswith("[system]\nYou add numbers.")  # an attachment, put back
        assert "negative numbers" not in first
        assert third.count("[assistant]") == 2
        assert all(s.started_at < s.ended_at and s.usage["output_tokens"] > 0 for s in trace.steps)


def test_spans_of_the_opentelemetry_sdk_are_read(tmp_path):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("t")
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "find it"}]}])
    said = json.dumps(
        [
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": "looking"},
                    {"type": "tool_call", "id": "1", "name": "grep", "arguments": {"q": "x"}},
                ],
            }
        ]
    )
    with tracer.start_as_current_span(
        "invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Finder"}
    ):
        with tracer.start_as_current_span(
            "chat",
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "m",
                "gen_ai.system_instructions": '[{"type":"text","content":"be brief"}]',
                "gen_ai.input.messages": asked,
                "gen_ai.output.messages": said,
                "gen_ai.usage.input_tokens": 7,
            },
        ):
            pass
        with tracer.start_as_current_span(
            "execute_tool grep",
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "grep",
                "gen_ai.tool.call.arguments": '{"q": "x"}',
                "gen_ai.tool.call.result": "nothing",
            },
        ):
            pass
        with tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}) as span:
            span.add_event("gen_ai.content.completion", {"gen_ai.completion": "not there"})
    path = tmp_path / "spans.json"
    export = encode_spans(exporter.get_finished_spans())
    text = json.dumps(MessageToDict(export))
    path.write_text(text)
    trace = read_one(path)
    assert [(s.agent_name, s.output_content, s.kind) for s in trace.steps] == [
        ("Finder", "looking", "tool"),
        ("Finder", "not there", "plain"),
    ]
    assert trace.steps[0].tool_logs == (ToolCall(tool="grep", arguments={"q": "x"}, output="nothing"),)
    assert trace.steps[0].input_context == "[system]\nbe brief\n\n[user]\nfind it"
    assert (trace.steps[0].usage, trace.steps[0].model, trace.task_instruction) == ({"input_tokens": 7}, "m", "find it")
    lines = tmp_path / "spans.jsonl"
    lines.write_text(f"{text}\n{text[:40]}")  # a torn last line
    assert read_one(lines).steps == trace.steps


def a_trace():
    failed = ToolCall(tool="search", arguments={"q": "ü"}, output="Error: no", status="error")
    lost = ToolCall(tool="x", arguments={}, output="", status="unanswered")
    at = {"started_at": 10**18, "ended_at": 10**18 + 5}
    common = {"usage": {"input_tokens": 3, "output_tokens": 2}, "model": "m", "request_id": "r"}
    steps = (
        TraceStep(
            step_id=1,
            agent_id="0",
            agent_name="Planner",
            input_context="[user]\ngo",
            output_content="Planner: search",
            tool_logs=(failed, lost),
            kind="tool",
            **at,
            **common,
        ),
        TraceStep(
            step_id=2, agent_id="1", agent_name="Worker", input_context="", output_content="", error="HTTP 500", **at
        ),
    )
    return Trace(
        task_id="t",
        task_instruction="go",
        system_name="duo",
        agent_configuration={"Planner": {"tools": ["search"]}},
        system_architecture="a",
        outcome="failed",
        reference_answer="42",
        steps=steps,
    )


@pytest.mark.parametrize("form", ["json", "otel"])
def test_a_trace_that_is_exported_comes_back_the_same(tmp_path, form):
    write_trace(a_trace(), tmp_path / "t.json", form)
    assert read_one(tmp_path / "t.json") == a_trace()


@pytest.mark.parametrize("nested", [True, False])
def test_traceelephant_is_read_flat_and_nested_with_its_label(tmp_path, nested):
    log = {"tool_name": "search", "input_arguments": {"q": "x"}, "output": "no", "status": "failed"}
    told = {"input_context": "ctx", "output_content": "Action: search\n", "tool_logs": [log]}
    step = {"step_id": 1, "agent_id": "a0", "agent_name": "Orchestrator (-> WebSurfer)"}
    step |= {"input": {"input_context": told.pop("input_context")}, "output": told} if nested else told
    about = {
        "task_id": "7",
        "task_instruction": "find",
        "system_name": "Magentic-One",
        "agent_configuration": {"a": 1},
        "system_architecture": "x",
    }
    payload = (
        {"metadata": about, "steps": [step], "annotation": {"failure_agent": "Orchestrator", "failure_step": 1}}
        if nested
        else {**about, "steps": [step], "mistake_agent": "Orchestrator", "mistake_step": "1"}
    )
    (tmp_path / "7.json").write_text(json.dumps(payload))
    (case,) = read_labelled(tmp_path)
    (only,) = case.trace.steps
    assert (only.agent_name, only.agent_id, only.input_context, only.kind) == ("Orchestrator", "a0", "ctx", "tool")
    assert only.tool_logs == (ToolCall(tool="search", arguments={"q": "x"}, output="no", status="error"),)
    assert (case.label.agent_name, case.label.step_id, case.subset) == ("Orchestrator", 1, "Magentic-One")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.json", "{", "x.json:1: not valid JSON"),
        ("x.json", "[1]", "no known format"),
        ("x.json", '{"resourceSpans": []}', "no gen_ai spans"),
        ("x.json", '{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}', "not in the form of OTLP JSON"),
        ("x.json", '{"history": [{}], "mistake_agent": "a", "mistake_step": "0"}', "not in the public form"),
        ("x.json", '{"history": [], "mistake_agent": "a", "mistake_step": "first"}', "not in the public form"),
        ("x.eval", "no zip", "log of inspect_ai"),
        ("x.jsonl", "1\n", "no known format"),
        ("x.json", b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_sentence_with_its_file(tmp_path, name, text, message):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DatapackError, match=message) as raised:
        read_traces(tmp_path / name)
    assert name in str(raised.value)


def test_a_folder_without_labels_or_a_path_that_is_not_there_says_what_to_give(tmp_path):
    with pytest.raises(UserError, match="holds no labelled traces"):
        read_labelled(tmp_path)
    with pytest.raises(UserError, match="There is no"):
        read_one(tmp_path / "nothing.json")
    with pytest.raises(UserError, match="not a recorded session"):
        read_one(tmp_path)


def test_names_and_tools_are_read_by_pattern():
    assert strip_role_suffix("Orchestrator (-> WebSurfer)") == "Orchestrator"
    assert strip_role_suffix("Orchestrator (thought)") == "Orchestrator"
    assert strip_role_suffix("Team (EU)") == "Team (EU)"
    assert speaker("Planner: We need to search.") == "Planner"
    assert speaker("**Web Surfer** (-> x): go") == "Web Surfer"
    assert [speaker(t) for t in ("Error: no", "note that: x", "http://x", "It is 5:30 now")] == [None] * 4
    assert persona("## Your role\nExcel_Expert: knows") == "Excel_Expert"
    assert persona("You are the Verifier. Check.") == "Verifier"
    assert persona("You are a helpful assistant.") is None
    assert tool_in_text('Action: search_web\nInput: "x"') == "search_web"
    assert tool_in_text("```python\nprint(1)\n```") == "code"
    assert tool_in_text("no action: here") is None
