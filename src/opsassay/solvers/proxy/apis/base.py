"""What a request and an answer are, whichever API they came through."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ToolUse:
    """A tool that an answer calls; *arguments* that are no JSON object stand under the key "raw"."""

    id: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolResult:
    """What came back from a tool, read from the messages of a later request."""

    id: str
    output: str
    failed: bool = False


@dataclass(frozen=True)
class Asked:
    """A request: (role, text) of every message in order, tool results and the name of the acting agent if it is known."""

    model: str | None
    messages: tuple[tuple[str, str], ...]
    results: tuple[ToolResult, ...] = ()
    agent: str | None = None
    user: str | None = None
    stream: bool = False
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelAnswer:
    """An answer: text, tool calls, token counts (input_tokens, output_tokens)."""

    text: str
    tool_uses: tuple[ToolUse, ...] = ()
    usage: dict[str, int] = field(default_factory=dict)
    model: str | None = None
    id: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class ModelApi:
    """One API: how its path ends, how requests and answers are read, how stream events become the whole answer.

    *read_path* returns what the path says beside the body, by the names of its fields.
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
        """Return what the request to *path* asks."""
        return self.read_request({**self.read_path(path), **body})


def arguments_of(text: Any) -> dict[str, Any]:
    """Return tool arguments as an object; what is none is kept under "raw"."""
    if isinstance(text, dict):
        return text
    try:
        parsed = json.loads(text or "{}")
    except (TypeError, ValueError):
        return {"raw": text}
    return parsed if isinstance(parsed, dict) else {"raw": text}


def fields(value: Any) -> dict[str, Any]:
    """Return *value* when it is an object, an empty one otherwise: answers are whatever an upstream sent."""
    return value if isinstance(value, dict) else {}


def index_of(value: Any, default: int = 0) -> int:
    """Return *value* when it is a whole number, *default* otherwise."""
    return value if isinstance(value, int) else default


def text_or_none(value: Any) -> str | None:
    """Return *value* as text, None when there is none."""
    return None if value is None else str(value)


def counts_of(usage: Any, names: Mapping[str, str]) -> dict[str, int]:
    """Return token counts by our names; *names* maps ours to those of the API."""
    found = {ours: fields(usage).get(theirs) for ours, theirs in names.items()}
    return {ours: value for ours, value in found.items() if isinstance(value, int)}


OWN_COUNTS = {"input_tokens": "input_tokens", "output_tokens": "output_tokens"}
"""For APIs that count under our names."""


def list_objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in *value* when it is a list, nothing otherwise: requests are whatever an agent sent."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def edit_content(content: Any, edit: Callable[[str], str]) -> Any:
    """Return message content with *edit* applied to every text in it."""
    if isinstance(content, str):
        return edit(content)
    if isinstance(content, list):
        return [edit_content(part, edit) for part in content]
    if isinstance(content, dict):
        return {
            key: edit_content(value, edit) if key in {"text", "content"} else value for key, value in content.items()
        }
    return content


def error_text(body: dict[str, Any]) -> str | None:
    """Return what an error answer says, None for an answer that is none."""
    error = body.get("error")
    if not error:
        return None
    return str(error.get("message") or error.get("type") or error) if isinstance(error, dict) else str(error)
