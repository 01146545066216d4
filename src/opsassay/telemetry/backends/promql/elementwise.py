"""Functions of each value of a vector by itself, and those that make a vector of a number or a number of a vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opsassay.telemetry.backends.promql.values import Vectors
from opsassay.telemetry.backends.series import Values

Elementwise = Callable[..., Values]


def _rounded(values: Values, nearest: Values | float = 1.0) -> Values:
    """Return *values* rounded to multiples of *nearest*, halves up, as Prometheus has it."""
    inverse = 1.0 / nearest
    found: Values = np.floor(values * inverse + 0.5) / inverse
    return found


def _greater(values: Values, least: Values) -> Values:
    """Return the greater of both, as Go has it: infinity is greater than NaN."""
    found: Values = np.where((values == np.inf) | (least == np.inf), np.inf, np.maximum(values, least))
    return found


def _less(values: Values, most: Values) -> Values:
    return -_greater(-values, -most)


def _clamped(values: Values, least: Values, most: Values) -> Values:
    return _greater(_less(values, most), least)


ELEMENTWISE: Mapping[str, Elementwise] = {
    "abs": np.abs, "ceil": np.ceil, "floor": np.floor, "sqrt": np.sqrt, "exp": np.exp, "ln": np.log, "log2": np.log2,
    "log10": np.log10, "sgn": np.sign, "round": _rounded, "clamp": _clamped, "clamp_min": _greater,
    "clamp_max": _less,
}  # fmt: skip
"""By the names of functions; what follows the vector is a number at each step."""


def applied(name: str, vectors: Vectors, numbers: Sequence[Values]) -> Vectors:
    """Return the function *name* of each value of *vectors*; *numbers* are its arguments, one value a step each.

    Of `clamp` nothing is left where the least is the greater.
    """
    found = ELEMENTWISE[name](vectors.values, *(number[None, :] for number in numbers))
    present = vectors.present
    if name == "clamp":
        present = present & ~(numbers[1] < numbers[0])[None, :]
    return Vectors(vectors.labels, found, present).without_name()


def as_number(vectors: Vectors) -> Values:
    """Return `scalar`: the value at each step at which there is exactly one, else NaN."""
    total = np.where(vectors.present, vectors.values, 0.0).sum(axis=0)
    found: Values = np.where(vectors.present.sum(axis=0) == 1, total, np.nan)
    return found
