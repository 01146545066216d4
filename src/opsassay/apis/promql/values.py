"""What expressions evaluate to, and how an evaluation fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsassay.apis.series import NAME, Labels, Values
from opsassay.errors import UserError

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
    if len({key_of(labels) for labels in vectors.labels}) < len(vectors.labels):
        raise PromqlError("vector cannot contain metrics with the same labelset", "execution", 422)
    return vectors
