"""Conditions of `deny` and `preconditions`: JMESPath over the request, and the operators between values.

Source: https://kyverno.io/docs/policy-types/cluster-policy/preconditions/#operators, and kyverno/kyverno,
pkg/engine/variables/operator. ``In`` and ``NotIn``, which are deprecated there, are not of the subset.
Two values are ordered as durations, quantities, numbers or versions, the first that both are (numeric.go).
"""

from __future__ import annotations

import json
import operator
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, Decimal
from functools import lru_cache
from typing import Any

from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.readings import ElsewhereError
from opsassay.evals.compliance.kyverno.values import duration, equals_number, is_range, matches, quantity, wildcard

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_VARIABLE = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
MAX_WHOLE = 1e21
"""From this on Go prints a whole number with an exponent."""
MAX_EXPRESSION, MAX_MULTI_SELECTS = 2000, 4
"""Most characters of an expression, and most multi-selects in it, each of which may double the result."""
_COMPILING = threading.Lock()
"""Held while warning filters, which belong to the whole process, are changed."""
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": operator.gt, "GreaterThanOrEquals": operator.ge,
    "LessThan": operator.lt, "LessThanOrEquals": operator.le,
}  # fmt: skip


def hold(declared: Any, context: Mapping[str, Any], location: str) -> bool:
    """Return whether the Kyverno conditions *declared* hold in *context*: any/all blocks, or a list that must all hold.

    Raises UnsupportedError for operators and forms outside the supported subset; *location* is for its message.
    """
    blocks = {"all": declared} if isinstance(declared, list) else declared
    if not isinstance(blocks, Mapping) or not set(blocks) <= {"any", "all"} or not blocks:
        raise UnsupportedError(f"{location} has neither any nor all.")
    for conditions in blocks.values():
        if not isinstance(conditions, list):
            raise UnsupportedError(f"{location} is no list of conditions.")
    some = [_condition_holds(one, context, location) for one in blocks.get("any", [])]
    every = [_condition_holds(one, context, location) for one in blocks.get("all", [])]
    return (any(some) if "any" in blocks else True) and all(every)


def query(expression: str, context: Mapping[str, Any], location: str) -> Any:
    """Return what JMESPath *expression* finds in *context*, None for nothing; raises UnsupportedError at *location*."""
    try:
        return _compile_expression(expression).search(context)
    except (
        RecursionError,
        TypeError,
        ValueError,  # JMESPathError among them
        ArithmeticError,
        AttributeError,
        LookupError,
    ) as error:
        said = " ".join(str(error).split())[:200]
        raise UnsupportedError(f"{location}: {expression[:80]!r} cannot be evaluated: {said}.") from error


@lru_cache(maxsize=1024)
def _compile_expression(expression: str) -> Any:
    """Return the compiled JMESPath expression; raises ValueError for one whose result could grow without bound."""
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(f"it is longer than {MAX_EXPRESSION} characters")
    import jmespath

    with _COMPILING, warnings.catch_warnings():
        # A literal that is not JSON is an error in Kyverno; the library only warns of it.
        warnings.simplefilter("error", PendingDeprecationWarning)
        try:
            found = jmespath.compile(expression)
        except PendingDeprecationWarning:
            raise ValueError("a literal between backticks is not JSON") from None
    lists, todo = 0, [found.parsed]
    while todo:
        node = todo.pop()
        lists += node["type"] in ("multi_select_list", "multi_select_dict")
        todo += node["children"]
    if lists > MAX_MULTI_SELECTS:
        raise ValueError(f"it makes more than {MAX_MULTI_SELECTS} lists or maps")
    return found


def resolved(value: Any, context: Mapping[str, Any], location: str) -> Any:
    """Return *value* with its ``{{ }}`` variables replaced; a value that is one variable keeps the type of its content.

    The variables are JMESPath over *context*; raises UnsupportedError at *location* if one is invalid or finds nothing.
    """
    if isinstance(value, list):
        return [resolved(one, context, location) for one in value]
    if not isinstance(value, str):
        return value
    if whole := _VARIABLE.fullmatch(value):
        return _query_value(whole[1], context, location)
    return _VARIABLE.sub(lambda match: str(_query_value(match[1], context, location)), value)


def _query_value(expression: str, context: Mapping[str, Any], location: str) -> Any:
    """Return the result of JMESPath *expression* on *context*; raises UnsupportedError with *location* for nothing."""
    value = query(expression, context, location)
    if value is None:
        raise UnsupportedError(f"{location}: {expression[:80]!r} finds nothing; give a default with ||.")
    return value


def _condition_holds(condition: Any, context: Mapping[str, Any], location: str) -> bool:
    """Return whether *condition* holds in *context*; for a field that the violator may choose, the result assumed."""
    try:
        return _compare_values(condition, context, location)
    except ElsewhereError as elsewhere:
        return elsewhere.either()


def _compare_values(condition: Any, context: Mapping[str, Any], location: str) -> bool:
    """Return whether *condition*'s operator holds between its key and value; raises UnsupportedError at *location*."""
    if not isinstance(condition, Mapping) or not {"key", "operator"} <= set(condition) <= {
        "key",
        "operator",
        "value",
        "message",
    }:
        raise UnsupportedError(f"{location}: a condition has key, operator and value, and nothing else.")
    key, value = (resolved(condition.get(name), context, location) for name in ("key", "value"))
    name = str(condition["operator"])
    if name in ("Equals", "Equal", "NotEquals", "NotEqual"):
        equal = _equals(key, value)
        return equal is not None and equal != name.startswith("Not")
    if name in _ORDERS:
        both = _read_orderable(key, value)
        if both is None and _read_orderable(key, key) is None and _read_orderable(value, value) is None:
            raise UnsupportedError(f"{location}: {name} compares nothing that is a number, an amount or a version.")
        return both is not None and _ORDERS[name](*both)
    if name not in _MEMBERSHIPS:
        raise UnsupportedError(f"{location}: the operator {name!r} is not of the subset.")
    if isinstance(key, bool | Mapping) or key is None or not isinstance(value, list | str):
        raise UnsupportedError(
            f"{location}: {name} is about a text, a number or a list, and values, or a range of them."
        )
    return _MEMBERSHIPS[name](_are_members(key, value, f"{location}: {name}"))


def _are_members(key: Any, value: list[Any] | str, location: str) -> list[bool]:
    """Return for each item of *key* whether it is among *value*: a list, JSON text of one, a range or a text.

    Wildcards in either match when *value* is a list; for a single key and a text, only those of the text.
    """
    keys = key if isinstance(key, list) else [key]
    if isinstance(value, list):
        return [any(_matches_either_way(one, other) for other in value) for one in keys]
    if not isinstance(key, list) and wildcard(value, _text_as_go(key)):
        return [True]
    if is_range(value):
        if "!-" in value:
            raise UnsupportedError(
                f"{location} has the range {value!r}; say AnyNotIn or AllNotIn of what it leaves out."
            )
        return [matches(value, _text_as_go(one)) for one in keys]
    values = _list_values(value, location)
    if isinstance(key, list):
        return [any(_matches_either_way(one, other) for other in values) for one in keys]
    return [_text_as_go(key) in values]


def _list_values(value: str, location: str) -> list[str]:
    """Return the items of a JSON list in *value*, else [*value*]; raises UnsupportedError for other JSON."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return [value]
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise UnsupportedError(f"{location} has {value[:60]!r}, which is JSON and no list of texts; give a list.")
    return found


_MEMBERSHIPS: Mapping[str, Callable[[list[bool]], bool]] = {
    "AnyIn": any,
    "AllIn": all,
    "AnyNotIn": lambda among: not all(among),
    "AllNotIn": lambda among: not any(among),
}


def _text_as_go(value: Any) -> str:
    """Return *value* as Go formats it: booleans in lower case, whole floats without a decimal point."""
    if isinstance(value, bool):
        return "true" if value else "false"
    whole = isinstance(value, float) and value.is_integer() and abs(value) < MAX_WHOLE
    return str(int(value)) if whole else str(value)


def _matches_either_way(first: Any, second: Any) -> bool:
    """Return whether *first*, read as a wildcard pattern, matches *second*, or the other way round."""
    return wildcard(_text_as_go(first), _text_as_go(second)) or wildcard(_text_as_go(second), _text_as_go(first))


def _judge_key_equals(key: str, value: Any) -> bool | None:
    """Return whether *key* equals *value* as duration, quantity or wildcard; None if only *key* is an amount."""
    if both := _parse_durations(key, value):
        return both[0] == both[1]
    if not isinstance(value, str):
        return False
    if (amount := quantity(key)) is not None:
        return None if (other := quantity(value)) is None else amount == other
    return wildcard(value, key)


def _equals(key: Any, value: Any) -> bool | None:
    """Return whether *key* equals *value* by Kyverno's rules, None where both Equals and NotEquals are false."""
    if isinstance(key, str):
        return _judge_key_equals(key, value)
    if key is None:
        return None
    if isinstance(key, int | float) and not isinstance(key, bool):
        return equals_number(value, key)
    return json.dumps(key, sort_keys=True) == json.dumps(value, sort_keys=True)


def _read_orderable(key: Any, value: Any) -> tuple[Any, Any] | None:
    """Return *key* and *value* in the first type that both have (duration, quantity, number, version), else None."""
    if both := _parse_durations(key, value):
        return both
    two_texts = isinstance(key, str) and isinstance(value, str)
    for reading in (quantity, _parse_number)[not two_texts :]:
        if (one := reading(key)) is not None and (other := reading(value)) is not None:
            return one, other
    if isinstance(key, str) and (number := _parse_number(key)) is not None:
        return _parse_durations(float(number), value)  # a number beside a duration is seconds
    return _parse_versions(key, value)


def _parse_number(value: Any) -> Decimal | None:
    """Return *value* as a decimal if it is a number, or the text of one without a unit; else None."""
    return quantity(value) if not isinstance(value, str) or _NUMBER.fullmatch(value) else None


def _parse_versions(key: Any, value: Any) -> tuple[Any, Any] | None:
    """Return *key* and *value* as semantic versions, None unless both are versions."""
    from semver import Version  # a package of the extra `ciso`: tasks are listed without it

    if isinstance(key, str) and isinstance(value, str) and Version.is_valid(key) and Version.is_valid(value):
        return Version.parse(key), Version.parse(value)
    return None


def _parse_durations(key: Any, value: Any) -> tuple[Decimal, Decimal] | None:
    """Return *key* and *value* in seconds if one is a duration text, the other a duration or a number; else None."""
    texts = [isinstance(one, str) and one != "0" and duration(one) is not None for one in (key, value)]
    seconds = [
        duration(one) if is_text else None if isinstance(one, str) else _whole_seconds(one)
        for one, is_text in zip((key, value), texts, strict=True)
    ]
    one, other = seconds
    return (one, other) if any(texts) and one is not None and other is not None else None


def _whole_seconds(value: Any) -> Decimal | None:
    """Return a number of seconds rounded down to whole ones, as Kyverno reads it; None for other types."""
    return None if (seconds := quantity(value)) is None else seconds.to_integral_value(ROUND_DOWN)
