"""Operators of PromQL between numbers and vectors: arithmetic, comparison, `and`, `or` and `unless`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import promql_parser as promql

from opsassay.telemetry.backends.literals import decode_literals
from opsassay.telemetry.backends.promql.values import (
    Present,
    PromqlError,
    Vectors,
    count_present,
    group_labels,
    merged,
    names_of,
    too_many_samples,
    unnamed,
)
from opsassay.telemetry.backends.series import NAME, Labels, Times, Values

MOST_PAIRED_CELLS = 8_000_000
"""Most values (pairs of series times steps) of an operation between vectors."""


class Signatures(NamedTuple):
    """The label sets by which series match: *keys*, and the index of its key for each series on the left and right."""

    keys: list[Labels]
    left: Times
    right: Times

    @classmethod
    def of(cls, left: Vectors, right: Vectors, names: set[str], *, on: bool) -> Signatures:
        """Return the signatures that match *left* and *right*: labels *names* if *on*, else all others but the name."""
        both = [*left.labels, *right.labels]
        keys, numbers = group_labels(both, names if on else names_of(both) - names - {NAME})
        return cls(keys, numbers[: len(left.labels)], numbers[len(left.labels) :])

    def require_one(self, vectors: Vectors, left: Vectors, right: Vectors) -> None:
        """Raise PromqlError if two of *vectors*, one side, share a signature at a step at which both sides have series."""
        owners, side = (self.left, "left") if vectors is left else (self.right, "right")
        both = left.present.any(axis=0) & right.present.any(axis=0)
        several = (count_present(vectors.present, owners, len(self.keys)) > 1) & both
        if not several.any():
            return
        number = int(several.any(axis=1).argmax())
        rows = np.flatnonzero((owners == number) & (vectors.present & several[number]).any(axis=1))
        examples = ", ".join(str(vectors.labels[row]) for row in rows[:2].tolist())
        raise PromqlError(
            f"found duplicate series for the match group {self.keys[number]} on the {side} hand-side of the operation: "
            f"[{examples}];many-to-many matching not allowed: matching labels must be unique on one side",
            "execution",
            422,
        )

    def pairs(self, step_count: int) -> tuple[Times, Times]:
        """Return (left, right) indices of all pairs of series with the same signature; raises PromqlError for too many."""
        order = np.argsort(self.right, kind="stable")
        low = np.searchsorted(self.right[order], self.left, side="left")
        counts = np.searchsorted(self.right[order], self.left, side="right") - low
        if int(counts.sum()) * step_count > MOST_PAIRED_CELLS:
            raise too_many_samples()
        first = np.repeat(np.arange(len(self.left), dtype=np.int64), counts)
        within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
        return first, order[np.repeat(low, counts) + within]


def combined(op: str, left: Vectors, right: Vectors, signatures: Signatures) -> Vectors:
    """Return *left* *op* *right* at each step, *op* being `and`, `or` or `unless`; series match by *signatures*."""
    count = len(signatures.keys)
    if op == "or":
        alone = right.present & ~_is_present(left, signatures.left, count)[signatures.right]
        return merged(
            Vectors(
                [*left.labels, *right.labels],
                np.concatenate([left.values, right.values]),
                np.concatenate([left.present, alone]),
            )
        )
    there = _is_present(right, signatures.right, count)[signatures.left]
    return replace(left, present=left.present & (there if op == "and" else ~there))


def _is_present(vectors: Vectors, owners: Times, count: int) -> Present:
    """Return, as (*count* groups, steps), whether any of the group's *vectors* is present; *owners*: group of each."""
    found: Present = count_present(vectors.present, owners, count) > 0
    return found


Operation = Callable[[Any, Any], Any]
ARITHMETIC: Mapping[str, Operation] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod, "^": np.power,
    "atan2": np.arctan2,
}  # fmt: skip
COMPARISON: Mapping[str, Operation] = {
    "==": np.equal, "!=": np.not_equal, ">": np.greater, "<": np.less, ">=": np.greater_equal, "<=": np.less_equal,
}  # fmt: skip

SETS = frozenset({"and", "or", "unless"})
_ONE_TO_ONE = promql.VectorMatchCardinality.OneToOne

Operand = Vectors | Values


def operate(op: str, modifier: promql.BinModifier | None, left: Operand, right: Operand) -> Operand:
    """Return *left* *op* *right* at all steps, by *modifier* (on, group_left, bool, ...); raises PromqlError."""
    as_bool = modifier is not None and modifier.return_bool
    if isinstance(left, Vectors) and isinstance(right, Vectors):
        return _between_vectors(op, modifier, left, right, as_bool=as_bool)
    vectors = left if isinstance(left, Vectors) else right
    if not isinstance(vectors, Vectors):
        found: Values = {**ARITHMETIC, **COMPARISON}[op](left, right).astype(np.float64)
        return found
    first, second = (one.values if isinstance(one, Vectors) else one for one in (left, right))
    values, holds = _computed(op, first, second, vectors.values, as_bool=as_bool)
    result = replace(vectors, values=values, present=vectors.present & holds)
    return result.without_name() if op in ARITHMETIC or as_bool else result


def _computed(op: str, left: Values, right: Values, operand: Values, *, as_bool: bool) -> tuple[Values, Present | bool]:
    """Return (values of *left* *op* *right*, where they exist); a true comparison gives *operand*, a false one none.

    With *as_bool* it is 1 or 0 instead, everywhere.
    """
    if op in ARITHMETIC:
        return ARITHMETIC[op](left, right), True
    holds = COMPARISON[op](left, right)
    return (holds.astype(np.float64), True) if as_bool else (operand, holds)


def _between_vectors(
    op: str, modifier: promql.BinModifier | None, left: Vectors, right: Vectors, *, as_bool: bool
) -> Vectors:
    """Return *left* *op* *right* for the series with the same signature, each step by itself; raises PromqlError.

    At a step with series on both sides, signatures must be unique where *modifier* needs it; labels are as in
    Prometheus' ``VectorBinop`` and ``resultMetric``.
    """
    left, right = left.sampled(), right.sampled()
    matching = modifier.matching if modifier is not None else None
    names = {decode_literals(name) for name in matching.labels} if matching is not None else set()
    on = matching is not None and matching.type == promql.LabelModifierType.Include
    signatures = Signatures.of(left, right, names, on=on)
    if op in SETS:
        return combined(op, left, right, signatures)
    card = modifier.card if modifier is not None else _ONE_TO_ONE
    many_right = card == promql.VectorMatchCardinality.OneToMany
    signatures.require_one(left if many_right else right, left, right)
    ours, theirs = signatures.pairs(left.values.shape[1])
    first, second = left.rows(ours), right.rows(theirs)
    values, holds = _computed(op, first.values, second.values, first.values, as_bool=as_bool)
    present = first.present & second.present & holds
    if card == _ONE_TO_ONE and (count_present(present, signatures.left[ours], len(signatures.keys)) > 1).any():
        raise PromqlError(
            "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
            "execution",
            422,
        )
    taken = [decode_literals(name) for name in (modifier.group_labels if modifier is not None else None) or ()]
    many, one = (second, first) if many_right else (first, second)
    labels = []
    for own, others in zip(many.labels, one.labels, strict=True):
        found = unnamed(own) if op in ARITHMETIC else own
        if card == _ONE_TO_ONE:
            found = {name: text for name, text in found.items() if (name in names) == on}
        if taken:
            found = {name: text for name, text in found.items() if name not in taken}
            found |= {name: others[name] for name in taken if others.get(name)}
        labels.append(unnamed(found) if as_bool else found)
    return merged(Vectors(labels, values, present))
