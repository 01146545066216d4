"""Answers of servers that keep no rule, and spans whose messages lie elsewhere: nothing of them is lost in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsassay.solvers.proxy.formats.finding import read_one
from opsassay.solvers.proxy.trace import trace_of
from solvers.proxy.streams import exchange
from solvers.proxy.test_dialects import delta, item, parts, step_of_span
from solvers.proxy.test_unusual_answers import calls_of, responses, step_of


def calls_in_one_event(*functions: dict[str, Any]) -> list[dict[str, Any]]:
    return [delta({"tool_calls": [{"function": function} for function in functions]})]


@pytest.mark.parametrize("arguments", [{}, {"arguments": "{}"}])
def test_calls_in_one_event_without_index_and_id_are_apart(arguments: dict[str, str]) -> None:
    sent = calls_in_one_event({"name": "ls", **arguments}, {"name": "cat", **arguments})
    assert calls_of("chat", sent) == [("ls", {}), ("cat", {})]


@pytest.mark.parametrize(
    "body",
    [
        "".join(f"data: {json.dumps(delta({'content': text}))}\n" for text in ("Hel", "lo")) + "data: [DONE]\n\n",
        "\n\n".join(f"data: {json.dumps(delta({'content': text}))}" for text in ("Hel", "lo")),
    ],
    ids=["no empty lines between events", "no empty line after the last event"],
)
def test_events_are_found_where_empty_lines_are_missing(body: str) -> None:
    assert trace_of([exchange("chat", body.encode())], "run").steps[0].output_content == "Hello"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"<html>busy</html>", "neither a JSON object nor a stream"),
        (json.dumps(delta({"content": "x"})).encode() * 2, "neither a JSON object nor a stream"),
        (b'{"detail": "Not Found"}', "no text, no call and no reason"),
        (b'{"id": "x", "choices": []}', "no text, no call and no reason"),
        (b": ping\n\ndata: [DONE]\n\n", "no text, no call and no reason"),
    ],
)
def test_an_answer_in_which_nothing_is_found_is_an_error(body: bytes, error: str) -> None:
    assert error in str(trace_of([exchange("chat", body, streamed=False)], "run").steps[0].error)


def test_a_hosted_call_of_gemini_has_its_result() -> None:
    sent = {"toolType": "GOOGLE_SEARCH", "id": "a"}
    step = step_of("gemini", parts({"toolCall": sent}, {"toolResponse": {**sent, "response": {"r": 1}}}))
    assert [(call.tool, call.output) for call in step.tool_logs] == [("toolCall", '{"r": 1}')]


def test_what_code_printed_is_the_result_of_its_call() -> None:
    run = {
        "type": "code_interpreter_call",
        "id": "c",
        "status": "completed",
        "outputs": [{"type": "logs", "logs": "2"}],
    }
    assert step_of("responses", responses(run)).tool_logs[0].output == "2"


def test_streamed_arguments_are_put_at_paths_in_double_quotes() -> None:
    piece = {"jsonPath": '$["c.d"]', "boolValue": True}
    assert calls_of("gemini", parts({"functionCall": {"name": "ls", "partialArgs": [piece]}})) == [
        ("ls", {"c.d": True})
    ]


def test_pieces_of_unknown_kinds_are_kept_in_a_stream_that_was_cut() -> None:
    shell = item("added", "s", "")
    shell["item"] = {"type": "shell_call", "id": "s"}
    piece = {"type": "response.shell_call_command.delta", "output_index": 0, "delta": "ls -l"}
    alone = {"type": "response.function_call_arguments.delta", "item_id": "f", "output_index": 1, "delta": "{}"}
    (_, first), (tool, second) = calls_of("responses", [shell, piece, alone])
    assert "ls -l" in first
    assert (tool, '"arguments": "{}"' in second) == ("function_call_arguments", True)


def test_the_plain_prompt_and_completion_of_a_span_are_read() -> None:
    step = step_of_span(
        {"gen_ai.prompt": "hi", "gen_ai.completion": "yo", "gen_ai.response.finish_reasons": '"length"'}
    )
    assert (step.input_context, step.output_content, step.finish_reason) == ("[user]\nhi", "yo", "length")


def test_events_that_a_span_lists_in_an_attribute_are_read() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"p":1}'}}
    events = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": "hi"},
        {
            "event.name": "gen_ai.choice",
            "index": 0,
            "message": {"role": "assistant", "content": "yo", "tool_calls": [call]},
        },
    ]
    step = step_of_span({"events": json.dumps(events)})
    assert (step.input_context, step.output_content) == ("[user]\nhi", "yo")
    assert [(one.tool, one.arguments) for one in step.tool_logs] == [("ls", {"p": 1})]
    assert step_of_span({"events": "no JSON", "gen_ai.completion": "yo"}).output_content == "yo"


def test_events_that_are_log_records_belong_to_their_span(tmp_path: Path) -> None:
    """Conventions 1.28 to 1.36; the lines are those of a collector's file exporter, in a file of any name."""
    where = {"traceId": "a" * 32, "spanId": "b" * 16}
    kind = {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}
    text = {"key": "content", "value": {"stringValue": "hi"}}
    said = {
        "key": "message",
        "value": {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "yo"}}]}},
    }
    records = [
        {**where, "timeUnixNano": "2", "eventName": "gen_ai.choice", "body": {"kvlistValue": {"values": [said]}}},
        {**where, "timeUnixNano": "1", "eventName": "gen_ai.user.message", "body": {"kvlistValue": {"values": [text]}}},
        {"timeUnixNano": "3", "body": {"stringValue": "started"}},
    ]
    lines = [
        {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{**where, "attributes": [kind]}]}]}]},
    ]
    path = tmp_path / "telemetry.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    skipped: list[str] = []
    (step,) = read_one(path, skipped).steps
    assert (step.input_context, step.output_content) == ("[user]\nhi", "yo")
    assert skipped == ["1 log record of no gen_ai event"]
