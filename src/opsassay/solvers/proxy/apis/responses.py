"""OpenAI responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opsassay.solvers.proxy.apis.base import (
    OWN_COUNTS,
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

_ENDED = frozenset({"response.completed", "response.incomplete", "response.failed"})


def read_request(body: dict[str, Any]) -> Asked:
    """Return what a request to /responses asks: instructions first, then its input."""
    items = _input(body)
    instructions = [("system", str(body["instructions"]))] if body.get("instructions") else []
    results = [item for item in items if item.get("type") == "function_call_output"]
    return Asked(
        model=text_or_none(body.get("model")),
        messages=tuple(
            instructions + [(str(item.get("role") or item.get("type", "user")), _text(item)) for item in items]
        ),
        results=tuple(ToolResult(str(r.get("call_id", "")), plain_text(r.get("output"))) for r in results),
        user=text_or_none(body.get("user")),
        stream=bool(body.get("stream")),
        tools=tuple(str(tool.get("name") or tool.get("type", "")) for tool in list_objects(body.get("tools"))),
    )


def read_answer(body: dict[str, Any]) -> ModelAnswer:
    """Return what a response says: the text of its messages and its function calls."""
    output = list_objects(body.get("output"))
    return ModelAnswer(
        text="\n".join(plain_text(item.get("content")) for item in output if item.get("type") == "message"),
        tool_uses=tuple(
            ToolUse(str(item.get("call_id", "")), str(item.get("name", "")), arguments_of(item.get("arguments")))
            for item in output
            if item.get("type") == "function_call"
        ),
        usage=counts_of(body.get("usage"), OWN_COUNTS),
        model=text_or_none(body.get("model")),
        id=text_or_none(body.get("id")),
        error=error_text(body),
    )


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the response that a stream amounts to: its last event holds it; half a stream is put together."""
    ended = [
        event["response"]
        for event in events
        if str(event.get("type")) in _ENDED and isinstance(event.get("response"), dict)
    ]
    if ended:
        return dict(ended[-1])
    begun: dict[str, Any] = next((e["response"] for e in events if isinstance(e.get("response"), dict)), {})
    texts: dict[int, str] = {}
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        index = index_of(event.get("output_index"))
        if event.get("type") == "response.output_text.delta":
            texts[index] = texts.get(index, "") + str(event.get("delta", ""))
        elif str(event.get("type")) in {"response.output_item.added", "response.output_item.done"}:
            items[index] = dict(fields(event.get("item")))
    for index, text in texts.items():
        item = items.setdefault(index, {"type": "message", "role": "assistant"})
        item["content"] = item.get("content") or [{"type": "output_text", "text": text}]
    failed = next((e for e in events if e.get("type") == "error"), None)
    error = {"error": {"message": str(failed.get("message", "error"))}} if failed else {}
    return {**begun, "status": "incomplete", "output": [items[index] for index in sorted(items)], **error}


def edit_text(body: dict[str, Any], edit: Callable[[str], str]) -> dict[str, Any]:
    """Return the request with *edit* applied to its instructions and to every text of its input."""
    edited = dict(body)
    for key in ("instructions", "input"):
        if key in body:
            edited[key] = edit_content(body[key], edit)
    return edited


def add_message(body: dict[str, Any], role: str, text: str) -> dict[str, Any]:
    """Return the request with one more message at its end."""
    return body | {"input": [*_input(body), {"role": role, "content": text}]}


def _input(body: dict[str, Any]) -> list[dict[str, Any]]:
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else list_objects(given)


def _text(item: dict[str, Any]) -> str:
    if item.get("type") == "function_call":
        return f"[calls {item.get('name')} {arguments_of(item.get('arguments'))}]"
    return plain_text(item.get("output") if "output" in item else item.get("content"))


RESPONSES = ModelApi("responses", "/responses", read_request, read_answer, assemble, edit_text, add_message)
