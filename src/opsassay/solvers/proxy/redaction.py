"""Redaction of a trace before it is shared, with a report of the texts that were replaced.

Every occurrence becomes ``[email]`` or, with *keep_distinct*, ``[email:1]``: equal texts get equal marks within a trace.
The patterns find keys, e-mail addresses, paths, network addresses and phone numbers, also in nested text: JSON in JSON
doubles backslashes and may escape slashes and signs, URLs encode ``@``, base64 is decoded. Of a pattern with a group
*value*, as in ``password=...``, only the group is replaced. No pattern may look at a character more often than a few
dozen times: tool outputs are megabytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pydantic import Field, field_validator

from opsassay.core.schema.base import Noun, Written
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep

_FORMS = (
    r"(?<![A-Za-z0-9])(?:"
    r"[spr]k[-_](?=[\w-]{0,40}\d)[A-Za-z0-9_-]{12,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abeprs]-[\w-]{10,}|"
    r"(?:AKIA|ASIA|AGPA|AROA|AIDA)[A-Z0-9]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{16,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{30,}|"
    r"pypi-[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}|dapi[0-9a-f]{32}|ya29\.[\w-]{20,}|opsassay-[\w-]{24,}|"
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_PEM = r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
_COMMON_WORD = (
    r"(?!(?i:null|none|true|false|required|incorrect|invalid|missing|expired|empty|unset|string|undefined|redacted)\b"
    r"|\d+(?:[\s,;)}\]\"'\\]|\Z))"
)
_NAMED = (
    r"(?i:passw(?:or)?d|pwd|secret|api[_-]?key|access[_-]?key|account[_-]?key|client[_-]?key|token)[\\\"']*\s*[:=]\s*[\\\"']*"
    rf"{_COMMON_WORD}(?P<value>[^\s\"'\\,;&(){{}}\[\]<>$*]{{6,}})"
)
_SCHEME = r"(?i:\b(?:bearer|basic))\s+(?=[\w+/.~-]{0,200}\d)(?P<value>[\w+/.~-]{8,}={0,2})"
_HEADER = r"(?i:authorization[\"']*\s*[:=]\s*[\"']*[a-z]+)\s+(?P<value>[\w+/.~-]{6,}={0,2})"
_USERINFO = r"(?<=://)(?P<value>[^\s/:@\"'<>]{1,80}:[^\s/@\"'<>]{1,200})(?=@)"

_AT = r"(?:@|%40|\\+u0040)"
_EMAIL = rf"(?<![\w.%+-])[\w.%+-]{{1,64}}?{_AT}(?:[^\W_][\w-]{{0,62}}\.){{1,8}}[^\W\d_]{{2,24}}(?![\w-])"
_SPELT_EMAIL = (
    r"(?<![\w.+-])[\w.+-]{1,64}\s?[\[(]\s?at\s?[\])]\s?[\w-]{1,62}"
    r"(?:\s?(?:\.|[\[(]\s?dot\s?[\])])\s?[\w-]{1,62}){1,6}"
)

_SLASH = r"\\{0,8}/"
_PART = r"[\w.@+=,%-]{1,255}"
_PRIVATE = "home|Users|root|tmp|var|etc|opt|usr|mnt|srv|data|workspace|private|Volumes|media"
_QUOTED = rf"(?<=[\"'`])(?:{_SLASH}(?:home|Users)|[A-Za-z]:\\{{1,8}}Users)[^\"'`\n\r]{{1,400}}?(?=\\{{0,8}}[\"'`])"
_UNIX = (
    rf"(?:(?<=file://)|(?<![\w./<])){_SLASH}(?:{_PRIVATE})(?:{_SLASH}{_PART}){{1,60}}|"
    rf"(?<![\w./<~])~(?:[a-z_][\w-]{{0,31}})?(?:{_SLASH}{_PART}){{1,60}}"
)
_WINDOWS = (
    r"(?<!\w)[A-Za-z]:(?:\\{1,8}|/(?=(?i:users|documents|windows|program)))"
    r"(?:[\w .@+()-]{1,255}(?:\\{1,8}|/)){0,60}[\w.@+-]{1,255}|"
    r"(?<![\w\\])\\{2,8}[A-Za-z][\w.-]{2,62}\\{1,4}[\w$.-]{3,80}(?:\\{1,4}[\w .$-]{1,80}){0,60}"
)

_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_IPV4 = rf"(?<![\w.-])(?!127\.0\.0\.1|0\.0\.0\.0){_BYTE}(?:\.{_BYTE}){{3}}(?![\w.])"
_IPV6 = (
    r"(?<![\w:])(?:(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|"
    r"(?i:fe80|f[cd][0-9a-f]{2}):(?::?[0-9a-fA-F]{1,4}){1,7})(?![\w:])"
)
_PHONE = (
    r"(?<![\w+])\+(?=(?:[ .()-]{0,2}\d){8,15}(?!\d))"
    r"\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]?\d{2,4}){1,4}(?!\w)"
)

PATTERNS: dict[str, tuple[str, ...]] = {
    "key": (_PEM, _FORMS, _USERINFO, _HEADER, _SCHEME, _NAMED),
    "email": (_EMAIL, _SPELT_EMAIL),
    "path": (_QUOTED, _UNIX, _WINDOWS),
    "address": (_IPV4, _IPV6),
    "phone": (_PHONE,),
}
"""The patterns of each kind, applied in this order; a later one does not see text that an earlier one replaced."""

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![A-Za-z0-9+/_=-])")


def hidden_in_base64(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield (match, decoded text) for each run of base64 in *text* that decodes to UTF-8."""
    for found in _BASE64.finditer(text):
        run = found[0].rstrip("=").replace("-", "+").replace("_", "/")
        try:
            decoded = base64.b64decode(run + "=" * (-len(run) % 4), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
        if decoded.replace("\n", " ").replace("\t", " ").replace("\r", " ").isprintable():
            yield found, decoded


class RedactionRules(Written):
    """The texts to redact: *kinds* of PATTERNS, own regular expressions by the name of their mark, literal *words*."""

    kinds: tuple[str, ...] = Field(default=tuple(PATTERNS), description="built-in patterns, by name")
    patterns: dict[str, str] = Field(default_factory=dict, description="regular expressions of your own")
    words: tuple[str, ...] = Field(default=(), description="literal texts, such as names of people or customers")
    keep_distinct: bool = Field(default=False, description="number marks, so that equal texts can be seen to be equal")

    @field_validator("kinds")
    @classmethod
    def _require_known_kinds(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """Raise ValueError for a kind without a pattern."""
        if unknown := [kind for kind in kinds if kind not in PATTERNS]:
            raise ValueError(f"there is no pattern {unknown[0]!r}; known: {', '.join(PATTERNS)}")
        return kinds

    @field_validator("patterns")
    @classmethod
    def _require_regular_expressions(cls, patterns: dict[str, str]) -> dict[str, str]:
        """Raise ValueError for a pattern that is no regular expression."""
        for name, pattern in patterns.items():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{name}: {pattern!r} is no regular expression: {error}") from error
        return patterns

    def compiled(self) -> list[tuple[str, re.Pattern[str]]]:
        """Return (kind, pattern) in the order in which they are applied: the user's words and patterns first."""
        words = [("word", "|".join(map(re.escape, sorted(self.words, key=len, reverse=True))))] if self.words else []
        built_in = [(kind, pattern) for kind in PATTERNS if kind in self.kinds for pattern in PATTERNS[kind]]
        return [(kind, re.compile(pattern)) for kind, pattern in (*words, *self.patterns.items(), *built_in)]


class Redacted(Noun):
    """One row of the report: how many texts of a kind were replaced, how many distinct ones, in which steps."""

    kind: str
    count: int
    distinct: int
    steps: tuple[int, ...]


def redact_trace(trace: Trace, rules: RedactionRules) -> tuple[Trace, list[Redacted]]:
    """Return *trace* with all matches of *rules* replaced by placeholders, and a report row per kind of match."""
    eraser = _Eraser(rules)
    steps = tuple(_edit_step(step, eraser.edit_of_step(step.step_id)) for step in trace.steps)
    clean = _edit_metadata(trace, eraser.edit_of_step(None)).model_copy(update={"steps": steps})
    return _edit_names(clean, eraser.edit_of_step(None)), eraser.report()


def hashed(trace: Trace) -> Trace:
    """Return *trace* with every input and output replaced by a hash; agents, tools and times are unchanged.

    The hashes are keyed with a secret that is discarded, so that short texts cannot be guessed.
    """
    secret = secrets.token_bytes(32)

    def digest(text: str) -> str:
        """Return the text's keyed hash and length in brackets, "" for an empty text."""
        return (
            f"[sha256:{hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()[:16]}, {len(text)} characters]"
            if text
            else ""
        )

    steps = tuple(_edit_step(step, digest) for step in trace.steps)
    return _edit_metadata(trace, digest).model_copy(update={"steps": steps})


def map_text(value: Any, edit: Callable[[str], str]) -> Any:
    """Return *value*, JSON data, with *edit* applied to every string in it, keys included."""
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
    """Applies rules to texts and counts the replaced ones."""

    def __init__(self, rules: RedactionRules) -> None:
        self._patterns, self._numbered = rules.compiled(), rules.keep_distinct
        self._secret = secrets.token_bytes(32)
        self._counts: dict[str, int] = defaultdict(int)
        self._texts: dict[str, dict[str, str]] = defaultdict(dict)
        self._steps: dict[str, set[int]] = defaultdict(set)

    def edit_of_step(self, step_id: int | None) -> Callable[[str], str]:
        """Return the function that redacts a text of step *step_id*, of the metadata for None, and counts matches."""

        def edit(text: str) -> str:
            """Return *text* with all matches of the patterns replaced, also inside base64."""
            for kind, pattern in self._patterns:
                text = pattern.sub(partial(self._replace_match, kind, step_id), text)
            for found, plain in reversed(list(hidden_in_base64(text))):
                hidden = next((kind for kind, pattern in self._patterns if pattern.search(plain)), None)
                if hidden is not None:
                    text = text[: found.start()] + self._make_placeholder(hidden, plain, step_id) + text[found.end() :]
            return text

        return edit

    def report(self) -> list[Redacted]:
        """Return one row per kind of match: count, distinct texts, steps; most frequent first."""
        rows = [
            Redacted(kind=kind, count=count, distinct=len(self._texts[kind]), steps=tuple(sorted(self._steps[kind])))
            for kind, count in self._counts.items()
        ]
        return sorted(rows, key=lambda row: (-row.count, row.kind))

    def _replace_match(self, kind: str, step_id: int | None, found: re.Match[str]) -> str:
        """Return *found*, of *kind*, with its group `value` (without one, all of it) replaced by a placeholder."""
        if "value" not in found.re.groupindex:
            return self._make_placeholder(kind, found[0], step_id)
        begin, end = found.start("value") - found.start(), found.end("value") - found.start()
        return found[0][:begin] + self._make_placeholder(kind, found["value"], step_id) + found[0][end:]

    def _make_placeholder(self, kind: str, text: str, step_id: int | None) -> str:
        """Count *text* as a *kind* in step *step_id*; return its placeholder "[kind]" or "[kind:N]", one N per text."""
        self._counts[kind] += 1
        if step_id is not None:
            self._steps[kind].add(step_id)
        number = self._texts[kind].setdefault(
            hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest(), str(len(self._texts[kind]) + 1)
        )
        return f"[{kind}:{number}]" if self._numbered else f"[{kind}]"


def _edit_step(step: TraceStep, edit: Callable[[str], str]) -> TraceStep:
    """Return the step with *edit* applied to its texts and tool calls."""
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


def _edit_metadata(trace: Trace, edit: Callable[[str], str]) -> Trace:
    """Return *trace* with *edit* applied to all of its texts outside the steps."""
    texts = ("task_instruction", "system_architecture", "outcome", "reference_answer")
    edited = {name: edit(text) for name in texts if (text := getattr(trace, name))}
    return trace.model_copy(update={**edited, "agent_configuration": map_text(trace.agent_configuration, edit)})


def _edit_names(trace: Trace, edit: Callable[[str], str]) -> Trace:
    """Return *trace* with *edit* applied to the names of its agents and tools."""
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
