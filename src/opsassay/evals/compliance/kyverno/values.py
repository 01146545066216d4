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
from decimal import ROUND_UP, Decimal
from typing import Any

from opsassay.evals.compliance.kyverno.documents import UnsupportedError

MAX_AMOUNT, MAX_LEAF = 64, 1000
"""Most characters of an amount, and of one value of a pattern."""
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
_MOST, _LEAST = Decimal(2**63 - 1), Decimal("1e-9")
"""What Kubernetes holds of a quantity: no more than this, and what is finer is rounded up."""
_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_END = r"([-|+]?\d+(?:\.\d+)?[A-Za-z]*)"
_RANGE = re.compile(rf"{_END}(!?-){_END}")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip


def quantity(value: Any) -> Decimal | None:
    """Return a Kubernetes quantity or number in base units (cores, bytes), None when *value* is neither."""
    match = _QUANTITY.fullmatch(text) if (text := _format_amount(value)) is not None else None
    try:
        amount = None if match is None else Decimal(match[1] + (match[2] or "")) * _SCALE[match[3]]
        if amount is None or abs(amount) >= _MOST:
            return amount and _MOST.copy_sign(amount)
        return amount.quantize(_LEAST, ROUND_UP)
    except ArithmeticError:  # beyond all exponents
        return None


def duration(value: Any) -> Decimal | None:
    """Return a Go duration such as 1h30m in seconds, None when *value* is none; `0` is one."""
    text = _format_amount(value)
    if text is None or (match := _DURATION.fullmatch(text)) is None:
        return None
    seconds = sum((Decimal(count) * _SECONDS[unit] for count, unit in re.findall(_PART, text)), Decimal(0))
    return -seconds if match[1] == "-" else seconds


def _format_amount(value: Any) -> str | None:
    """Return a text or number as text, None for other types and for texts too long to be an amount."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        text = str(value)
    except ValueError:  # of thousands of digits
        return None
    return text if len(text) <= MAX_AMOUNT else None


def amounts(value: Any, bound: Any) -> tuple[Decimal, Decimal] | None:
    """Return *value* and *bound* as numbers: both durations (seconds), else both quantities; None when they differ."""
    for read in (duration, quantity):
        if (one := read(value)) is not None and (other := read(bound)) is not None:
            return one, other
    return None


def wildcard(pattern: str, text: str) -> bool:
    """Return whether *text* matches *pattern*, in which ``*`` stands for any characters and ``?`` for one.

    Takes time at most proportional to the product of both lengths.
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
    """Return whether the scalar *value*, None when missing, matches the scalar *pattern*; raises UnsupportedError."""
    if isinstance(pattern, bool):
        return isinstance(value, bool) and value == pattern
    if pattern is None:
        return value is None or (not isinstance(value, dict | list) and value in (0, "", False))
    if isinstance(pattern, int | float):
        return equals_number(value, pattern)
    if not isinstance(pattern, str):
        raise UnsupportedError(f"a pattern ends in {type(pattern).__name__}, which is no value.")
    if len(pattern) > MAX_LEAF:
        raise UnsupportedError(f"a value of a pattern is longer than {MAX_LEAF} characters.")
    if "{{" in pattern or "$(" in pattern:
        raise UnsupportedError(f"the pattern {pattern[:60]!r} has a variable; write the value, or use deny conditions.")
    return value == pattern or any(
        all(_matches_pattern(part.strip(" "), value) for part in whole.split("&")) for whole in pattern.split("|")
    )


def equals_number(value: Any, number: float) -> bool:
    """Return whether *value* equals *number*; a text must be written as an integer if *number* is an int."""
    if isinstance(value, str):
        as_written = _INTEGER if isinstance(number, int) else _FLOAT
        return as_written.fullmatch(value) is not None and quantity(value) == quantity(number)
    return not isinstance(value, bool) and isinstance(value, int | float) and value == number


def _matches_pattern(pattern: str, value: Any) -> bool:
    """Return whether *value* fits one pattern: range, comparison, amount or wildcard; a leading "!" negates."""
    if isinstance(value, dict | list):
        return False
    sign = next((one for one in (*_ORDERS, "!") if len(pattern) > 1 and pattern.startswith(one)), "")
    if not sign and (bounds := _RANGE.fullmatch(pattern)):
        low, high = bounds[1], bounds[3]
        if bounds[2] == "-":
            return compares(">=", value, low) and compares("<=", value, high)
        return compares("<", value, low) or compares(">", value, high)
    literal = pattern.removeprefix(sign).strip()
    if sign in _ORDERS:
        return compares(sign, value, literal)
    if both := amounts(_value_or_zero(value), literal):
        return (both[0] == both[1]) is (sign == "")
    return value is not None and wildcard(literal, _text_for_wildcards(value)) is (sign == "")


def _text_for_wildcards(value: Any) -> str:
    """Return *value* as the text that wildcards are matched with: floats with an exponent, as Go writes them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    mantissa = "".join(map(str, digits)).lstrip("0").rstrip("0") or "0"
    power = 0 if mantissa == "0" else len(digits) + int(exponent) - 1
    fraction = f".{mantissa[1:]}" if mantissa[1:] else ""
    return f"{'-' * sign}{mantissa[0]}{fraction}E{'-' if power < 0 else '+'}{abs(power):02}"


def is_range(text: str) -> bool:
    """Return whether *text* is a range of amounts (5000-6000) or its complement (1!-1023)."""
    return _RANGE.fullmatch(text) is not None


def _is_amount(value: Any) -> bool:
    """Return whether *value* is a Kubernetes quantity or a duration."""
    return quantity(value) is not None or duration(value) is not None


def _value_or_zero(value: Any) -> Any:
    """Return *value*, or "0" in place of None, as Kyverno compares it."""
    return "0" if value is None else value


def compares(operator: str, value: Any, bound: str) -> bool:
    """Return whether "*value* *operator* *bound*" holds; False when the two are amounts of different kinds.

    Raises UnsupportedError when *bound* is neither a quantity nor a duration.
    """
    if not _is_amount(bound):
        raise UnsupportedError(f"{operator}{bound[:60]} has nothing that is a number, a quantity or a duration.")
    both = amounts(_value_or_zero(value), bound)
    return both is not None and _ORDERS[operator](*both)
