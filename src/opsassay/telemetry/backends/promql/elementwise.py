"""Functions of single values of a vector, conversions of vectors and numbers, ``label_replace`` and ``label_join``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from opsassay.telemetry.backends.matching import RegexError, compile_regex
from opsassay.telemetry.backends.promql.values import PromqlError, Vectors, require_distinct
from opsassay.telemetry.backends.series import Labels, Values

Elementwise = Callable[..., Values]
Moments = npt.NDArray[np.datetime64]
MOST_SECONDS = 2.0**55
"""Most seconds from 1970, in either direction, that numpy's dates can represent."""


def _rounded(values: Values, unit: Values | float = 1.0) -> Values:
    """Return *values* rounded to multiples of *unit*, halves up, as in Prometheus."""
    inverse = 1.0 / unit
    found: Values = np.floor(values * inverse + 0.5) / inverse
    return found


def _greater(values: Values, minimum: Values) -> Values:
    """Return the greater of each pair of *values* and *minimum*, as Go's math.Max: infinity is greater than NaN."""
    found: Values = np.where((values == np.inf) | (minimum == np.inf), np.inf, np.maximum(values, minimum))
    return found


def _lesser_of(values: Values, maximum: Values) -> Values:
    """Return the lesser of each pair of *values* and *maximum*, as Go's math.Min."""
    return -_greater(-values, -maximum)


def _clamp_values(values: Values, minimum: Values, maximum: Values) -> Values:
    """Return *values*, raised to *minimum* and lowered to *maximum*."""
    return _greater(_lesser_of(values, maximum), minimum)


def _moments(values: Values) -> Moments:
    """Return *values*, seconds since 1970, as datetimes; fractions are cut off, NaN and infinity become not-a-time."""
    whole = np.where(np.abs(values) < MOST_SECONDS, np.trunc(values), np.nan)
    found: Moments = np.where(np.isnan(whole), np.datetime64("NaT"), whole.astype(np.int64).astype("datetime64[s]"))
    return found


def _units_since(moments: Moments, unit: str, outer: str) -> Values:
    """Return how many of *unit* ("h") have passed since the *outer* unit ("D") of each of *moments* began."""
    passed = moments.astype(f"datetime64[{unit}]") - moments.astype(f"datetime64[{outer}]").astype(
        f"datetime64[{unit}]"
    )
    return _number_of(passed)


def _number_of(passed: npt.NDArray[np.timedelta64]) -> Values:
    """Return *passed*, numbers of a unit of time, as floats; not-a-time becomes NaN."""
    found: Values = np.where(np.isnat(passed), np.nan, passed.astype(np.int64).astype(np.float64))
    return found


def _days_in_month(moments: Moments) -> Values:
    """Return the number of days in the month of each of *moments*."""
    months = moments.astype("datetime64[M]")
    return _number_of((months + 1).astype("datetime64[D]") - months.astype("datetime64[D]"))


def _day_of_week(moments: Moments) -> Values:
    """Return the day of the week of each of *moments*: 0 is Sunday."""
    return (_number_of(moments.astype("datetime64[D]") - np.datetime64(0, "D")) + 4) % 7


CALENDAR: Mapping[str, Callable[[Moments], Values]] = {
    "minute": lambda moments: _units_since(moments, "m", "h"), "hour": lambda moments: _units_since(moments, "h", "D"),
    "day_of_week": _day_of_week, "day_of_month": lambda moments: _units_since(moments, "D", "M") + 1,
    "day_of_year": lambda moments: _units_since(moments, "D", "Y") + 1, "days_in_month": _days_in_month,
    "month": lambda moments: _units_since(moments, "M", "Y") + 1,
    "year": lambda moments: _number_of(moments.astype("datetime64[Y]") - np.datetime64("0000", "Y")),
}  # fmt: skip
"""Functions of time in UTC by name; without an argument, PromQL applies them to the time of each step."""


def calendar(name: str, seconds: Values) -> Values:
    """Return the calendar field *name* (hour, year, ...) of *seconds* since 1970, in UTC."""
    return CALENDAR[name](_moments(seconds))


ELEMENTWISE: Mapping[str, Elementwise] = {
    "abs": np.abs, "ceil": np.ceil, "floor": np.floor, "sqrt": np.sqrt, "exp": np.exp, "ln": np.log, "log2": np.log2,
    "log10": np.log10, "sgn": np.sign, "round": _rounded, "clamp": _clamp_values, "clamp_min": _greater,
    "clamp_max": _lesser_of, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "cos": np.cos, "cosh": np.cosh, "sin": np.sin, "sinh": np.sinh, "tan": np.tan,
    "tanh": np.tanh, "deg": np.degrees, "rad": np.radians, **{name: partial(calendar, name) for name in CALENDAR},
}  # fmt: skip
"""Functions of values by name; further arguments are numbers, one per step."""


def applied(name: str, vectors: Vectors, arguments: Sequence[Values]) -> Vectors:
    """Apply the PromQL function *name* to each value of *vectors*; each of *arguments* has one value a step.

    `clamp` gives no series when its minimum is above its maximum.
    """
    found = ELEMENTWISE[name](vectors.values, *(number[None, :] for number in arguments))
    present = vectors.present
    if name == "clamp":
        present = present & ~(arguments[1] < arguments[0])[None, :]
    return replace(vectors, values=found, present=present).without_name()


def as_number(vectors: Vectors) -> Values:
    """Return PromQL's `scalar`: the value at each step where exactly one series is present, else NaN."""
    total = np.where(vectors.present, vectors.values, 0.0).sum(axis=0)
    found: Values = np.where(vectors.present.sum(axis=0) == 1, total, np.nan)
    return found


_PLACE = re.compile(r"\$(?:(?P<sign>\$)|\{(?P<braced>\w+)\}|(?P<name>\w+))")


def label_replace(vectors: Vectors, target: str, template: str, source: str, regex: str) -> Vectors:
    """Return *vectors* with label *target* set by *template* where *regex* matches all of label *source*.

    In the template ``$1``, ``$name`` and ``${name}`` stand for the text that a group matched ('' without such a group;
    the longest possible name is taken), ``$$`` for a dollar sign (``Regexp.Expand`` of Go). Raises PromqlError.
    """
    _require_name("label_replace", "destination", target)
    try:
        whole = compile_regex(regex, dot_nl=True)
    except RegexError as error:
        raise PromqlError(f"invalid regular expression in label_replace(): {error}", "execution", 422) from error
    groups = {**{str(number): number for number in range(whole.groups + 1)}, **whole.groupindex}

    def expanded(text: str) -> str | None:
        if (match := whole.fullmatch(text)) is None:
            return None

        def filled(place: re.Match[str]) -> str:
            name = place["braced"] or place["name"]
            return "$" if place["sign"] else (match[groups[name]] or "") if name in groups else ""

        return _PLACE.sub(filled, template)

    found = {text: expanded(text) for text in {labels.get(source, "") for labels in vectors.labels}}
    return _set_label(vectors, target, lambda labels: found[labels.get(source, "")])


def label_join(vectors: Vectors, target: str, separator: str, sources: Sequence[str]) -> Vectors:
    """Return *vectors* with label *target* set to the values of *sources* joined by *separator*; raises PromqlError."""
    for kind, name in (("destination", target), *(("source", source) for source in sources)):
        _require_name("label_join", kind, name)
    return _set_label(vectors, target, lambda labels: separator.join(labels.get(source, "") for source in sources))


def _set_label(vectors: Vectors, target: str, make_text: Callable[[Labels], str | None]) -> Vectors:
    """Return *vectors* with the label *target* set to the text that *make_text* returns for a series' labels.

    None leaves the labels as they are, "" removes the label. Raises PromqlError when two series get the same labels.
    """
    labels = []
    for one in vectors.labels:
        text = make_text(one)
        others = {name: value for name, value in one.items() if name != target}
        labels.append(one if text is None else {**others, target: text} if text else others)
    return require_distinct(Vectors(labels, vectors.values, vectors.present))


def _require_name(function: str, kind: str, name: str) -> None:
    """Raise PromqlError when *name*, the *kind* label (source, destination) of the PromQL *function*, is empty."""
    if not name:
        raise PromqlError(f"invalid {kind} label name in {function}(): {name}", "execution", 422)
