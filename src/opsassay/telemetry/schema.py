"""The ten tables of a datapack: names, columns and types of the public OpenRCA 2.0 / rcabench form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

import polars as pl

from opsassay.core.errors import DatapackError
from opsassay.core.text import first_line

MODALITIES = ("traces", "logs", "metrics", "metrics_sum", "metrics_histogram")
PERIODS = ("normal", "abnormal")
TIME = pl.Datetime("ns", "UTC")

_SERVING = {name: pl.String() for name in ("attr.k8s.pod.name", "attr.k8s.service.name", "attr.k8s.namespace.name")}
_METRICS: dict[str, pl.DataType] = {
    "time": TIME,
    "metric": pl.String(),
    "value": pl.Float64(),
    "service_name": pl.String(),
    **{
        f"attr.k8s.{level}.name": pl.String()
        for level in ("node", "namespace", "statefulset", "deployment", "replicaset", "pod", "container")
    },
}

SCHEMA: Mapping[str, Mapping[str, pl.DataType]] = MappingProxyType(
    {
        "traces": {
            "time": TIME,
            "trace_id": pl.String(),
            "span_id": pl.String(),
            "parent_span_id": pl.String(),
            "span_name": pl.String(),
            "attr.span_kind": pl.String(),
            "service_name": pl.String(),
            "duration": pl.UInt64(),
            "attr.status_code": pl.String(),
            **_SERVING,
            "attr.http.request.content_length": pl.UInt64(),
            "attr.http.response.content_length": pl.UInt64(),
            "attr.http.request.method": pl.String(),
            "attr.http.response.status_code": pl.UInt16(),
        },
        "logs": {
            "time": TIME,
            "trace_id": pl.String(),
            "span_id": pl.String(),
            "level": pl.String(),
            "service_name": pl.String(),
            "message": pl.String(),
            **_SERVING,
        },
        "metrics": _METRICS,
        "metrics_sum": _METRICS,
        "metrics_histogram": {
            "time": TIME,
            "metric": pl.String(),
            "service_name": pl.String(),
            "count": pl.Float64(),
            "sum": pl.Float64(),
            "min": pl.Float64(),
            "max": pl.Float64(),
            **_SERVING,
            "attr.jvm.gc.action": pl.String(),
            "attr.jvm.gc.name": pl.String(),
        },
    }
)
"""Columns of each modality in the order of the public files; times are ns of UTC, durations ns."""

REQUIRED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "traces": frozenset({"time", "trace_id", "span_id", "parent_span_id", "span_name", "service_name", "duration"}),
        "logs": frozenset({"time", "level", "service_name", "message"}),
        "metrics": frozenset({"time", "metric", "value", "service_name"}),
        "metrics_sum": frozenset({"time", "metric", "value", "service_name"}),
        "metrics_histogram": frozenset({"time", "metric", "service_name", "count", "sum"}),
    }
)
"""Columns that a table must have; other missing columns are added as null."""

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


def empty(modality: str) -> pl.DataFrame:
    """Return a table of *modality* without rows."""
    return pl.DataFrame(schema=SCHEMA[modality])


def one_sided(has_rows: Callable[[str, str], bool]) -> tuple[str, ...]:
    """Return a sentence for each modality that has rows in one period only; *has_rows* gets (period, modality)."""
    there = {modality: [period for period in PERIODS if has_rows(period, modality)] for modality in MODALITIES}
    return tuple(
        f"There are {modality} of the {periods[0]} window alone: nothing can be compared in them."
        for modality, periods in there.items()
        if len(periods) == 1
    )


def conform(frame: Frame, modality: str, where: str) -> Frame:
    """Return *frame* in the schema of *modality*: its columns and types first, extra columns after them.

    Missing optional columns become null, times in us, ms or another zone become ns of UTC (a time without a zone is
    taken as UTC), a null parent_span_id becomes ''. *where* names folder and table in messages. Raises DatapackError
    for a missing required column, and for a value of a wrong type (when collected, if the frame is lazy).
    """
    schema, given = SCHEMA[modality], frame.collect_schema()
    for column in schema:
        if column in REQUIRED[modality] and column not in given:
            raise DatapackError(
                f"{where} has no column {column!r}; {modality} need at least {', '.join(_required_columns(modality))}: "
                "rename or add the column and try again."
            )
    columns: list[pl.Expr] = [
        _cast_column(name, given[name], type_, where) if name in given else pl.lit(None, type_).alias(name)
        for name, type_ in schema.items()
    ]
    extra: list[pl.Expr] = [pl.col(name) for name in given.names() if name not in schema]
    try:
        return frame.select([*columns, *extra])
    except pl.exceptions.PolarsError as error:
        raise DatapackError(f"{where} has a value that does not fit its column: {first_line(error)}") from error


def _required_columns(modality: str) -> list[str]:
    """Return the columns that a table of *modality* must have, in the order of the schema."""
    return [name for name in SCHEMA[modality] if name in REQUIRED[modality]]


def _cast_column(name: str, dtype: pl.DataType, target_dtype: pl.DataType, where: str) -> pl.Expr:
    """Return the expression that casts column *name* to *target_dtype*; raises DatapackError naming *where*, the table."""
    column = pl.col(name)
    if name == "time":
        return _cast_time(dtype, where)
    if name == "parent_span_id":
        return column.cast(target_dtype).fill_null("")
    return column if dtype == target_dtype else column.cast(target_dtype)


def _cast_time(dtype: pl.DataType, where: str) -> pl.Expr:
    """Return the expression that casts time, of *dtype*, to ns of UTC; raises DatapackError naming *where*, the table."""
    column = pl.col("time")
    if dtype == TIME:
        return column
    if not isinstance(dtype, pl.Datetime):
        raise DatapackError(
            f"{where} has a column 'time' of type {dtype}; write it as a timestamp (UTC when it has no zone)."
        )
    in_ns = column.dt.cast_time_unit("ns")
    return in_ns.dt.convert_time_zone("UTC") if dtype.time_zone else in_ns.dt.replace_time_zone("UTC")
