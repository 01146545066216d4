"""Redaction before a trace leaves the machine, with a report of what was taken out.

Every occurrence becomes ``[email]`` or, with *keep_distinct*, ``[email:1]``: equal texts get equal marks within one
trace, so that what mattered for the failure can still be followed. What is looked for stands in ``sensitive``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import Field, field_validator

from opsassay.core.schema.base import Noun, Written
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.solvers.proxy.sensitive import PATTERNS, hidden_in_base64


class RedactionRules(Written):
    """What to take out: *kinds* of PATTERNS, *patterns* of one's own by the name of their mark, *words* literally."""

    kinds: tuple[str, ...] = Field(default=tuple(PATTERNS), description="built-in patterns, by name")
    patterns: dict[str, str] = Field(default_factory=dict, description="regular expressions of your own")
    words: tuple[str, ...] = Field(default=(), description="literal texts, such as names of people or customers")
    keep_distinct: bool = Field(default=False, description="number marks, so that equal texts can be seen to be equal")

    @field_validator("kinds")
    @classmethod
    def _require_known_kinds(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [kind for kind in kinds if kind not in PATTERNS]:
            raise ValueError(f"there is no pattern {unknown[0]!r}; known: {', '.join(PATTERNS)}")
        return kinds

    @field_validator("patterns")
    @classmethod
    def _compile(cls, patterns: dict[str, str]) -> dict[str, str]:
        for name, pattern in patterns.items():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{name}: {pattern!r} is no regular expression: {error}") from error
        return patterns

    def compiled(self) -> list[tuple[str, re.Pattern[str]]]:
        """Return (kind, pattern) in the order in which they are applied: own words and patterns first."""
        words = [("word", "|".join(map(re.escape, sorted(self.words, key=len, reverse=True))))] if self.words else []
        built_in = [(kind, pattern) for kind in PATTERNS if kind in self.kinds for pattern in PATTERNS[kind]]
        return [(kind, re.compile(pattern)) for kind, pattern in (*words, *self.patterns.items(), *built_in)]


class Redacted(Noun):
    """One row of the report: how often texts of a kind were taken out, how many different ones, from which steps."""

    kind: str
    count: int
    distinct: int
    steps: tuple[int, ...]


def redact_trace(trace: Trace, rules: RedactionRules) -> tuple[Trace, list[Redacted]]:
    """Return *trace* without what *rules* take out of it, and the report; the originals are nowhere in either."""
    eraser = _Eraser(rules)
    steps = tuple(_mapped_step(step, eraser.at(step.step_id)) for step in trace.steps)
    clean = _mapped_metadata(trace, eraser.at(None)).model_copy(update={"steps": steps})
    return _mapped_names(clean, eraser.at(None)), eraser.report()


def hashed(trace: Trace) -> Trace:
    """Return *trace* with every input and output replaced by its SHA-256: who acted when stays, what was said does not.

    The hashes are keyed with a secret that is thrown away, so that short texts cannot be guessed from them.
    """
    secret = secrets.token_bytes(32)

    def digest(text: str) -> str:
        return (
            f"[sha256:{hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()[:16]}, {len(text)} characters]"
            if text
            else ""
        )

    steps = tuple(_mapped_step(step, digest) for step in trace.steps)
    return _mapped_metadata(trace, digest).model_copy(update={"steps": steps})


def map_text(value: Any, edit: Callable[[str], str]) -> Any:
    """Return JSON-like *value* with *edit* applied to every text in it, names of fields included."""
    if isinstance(value, str):
        return edit(value)
    if isinstance(value, dict):
        edited: dict[str, Any] = {}
        for key, item in value.items():
            name = edit(key)
            again = sum(known == name or known.startswith(f"{name} (") for known in edited)
            edited[f"{name} ({again + 1})" if again else name] = map_text(item, edit)
        return edited
    if isinstance(value, list | tuple):
        return [map_text(item, edit) for item in value]
    return value


class _Eraser:
    """Applies rules to texts and counts what was taken out."""

    def __init__(self, rules: RedactionRules) -> None:
        self._patterns, self._numbered = rules.compiled(), rules.keep_distinct
        self._secret = secrets.token_bytes(32)
        self._counts: dict[str, int] = defaultdict(int)
        self._texts: dict[str, dict[str, str]] = defaultdict(dict)
        self._steps: dict[str, set[int]] = defaultdict(set)

    def at(self, step_id: int | None) -> Callable[[str], str]:
        """Return the edit of texts of one step, None for the metadata."""

        def edit(text: str) -> str:
            for kind, pattern in self._patterns:
                text = pattern.sub(partial(self._replace_match, kind, step_id), text)
            for found, plain in reversed(list(hidden_in_base64(text))):
                hidden = next((kind for kind, pattern in self._patterns if pattern.search(plain)), None)
                if hidden is not None:
                    text = text[: found.start()] + self._placeholder(hidden, plain, step_id) + text[found.end() :]
            return text

        return edit

    def report(self) -> list[Redacted]:
        """Return the rows of the report, most frequent first."""
        rows = [
            Redacted(kind=kind, count=count, distinct=len(self._texts[kind]), steps=tuple(sorted(self._steps[kind])))
            for kind, count in self._counts.items()
        ]
        return sorted(rows, key=lambda row: (-row.count, row.kind))

    def _replace_match(self, kind: str, step_id: int | None, found: re.Match[str]) -> str:
        if "value" not in found.re.groupindex:
            return self._placeholder(kind, found[0], step_id)
        begin, end = found.start("value") - found.start(), found.end("value") - found.start()
        return found[0][:begin] + self._placeholder(kind, found["value"], step_id) + found[0][end:]

    def _placeholder(self, kind: str, text: str, step_id: int | None) -> str:
        self._counts[kind] += 1
        if step_id is not None:
            self._steps[kind].add(step_id)
        number = self._texts[kind].setdefault(
            hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest(), str(len(self._texts[kind]) + 1)
        )
        return f"[{kind}:{number}]" if self._numbered else f"[{kind}]"


def _mapped_step(step: TraceStep, edit: Callable[[str], str]) -> TraceStep:
    logs = tuple(
        ToolCall(tool=call.tool, arguments=map_text(call.arguments, edit), output=edit(call.output), status=call.status)
        for call in step.tool_logs
    )
    return step.model_copy(
        update={
            "input_context": edit(step.input_context),
            "output_content": edit(step.output_content),
            "tool_logs": logs,
            "error": edit(step.error) if step.error else None,
        }
    )


def _mapped_metadata(trace: Trace, edit: Callable[[str], str]) -> Trace:
    texts = ("task_instruction", "system_architecture", "outcome", "reference_answer")
    edited = {name: edit(text) for name in texts if (text := getattr(trace, name))}
    return trace.model_copy(update={**edited, "agent_configuration": map_text(trace.agent_configuration, edit)})


def _mapped_names(trace: Trace, edit: Callable[[str], str]) -> Trace:
    """Return *trace* with its names edited too, which a hashed variant keeps: they tell who acted."""
    steps = tuple(
        step.model_copy(
            update={
                "agent_name": edit(step.agent_name),
                "agent_id": edit(step.agent_id),
                "model": edit(step.model) if step.model else None,
                "request_id": edit(step.request_id) if step.request_id else None,
            }
        )
        for step in trace.steps
    )
    return trace.model_copy(
        update={"task_id": edit(trace.task_id), "system_name": edit(trace.system_name), "steps": steps}
    )
