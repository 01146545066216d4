"""Arithmetic, comparison and sets: between numbers, between a vector and a number, and between vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import promql_parser as promql

from opsassay.telemetry.backends.literals import decode_literals
from opsassay.telemetry.backends.promql.matching_sets import combined, one_of, pairs_of, with_labels_of
from opsassay.telemetry.backends.promql.values import Vectors
from opsassay.telemetry.backends.series import NAME, Labels, Values

Operation = Callable[[Any, Any], Any]
ARITHMETIC: Mapping[str, Operation] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod, "^": np.power,
}  # fmt: skip
COMPARISON: Mapping[str, Operation] = {
    "==": np.equal, "!=": np.not_equal, ">": np.greater, "<": np.less, ">=": np.greater_equal, "<=": np.less_equal,
}  # fmt: skip

SETS = frozenset({"and", "or", "unless"})
_ONE_TO_ONE = promql.VectorMatchCardinality.OneToOne

Operand = Vectors | Values


def operate(op: str, modifier: promql.BinModifier | None, left: Operand, right: Operand) -> Operand:
    """Return *left* *op* *right*; numbers have the shape (steps,). Raises PromqlError when vectors do not match."""
    as_bool = modifier is not None and modifier.return_bool
    if isinstance(left, Vectors):
        if isinstance(right, Vectors):
            return _between_vectors(op, modifier, left, right, as_bool=as_bool)
        return _applied(op, left, left.values, right, as_bool=as_bool)
    if isinstance(right, Vectors):
        return _applied(op, right, left, right.values, as_bool=as_bool)
    found: Values = {**ARITHMETIC, **COMPARISON}[op](left, right).astype(np.float64)
    return found


def _applied(op: str, vectors: Vectors, left: Values, right: Values, *, as_bool: bool) -> Vectors:
    """Return *left* *op* *right* with the series of *vectors*: a comparison keeps its values where it holds."""
    if op in ARITHMETIC:
        return Vectors(vectors.labels, ARITHMETIC[op](left, right), vectors.present).without_name()
    holds = COMPARISON[op](left, right)
    if as_bool:
        return Vectors(vectors.labels, holds.astype(np.float64), vectors.present).without_name()
    return Vectors(vectors.labels, vectors.values, vectors.present & holds)


def _between_vectors(
    op: str, modifier: promql.BinModifier | None, left: Vectors, right: Vectors, *, as_bool: bool
) -> Vectors:
    matching = modifier.matching if modifier is not None else None
    named = {decode_literals(name) for name in matching.labels} if matching is not None else set()
    on = matching is not None and matching.type == promql.LabelModifierType.Include

    def signature(labels: Labels) -> Labels:
        return {name: value for name, value in labels.items() if (name in named if on else name not in named | {NAME})}

    if op in SETS:
        return combined(op, left, right, signature)
    card = modifier.card if modifier is not None else _ONE_TO_ONE
    if card != _ONE_TO_ONE:
        assert modifier is not None
        return _many(op, modifier, left, right, signature, as_bool=as_bool)
    ours, theirs = one_of(left, signature, "left"), one_of(right, signature, "right")
    pairs = [(number, theirs[key]) for key, number in ours.items() if key in theirs]
    first, second = left.rows([one for one, _ in pairs]), right.rows([other for _, other in pairs])
    both = Vectors(first.labels, first.values, first.present & second.present)
    found = _applied(op, both, first.values, second.values, as_bool=as_bool)
    if on:
        return Vectors([signature(labels) for labels in found.labels], found.values, found.present)
    kept = [{name: value for name, value in labels.items() if name not in named} for labels in found.labels]
    return Vectors(kept, found.values, found.present)


def _many(
    op: str,
    modifier: promql.BinModifier,
    left: Vectors,
    right: Vectors,
    signature: Callable[[Labels], Labels],
    *,
    as_bool: bool,
) -> Vectors:
    """Return the operation of each series of the side with many with the one on the other side that fits it."""
    left_has_many = modifier.card == promql.VectorMatchCardinality.ManyToOne
    many, ones, side = (left, right, "right") if left_has_many else (right, left, "left")
    numbers, others = pairs_of(many, one_of(ones, signature, side), signature)
    some, one = many.rows(numbers), ones.rows(others)
    first, second = (some, one) if left_has_many else (one, some)
    both = Vectors(some.labels, first.values, some.present & one.present)
    found = _applied(op, both, first.values, second.values, as_bool=as_bool)
    taken = [decode_literals(name) for name in modifier.group_labels or ()]
    labels = [with_labels_of(ours, theirs, taken) for ours, theirs in zip(some.labels, one.labels, strict=True)]
    if op in COMPARISON and not as_bool:
        labels = [
            one | ({NAME: ours[NAME]} if NAME in ours else {}) for one, ours in zip(labels, some.labels, strict=True)
        ]
    return Vectors(labels, found.values, found.present)
