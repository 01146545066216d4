"""Operators between sets of series: `and`, `or`, `unless`, and the matching of many series with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from opsassay.telemetry.backends.promql.values import Present, PromqlError, Vectors, key_of, unnamed
from opsassay.telemetry.backends.series import Labels

Signature = Callable[[Labels], Labels]
Key = tuple[tuple[str, str], ...]


def combined(op: str, left: Vectors, right: Vectors, signature: Signature) -> Vectors:
    """Return *left* `and`, `or` or `unless` *right*, step by step, by the *signature* of their labels."""
    if op == "or":
        alone = right.present & ~_there(right, left, signature)
        return _stack_vectors(left, Vectors(right.labels, right.values, alone))
    there = _there(left, right, signature)
    return Vectors(left.labels, left.values, left.present & (there if op == "and" else ~there))


def one_of(vectors: Vectors, signature: Signature, side: str) -> dict[Key, int]:
    """Return the one series of each signature; raises PromqlError where there are several on *side*."""
    found: dict[Key, int] = {}
    for number, labels in enumerate(vectors.labels):
        key = key_of(signature(labels))
        if key in found:
            raise PromqlError(
                f"found duplicate series for the match group {dict(key)} on the {side} hand-side of the operation: "
                f"{unnamed(labels)}; many-to-many matching not allowed: matching labels must be unique on one side",
                "execution",
                422,
            )
        found[key] = number
    return found


def pairs_of(many: Vectors, ones: dict[Key, int], signature: Signature) -> tuple[list[int], list[int]]:
    """Return the series of *many* that have one in *ones*, and which."""
    found = [
        (number, ones[key]) for number, labels in enumerate(many.labels) if (key := key_of(signature(labels))) in ones
    ]
    return [number for number, _ in found], [one for _, one in found]


def with_labels_of(labels: Labels, one: Labels, taken: Sequence[str]) -> Labels:
    """Return *labels* without their name and with those that are *taken* from the series on the other side."""
    found = {name: value for name, value in unnamed(labels).items() if name not in taken}
    return found | {name: one[name] for name in taken if one.get(name)}


def _there(vectors: Vectors, others: Vectors, signature: Signature) -> Present:
    """Return for each series of *vectors*, at each step, whether any of *others* has its signature."""
    groups: dict[Key, list[int]] = {}
    for number, labels in enumerate(others.labels):
        groups.setdefault(key_of(signature(labels)), []).append(number)
    found = np.zeros_like(vectors.present)
    for number, labels in enumerate(vectors.labels):
        if rows := groups.get(key_of(signature(labels))):
            found[number] = others.present[rows].any(axis=0)
    return found


def _stack_vectors(left: Vectors, right: Vectors) -> Vectors:
    """Return both below each other; series with the same labels, which are never there at the same step, become one."""
    known = {key_of(labels): number for number, labels in enumerate(left.labels)}
    values, present = left.values.copy(), left.present.copy()
    new = []
    for number, labels in enumerate(right.labels):
        if (row := known.get(key_of(labels))) is None:
            new.append(number)
            continue
        values[row] = np.where(right.present[number], right.values[number], values[row])
        present[row] |= right.present[number]
    added = right.rows(new)
    return Vectors(
        [*left.labels, *added.labels], np.concatenate([values, added.values]), np.concatenate([present, added.present])
    )
