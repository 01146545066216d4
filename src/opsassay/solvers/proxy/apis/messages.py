"""Anthropic messages."""

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


def read_request(body: dict[str, Any]) -> Asked:
    """Return what a request to /messages asks: the system prompt first, then its messages."""
    messages = list_objects(body.get("messages"))
    system = plain_text(body.get("system"))
    results = [
        part
        for message in messages
        for part in list_objects(message.get("content"))
        if part.get("type") == "tool_result"
    ]
    said = [(str(message.get("role", "user")), _text(message.get("content"))) for message in messages]
    return Asked(
        model=text_or_none(body.get("model")),
        messages=tuple(([("system", system)] if system else []) + said),
        results=tuple(
            ToolResult(str(r.get("tool_use_id", "")), plain_text(r.get("content")), failed=bool(r.get("is_error")))
            for r in results
        ),
        user=text_or_none(fields(body.get("metadata")).get("user_id")),
        stream=bool(body.get("stream")),
        tools=tuple(str(tool.get("name", "")) for tool in list_objects(body.get("tools"))),
    )


def read_answer(body: dict[str, Any]) -> ModelAnswer:
    """Return what a message says: the text of its blocks and the tools that it uses."""
    blocks = list_objects(body.get("content"))
    return ModelAnswer(
        text="\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text"),
        tool_uses=tuple(
            ToolUse(str(block.get("id", "")), str(block.get("name", "")), arguments_of(block.get("input")))
            for block in blocks
            if block.get("type") == "tool_use"
        ),
        usage=counts_of(body.get("usage"), OWN_COUNTS),
        model=text_or_none(body.get("model")),
        id=text_or_none(body.get("id")),
        error=error_text(body),
    )


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the message that the events of a stream amount to."""
    whole: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}
    blocks: dict[int, dict[str, Any]] = {}
    partial: dict[int, str] = {}
    for event in events:
        kind, index = event.get("type"), index_of(event.get("index"))
        if kind == "message_start":
            whole |= fields(event.get("message"))
        elif kind == "content_block_start":
            blocks[index] = dict(fields(event.get("content_block")))
        elif kind == "content_block_delta":
            block = blocks.setdefault(index, {"type": "text", "text": ""})
            _add_delta(block, fields(event.get("delta")), partial, index)
        elif kind == "message_delta":
            whole |= fields(event.get("delta"))
            whole["usage"] = fields(whole.get("usage")) | fields(event.get("usage"))
        elif kind == "error":
            whole["error"] = event.get("error")
    for index, text in partial.items():
        blocks[index]["input"] = arguments_of(text)
    return whole | {"content": [blocks[index] for index in sorted(blocks)]}


def edit_text(body: dict[str, Any], edit: Callable[[str], str]) -> dict[str, Any]:
    """Return the request with *edit* applied to its system prompt and to the text of every message."""
    messages = [m | {"content": edit_content(m.get("content"), edit)} for m in list_objects(body.get("messages"))]
    system = {"system": edit_content(body["system"], edit)} if "system" in body else {}
    return body | system | {"messages": messages}


def add_message(body: dict[str, Any], role: str, text: str) -> dict[str, Any]:
    """Return the request with one more message; the API takes instructions from the user only."""
    return body | {
        "messages": [
            *list_objects(body.get("messages")),
            {"role": "user" if role == "system" else role, "content": text},
        ]
    }


def _add_delta(block: dict[str, Any], delta: dict[str, Any], partial: dict[int, str], index: int) -> None:
    if delta.get("type") == "input_json_delta":
        partial[index] = partial.get(index, "") + str(delta.get("partial_json", ""))
    for key in ("text", "thinking", "signature"):
        if isinstance(delta.get(key), str):
            block[key] = (text_or_none(block.get(key)) or "") + delta[key]


def _text(content: Any) -> str:
    called = [f"[calls {b.get('name')} {b.get('input')}]" for b in list_objects(content) if b.get("type") == "tool_use"]
    parts = content if not isinstance(content, list) else [b for b in content if not _is_call(b)]
    return "\n".join(filter(None, [plain_text(parts), *called]))


def _is_call(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_use"


MESSAGES = ModelApi("messages", "/messages", read_request, read_answer, assemble, edit_text, add_message)
