"""Compares a request with a recorded one by content, without the parts that change in every run.

Requests are compared value by value, after times, UUIDs, long random ids and volatile parts are removed. The similarity
of two texts is the share of words that they have in common, in order; that of two requests is the similarity of their
least similar message, so that a long equal prompt does not hide another question.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from pydantic import Field, field_validator

from opsassay.core.schema.base import Written

SIMILAR = 0.9
"""The least similarity (0 to 1) at which a request counts as the recorded one, by default."""
_SHAPES = (
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?",  # ISO 8601
    r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b",
    r"\b1\d{9}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b",  # seconds, ms, us and ns since 1970, until 2033
    r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",  # a UUID
    r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{16,}\b",  # a long random id
)
_MARK = "\N{HORIZONTAL ELLIPSIS}"
_WORDS = re.compile(r"\w+|[^\w\s]")
_IN_ORDER = 1_500  # words up to which order counts: the comparison takes their square
_SHOWN = 60


class Volatile(Written):
    """What differs from run to run by itself, beside times, UUIDs and long random ids, which are known by their shape."""

    fields: tuple[str, ...] = Field(
        default=(), description="names in the request, as metadata.run_id; * is any one name"
    )
    patterns: tuple[str, ...] = Field(default=(), description="regular expressions of what changes inside texts")

    @field_validator("patterns")
    @classmethod
    def _require_regular_expressions(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        """Raise ValueError for a pattern that is no regular expression."""
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return patterns

    def text(self, text: str) -> str:
        """Return *text* with each match of a volatile pattern (ids, times, declared ones) replaced by a mark."""
        return self._compile_all().sub(_MARK, text)

    def field(self, path: tuple[str, ...]) -> bool:
        """Return whether the field at *path*, keys from the request's root, is declared as volatile."""
        return any(_begins_with(path, name.split(".")) for name in self.fields)

    def _compile_all(self) -> re.Pattern[str]:
        """Return one regular expression for what may differ in equal requests: `patterns`, and built-in ids and times."""
        return re.compile("|".join(f"(?:{pattern})" for pattern in (*self.patterns, *_SHAPES)))


@dataclass(frozen=True)
class RequestMatch:
    """The similarity of two requests, 0 to 1, and each difference as a sentence, the largest first."""

    similarity: float
    differences: tuple[str, ...]


def compare_requests(recorded: bytes, now: bytes, volatile: Volatile) -> RequestMatch:
    """Return the similarity (0 to 1) of two request bodies and their differences, largest first.

    Fields that *volatile* declares count as equal; bodies that are no JSON are equal or not.
    """
    try:
        before, after = (dict(_leaves(json.loads(body))) for body in (recorded, now))
    except (ValueError, RecursionError):
        same = recorded == now
        return RequestMatch(float(same), () if same else ("the bodies differ, and are no JSON",))
    groups: dict[tuple[str, ...], list[tuple[float, int]]] = {}
    differences: list[tuple[float, str]] = []
    for path in dict.fromkeys((*before, *after)):
        old, new = before.get(path), after.get(path)
        similarity = 1.0 if old == new else _compare_values(path, old, new, volatile)
        groups.setdefault(_comparison_group(path), []).append((similarity, 1 + max(len(str(old)), len(str(new)))))
        if old != new:
            apart = "volatile" if similarity == 1 else f"{similarity:.0%} alike"
            differences.append((similarity, f"{'.'.join(path)}: {_first_difference(old, new)} ({apart})"))
    shares = [sum(s * weight for s, weight in group) / sum(weight for _, weight in group) for group in groups.values()]
    worst_first = sorted(differences, key=lambda difference: difference[0])
    return RequestMatch(min(shares, default=1.0), tuple(said for _, said in worst_first))


def _compare_values(path: tuple[str, ...], old: object, new: object, volatile: Volatile) -> float:
    """Return the similarity of *old* and *new* by their words, 0 to 1; 1 when the field at *path* is volatile."""
    if volatile.field(path):
        return 1.0
    if old is None or new is None:
        return 0.0
    first, second = (_WORDS.findall(volatile.text(str(value))) for value in (old, new))
    if first == second:
        return 1.0
    while first and second and first[-1] == second[-1] and len(first) + len(second) > _IN_ORDER:
        first.pop()
        second.pop()
    if max(len(first), len(second)) <= _IN_ORDER:
        return SequenceMatcher(None, first, second, autojunk=False).ratio()
    common = (Counter(first) & Counter(second)).total()
    return 2 * common / (len(first) + len(second))


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield (path, value) of each scalar in the JSON *value*; null is left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*path, str(number)))
    elif value is not None:
        yield path, value


def _comparison_group(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the group in which the field *path* is compared: the path of its message, or () for all other fields."""
    return path[:2] if path[0:1] in {("messages",), ("input",)} and len(path) > 1 else ()


def _begins_with(path: tuple[str, ...], name: list[str]) -> bool:
    """Whether *path* begins with the keys *name*, in which "*" matches any key."""
    return len(path) >= len(name) and all(part in {"*", here} for part, here in zip(name, path, strict=False))


def _first_difference(old: object, new: object) -> str:
    """Return the texts around the first difference of *old* and *new*."""
    if old is None or new is None:
        return f"{_shorten_text(str(new))!r} is new" if old is None else f"{_shorten_text(str(old))!r} is gone"
    first, second = str(old), str(new)
    at = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))
    start = max(0, at - 10)
    return f"{_shorten_text(first[start:])!r} is now {_shorten_text(second[start:])!r}"


def _shorten_text(text: str) -> str:
    """Return at most `_SHOWN` characters, then "..." if there were more."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
