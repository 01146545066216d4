"""The results of expressions, and the errors of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import numpy.typing as npt

from opsassay.core.errors import UserError
from opsassay.telemetry.backends.series import NAME, Labels, Times, Values

Present = npt.NDArray[np.bool_]

TOO_MANY_SAMPLES = "query processing would load too many samples into memory in query execution"
TIMED_OUT = "query timed out in expression evaluation"


class PromqlError(UserError):
    """An error of a query; *kind* is Prometheus' ``errorType`` and *status* the HTTP status."""

    def __init__(self, message: str, kind: str = "bad_data", status: int = 400) -> None:
        self.kind, self.status = kind, status
        super().__init__(message)


def too_many_samples() -> PromqlError:
    """Return the error for a query that would load too many samples."""
    return PromqlError(TOO_MANY_SAMPLES, "execution", 422)


@dataclass(frozen=True)
class Vectors:
    """An instant vector at every step: *values* (series, steps), valid where *present*.

    *distinct* True states that no two series have equal labels; False that this is unknown.
    """

    labels: Sequence[Labels]
    values: Values
    present: Present
    distinct: bool = False

    def without_name(self) -> Vectors:
        """Return the vectors without the label of the metric's name; raises PromqlError if equal labels then overlap."""
        of_one_name = len({labels.get(NAME) for labels in self.labels}) < 2
        unnamed_ones = replace(
            self, labels=[unnamed(labels) for labels in self.labels], distinct=self.distinct and of_one_name
        )
        return unnamed_ones if of_one_name else merged(unnamed_ones)

    def sampled(self) -> Vectors:
        """Return only the series that are present at some step."""
        there = self.present.any(axis=1)
        return self if there.all() else self.rows(np.flatnonzero(there))

    def rows(self, indices: Sequence[int] | Times) -> Vectors:
        """Return only the series at *indices*, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        if len(chosen) == len(self.labels) and (chosen == np.arange(len(chosen))).all():
            return self
        labels = [self.labels[number] for number in chosen.tolist()]
        distinct = self.distinct and len(set(chosen.tolist())) == len(chosen)
        return Vectors(labels, self.values[chosen], self.present[chosen], distinct)


def unnamed(labels: Labels) -> Labels:
    """Return *labels* without the metric's name."""
    return {name: value for name, value in labels.items() if name != NAME}


def key_of(labels: Labels) -> tuple[tuple[str, str], ...]:
    """Return *labels* as a sorted tuple, a key for dictionaries."""
    return tuple(sorted(labels.items()))


def merged(vectors: Vectors) -> Vectors:
    """Merge series with the same labels into one; raises PromqlError when two of them are present at the same step."""
    if vectors.distinct or are_distinct(vectors.labels):
        return vectors
    labels, owners = group_labels(vectors.labels, names_of(vectors.labels))
    counts = count_present(vectors.present, owners, len(labels))
    if (counts > 1).any():
        raise same_labels()
    values = summed(np.where(vectors.present, vectors.values, 0.0), owners, len(labels))
    return Vectors(labels, values, counts > 0, distinct=True)


def require_distinct(vectors: Vectors) -> Vectors:
    """Return the series that are present at some step; raises PromqlError when two of them have the same labels."""
    vectors = vectors.sampled()
    if not vectors.distinct and not are_distinct(vectors.labels):
        raise same_labels()
    return replace(vectors, distinct=True)


def are_distinct(labels: Sequence[Labels]) -> bool:
    """Return whether all label sets in *labels* differ."""
    return len(set(_texts(labels, sorted(names_of(labels))))) == len(labels) if len(labels) > 1 else True


def same_labels() -> PromqlError:
    """Return the error for two series with the same labels."""
    return PromqlError("vector cannot contain metrics with the same labelset", "execution", 422)


def names_of(labels: Sequence[Labels]) -> set[str]:
    """Return the names of all labels that occur in *labels*."""
    return set[str]().union(*labels)


def group_labels(labels: Sequence[Labels], names: set[str]) -> tuple[list[Labels], Times]:
    """Group label sets by the labels *names*; return (labels of each group, group index of each label set)."""
    ordered = sorted(names)
    numbers: dict[tuple[str, ...], int] = {}
    owners = [numbers.setdefault(texts, len(numbers)) for texts in _texts(labels, ordered)]
    groups = [{name: text for name, text in zip(ordered, texts, strict=True) if text} for texts in numbers]
    return groups, np.array(owners, dtype=np.int64)


def reduced_rows(reduce: np.ufunc, values: Values, owners: Times, group_count: int) -> Values:
    """Reduce the rows of *values* by group with *reduce*; *owners* is the group index of each row, no group is empty."""
    if not group_count:
        return values[:0]
    order = np.argsort(owners, kind="stable")
    found: Values = reduce.reduceat(values[order], np.searchsorted(owners[order], np.arange(group_count)), axis=0)
    return found


def _texts(labels: Sequence[Labels], names: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Return for each label set its values of *names* as a tuple, '' where one is missing."""
    columns = [[one.get(name, "") for one in labels] for name in names]
    return zip(*columns, strict=True) if columns else repeat((), len(labels))


def count_present(present: Present, owners: Times, group_count: int) -> Values:
    """Count the series *present* in each group, as (groups, steps); *owners* is the group index of each series."""
    if len(present) and (present == present[0]).all():  # as of series that were sampled at the same instants
        found: Values = np.bincount(owners, minlength=group_count)[:, None] * present[0].astype(np.float64)
        return found
    return summed(present.astype(np.float64), owners, group_count)


def summed(values: Values, owners: Times, group_count: int) -> Values:
    """Sum the rows of *values* within each group, as (groups, steps); *owners* is the group index of each row."""
    steps = values.shape[1]
    places = owners[:, None] * steps + np.arange(steps)
    found = np.bincount(places.ravel(), values.ravel(), minlength=group_count * steps)
    return found.astype(np.float64, copy=False).reshape(group_count, steps)


def quantile_of(values: Values, present: Present, quantile: Values) -> Values:
    """Return the *quantile* (one for each column) of the *present* values in each column; every column has one.

    At rank q * (count - 1) and between ranks linearly, NaN before all numbers; -inf below q = 0 and +inf above 1
    (``quantile`` of Prometheus).
    """
    unknown = np.isnan(values) & present
    ordered = np.sort(np.where(unknown, -np.inf, np.where(present, values, np.inf)), axis=0)
    ordered[np.arange(len(ordered))[:, None] < unknown.sum(axis=0)] = np.nan
    last = np.maximum(present.sum(axis=0) - 1, 0)
    rank = np.clip(np.nan_to_num(quantile), 0, 1) * last
    low = np.floor(rank).astype(np.int64)
    at, share = np.arange(values.shape[1]), rank - low
    found = ordered[low, at] * (1 - share) + ordered[np.minimum(low + 1, last), at] * share
    found = np.where(quantile < 0, -np.inf, np.where(quantile > 1, np.inf, found))
    return np.where(np.isnan(quantile), np.nan, found)
