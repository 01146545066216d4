"""Results of PromQL as the JSON of Prometheus: times in seconds, numbers as text in Go's form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

import numpy as np
import polars as pl
from pydantic_core import to_json

from opsassay.telemetry.backends.promql.values import Vectors, key_of, too_many_samples
from opsassay.telemetry.backends.series import Labels, Times, Values

MOST_ANSWER_BYTES = 64 * 2**20
_POINTS_AT_ONCE, _MANY_POINTS = 1 << 17, 1000


def number_text(number: float) -> str:
    """Return *number* as text like Go's ``strconv.FormatFloat(number, 'f', -1, 64)``: all digits, no exponent."""
    text = repr(number)
    if text[-2:] == ".0":
        return text[:-2]
    if "n" in text:
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[text]
    return format(Decimal(text), "f") if "e" in text else text


def exponent_text(number: float) -> str:
    """Return *number* as text in Go's format 'e', in which Prometheus writes the values of alerts: ``5e-01``."""
    if not np.isfinite(number):
        return number_text(number)
    mantissa, exponent = f"{Decimal(repr(float(number))).normalize():e}".split("e")
    return f"{mantissa}e{exponent[0]}{exponent[1:].zfill(2)}"


def seconds_text(ms: int) -> str:
    """Return *ms*, milliseconds since 1970, as text in seconds, with as few decimals as possible."""
    whole, rest = divmod(abs(ms), 1000)
    return f"{'-' if ms < 0 else ''}{whole}" + (f".{rest:03d}" if rest else "")


def _times(steps_ms: Times) -> list[str]:
    """Return `seconds_text` of each of *steps_ms* as a list of texts; fast when all have the same number of decimals."""
    whole, rest = np.divmod(steps_ms, 1000)
    if (rest != rest[0]).any() or steps_ms[0] < 0:
        return [seconds_text(ms) for ms in steps_ms.tolist()]
    decimals = f".{rest[0]:03d}" if rest[0] else ""
    return [f"{second}{decimals}" for second in whole.tolist()]


def point(ms: int, number: float) -> str:
    """Return one sample as Prometheus' JSON ``[seconds,"value"]``; *ms* is its time in milliseconds since 1970."""
    return f'[{seconds_text(ms)},"{number_text(number)}"]'


def vector_json(vectors: Vectors, ms: int, order: Callable[[float], float] | None) -> str:
    """Return the instant *vectors* at *ms* (epoch) as JSON, sorted by *order*(value) if given; raises PromqlError."""
    rows = np.flatnonzero(vectors.present[:, 0]).tolist()
    values, at = vectors.values[:, 0].tolist(), seconds_text(ms)
    if order is not None:
        rows.sort(key=lambda row: order(values[row]))
    return _json_list(
        f'{{"metric":{_format_labels(vectors.labels[row])},"value":[{at},"{number_text(values[row])}"]}}'
        for row in rows
    )


def matrix_json(vectors: Vectors, steps_ms: Times) -> str:
    """Return *vectors* of a range query as JSON, sorted by labels, without empty series; *steps_ms* are since 1970."""
    times = pl.Series([f"],[{text}," for text in _times(steps_ms)])
    rows = sorted(np.flatnonzero(vectors.present.any(axis=1)).tolist(), key=lambda row: key_of(vectors.labels[row]))
    at_once = max(1, _POINTS_AT_ONCE // len(steps_ms))
    return _json_list(
        _series_json(vectors, rows[begin : begin + at_once], times) for begin in range(0, len(rows), at_once)
    )


def _series_json(vectors: Vectors, rows: list[int], times: pl.Series) -> str:
    """Return the series *rows* of *vectors*, each with at least one value, as comma-separated JSON objects.

    *times* are the steps as text; each value is written after its time.
    """
    present = vectors.present[rows]
    series, at = np.nonzero(present)
    values = vectors.values[rows][present]
    before = times.gather(at)
    first = np.flatnonzero(np.diff(series, prepend=-1))
    metrics = [_format_labels(vectors.labels[row]) for row in rows]
    begins = [
        f']]}},{{"metric":{metric},"values":[{time[2:]}' for metric, time in zip(metrics, before[first], strict=True)
    ]
    before = before.scatter(first, begins)
    if len(values) < _MANY_POINTS:
        pairs = zip(before.to_list(), values.tolist(), strict=True)
        written = "".join([f'{text}"{number_text(value)}"' for text, value in pairs])
    else:  # all of them are written together
        written = pl.DataFrame({"before": before, "value": _number_texts(values)}).write_csv(
            include_header=False, separator='"', line_terminator='"', quote_style="never"
        )
    return f"{written[4:]}]]}}"


def _number_texts(values: Values) -> pl.Series:
    """Return `number_text` of each of *values*; whole numbers are left as integers, which polars writes alike."""
    size = np.abs(values)
    others = np.flatnonzero(~(size < 1e15) | ((size < 1e-4) & ((values != 0) | np.signbit(values))))
    if not len(others) and ((whole := values.astype(np.int64)) == values).all():
        return pl.Series(whole)
    texts = pl.Series(values, dtype=pl.Float64).cast(pl.String).str.strip_suffix(".0")
    distinct, which = np.unique(values[others], return_inverse=True)
    return texts.scatter(others, pl.Series(list(map(number_text, distinct.tolist())), dtype=pl.String).gather(which))


def samples_json(series: Sequence[tuple[Labels, Times, Values]]) -> str:
    """Return the samples of range selectors as JSON; *series* holds (labels, times in ms since 1970, values)."""
    return _json_list(
        f'{{"metric":{_format_labels(labels)},"values":['
        f"{','.join(point(ms, value) for ms, value in zip(times.tolist(), values.tolist(), strict=True))}]}}"
        for labels, times, values in series
    )


def _format_labels(labels: Labels) -> str:
    """Return *labels* as a JSON object."""
    return to_json(labels).decode()


def _json_list(parts: Iterable[str]) -> str:
    """Join *parts*, each JSON text, into a JSON list; raises PromqlError when it becomes too long."""
    written, size = [], 0
    for part in parts:
        size += len(part)
        if size > MOST_ANSWER_BYTES:
            raise too_many_samples()
        written.append(part)
    return f"[{','.join(written)}]"
