"""What expressions evaluate to, and how an evaluation fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from opsassay.core.errors import UserError
from opsassay.telemetry.backends.series import NAME, Labels, Times, Values

Present = npt.NDArray[np.bool_]

TOO_MANY_SAMPLES = "query processing would load too many samples into memory in query execution"
TIMED_OUT = "query timed out in expression evaluation"


class PromqlError(UserError):
    """A query that is not answered; *kind* is the ``errorType`` and *status* the HTTP status that Prometheus gives."""

    def __init__(self, message: str, kind: str = "bad_data", status: int = 400) -> None:
        self.kind, self.status = kind, status
        super().__init__(message)


def too_many_samples() -> PromqlError:
    """Return the error for a query that is too large."""
    return PromqlError(TOO_MANY_SAMPLES, "execution", 422)


@dataclass(frozen=True)
class Vectors:
    """An instant vector at every step: *values* (series, steps), of which those count that are *present*."""

    labels: Sequence[Labels]
    values: Values
    present: Present

    def without_name(self) -> Vectors:
        """Return the same without the names of metrics."""
        return Vectors([unnamed(labels) for labels in self.labels], self.values, self.present)

    def rows(self, numbers: Sequence[int]) -> Vectors:
        """Return the series *numbers* alone."""
        chosen = np.array(numbers, dtype=np.int64)
        return Vectors([self.labels[number] for number in numbers], self.values[chosen], self.present[chosen])


def unnamed(labels: Labels) -> Labels:
    """Return *labels* without the name of a metric."""
    return {name: value for name, value in labels.items() if name != NAME}


def key_of(labels: Labels) -> tuple[tuple[str, str], ...]:
    """Return *labels* as something that can be compared and counted."""
    return tuple(sorted(labels.items()))


def require_distinct(vectors: Vectors) -> Vectors:
    """Return *vectors*; raises PromqlError when two of its series have the same labels, as dropping names can make it."""
    if len(set(_texts(vectors.labels, sorted(names_of(vectors.labels))))) < len(vectors.labels):
        raise PromqlError("vector cannot contain metrics with the same labelset", "execution", 422)
    return vectors


def names_of(labels: Sequence[Labels]) -> set[str]:
    """Return the names of all *labels*."""
    return set[str]().union(*labels)


def group_labels(labels: Sequence[Labels], names: set[str]) -> tuple[list[Labels], Times]:
    """Return what *labels* have under *names*, each once in the order of its first, and which of these each has."""
    ordered = sorted(names)
    numbers: dict[tuple[str, ...], int] = {}
    owners = [numbers.setdefault(texts, len(numbers)) for texts in _texts(labels, ordered)]
    groups = [{name: text for name, text in zip(ordered, texts, strict=True) if text} for texts in numbers]
    return groups, np.array(owners, dtype=np.int64)


def _texts(labels: Sequence[Labels], names: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Return what each of *labels* has under *names*, '' where it has nothing."""
    columns = [[one.get(name, "") for one in labels] for name in names]
    return zip(*columns, strict=True) if columns else repeat((), len(labels))


def count_present(present: Present, owners: Times, groups: int) -> Values:
    """Return how many of the rows that have the same owner are *present*, shape (groups, steps)."""
    if len(present) and (present == present[0]).all():  # as of series that were sampled at the same instants
        found: Values = np.bincount(owners, minlength=groups)[:, None] * present[0].astype(np.float64)
        return found
    return summed(present.astype(np.float64), owners, groups)


def summed(values: Values, owners: Times, groups: int) -> Values:
    """Return the sums of the rows of *values* that have the same owner, shape (groups, steps), added in their order."""
    steps = values.shape[1]
    places = owners[:, None] * steps + np.arange(steps)
    found = np.bincount(places.ravel(), values.ravel(), minlength=groups * steps)
    return found.astype(np.float64, copy=False).reshape(groups, steps)
