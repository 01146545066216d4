"""Parses records into steps: agent names by pattern, agent ids by first appearance, plain or tool-mediated.

Source: TraceElephant, App. A.3. Agent names are only read from headers and markers, never inferred.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_ROLE_SUFFIX = re.compile(r"\s*\((?:->|→|thought|termination|replying|to |action)[^()]*\)\s*$", re.IGNORECASE)
_SPEAKER = re.compile(
    r"^\s*(?:\*\*)?([A-Z][A-Za-z0-9_-]*(?: [A-Z][A-Za-z0-9_-]*){0,2})(?:\*\*)?\s*(\([^()\n]*\))?\s*:\s"
)
_PERSONA = re.compile(r"\b[Yy]ou are (?:the |an? )?([A-Z][A-Za-z0-9_-]*(?: [A-Z][A-Za-z0-9_-]*){0,2})")
_ROLE_HEADING = re.compile(r"##\s*Your role\s+([A-Z][A-Za-z0-9_-]*)")
_ACTION = re.compile(r"^\s*(?:Action|Tool|Function call)\s*:\s*([\w.-]+)\s*$", re.IGNORECASE | re.MULTILINE)
_TOOL_BLOCK = re.compile(r"<tool_call>|<function=|```(?:bash|sh|python|tool_code)\b")
_MESSAGE = re.compile(r"(?:\A|\n\n)\[(system|developer|user|assistant|tool|function)\]\n")
_NOT_NAMES = frozenset(
    {"Note", "Error", "Warning", "Output", "Input", "Action", "Thought", "Observation", "Answer", "Task", "Step", "Plan",
     "Final Answer", "Result", "Question", "Summary", "Traceback", "Exception", "Http", "Https", "Tool"}
)  # fmt: skip


class AgentIds:
    """Ids of agents by first appearance, counted from 0 as text."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def id_of(self, name: str) -> str:
        """Return the id of the agent *name*: a number as text, by first appearance."""
        return self._ids.setdefault(name, str(len(self._ids)))


def strip_role_suffix(name: str) -> str:
    """Return ``Orchestrator`` for ``Orchestrator (-> WebSurfer)``; other names as they are."""
    return _ROLE_SUFFIX.sub("", name).strip()


def speaker(text: str) -> str | None:
    """Return the name "Planner" from a leading ``Planner: ...``, None when *text* does not begin with one."""
    match = _SPEAKER.match(text)
    if match is None or match[1] in _NOT_NAMES:
        return None
    return strip_role_suffix(match[1] + (f" {match[2]}" if match[2] else ""))


def persona(prompt: str) -> str | None:
    """Return the agent's name in a system prompt: ``Planner: ...``, ``## Your role`` or ``You are Planner``."""
    for pattern in (_ROLE_HEADING, _PERSONA):
        if match := pattern.search(prompt):
            return match[1]
    return speaker(prompt)


def tool_in_text(text: str) -> str | None:
    """Return the tool named by ``Action: search`` in *text*, "code" for a runnable block, None for neither."""
    if match := _ACTION.search(text):
        return match[1]
    return "code" if _TOOL_BLOCK.search(text) else None


def render_messages(messages: Sequence[tuple[str, str]]) -> str:
    """Return (role, text) pairs as one text: "[role]", then the text, pairs apart by an empty line."""
    return "\n\n".join(f"[{role}]\n{text}" for role, text in messages)


def split_messages(context: str) -> list[tuple[str, str]]:
    """Return the (role, text) pairs in *context*, as `render_messages` writes them; text before any role is "user".

    A text with an empty line followed by a line such as ``[user]`` is split there too.
    """
    first, *rest = _MESSAGE.split(context)
    return ([("user", first)] if first else []) + list(zip(rest[::2], rest[1::2], strict=True))


def plain_text(content: Any) -> str:
    """Return the text of a message's *content*: a string itself, or the texts of its list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, (plain_text(part) for part in content)))
    if isinstance(content, dict):
        for key in ("text", "content", "output", "refusal", "thinking", "logs"):
            if isinstance(content.get(key), str | list):
                return plain_text(content[key])
        return f"[{content['type']}]" if content.get("type") else json.dumps(content, ensure_ascii=False)
    return str(content)
