"""Which series of two vectors belong together, step by step: `and`, `or`, `unless`, and the pairs of an operation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opsassay.telemetry.backends.promql.values import (
    Present,
    PromqlError,
    Vectors,
    count_present,
    group_labels,
    merged,
    names_of,
    too_many_samples,
)
from opsassay.telemetry.backends.series import NAME, Labels, Times

MOST_PAIRED_CELLS = 8_000_000
"""Pairs of series times steps."""


class Signatures(NamedTuple):
    """By which labels series belong together: *keys*, and the one of each series on either side."""

    keys: list[Labels]
    left: Times
    right: Times

    @classmethod
    def of(cls, left: Vectors, right: Vectors, names: set[str], *, on: bool) -> Signatures:
        """Return those by the labels *names*, or without *on* by all others but the name."""
        both = [*left.labels, *right.labels]
        keys, numbers = group_labels(both, names if on else names_of(both) - names - {NAME})
        return cls(keys, numbers[: len(left.labels)], numbers[len(left.labels) :])

    def require_one(self, ones: Vectors, left: Vectors, right: Vectors) -> None:
        """Raise PromqlError when several of *ones* have a signature at a step at which both sides have any series."""
        owners, side = (self.left, "left") if ones is left else (self.right, "right")
        both = left.present.any(axis=0) & right.present.any(axis=0)
        several = (count_present(ones.present, owners, len(self.keys)) > 1) & both
        if not several.any():
            return
        number = int(several.any(axis=1).argmax())
        rows = np.flatnonzero((owners == number) & (ones.present & several[number]).any(axis=1))
        examples = ", ".join(str(ones.labels[row]) for row in rows[:2].tolist())
        raise PromqlError(
            f"found duplicate series for the match group {self.keys[number]} on the {side} hand-side of the operation: "
            f"[{examples}];many-to-many matching not allowed: matching labels must be unique on one side",
            "execution",
            422,
        )

    def pairs(self, steps: int) -> tuple[Times, Times]:
        """Return the places, left and right, of all pairs with the same signature; raises PromqlError for too many."""
        order = np.argsort(self.right, kind="stable")
        low = np.searchsorted(self.right[order], self.left, side="left")
        counts = np.searchsorted(self.right[order], self.left, side="right") - low
        if int(counts.sum()) * steps > MOST_PAIRED_CELLS:
            raise too_many_samples()
        first = np.repeat(np.arange(len(self.left), dtype=np.int64), counts)
        within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
        return first, order[np.repeat(low, counts) + within]


def combined(op: str, left: Vectors, right: Vectors, signatures: Signatures) -> Vectors:
    """Return *left* `and`, `or` or `unless` *right*, step by step."""
    count = len(signatures.keys)
    if op == "or":
        alone = right.present & ~_there(left, signatures.left, count)[signatures.right]
        return merged(
            Vectors(
                [*left.labels, *right.labels],
                np.concatenate([left.values, right.values]),
                np.concatenate([left.present, alone]),
            )
        )
    there = _there(right, signatures.right, count)[signatures.left]
    return Vectors(left.labels, left.values, left.present & (there if op == "and" else ~there))


def _there(vectors: Vectors, owners: Times, count: int) -> Present:
    found: Present = count_present(vectors.present, owners, count) > 0
    return found
