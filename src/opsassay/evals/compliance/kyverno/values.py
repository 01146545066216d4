"""Leaves of patterns: wildcards, operators, ranges, alternatives and conjunctions, as Kyverno reads them.

A text may be a duration and a quantity (`90m`). Two texts that are held against each other are read by one rule: as
durations where both are, else as quantities where both are, else as texts.
Source: https://kyverno.io/docs/policy-types/cluster-policy/validate/#operators, and kyverno/kyverno, pkg/engine/pattern
(validateString).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from opsassay.evals.compliance.kyverno.documents import UnsupportedError

MAX_AMOUNT, MAX_LEAF = 64, 1000
"""Characters of an amount, and of one value of a pattern."""
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(n|u|m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei))?")
_PART = r"(\d+\.?\d*|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)"
_DURATION = re.compile(rf"([+-]?)(?:0|(?:{_PART})+)")
_SCALE: dict[str | None, Decimal] = {
    None: Decimal(1),
    **{letter: Decimal(1000) ** power for letter, power in (("n", -3), ("u", -2), ("m", -1))},
    **{letter: Decimal(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}
_SECONDS = {
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs"), Decimal("1e-6")),
    "ns": Decimal("1e-9"), "ms": Decimal("1e-3"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600),
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_RANGE = re.compile(r"([^!<>=|&]+?)(!?-)([^!<>=|&]+)")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip


def quantity(value: Any) -> Decimal | None:
    """Return *value* in base units (cores, bytes), None when it is no number and no quantity of Kubernetes."""
    match = _QUANTITY.fullmatch(text) if (text := _amount_text(value)) is not None else None
    try:
        return None if match is None else Decimal(match[1] + (match[2] or "")) * _SCALE[match[3]]
    except ArithmeticError:  # beyond all exponents
        return None


def duration(value: Any) -> Decimal | None:
    """Return the seconds of *value*, None when it is no duration as Go writes them; `0` is one."""
    text = _amount_text(value)
    if text is None or (match := _DURATION.fullmatch(text)) is None:
        return None
    seconds = sum((Decimal(count) * _SECONDS[unit] for count, unit in re.findall(_PART, text)), Decimal(0))
    return -seconds if match[1] == "-" else seconds


def _amount_text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        text = str(value)
    except ValueError:  # of thousands of digits
        return None
    return text if len(text) <= MAX_AMOUNT else None


def amounts(value: Any, bound: Any) -> tuple[Decimal, Decimal] | None:
    """Return both as amounts of one kind, durations before quantities, None when they are not of one."""
    for read in (duration, quantity):
        if (one := read(value)) is not None and (other := read(bound)) is not None:
            return one, other
    return None


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
        return not written and (both := amounts(value, pattern)) is not None and both[0] == both[1]
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
    if is_range(pattern) and (bounds := _RANGE.fullmatch(pattern)):
        if bounds[2] == "-":
            return compares(">=", value, bounds[1].strip()) and compares("<=", value, bounds[3].strip())
        return compares("<", value, bounds[1].strip()) or compares(">", value, bounds[3].strip())
    for sign in _ORDERS:
        if pattern.startswith(sign):
            return compares(sign, value, pattern.removeprefix(sign).strip())
    unlike = pattern.startswith("!")
    literal = pattern.removeprefix("!").strip()
    if both := amounts(_present(value), literal):
        return (both[0] == both[1]) is not unlike
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return value is not None and wildcard(literal, text) is not unlike


def is_range(text: str) -> bool:
    """Return whether *text* is a range of amounts, as 5000-6000, or all but one, as 1!-1023."""
    bounds = _RANGE.fullmatch(text)
    return bounds is not None and all(_is_amount(bounds[at].strip()) for at in (1, 3))


def _is_amount(value: Any) -> bool:
    return quantity(value) is not None or duration(value) is not None


def _present(value: Any) -> Any:
    """Return *value* for a pattern that is a text: what is not there amounts to nothing."""
    return "0" if value is None else value


def compares(sign: str, value: Any, bound: str) -> bool:
    """Return whether *value* stands to *bound* as *sign* says; False when it is no amount of the kind of *bound*.

    Raises UnsupportedError when *bound* is no amount.
    """
    if not _is_amount(bound):
        raise UnsupportedError(f"{sign}{bound[:60]} has nothing that is a number, a quantity or a duration.")
    both = amounts(_present(value), bound)
    return both is not None and _ORDERS[sign](*both)
