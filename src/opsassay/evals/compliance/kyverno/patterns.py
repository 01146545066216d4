"""Patterns of `validate.pattern`: structure, lists and anchors, as Kyverno reads them.

Anchors: ``(key)`` a condition, without which the rest of its map is not asked for; ``=(key)`` asked for where it is there;
``^(key)`` at least one element of a list, where it is there; ``X(key)`` must not be there. ``<(key)`` and ``+(key)`` are
not of the subset. A wildcard in the key of a label or an annotation, under any anchor, stands for the keys that match it:
with ``=()`` each of them is asked for, otherwise one. Where the conditions of every element of a list fail, the rule is not
about the object. Source: https://kyverno.io/docs/policy-types/cluster-policy/validate/#anchors, and kyverno/kyverno,
pkg/engine/validate and pkg/engine/anchor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.readings import ElsewhereError
from opsassay.evals.compliance.kyverno.values import matches, wildcard

ALWAYS_THERE = ("name", "image")
"""Fields that every container has, so that a pattern for any value holds."""
_ANCHOR = re.compile(r"(=|\^|X|\+|<)?\((.*)\)", re.DOTALL)


class _SkippedError(Exception):
    """A condition anchor of a map does not hold, so that the rest of the map is not required."""


def satisfies(value: Any, pattern: Any) -> bool:
    """Return whether *value* matches *pattern*; True where a condition anchor of the pattern does not hold.

    Raises UnsupportedError for patterns outside the supported subset.
    """
    try:
        return _satisfies_or_skips(value, pattern)
    except _SkippedError:
        return True


def _satisfies_or_skips(value: Any, pattern: Any) -> bool:
    """Return whether *value* fits *pattern*; raises _SkippedError when a condition anchor in it does not hold."""
    if isinstance(pattern, Mapping):
        return isinstance(value, Mapping) and _map_satisfies(value, pattern)
    if isinstance(pattern, list):
        return isinstance(value, list) and _list_satisfies(value, pattern)
    if isinstance(value, list):  # a value for each element
        return all(matches(pattern, one) for one in value)
    return matches(pattern, value)


def _map_satisfies(value: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    """Return whether *value* fits all keys of *pattern*; raises _SkippedError if a condition anchor "()" fails."""
    anchored = [(_split_anchor(key), expected) for key, expected in pattern.items()]
    for (sign, key), expected in anchored:
        if sign == "()" and not _read_entry(value, sign, key, expected):
            _require_one_failure(value, anchored)
            raise _SkippedError
    ordered = sorted(anchored, key=lambda one: (not one[0][0], not _has_anchor(one[1])))  # what may skip comes first
    return all(_read_entry(value, sign, key, expected) for (sign, key), expected in ordered if sign != "()")


def _require_one_failure(value: Mapping[str, Any], anchored: list[tuple[tuple[str, str], Any]]) -> None:
    """Raise UnsupportedError if besides a condition one of *anchored* fails: Kyverno's result depends on the order."""
    for (sign, key), expected in anchored:
        if sign in ("=", "^", "X") and not _read_entry(value, sign, key, expected):
            raise UnsupportedError(f"{sign}({key}) fails beside a condition that does not hold; which counts is open.")


def _read_entry(value: Mapping[str, Any], anchor: str, key: str, expected: Any) -> bool:
    """Return whether *key* of *value* fits *expected*; for a field that the violator may choose, the assumed result."""
    try:
        return _entry_satisfies(value, anchor, key, expected)
    except ElsewhereError as elsewhere:
        if key in ALWAYS_THERE and expected in ("*", "?*") and anchor in ("", "()"):
            return True
        return elsewhere.either()


def _has_anchor(pattern: Any) -> bool:
    """Return whether a key in *pattern*, at any depth, has an anchor."""
    if isinstance(pattern, list):
        return any(map(_has_anchor, pattern))
    return isinstance(pattern, Mapping) and any(
        _split_anchor(key)[0] or _has_anchor(one) for key, one in pattern.items()
    )


def _entry_satisfies(value: Mapping[str, Any], anchor: str, key: str, expected: Any) -> bool:
    """Return whether the values at *key* (wildcards allowed) fit *expected* under *anchor* ("X": must be absent)."""
    is_wildcard = "*" in key or "?" in key
    found = [one for one in value if wildcard(key, one)] if is_wildcard else [key] if key in value else []
    if anchor == "X":
        return not found
    if anchor == "=":
        return all(_satisfies_or_skips(value[one], expected) for one in found)
    if anchor == "^":
        return all(_some_element_satisfies(value[one], expected) for one in found)
    if anchor == "()" or is_wildcard:
        return any(_satisfies_or_skips(value[one], expected) for one in found)
    if expected == "*":
        return value.get(key) is not None
    return _satisfies_or_skips(value.get(key), expected)


def _list_satisfies(value: list[Any], pattern: list[Any]) -> bool:
    """Return whether all elements fit the pattern's single element; elements that a condition skips do not count."""
    if len(pattern) != 1:
        raise UnsupportedError(f"a pattern lists {len(pattern)} values; give one, which every element is held against.")
    if isinstance(pattern[0], list):
        raise UnsupportedError("a pattern lists a list, which Kyverno holds against elements by their places.")
    kept = []
    for one in value:
        try:
            kept.append(_satisfies_or_skips(one, pattern[0]))
        except _SkippedError:
            continue  # that element is not meant
    if value and not kept:
        raise _SkippedError
    return all(kept)


def _some_element_satisfies(value: Any, expected: Any) -> bool:
    """Return whether each map of *expected* is matched by some element of *value*."""
    if not isinstance(expected, list) or not all(isinstance(one, Mapping) for one in expected):
        raise UnsupportedError("an existence anchor ^() has no list of maps.")
    return isinstance(value, list) and all(
        any(_satisfies_without_skip(one, pattern) for one in value) for pattern in expected
    )


def _satisfies_without_skip(value: Any, expected: Any) -> bool:
    """Return whether *value* fits *expected*; False where a condition anchor does not hold."""
    try:
        return _satisfies_or_skips(value, expected)
    except _SkippedError:
        return False


def require_literal_keys(pattern: Any, path: tuple[str, ...] = ()) -> None:
    """Raise UnsupportedError for a wildcard in a key of *pattern* (at *path*), but not in labels and annotations."""
    if isinstance(pattern, list):
        for one in pattern:
            require_literal_keys(one, path)
    if not isinstance(pattern, Mapping):
        return
    for key, expected in pattern.items():
        _, name = _split_anchor(key)
        if ("*" in name or "?" in name) and path[-2:] not in (("metadata", "labels"), ("metadata", "annotations")):
            raise UnsupportedError(
                f"the key {name!r} of a pattern has a wildcard, which is for labels and annotations."
            )
        require_literal_keys(expected, (*path, name))


def _split_anchor(key: str) -> tuple[str, str]:
    """Return (anchor, key): the anchor is ``()``, ``=``, ``^``, ``X`` or ''. Raises UnsupportedError."""
    match = _ANCHOR.fullmatch(str(key))
    if match is None:
        return "", str(key)
    if match[1] in ("+", "<"):
        raise UnsupportedError(f"the anchor {match[1]}() at {match[2]!r} is not of the subset.")
    return match[1] or "()", match[2]
