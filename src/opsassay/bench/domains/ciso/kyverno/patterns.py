"""Patterns of `validate.pattern`: structure, lists and anchors, as Kyverno reads them.

Anchors: ``(key)`` a condition, without which the rest of its map is not asked for; ``=(key)`` asked for where it is there;
``^(key)`` at least one element of a list; ``X(key)`` must not be there. ``<(key)`` and ``+(key)`` are not of the subset.
Source: https://kyverno.io/docs/policy-types/cluster-policy/validate/#anchors
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opsassay.bench.domains.ciso.kyverno.errors import UnsupportedError
from opsassay.bench.domains.ciso.kyverno.values import matches, wildcard

_ANCHOR = re.compile(r"(=|\^|X|\+|<)?\((.*)\)", re.DOTALL)


class _SkippedError(Exception):
    """A condition of a map does not hold, so that nothing is asked of it."""


def satisfies(value: Any, pattern: Any) -> bool:
    """Return whether *value* is as *pattern* wants it; where a condition does not hold nothing is expected."""
    try:
        return _satisfies(value, pattern)
    except _SkippedError:
        return True


def _satisfies(value: Any, pattern: Any) -> bool:
    if isinstance(pattern, Mapping):
        return isinstance(value, Mapping) and _map(value, pattern)
    if isinstance(pattern, list):
        return isinstance(value, list) and _list(value, pattern)
    if isinstance(value, list):  # a value for each element
        return all(matches(pattern, one) for one in value)
    return matches(pattern, value)


def _map(value: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    anchored = [(_anchor(key), expected) for key, expected in pattern.items()]
    for (sign, key), expected in anchored:
        if sign == "()" and not (key in value and satisfies(value[key], expected)):
            raise _SkippedError
    return all(_entry(value, sign, key, expected) for (sign, key), expected in anchored if sign != "()")


def _entry(value: Mapping[str, Any], sign: str, key: str, expected: Any) -> bool:
    if sign == "X":
        return key not in value
    if sign == "=":
        return key not in value or _satisfies(value[key], expected)
    if sign == "^":
        return _at_least_one(value.get(key), expected)
    if "*" in key or "?" in key:
        found = [one for one in value if wildcard(key, one)]
        return bool(found) and any(_satisfies(value[one], expected) for one in found)
    if key not in value:
        return expected is None
    return (expected == "*" and value[key] is not None) or _satisfies(value[key], expected)


def _list(value: list[Any], pattern: list[Any]) -> bool:
    if not pattern:
        return not value
    if len(pattern) > 1:
        if any(isinstance(one, Mapping) for one in pattern):
            raise UnsupportedError("a pattern lists more than one map; give one, which every element is held against.")
        return len(value) == len(pattern) and all(map(_satisfies, value, pattern))
    (expected,) = pattern
    kept = []
    for one in value:
        try:
            kept.append(_satisfies(one, expected))
        except _SkippedError:
            continue  # that element is not meant
    return all(kept)


def _at_least_one(value: Any, expected: Any) -> bool:
    if not isinstance(expected, list) or len(expected) != 1:
        raise UnsupportedError("an existence anchor ^() has no list of one map.")
    return isinstance(value, list) and any(_exists(one, expected[0]) for one in value)


def _exists(value: Any, expected: Any) -> bool:
    try:
        return _satisfies(value, expected)
    except _SkippedError:
        return False


def _anchor(key: str) -> tuple[str, str]:
    """Return the anchor of *key*, ``()``, ``=``, ``^``, ``X`` or nothing, and the key; raises UnsupportedError."""
    match = _ANCHOR.fullmatch(str(key))
    if match is None:
        return "", str(key)
    if match[1] in ("+", "<"):
        raise UnsupportedError(f"the anchor {match[1]}() at {match[2]!r} is not of the subset.")
    return match[1] or "()", match[2]
