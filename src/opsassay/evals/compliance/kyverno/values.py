"""Leaves of patterns: wildcards, operators, ranges, alternatives and conjunctions, as Kyverno reads them.

Source: https://kyverno.io/docs/policy-types/cluster-policy/validate/#operators, and kyverno/kyverno, pkg/engine/pattern.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from opsassay.evals.compliance.kyverno.documents import UnsupportedError

Number = Decimal
MAX_QUANTITY, MAX_LEAF = 64, 1000
"""Characters of an amount, and of one value of a pattern."""
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|ms|h|m|s))+")
_SCALE: dict[str | None, Number] = {
    None: Number(1),
    "m": Number("0.001"),
    **{letter: Number(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Number(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}
_SECONDS = {
    unit: Number(value)
    for unit, value in {"ns": "1e-9", "us": "1e-6", "ms": "1e-3", "s": "1", "m": "60", "h": "3600"}.items()
}
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_RANGE = re.compile(r"([^!<>=|&]+?)(!?-)([^!<>=|&]+)")
_COMPARED = ("<=", ">=", "<", ">")


def quantity(value: Any) -> Number | None:
    """Return *value* as a number of base units, None when it is no number and no Kubernetes quantity or duration.

    The base unit of a duration is the second; of a quantity it is what it has without a suffix, as cores or bytes.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        text = str(value).strip()[: MAX_QUANTITY + 1]
        if len(text) > MAX_QUANTITY:
            return None
        if match := _QUANTITY.fullmatch(text):
            return Number(match[1]) * _SCALE[match[2]]
    except (ValueError, ArithmeticError):  # of thousands of digits, or beyond all exponents
        return None
    if not _DURATION.fullmatch(text):
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|ms|h|m|s)", text)
    return sum((Number(count) * _SECONDS[unit] for count, unit in parts), Number(0))


def wildcard(pattern: str, text: str) -> bool:
    """Return whether *text* matches *pattern*, in which ``*`` stands for any characters and ``?`` for one.

    Its time is at most the product of both lengths: only the last star is moved on where a match breaks.
    """
    at = star = 0
    mark, back = -1, 0
    while at < len(text):
        if star < len(pattern) and pattern[star] == "*":
            mark, back, star = star, at, star + 1
        elif star < len(pattern) and pattern[star] in ("?", text[at]):
            at, star = at + 1, star + 1
        elif mark >= 0:
            back += 1
            at, star = back, mark + 1
        else:
            return False
    return all(char == "*" for char in pattern[star:])


def matches(pattern: Any, value: Any) -> bool:
    """Return whether the leaf *value* of an object, None where there is none, is as the leaf *pattern* wants it.

    Raises UnsupportedError for a variable, which a pattern of the subset does not have, for a text beyond MAX_LEAF and
    for what is no value.
    """
    if isinstance(pattern, bool):
        return isinstance(value, bool) and value == pattern
    if pattern is None:
        return value is None or (not isinstance(value, dict | list) and value in (0, "", False))
    if isinstance(pattern, int | float):
        written = isinstance(value, str) and _NUMBER.fullmatch(value) is None
        return not written and (found := quantity(value)) is not None and found == quantity(pattern)
    if not isinstance(pattern, str):
        raise UnsupportedError(f"a pattern ends in {type(pattern).__name__}, which is no value.")
    if len(pattern) > MAX_LEAF:
        raise UnsupportedError(f"a value of a pattern is longer than {MAX_LEAF} characters.")
    if "{{" in pattern or "$(" in pattern:
        raise UnsupportedError(f"the pattern {pattern[:60]!r} has a variable; write the value, or use deny conditions.")
    return value == pattern or any(
        all(_matches_pattern(part.strip(), value) for part in whole.split("&")) for whole in pattern.split("|")
    )


def _matches_pattern(pattern: str, value: Any) -> bool:
    if isinstance(value, dict | list):
        return False
    if bounds := _RANGE.fullmatch(pattern):
        low, high, found = quantity(bounds[1]), quantity(bounds[3]), _amount(value)
        if low is not None and high is not None:
            return found is not None and (low <= found <= high) == (bounds[2] == "-")
    for sign in _COMPARED:
        if pattern.startswith(sign):
            return compare_amounts(sign, _amount(value), pattern.removeprefix(sign).strip())
    unlike = pattern.startswith("!")
    literal = pattern.removeprefix("!").strip()
    amount, found = quantity(literal), _amount(value)
    if amount is not None and found is not None and (amount == found) is not unlike:
        return True  # by amount, or else as text
    if value is None:
        return False
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return wildcard(literal, text) is not unlike


def is_range(text: str) -> bool:
    """Return whether *text* is a range of amounts, as 5000-6000, or all but one, as 1!-1023."""
    bounds = _RANGE.fullmatch(text)
    return bounds is not None and quantity(bounds[1]) is not None and quantity(bounds[3]) is not None


def _amount(value: Any) -> Number | None:
    """Return the amount of *value* for a pattern that is a text: what is not there amounts to nothing."""
    return Number(0) if value is None else quantity(value)


def compare_amounts(sign: str, value: Any, bound: Any) -> bool:
    """Return whether *value* stands to *bound* as *sign* says, by amount; False when one of them is no amount."""
    found, limit = value if isinstance(value, Number) else quantity(value), quantity(bound)
    if found is None or limit is None:
        return False
    return {"<": found < limit, ">": found > limit, "<=": found <= limit, ">=": found >= limit}[sign]
