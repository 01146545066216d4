"""Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from opsassay.solvers.proxy.apis.base import (
    Asked,
    ModelAnswer,
    ModelApi,
    ToolResult,
    ToolUse,
    arguments_of,
    calls_text,
    edit_messages,
    error_text,
    fields,
    index_of,
    list_objects,
    raw_use,
    text_or_none,
)
from opsassay.solvers.proxy.apis.counts import messages_usage, usage_of
from opsassay.solvers.proxy.steps import plain_text

_CONTENT = (
    "text",
    "thinking",
    "redacted_thinking",
    "image",
    "document",
    "search_result",
    "container_upload",
    "compaction",
)
"""Types of blocks that are content, not a tool call."""


def read_request(body: dict[str, Any]) -> Asked:
    """Return the parsed request to /messages: system prompt first, then its messages."""
    messages = list_objects(body.get("messages"))
    system = plain_text(body.get("system"))
    results = [
        part
        for message in messages
        for part in list_objects(message.get("content"))
        if part.get("type") == "tool_result"
    ]
    said = [(str(message.get("role", "user")), _text_of_content(message.get("content"))) for message in messages]
    return Asked(
        model=text_or_none(body.get("model")),
        messages=tuple(([("system", system)] if system else []) + said),
        results=tuple(map(_read_tool_result, results)),
        user=text_or_none(fields(body.get("metadata")).get("user_id")),
        stream=bool(body.get("stream")),
        tools=tuple(str(tool.get("name") or tool.get("type", "")) for tool in list_objects(body.get("tools"))),
    )


def read_answer(body: dict[str, Any]) -> ModelAnswer:
    """Return the response *body*, a message, as an answer: text of its blocks, tool calls, results, usage."""
    blocks = list_objects(body.get("content"))
    return ModelAnswer(
        text="\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text"),
        tool_uses=_tool_uses(blocks),
        results=tuple(_read_tool_result(block) for block in blocks if _is_result(block)),
        usage=messages_usage(body.get("usage")),
        finish_reason=text_or_none(body.get("stop_reason")),
        model=text_or_none(body.get("model")),
        id=text_or_none(body.get("id")),
        error=error_text(body),
    )


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the message that the events of a stream make together."""
    whole: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}
    blocks: list[dict[str, Any]] = []
    partial: dict[int, str] = {}
    places: dict[int, int] = {}  # of the stream's indexes, which may be missing or all the same
    for event in events:
        kind, last = event.get("type"), len(blocks) - 1
        if kind == "message_start":
            whole |= fields(event.get("message"))
        elif kind == "content_block_start":
            blocks.append(dict(fields(event.get("content_block"))))
            places[index_of(event.get("index"), last + 1)] = last + 1
        elif kind == "content_block_delta":
            place = places.get(index_of(event.get("index"), -1), max(last, 0))
            if not blocks:
                blocks.append({"type": "text", "text": ""})
            _add_delta(blocks[place], fields(event.get("delta")), partial, place)
        elif kind == "message_delta":
            whole |= fields(event.get("delta"))
            whole["usage"] = fields(whole.get("usage")) | _known_counts(event.get("usage"))
        elif kind == "error":
            whole["error"] = event.get("error")
    for place, text in partial.items():
        if text:
            blocks[place]["input"] = arguments_of(text)
    return whole | {"content": blocks}


def add_message(body: dict[str, Any], role: str, text: str) -> dict[str, Any]:
    """Return the request *body* with a message of *role* and *text* added; role "system" becomes "user"."""
    return body | {
        "messages": [
            *list_objects(body.get("messages")),
            {"role": "user" if role == "system" else role, "content": text},
        ]
    }


def _add_delta(block: dict[str, Any], delta: dict[str, Any], partial: dict[int, str], index: int) -> None:
    """Add the streamed *delta* to *block*; JSON of arguments is collected in *partial* by the block's *index*."""
    if delta.get("type") == "input_json_delta":
        partial[index] = partial.get(index, "") + str(delta.get("partial_json", ""))
    for key in ("text", "thinking", "signature", "content"):
        if isinstance(delta.get(key), str):
            block[key] = (text_or_none(block.get(key)) or "") + delta[key]


def _known_counts(usage: Any) -> dict[str, Any]:
    """Return the token counts in *usage* that are not null, without input counts of 0 if input_tokens is 0 or absent."""
    unsaid = (0,) if not usage_of("messages", usage).get("input_tokens") else ()
    return {
        name: count for name, count in fields(usage).items()
        if count is not None and not ("input" in name and count in unsaid)
    }  # fmt: skip


def _text_of_content(content: Any) -> str:
    """Return all texts of *content*, then a line for each tool call."""
    uses = _tool_uses(list_objects(content))
    parts = [b for b in content if not _is_use(b)] if isinstance(content, list) else content
    return "\n".join(filter(None, [plain_text(parts), *calls_text(uses)]))


def _tool_uses(blocks: list[dict[str, Any]]) -> tuple[ToolUse, ...]:
    """Return the tool calls among *blocks*, server tools included; an unknown type counts as a call of that name."""
    return tuple(
        ToolUse(str(block.get("id", "")), str(block.get("name", "")), arguments_of(block.get("input")))
        if str(block.get("type")).endswith("tool_use")
        else raw_use(str(block.get("type")), block, block.get("id"))
        for block in blocks
        if _is_use(block)
    )


def _is_use(block: Any) -> bool:
    """Whether *block* is a tool call: a type that is neither content nor a tool's result."""
    return (
        isinstance(block, dict) and bool(block.get("type")) and block["type"] not in _CONTENT and not _is_result(block)
    )


def _is_result(block: dict[str, Any]) -> bool:
    """Whether *block* is a tool's result: its type ends with "tool_result"."""
    return str(block.get("type")).endswith("tool_result")


def _read_tool_result(block: dict[str, Any]) -> ToolResult:
    """Return the result in *block*: text, with media named, where it has nothing else; otherwise its JSON."""
    given = block.get("content")
    is_plain = (
        given is None or isinstance(given, str) or (isinstance(given, list) and all(_is_plain(part) for part in given))
    )
    failed = bool(block.get("is_error")) or str(fields(given).get("type")).endswith("_error")
    output = plain_text(given) if is_plain else json.dumps(given, ensure_ascii=False)
    return ToolResult(str(block.get("tool_use_id", "")), output, failed)


def _is_plain(part: Any) -> bool:
    """Whether *part* is text, an image or a document."""
    return isinstance(part, dict) and part.get("type") in {"text", "image", "document"}


MESSAGES = ModelApi("messages", "/messages", read_request, read_answer, assemble, edit_messages, add_message)
