"""Conditions of `deny` and `preconditions`: JMESPath over the request, and the operators between values.

Source: https://kyverno.io/docs/policy-types/cluster-policy/preconditions/#operators, and kyverno/kyverno,
pkg/engine/variables/operator. ``In`` and ``NotIn``, which are deprecated there, are not of the subset.
Two values are ordered as durations, quantities, numbers or versions, the first that both are (numeric.go).
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.readings import ElsewhereError
from opsassay.evals.compliance.kyverno.values import duration, is_range, matches, quantity, wildcard

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_VARIABLE = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
MAX_EXPRESSION, MAX_MULTI_SELECTS = 2000, 4
"""Characters of an expression, and how often it may make a list or a map: each may double what there is."""
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": operator.gt, "GreaterThanOrEquals": operator.ge,
    "LessThan": operator.lt, "LessThanOrEquals": operator.le,
}  # fmt: skip


def hold(given: Any, context: Mapping[str, Any], where: str) -> bool:
    """Return whether the conditions *given* hold in *context*: those of ``any`` and of ``all``, or a list of all.

    Raises UnsupportedError for what is not of the subset.
    """
    blocks = {"all": given} if isinstance(given, list) else given
    if not isinstance(blocks, Mapping) or not set(blocks) <= {"any", "all"} or not blocks:
        raise UnsupportedError(f"{where} has neither any nor all.")
    for conditions in blocks.values():
        if not isinstance(conditions, list):
            raise UnsupportedError(f"{where} is no list of conditions.")
    some = [_holds(one, context, where) for one in blocks.get("any", [])]
    every = [_holds(one, context, where) for one in blocks.get("all", [])]
    return (any(some) if "any" in blocks else True) and all(every)


def query(expression: str, context: Mapping[str, Any], where: str) -> Any:
    """Return what the JMESPath *expression* finds in *context*; raises UnsupportedError when it is none."""
    try:
        return _compiled(expression).search(context)
    except (
        RecursionError,
        TypeError,
        ValueError,  # JMESPathError among them
        ArithmeticError,
        AttributeError,
        LookupError,
    ) as error:
        said = " ".join(str(error).split())[:200]
        raise UnsupportedError(f"{where}: {expression[:80]!r} cannot be evaluated: {said}.") from error


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Any:
    """Return *expression* compiled; raises ValueError when what it finds could grow beyond all bounds."""
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(f"it is longer than {MAX_EXPRESSION} characters")
    import jmespath

    found = jmespath.compile(expression)
    lists, todo = 0, [found.parsed]
    while todo:
        node = todo.pop()
        lists += node["type"] in ("multi_select_list", "multi_select_dict")
        todo += node["children"]
    if lists > MAX_MULTI_SELECTS:
        raise ValueError(f"it makes more than {MAX_MULTI_SELECTS} lists or maps")
    return found


def resolved(value: Any, context: Mapping[str, Any], where: str) -> Any:
    """Return *value* with its variables replaced by what they are; one alone keeps its type.

    Raises UnsupportedError for an expression that is none or finds nothing.
    """
    if isinstance(value, list):
        return [resolved(one, context, where) for one in value]
    if not isinstance(value, str):
        return value
    if whole := _VARIABLE.fullmatch(value):
        return _query_value(whole[1], context, where)
    return _VARIABLE.sub(lambda match: str(_query_value(match[1], context, where)), value)


def _query_value(expression: str, context: Mapping[str, Any], where: str) -> Any:
    value = query(expression, context, where)
    if value is None:
        raise UnsupportedError(f"{where}: {expression[:80]!r} finds nothing; give a default with ||.")
    return value


def _holds(given: Any, context: Mapping[str, Any], where: str) -> bool:
    try:
        return _compare_values(given, context, where)
    except ElsewhereError as elsewhere:
        return elsewhere.either()


def _compare_values(given: Any, context: Mapping[str, Any], where: str) -> bool:
    if not isinstance(given, Mapping) or not {"key", "operator"} <= set(given) <= {
        "key",
        "operator",
        "value",
        "message",
    }:
        raise UnsupportedError(f"{where}: a condition has key, operator and value, and nothing else.")
    key, value = (resolved(given.get(name), context, where) for name in ("key", "value"))
    name = str(given["operator"])
    if name in ("Equals", "Equal", "NotEquals", "NotEqual"):
        return _equals(key, value) != name.startswith("Not")
    if name in _ORDERS:
        both = _read_orderable(key, value)
        if both is None and _read_orderable(key, key) is None and _read_orderable(value, value) is None:
            raise UnsupportedError(f"{where}: {name} compares nothing that is a number, an amount or a version.")
        return both is not None and _ORDERS[name](*both)
    if name not in _MEMBERSHIPS:
        raise UnsupportedError(f"{where}: the operator {name!r} is not of the subset.")
    if isinstance(key, bool) or not isinstance(value, list | str):
        raise UnsupportedError(f"{where}: {name} is about a text, a number or a list, and values, or a range of them.")
    keys = key if isinstance(key, list) else [key]
    if isinstance(value, str) and is_range(value):
        return _MEMBERSHIPS[name]([matches(value, one) for one in keys])
    values = _list_values(value) if isinstance(value, str) else value
    return _MEMBERSHIPS[name]([any(_alike(one, other) for other in values) for one in keys])


def _list_values(value: str) -> list[Any]:
    """Return the values of a text: those of a list in JSON, else itself alone."""
    if value.startswith("["):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return [value]
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return found
    return [value]


_MEMBERSHIPS: Mapping[str, Callable[[list[bool]], bool]] = {
    "AnyIn": any,
    "AllIn": all,
    "AnyNotIn": lambda among: not all(among),
    "AllNotIn": lambda among: not any(among),
}


def _alike(one: Any, other: Any) -> bool:
    """Return whether one of both, as text, is a pattern of the other: wildcards count on either side."""
    texts = [("true" if value else "false") if isinstance(value, bool) else str(value) for value in (one, other)]
    return wildcard(texts[0], texts[1]) or wildcard(texts[1], texts[0])


def _equals(key: Any, value: Any) -> bool:
    if isinstance(key, bool) or isinstance(value, bool):
        return isinstance(key, bool) and isinstance(value, bool) and key == value
    if isinstance(key, str):
        if both := _durations(key, value):
            return both[0] == both[1]
        if isinstance(value, str):
            return wildcard(value, key) if quantity(key) is None else quantity(key) == quantity(value)
        return False
    if isinstance(key, int | float) and isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None and quantity(key) == quantity(value)
    return bool(key == value)


def _read_orderable(key: Any, value: Any) -> tuple[Any, Any] | None:
    """Return both as what can be ordered: durations, quantities, numbers or versions, the first that both are."""
    if both := _durations(key, value):
        return both
    one, other = quantity(key), quantity(value)
    if one is not None and other is not None:
        return one, other
    return _versions(key, value)


def _versions(key: Any, value: Any) -> tuple[Any, Any] | None:
    """Return both as semantic versions, or None when one of them is none."""
    from semver import Version  # a package of the extra `ciso`: tasks are listed without it

    if isinstance(key, str) and isinstance(value, str) and Version.is_valid(key) and Version.is_valid(value):
        return Version.parse(key), Version.parse(value)
    return None


def _durations(key: Any, value: Any) -> tuple[Decimal, Decimal] | None:
    """Return both in seconds when one of them is a text that is a duration, and the other one too or a number."""
    texts = [isinstance(one, str) and one != "0" and duration(one) is not None for one in (key, value)]
    seconds = [
        duration(one) if is_text else None if isinstance(one, str) else quantity(one)
        for one, is_text in zip((key, value), texts, strict=True)
    ]
    one, other = seconds
    return (one, other) if any(texts) and one is not None and other is not None else None
