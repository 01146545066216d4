"""OpenAI chat completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opsassay.solvers.proxy.apis.base import (
    Asked,
    ModelAnswer,
    ModelApi,
    ToolResult,
    ToolUse,
    arguments_of,
    counts_of,
    edit_content,
    error_text,
    fields,
    index_of,
    list_objects,
    text_or_none,
)
from opsassay.solvers.proxy.steps import plain_text

_COUNTS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}


def read_request(body: dict[str, Any]) -> Asked:
    """Return what a request to /chat/completions asks; the agent may be named in ``name`` of its system message."""
    messages = list_objects(body.get("messages"))
    # Tuples: a role may be any JSON, and not all of it can be looked up in a set.
    named = [message.get("name") for message in messages if message.get("role") in ("system", "developer")]
    results = [m for m in messages if m.get("role") in ("tool", "function")]
    return Asked(
        model=text_or_none(body.get("model")),
        messages=tuple((str(m.get("role", "user")), _text(m)) for m in messages),
        results=tuple(ToolResult(str(m.get("tool_call_id", "")), plain_text(m.get("content"))) for m in results),
        agent=next((str(name) for name in named if name), None),
        user=text_or_none(body.get("user")),
        stream=bool(body.get("stream")),
        tools=tuple(str(fields(t.get("function")).get("name", "")) for t in list_objects(body.get("tools"))),
    )


def read_answer(body: dict[str, Any]) -> ModelAnswer:
    """Return what a chat completion says; of several choices the first."""
    choice = next(iter(list_objects(body.get("choices"))), {})
    message = fields(choice.get("message"))
    return ModelAnswer(
        text=plain_text(message.get("content")) or plain_text(message.get("refusal")),
        tool_uses=tuple(_tool_use(call) for call in list_objects(message.get("tool_calls"))),
        usage=counts_of(body.get("usage"), _COUNTS),
        model=text_or_none(body.get("model")),
        id=text_or_none(body.get("id")),
        error=error_text(body),
    )


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the chat completion that the chunks of a stream amount to."""
    whole: dict[str, Any] = {"object": "chat.completion"}
    choices: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[int, dict[str, Any]]] = {}
    for event in events:
        whole |= {key: event[key] for key in ("id", "created", "model", "system_fingerprint") if event.get(key)}
        whole |= {key: event[key] for key in ("usage", "error") if event.get(key)}
        for part in list_objects(event.get("choices")):
            index = index_of(part.get("index"))
            choice = choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            _add_delta(choice["message"], fields(part.get("delta")), calls.setdefault(index, {}))
            if part.get("finish_reason"):
                choice["finish_reason"] = part["finish_reason"]
    for index, made in calls.items():
        if made:
            choices[index]["message"]["tool_calls"] = [made[at] for at in sorted(made)]
    return whole | {"choices": [choices[index] for index in sorted(choices)]}


def edit_text(body: dict[str, Any], edit: Callable[[str], str]) -> dict[str, Any]:
    """Return the request with *edit* applied to the text of every message."""
    messages = [m | {"content": edit_content(m.get("content"), edit)} for m in list_objects(body.get("messages"))]
    return body | {"messages": messages}


def add_message(body: dict[str, Any], role: str, text: str) -> dict[str, Any]:
    """Return the request with one more message at its end."""
    return body | {"messages": [*list_objects(body.get("messages")), {"role": role, "content": text}]}


def _add_delta(message: dict[str, Any], delta: dict[str, Any], calls: dict[int, dict[str, Any]]) -> None:
    for key in ("content", "refusal", "reasoning_content"):
        if isinstance(delta.get(key), str):
            message[key] = (message.get(key) or "") + delta[key]
    for part in list_objects(delta.get("tool_calls")):
        index = index_of(part.get("index"), len(calls))
        call = calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = part.get("id") or call["id"]
        for key in ("name", "arguments"):
            call["function"][key] += text_or_none(fields(part.get("function")).get(key)) or ""


def _text(message: dict[str, Any]) -> str:
    called = [f"[calls {_tool_use(c).tool} {_tool_use(c).arguments}]" for c in list_objects(message.get("tool_calls"))]
    return "\n".join(filter(None, [plain_text(message.get("content")), *called]))


def _tool_use(call: dict[str, Any]) -> ToolUse:
    function = fields(call.get("function"))
    return ToolUse(str(call.get("id", "")), str(function.get("name", "")), arguments_of(function.get("arguments")))


CHAT = ModelApi("chat", "/chat/completions", read_request, read_answer, assemble, edit_text, add_message)
