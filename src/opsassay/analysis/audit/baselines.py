"""Scores without skill: reference rows for chance and a constant answer, and methods that always answer alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.matched import Labels, Matched

CHANCE, CONSTANT = "chance (1 / labels)", "constant (best fixed label)"


def with_references(matched: Matched) -> Matched:
    """Return *matched* with two further methods, where the table tells the expected labels.

    ``constant`` scores 1 on the cases of a system whose expected label is the most frequent one there, the best that a
    fixed answer can do; ``chance`` scores 1 / (labels that occur in the system) on every case, which is at least what a
    fair draw among all candidates scores.
    """
    if matched.labels is None:
        return matched
    chance, constant = np.empty(matched.cases), np.empty(matched.cases)
    for start, size in zip(matched.starts, matched.sizes, strict=True):
        expected = matched.labels.expected[start : start + size]
        names, counts = np.unique(expected, return_counts=True)
        chance[start : start + size] = 1 / len(names)
        constant[start : start + size] = expected == names[counts.argmax()]
    return replace(
        matched,
        methods=(*matched.methods, CHANCE, CONSTANT),
        values=np.column_stack([matched.values, chance, constant]),
    )


def modal_share(labels: Labels, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of each method's most frequent answer, systems x methods; *starts*, *sizes*: rows per system.

    A share near 1 is an output that collapsed to a constant (leaderboard-audit, appendix F).
    """
    out = np.empty((len(sizes), labels.predicted.shape[1]))
    for s, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        for m in range(labels.predicted.shape[1]):
            _, counts = np.unique(labels.predicted[start : start + size, m], return_counts=True)
            out[s, m] = counts.max() / size
    return out


def canonicalised(matched: Matched, canonical: Mapping[str, str]) -> Matched:
    """Return *matched* rescored after *canonical* (alias to name) was applied to predicted and expected labels.

    A case whose labels differ and become equal scores 1, every other score stays (leaderboard-audit, Table 11A).
    """
    assert matched.labels is not None
    expected = _map_to_canonical_labels(matched.labels.expected, canonical)
    predicted = _map_to_canonical_labels(matched.labels.predicted, canonical)
    newly = (predicted == expected[:, None]) & (matched.labels.predicted != matched.labels.expected[:, None])
    return replace(
        matched, values=np.where(newly, 1.0, matched.values), labels=Labels(expected, predicted), variants={}
    )


def _map_to_canonical_labels(labels: NDArray[np.str_], canonical: Mapping[str, str]) -> NDArray[np.str_]:
    """Return *labels* with each alias replaced by its name in *canonical*."""
    names, index = np.unique(labels, return_inverse=True)
    renamed = np.array([canonical.get(str(name), str(name)) for name in names], dtype=np.str_)
    out: NDArray[np.str_] = renamed[index].reshape(labels.shape)
    return out
