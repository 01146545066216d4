"""Dialects of the four wire formats that servers really speak: nothing of an answer is lost, and all of it is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsassay.core.schema.trajectory import TraceStep
from opsassay.solvers.proxy import sse
from opsassay.solvers.proxy.apis.chat import CHAT
from opsassay.solvers.proxy.apis.counts import usage_by_total
from opsassay.solvers.proxy.apis.gemini import GEMINI
from opsassay.solvers.proxy.apis.responses import RESPONSES
from opsassay.solvers.proxy.formats.gen_ai import traces_of_spans
from opsassay.solvers.proxy.trace import trace_of
from solvers.proxy.streams import exchange
from solvers.proxy.test_unusual_answers import calls_of, step_of

CALL = {"id": "a", "type": "function", "function": {"name": "ls", "arguments": '{"p":1}'}}
LS = [("ls", {"p": 1})]


def delta(fields: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason, **more}]}


def item(stage: str, id_: str, arguments: str, index: int = 0) -> dict[str, Any]:
    given = {"id": id_, "call_id": "c", "type": "function_call", "name": "ls", "arguments": arguments}
    return {"type": f"response.output_item.{stage}", "output_index": index, "item": given}


def written(stage: str, id_: str, **given: str) -> dict[str, Any]:
    return {"type": f"response.function_call_arguments.{stage}", "output_index": 0, "item_id": id_, **given}


def parts(*given: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(given)}, "finishReason": reason, **more}]}


PIECE = {"jsonPath": "$.p", "numberValue": 1}
CALLS = {
    "Copilot's second choice": (
        "chat",
        {"choices": [{"message": {"content": "I look"}}, {"message": {"tool_calls": [CALL]}}]},
    ),
    "a stream that ends with the message": (
        "chat",
        [delta({"content": "I"}), {"choices": [{"message": {"content": "I look", "tool_calls": [CALL]}}]}],
    ),
    "Copilot's own id for every event": (
        "responses",
        [item("added", "f1", ""), written("delta", "f2", delta='{"p":1}'), item("done", "f3", '{"p":1}')],
    ),
    "arguments that come whole": ("responses", [item("added", "f1", ""), written("done", "f1", arguments='{"p":1}')]),
    "names of the .proto file": ("gemini", parts({"function_call": {"name": "ls", "args": {"p": 1}}})),
    "Vertex's streamed arguments": (
        "gemini",
        [
            parts({"functionCall": {"name": "ls", "willContinue": True}}),
            parts({"functionCall": {"partialArgs": [PIECE], "willContinue": True}}),
            parts({"functionCall": {}}),
        ],
    ),
    "one call that is no list": ("chat", {"choices": [{"message": {"tool_calls": CALL}}]}),
    "pieces that are no list": (
        "chat",
        [
            delta({"tool_calls": {"index": 0} | CALL | {"function": {"name": "ls", "arguments": '{"p"'}}}),
            delta({"tool_calls": {"index": 0, "function": {"arguments": ":1}"}}}),
        ],
    ),
    "indices that are no whole numbers": (
        "chat",
        [
            delta({"tool_calls": [{"index": 1.0} | CALL | {"function": {"name": "ls", "arguments": '{"p"'}}]}),
            delta({"tool_calls": [{"index": "1", "function": {"arguments": ":1}"}}]}),
        ],
    ),
    "one part that is no list": (
        "gemini",
        {"candidates": {"content": {"parts": {"functionCall": {"name": "ls", "args": {"p": 1}}}}}},
    ),
    "Code Assist": ("gemini", [{"response": parts({"functionCall": {"name": "ls", "args": {"p": 1}}})}]),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_in_every_dialect_is_one_call(case: str) -> None:
    assert calls_of(*CALLS[case]) == LS


def test_a_request_of_gemini_with_one_content_that_is_no_list_is_read_and_edited() -> None:
    asked = {
        "systemInstruction": {"parts": {"text": "be short"}}, "contents": {"role": "user", "parts": {"text": "hello"}},
        "tools": {"functionDeclarations": {"name": "ls"}},
    }  # fmt: skip
    api = GEMINI
    assert api.read_request(asked).messages == (("system", "be short"), ("user", "hello"))
    assert api.read_request(asked).tools == ("ls",)
    assert api.read_request(api.edit_text(asked, str.upper)).messages == (("system", "BE SHORT"), ("user", "HELLO"))


def test_two_items_of_one_index_without_a_begin_are_two_calls() -> None:
    assert calls_of("responses", [item("done", "f1", '{"p":1}'), item("done", "f2", '{"p":1}')]) == LS * 2


def test_streamed_arguments_are_put_at_their_paths() -> None:
    pieces = [
        ("$.a[0].b", "stringValue", "New"),
        ("$.a[0].b", "stringValue", " York"),
        ("$.a[1].b", "boolValue", True),
        ("$['c d']", "nullValue", None),
    ]
    sent = [{"jsonPath": path, kind: value} for path, kind, value in pieces]
    first = parts({"functionCall": {"name": "ls", "partialArgs": sent[:1], "willContinue": True}})
    answer = [first, parts({"functionCall": {"partialArgs": sent[1:]}})]
    assert calls_of("gemini", answer) == [("ls", {"a": [{"b": "New York"}, {"b": True}], "c d": None})]


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("api", "answer", "text"),
    [
        (
            "chat",
            [
                delta({"content": [THOUGHT]}),
                delta({"content": [{"type": "text", "text": "Hel"}]}),
                delta({"content": "lo"}),
            ],
            "Hello",
        ),
        ("chat", {"choices": [{"message": {"content": [THOUGHT, {"type": "text", "text": "Hello"}]}}]}, "Hello"),
        ("chat", [delta({"audio": {"transcript": "Hel"}}), delta({"audio": {"transcript": "lo"}})], "Hello"),
        (
            "responses",
            [{"type": "response.output_text.done", "item_id": "m", "output_index": 0, "text": "Hello"}],
            "Hello",
        ),
        (
            "messages",
            [
                {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction"}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "so far"}},
            ],
            "",
        ),
    ],
)
def test_a_text_in_every_dialect_is_the_output_and_no_call(api: str, answer: Any, text: str) -> None:
    step = step_of(api, answer)
    assert (step.output_content, step.tool_logs) == (text, ())


@pytest.mark.parametrize(
    ("api", "answer"),
    [
        (
            "chat",
            {
                "choices": [
                    {"message": {"content": ""}, "finish_reason": "error", "error": {"code": 502, "message": "down"}}
                ]
            },
        ),
        ("chat", [delta({"content": "a"}), delta({}, "error", error={"code": 502, "message": "down"})]),
        ("chat", [delta({"content": "a"}), {"object": "error", "message": "down", "code": 400}]),
        ("responses", [{"type": "error", "error": {"type": "server_error", "message": "down"}}]),
    ],
)
def test_an_error_in_every_dialect_is_said(api: str, answer: Any) -> None:
    assert step_of(api, answer).error == "down"


START = {"input_tokens": 9, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 50, "output_tokens": 1}
TWO_CACHES = {
    "input_tokens": 9, "output_tokens": 5,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30},
}  # fmt: skip
ITERATIONS = [
    {"type": "compaction", "input_tokens": 100, "output_tokens": 7},
    {"type": "message", "input_tokens": 9, "output_tokens": 5},
]


def chat(prompt: int, completion: int, **more: Any) -> tuple[str, dict[str, Any]]:
    return "chat", {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}}


@pytest.mark.parametrize(
    ("api", "answer", "given", "said", "cached", "written"),
    [
        (*chat(32, 9, total_tokens=135, completion_tokens_details={"reasoning_tokens": 94}), 32, 103, None, None),
        (*chat(32, 9, total_tokens=135), 32, 103, None, None),
        (*chat(9, 5, total_tokens=114, cached_tokens=100), 109, 5, 100, None),
        (*chat(159, 6, total_tokens=165, cache_creation_input_tokens=50), 159, 6, None, 50),
        ("chat", [delta({}), delta({}, usage={"prompt_tokens": 5, "completion_tokens": 6})], 5, 6, None, None),
        ("chat", [{**delta({}), "x_groq": {"usage": {"prompt_tokens": 5, "completion_tokens": 6}}}], 5, 6, None, None),
        (
            "messages",
            [
                {"type": "message_start", "message": {"usage": START}},
                {
                    "type": "message_delta",
                    "delta": {},
                    "usage": {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 16},
                },
            ],
            159,
            16,
            100,
            50,
        ),
        ("messages", {"usage": {"input_tokens": 9, "output_tokens": 5, "iterations": ITERATIONS}}, 109, 12, None, None),
        ("messages", {"usage": {**TWO_CACHES, "cache_read_input_tokens": 100}}, 159, 5, 100, 50),
        ("messages", {"usage": {**TWO_CACHES, "cache_creation_input_tokens": 50}}, 59, 5, None, 50),
        ("messages", {"usage": {"input_tokens": 9, "output_tokens": 5, "cache_creation": None}}, 9, 5, None, None),
        ("gemini", {"usage_metadata": {"prompt_token_count": "3", "candidates_token_count": 4}}, 3, 4, None, None),
    ],
)
def test_counts_in_every_dialect_are_counted(
    api: str, answer: Any, given: int, said: int, cached: int | None, written: int | None
) -> None:
    usage = step_of(api, answer).usage
    names = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")
    assert tuple(map(usage.get, names)) == (given, said, cached, written)


def test_a_byte_order_mark_begins_no_event() -> None:
    assert sse.events(b'\xef\xbb\xbfdata: {"a": 1}\n\n') == [{"a": 1}]


def step_of_span(attributes: dict[str, str], *events: tuple[str, dict[str, str]]) -> TraceStep:
    """Return the step of one span of a chat with text attributes and events."""

    def pairs(given: dict[str, str]) -> list[dict[str, Any]]:
        return [{"key": key, "value": {"stringValue": value}} for key, value in given.items()]

    span = {
        "traceId": "a" * 32, "spanId": "b" * 16, "attributes": pairs({"llm.request.type": "completion", **attributes}),
        "events": [{"name": name, "attributes": pairs(given)} for name, given in events],
    }  # fmt: skip
    return traces_of_spans([{"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}], Path("x"), [])[0].steps[0]


SAID = json.dumps([{"role": "assistant", "content": "ok", "tool_calls": [CALL]}])
SERVED = [
    {"type": "text", "content": "ok"},
    {"type": "server_tool_call", "id": "s", "name": "ls", "server_tool_call": {"p": 1}},
    {"type": "server_tool_call_response", "id": "s", "server_tool_call_response": {"r": 2}},
]


@pytest.mark.parametrize(
    ("step", "output"),
    [
        (step_of_span({"gen_ai.output.messages": SAID}), ""),
        (step_of_span({}, ("gen_ai.content.completion", {"gen_ai.completion": SAID})), ""),
        (step_of_span({"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": SERVED}])}), '{"r": 2}'),
    ],
)
def test_a_span_says_and_calls_in_every_form(step: TraceStep, output: str) -> None:
    assert step.output_content == "ok"
    assert [(call.tool, call.arguments, call.output) for call in step.tool_logs] == [("ls", {"p": 1}, output)]


def test_thoughts_and_media_of_a_span_are_no_text_of_its_answer() -> None:
    parts = [
        {"type": "reasoning", "content": "hm"}, {"type": "text", "content": "hi"},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "iVBORw0KGgo="},
        {"type": "uri", "modality": "image", "uri": "https://a/b.png"}, {"type": "file", "file_id": "f1"},
    ]  # fmt: skip
    step = step_of_span({"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}])})
    assert step.output_content == "hi\n[image image/png]\n[image https://a/b.png]\n[file f1]"
    assert not step.tool_logs


def test_a_span_says_why_it_ended_in_every_form() -> None:
    assert step_of_span({"gen_ai.response.finish_reasons": "length"}).finish_reason == "length"
    assert step_of_span({"error.type": "timeout"}).error == "timeout"
    assert step_of_span({"error.type": "timeout"}, ("exception", {"exception.message": "too slow"})).error == "too slow"
    assert step_of_span({"gen_ai.usage.details.reasoning_tokens": "5"}).usage == {"reasoning_tokens": 5}


STREAM = b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("body", "streamed", "output", "error"),
    [
        (STREAM, False, "hi", None),
        (b": busy\n\n" + STREAM, False, "hi", None),
        (b"event: chunk\n" + STREAM, False, "hi", None),
        (b'{"choices": [{"message": {"content": "hi"}}]}', True, "hi", None),
        (b'{"error": {"message": "down"}}', True, "", "down"),
    ],
)
def test_an_answer_is_read_by_its_text_whatever_its_type_says(
    body: bytes, streamed: bool, output: str, error: str | None
) -> None:
    step = trace_of([exchange("chat", body, streamed=streamed)], "run").steps[0]
    assert (step.output_content, step.error) == (output, error)


def test_what_a_tool_gave_is_kept_in_every_form() -> None:
    items = [
        {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "x"}]},
        {"type": "local_shell_call_output", "id": "b", "output": "y"},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"},
    ]
    found = [(one.id, one.output, one.failed) for one in RESPONSES.read_request({"input": items}).results]
    assert found == [("a", '{"stdout": "x"}', False), ("b", "y", False), ("c", "no", True)]
    read = CHAT.read_request({"messages": [{"role": "tool", "tool_call_id": "a", "content": {"x": 1}}]})
    assert read.results[0].output == '{"x": 1}'


def test_reasoning_that_inspect_has_apart_is_counted() -> None:
    counts = {"input_tokens": 32, "output_tokens": 9, "reasoning_tokens": 94, "total_tokens": 135}
    assert usage_by_total("inspect", counts)["output_tokens"] == 103
