"""Answers as servers really send them: every call, count and reason is in the trace, whatever its form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsassay.core.schema.trajectory import TraceStep
from opsassay.solvers.agents.tools import shown_rows
from opsassay.solvers.proxy.apis.base import arguments_of
from opsassay.solvers.proxy.apis.counts import inspect_counts, usage_by_total, usage_of
from opsassay.solvers.proxy.secrets import is_placeholder
from opsassay.solvers.proxy.trace import trace_of
from solvers.proxy.streams import exchange


def step_of(api: str, answer: Any) -> TraceStep:
    """Return the step of *answer*: one object, or the events of a stream that is whole."""
    if isinstance(answer, list):
        body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in answer) + b"data: [DONE]\n\n"
    else:
        body = json.dumps(answer).encode()
    return trace_of([exchange(api, body, streamed=isinstance(answer, list))], "run").steps[0]


def calls_of(api: str, answer: Any) -> list[tuple[str, Any]]:
    return [(call.tool, call.arguments.get("raw", call.arguments)) for call in step_of(api, answer).tool_logs]


def part(name: str | None = None, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a chunk of a chat stream with a part of a call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [{**more, "function": function}]}}]}


STREAMED = {
    "no index and no id in the parts": [part("ls", "", id="a"), part(None, '{"p":'), part(None, '"x"}')],
    "ids without indexes": [part("ls", '{"p":"x"}', id="a"), part("cat", '{"q":1}', id="b")],
    "every index 0": [part("ls", '{"p":"x"}', index=0, id="a"), part("cat", '{"q":1}', index=0, id="b")],
    "every index 0 and no id": [part("ls", '{"p":"x"}', index=0), part("cat", '{"q":1}', index=0)],
    "one tool twice at index 0": [part("ls", '{"p":"x"}', index=0, id="a"), part("ls", '{"p":"y"}', index=0, id="b")],
    "the name with every part": [
        part("ls", "", index=0, id="a"),
        part("ls", '{"p":', index=0, id="a"),
        part("ls", '"x"}', index=0, id="a"),
    ],
    "the name with every part, no id": [part("ls", '{"p":', index=0), part("ls", '"x"}', index=0)],
    "another id with every part": [part("ls", '{"p":', index=0, id="a"), part(None, '"x"}', index=0, id="b")],
    "a name in two parts": [part("list_", "", index=0, id="a"), part("files", "{}", index=0)],
    "the id after the name": [part("ls", "", index=0), part(None, '{"p":"x"}', index=0, id="a")],
    "parts in turn": [
        part("ls", "", index=0, id="a"),
        part("cat", "", index=1, id="b"),
        part(None, '{"q":1}', index=1),
        part(None, '{"p":"x"}', index=0),
    ],
}
LS, CAT = ("ls", {"p": "x"}), ("cat", {"q": 1})
MADE = {
    "ids without indexes": [LS, CAT],
    "every index 0": [LS, CAT],
    "every index 0 and no id": [LS, CAT],
    "one tool twice at index 0": [LS, ("ls", {"p": "y"})],
    "a name in two parts": [("list_files", {})],
    "parts in turn": [LS, CAT],
}


@pytest.mark.parametrize("case", STREAMED)
def test_parts_of_streamed_calls_are_put_together(case: str) -> None:
    assert calls_of("chat", STREAMED[case]) == MADE.get(case, [LS])


def chat(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": None, **message}, **more}]}


def responses(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"status": "completed", "output": list(items), **more}


def gemini(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts)}, "finishReason": "STOP", **more}]}


KINDS = {
    "chat function": (
        "chat",
        chat({"tool_calls": [{"id": "1", "type": "function", "function": {"name": "ls", "arguments": '{"p":"x"}'}}]}),
        [LS],
    ),
    "chat, arguments an object": (
        "chat",
        chat({"tool_calls": [{"id": "1", "function": {"name": "ls", "arguments": {"p": "x"}}}]}),
        [LS],
    ),
    "chat custom": (
        "chat",
        chat({"tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}]}),
        [("sh", "ls -l")],
    ),
    "chat legacy": ("chat", chat({"function_call": {"name": "ls", "arguments": '{"p":"x"}'}}), [LS]),
    "chat legacy stream": (
        "chat",
        [
            {"choices": [{"delta": {"function_call": {"name": "ls", "arguments": ""}}}]},
            {"choices": [{"delta": {"function_call": {"arguments": '{"p":"x"}'}}}]},
        ],
        [LS],
    ),
    "chat custom stream": (
        "chat",
        [
            {
                "choices": [
                    {
                        "delta": {
                            "tool_calls": [
                                {"index": 0, "id": "1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
                            ]
                        }
                    }
                ]
            },
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "custom": {"input": " -l"}}]}}]},
        ],
        [("sh", "ls -l")],
    ),
    "responses custom": (
        "responses",
        responses({"type": "custom_tool_call", "call_id": "1", "name": "sh", "input": "ls -l"}),
        [("sh", "ls -l")],
    ),
    "responses mcp": (
        "responses",
        responses({"type": "mcp_call", "id": "1", "name": "read", "arguments": "{}", "output": "done"}),
        [("read", {})],
    ),
    "messages hosted": (
        "messages",
        {"content": [{"type": "server_tool_use", "id": "1", "name": "web_search", "input": {"query": "q"}}]},
        [("web_search", {"query": "q"})],
    ),
    "messages mcp": (
        "messages",
        {"content": [{"type": "mcp_tool_use", "id": "1", "name": "ls", "input": {"p": "x"}}]},
        [LS],
    ),
    "gemini": ("gemini", gemini({"functionCall": {"name": "ls", "args": {"p": "x"}}, "thoughtSignature": "s"}), [LS]),
}


@pytest.mark.parametrize("case", KINDS)
def test_a_call_of_every_kind_is_a_call(case: str) -> None:
    api, answer, made = KINDS[case]
    assert calls_of(api, answer) == made


@pytest.mark.parametrize(
    ("api", "answer", "tool"),
    [
        ("chat", chat({"tool_calls": [{"id": "1", "type": "teleport", "teleport": {"to": "mars"}}]}), "teleport"),
        (
            "responses",
            responses({"type": "web_search_call", "id": "1", "action": {"query": "mars"}}),
            "web_search_call",
        ),
        ("responses", responses({"type": "teleport", "id": "1", "to": "mars"}), "teleport"),
        ("messages", {"content": [{"type": "teleport", "id": "1", "to": "mars"}]}, "teleport"),
        ("gemini", gemini({"executableCode": {"code": "mars"}}), "executableCode"),
        ("gemini", gemini({"teleport": {"to": "mars"}}), "teleport"),
    ],
)
def test_an_unknown_item_is_a_call_of_its_type_with_its_text(api: str, answer: Any, tool: str) -> None:
    (call,) = step_of(api, answer).tool_logs
    assert call.tool == tool
    assert "mars" in call.arguments["raw"]


@pytest.mark.parametrize(
    ("api", "answer", "output"),
    [
        (
            "responses",
            responses({"type": "mcp_call", "id": "1", "name": "read", "arguments": "{}", "output": "done"}),
            "done",
        ),
        (
            "messages",
            {
                "content": [
                    {"type": "server_tool_use", "id": "1", "name": "s", "input": {}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "1",
                        "content": [{"type": "web_search_result", "title": "T"}],
                    },
                ]
            },
            '"T"',
        ),
        (
            "gemini",
            gemini(
                {"executableCode": {"code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "one"}}
            ),
            "one",
        ),
    ],
)
def test_what_a_hosted_tool_gave_is_with_its_call(api: str, answer: Any, output: str) -> None:
    (call,) = step_of(api, answer).tool_logs
    assert output in call.output
    assert call.status == "ok"


@pytest.mark.parametrize(
    ("api", "answer", "reason"),
    [
        ("chat", chat({"content": "cut"}, finish_reason="length"), "length"),
        ("chat", chat({"refusal": "no"}, finish_reason="content_filter"), "content_filter"),
        (
            "responses",
            responses(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "max_output_tokens",
        ),
        (
            "responses",
            [{"type": "response.incomplete", "response": responses(incomplete_details={"reason": "content_filter"})}],
            "content_filter",
        ),
        ("messages", {"content": [], "stop_reason": "refusal"}, "refusal"),
        (
            "messages",
            [
                {"type": "message_start", "message": {}},
                {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}},
            ],
            "pause_turn",
        ),
        ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}, "SAFETY"),
        ("gemini", {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}, "MALFORMED_FUNCTION_CALL"),
    ],
)
def test_why_a_model_stopped_is_with_the_step(api: str, answer: Any, reason: str) -> None:
    assert step_of(api, answer).finish_reason == reason


@pytest.mark.parametrize(
    ("api", "counts", "found"),
    [
        (
            "messages",
            {"input_tokens": 9, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 50, "output_tokens": 16},
            (159, 16, 100),
        ),
        ("messages", {"input_tokens": 9, "cache_read_input_tokens": None, "output_tokens": 16}, (9, 16, None)),
        (
            "chat",
            {
                "prompt_tokens": 9,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 2},
            },
            (9, 5, 4),
        ),
        ("chat", {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": None}, (9, 5, None)),
        ("responses", {"input_tokens": 9, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4}}, (9, 5, 4)),
        (
            "gemini",
            {
                "promptTokenCount": 9,
                "toolUsePromptTokenCount": 3,
                "candidatesTokenCount": 2,
                "thoughtsTokenCount": 4,
                "cachedContentTokenCount": 1,
            },
            (12, 6, 1),
        ),
        (
            "gen_ai",
            {
                "gen_ai.usage.prompt_tokens": 9,
                "gen_ai.usage.completion_tokens": 5,
                "gen_ai.usage.cache_read_input_tokens": 1,
            },
            (9, 5, 1),
        ),
        (
            "gen_ai",
            {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.prompt_tokens": 9, "gen_ai.usage.output_tokens": 0},
            (9, 0, None),
        ),
        ("atif", {"prompt_tokens": 9, "completion_tokens": 5, "cached_tokens": 4}, (9, 5, 4)),
    ],
)
def test_counts_include_what_the_table_says(
    api: str, counts: dict[str, Any], found: tuple[int, int, int | None]
) -> None:
    usage = usage_of(api, counts)
    assert (usage["input_tokens"], usage["output_tokens"], usage.get("cached_tokens")) == found


@pytest.mark.parametrize(("total", "given"), [(162, 159), (None, 159), (12, 9)])
def test_the_total_of_inspect_says_whether_cached_tokens_are_among_its_input(total: int | None, given: int) -> None:
    usage = {"input_tokens": 9, "output_tokens": 3, "input_tokens_cache_read": 100, "input_tokens_cache_write": 50}
    found = usage_by_total("inspect", {**usage, "total_tokens": total})
    assert (found["input_tokens"], found["output_tokens"]) == (given, 3)
    if given == 159:
        assert inspect_counts(found) == {**usage, "total_tokens": 162}


@pytest.mark.parametrize(
    "key",
    [
        "none",
        "EMPTY",
        "x",
        "k",
        "test",
        "ollama",
        "sk-no-key-required",
        "not-needed",
        "lm-studio",
        "dummy",
        "sk-1234",
        "your_api_key_here",
        "xxxxxxxx",
        "sk-xxxxxxxxxxxx",
        "changeme",
        "local",
        "NA",
        "null",
        "fake-key",
        "placeholder",
        "llama.cpp",
        "password",
        "token-abc123",
        "noauth",
    ],
)
def test_a_placeholder_is_no_secret(key: str) -> None:
    assert is_placeholder(key)


@pytest.mark.parametrize(
    "key",
    [
        "sk-real-0123456789",
        "hunter2hunter2",
        "sk-ant-api03-abc",
        "AIzaSyD-1",
        "gsk_9f",
        "correct horse",
        "testing9",
        "k7Gq",
    ],
)
def test_a_key_that_may_be_real_is_a_secret(key: str) -> None:
    assert not is_placeholder(key)


def test_rows_of_a_tool_are_json_whatever_the_numbers_are() -> None:
    def refuse(name: str) -> float:
        raise AssertionError(name)

    rows = ((float("nan"), float("-inf"), [float("inf")], {"a": float("nan")}),)
    line = shown_rows(("a", "b", "c", "d"), rows, truncated=False).splitlines()[1]
    assert json.loads(line, parse_constant=refuse) == ["NaN", "-Infinity", ["Infinity"], {"a": "NaN"}]
    assert arguments_of('{"p": NaN}') == {"raw": '{"p": NaN}'}
