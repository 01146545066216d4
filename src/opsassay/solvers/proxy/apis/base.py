"""The parsed request and answer of an LLM API, and the functions that each API has to provide."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ToolUse:
    """A tool call in an answer; *arguments* that are no JSON object are stored under the key "raw"."""

    id: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call, read from the messages of a later request."""

    id: str
    output: str
    failed: bool = False


@dataclass(frozen=True)
class Asked:
    """A request: (role, text) of every message in order, tool results, and the calling agent's name if it is known."""

    model: str | None
    messages: tuple[tuple[str, str], ...]
    results: tuple[ToolResult, ...] = ()
    agent: str | None = None
    user: str | None = None
    stream: bool = False
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelAnswer:
    """An answer: text, tool calls, results of hosted tools, token counts by names in `counts`, and its finish reason."""

    text: str
    tool_uses: tuple[ToolUse, ...] = ()
    results: tuple[ToolResult, ...] = ()
    usage: dict[str, int] = field(default_factory=dict)
    finish_reason: str | None = None
    model: str | None = None
    id: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class ModelApi:
    """One API: the end of its path, parsers of requests and answers, and the function that joins stream events.

    *read_path* returns the fields of a request that its path contains.
    """

    name: str
    suffix: str | tuple[str, ...]
    read_request: Callable[[dict[str, Any]], Asked]
    read_answer: Callable[[dict[str, Any]], ModelAnswer]
    assemble: Callable[[Sequence[dict[str, Any]]], dict[str, Any]]
    edit_text: Callable[[dict[str, Any], Callable[[str], str]], dict[str, Any]]
    add_message: Callable[[dict[str, Any], str, str], dict[str, Any]]
    read_path: Callable[[str], dict[str, Any]] = lambda _path: {}

    def asked(self, path: str, body: dict[str, Any]) -> Asked:
        """Return the parsed request to *path*: messages, tools, model, and whether a stream is requested."""
        return self.read_request({**self.read_path(path), **body})


def arguments_of(text: Any) -> dict[str, Any]:
    """Return a tool's arguments, an object or its JSON text, as an object; {"raw": text} for anything else."""
    if isinstance(text, dict):
        return text
    try:
        parsed = json.loads(text or "{}", parse_constant=_refuse_constant)
    except (TypeError, ValueError):
        return {"raw": text}
    return parsed if isinstance(parsed, dict) else {"raw": text}


def _refuse_constant(name: str) -> float:
    """Raise ValueError for NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{name} is no number of JSON")


def fields(value: Any) -> dict[str, Any]:
    """Return *value* if it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


def index_of(value: Any, default: int = 0) -> int:
    """Return *value* converted to an integer, as from 1.0 or "1"; *default* when that fails."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return default


def text_or_none(value: Any) -> str | None:
    """Return *value* as text, None for None."""
    return None if value is None else str(value)


def raw_use(kind: str, item: dict[str, Any], id_: Any = None) -> ToolUse:
    """Return *item*, of an unknown type *kind*, as a tool call named *kind* with the item's JSON under "raw"."""
    return ToolUse(str(id_ or kind), kind, {"raw": json.dumps(item, ensure_ascii=False)})


def calls_text(uses: Iterable[ToolUse]) -> list[str]:
    """Return one line "[calls TOOL ARGUMENTS]" for each of *uses*, the tool calls of an earlier message."""
    return [f"[calls {use.tool} {use.arguments}]" for use in uses]


def list_objects(value: Any) -> list[dict[str, Any]]:
    """Return the JSON objects in *value*, a list or one object; [] for anything else."""
    if isinstance(value, dict):
        return [value]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def edit_content(content: Any, edit: Callable[[str], str]) -> Any:
    """Return the *content* of a message with *edit* applied to each text in it."""
    if isinstance(content, str):
        return edit(content)
    if isinstance(content, list):
        return [edit_content(part, edit) for part in content]
    if isinstance(content, dict):
        return {
            key: edit_content(value, edit) if key in {"text", "content"} else value for key, value in content.items()
        }
    return content


def edit_messages(body: dict[str, Any], edit: Callable[[str], str]) -> dict[str, Any]:
    """Return the request *body* with *edit* applied to each message's text and to a separate system prompt."""
    messages = [m | {"content": edit_content(m.get("content"), edit)} for m in list_objects(body.get("messages"))]
    system = {"system": edit_content(body["system"], edit)} if "system" in body else {}
    return body | system | {"messages": messages}


def error_text(body: dict[str, Any]) -> str | None:
    """Return the error message in the response *body*, None when it reports no error."""
    error = body.get("error") or (body if body.get("object") == "error" else None)
    if not error:
        return None
    return str(error.get("message") or error.get("type") or error) if isinstance(error, dict) else str(error)
