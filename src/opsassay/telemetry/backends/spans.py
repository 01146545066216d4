"""The spans of a datapack in Jaeger's terms: operations, tags, processes, microseconds."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from opsassay.telemetry.backends.views import View

TAG, PROCESS = "tag:", "process:"
DERIVED = frozenset({"span.kind", "error", "otel.status_code"})
"""Tags of Jaeger that OTLP stores in fields of a span."""

_KINDS = {pl.Boolean: "bool", pl.String: "string"}


def trace_ids(text: str) -> list[str]:
    """Return the spellings under which *text* may be stored as a trace id: lower case, with and without leading zeros."""
    digits = text.lower()
    return [
        text,
        digits,
        *(digits.zfill(length) for length in (16, 32)),
        digits[-16:] if digits[:-16].strip("0") == "" else digits,
    ]


def is_trace_id(text: str) -> bool:
    """Return whether *text* has the form of a trace id."""
    return re.fullmatch(r"[0-9a-fA-F]{1,32}", text, re.ASCII) is not None


@dataclass(frozen=True)
class TraceSearch:
    """A search for traces with a span that meets all conditions; times are us since 1970, durations ns."""

    service: str
    operation: str | None
    tags: Mapping[str, str]
    start_us: int
    end_us: int
    min_ns: int | None
    max_ns: int | None
    limit: int


@dataclass(frozen=True)
class SpanStore:
    """All spans of a recording, in order of time; columns ``tag:KEY`` and ``process:KEY`` contain their tags.

    The others: trace_id, span_id, parent_id, operation, service, start_us and start_ns (since 1970), duration_ns.
    """

    spans: pl.DataFrame

    @cached_property
    def services(self) -> list[str]:
        """Return the names of all services, sorted."""
        return sorted(set(self.spans["service"].drop_nulls()) - {""})

    def operations(self, service: str | None, kind: str | None = None) -> list[tuple[str, str]]:
        """Return (operation, span kind) pairs of the spans of *service* and *kind*, sorted; None stands for all."""
        found = self.spans if service is None else self.spans.filter(pl.col("service") == service)
        pairs = found.select("operation", pl.col(f"{TAG}span.kind").fill_null("")).unique().drop_nulls().rows()
        return sorted(pair for pair in pairs if kind in {None, pair[1]})

    def search(self, search: TraceSearch) -> list[str]:
        """Return the ids of the traces that match *search*, latest first."""
        fits = [pl.col("service") == search.service, pl.col("start_us").is_between(search.start_us, search.end_us)]
        if search.operation is not None:
            fits.append(pl.col("operation") == search.operation)
        if search.min_ns is not None:
            fits.append(pl.col("duration_ns") >= search.min_ns)
        if search.max_ns is not None:
            fits.append(pl.col("duration_ns") <= search.max_ns)
        for key, value in search.tags.items():
            fits.append(self._has_tag(key, value))
        found = self.spans.filter(fits).group_by("trace_id").agg(pl.col("start_us").max())
        latest = found.sort("start_us", "trace_id", descending=[True, False]).head(search.limit)
        return latest["trace_id"].to_list()

    def traces(self, ids: Sequence[str]) -> pl.DataFrame:
        """Return all spans of the traces with the ids *ids*."""
        return self.spans.filter(pl.col("trace_id").is_in(list(ids)))

    def dependencies(self, start_us: int, end_us: int) -> list[tuple[str, str, int]]:
        """Return (caller, callee, calls) of services in [*start_us*, *end_us*], by spans whose parent is of another."""
        parents = self.spans.select("trace_id", pl.col("span_id").alias("parent_id"), caller="service")
        called = self.spans.filter(pl.col("start_us").is_between(start_us, end_us), pl.col("parent_id") != "")
        pairs = called.join(parents.unique(["trace_id", "parent_id"]), on=["trace_id", "parent_id"])
        apart = pairs.filter(pl.col("caller") != pl.col("service"))
        return apart.group_by("caller", "service").len().sort("caller", "service").rows()

    def _has_tag(self, key: str, value: str) -> pl.Expr:
        """Return the expression: the span or its process has the tag *key* with the value *value*, compared as text."""
        columns = [column for column in (f"{TAG}{key}", f"{PROCESS}{key}") if column in self.spans.columns]
        return pl.any_horizontal(
            [
                pl.lit(value=False),
                *((pl.col(column).cast(pl.String) == value).fill_null(value=False) for column in columns),
            ]
        )


def read_spans(view: View) -> SpanStore:
    """Return the spans of *view* in Jaeger's terms, in order of start; raises DatapackError for a damaged table."""
    frame = view.rows("traces")
    schema = frame.collect_schema()
    attributes = [name for name in schema.names() if name.startswith("attr.") and not schema[name].is_nested()]
    special = {"attr.span_kind", "attr.status_code"}
    tags = [_read_tag(name, schema[name]) for name in attributes if name not in special]
    status = pl.col("attr.status_code").str.to_uppercase()
    selected = frame.select(
        "trace_id", "span_id", pl.col("parent_span_id").alias("parent_id"), pl.col("span_name").alias("operation"),
        pl.col("service_name").alias("service"), pl.col("time").dt.epoch("us").alias("start_us"),
        pl.col("time").dt.epoch("ns").alias("start_ns"),
        pl.col("duration").cast(pl.Int64).alias("duration_ns"),
        pl.col("attr.span_kind").str.to_lowercase().alias(f"{TAG}span.kind"),
        pl.when(status == "ERROR").then(pl.lit(value=True)).alias(f"{TAG}error"),
        pl.when(status.is_in(["ERROR", "OK"])).then(status).alias(f"{TAG}otel.status_code"),
        *tags,
    )  # fmt: skip
    return SpanStore(view.collect(selected, "traces").drop_nulls(["trace_id", "start_us"]).sort("start_us"))


SCOPES: Mapping[str, tuple[str, ...]] = {"": (TAG, PROCESS), "span": (TAG,), "resource": (PROCESS,)}
"""Prefixes of the columns with the attributes of each scope; ``resource.service.name`` has its own column."""


def attribute_columns(scope: str, key: str, columns: Container[str]) -> list[str]:
    """Return those of *columns* with the attribute *key* of *scope* (span, resource, "" for both); [] for `DERIVED`."""
    found = [f"{prefix}{key}" for prefix in SCOPES[scope] if f"{prefix}{key}" in columns and key not in DERIVED]
    return found + ["service"] * (key == "service.name" and scope != "span")


def traces_json(spans: pl.DataFrame, order: Iterable[str]) -> list[dict[str, Any]]:
    """Return the traces of *spans* as Jaeger's JSON objects, in *order* of trace ids."""
    by_trace: dict[str, list[dict[str, Any]]] = {}
    for row in spans.iter_rows(named=True):
        by_trace.setdefault(row["trace_id"], []).append(row)
    kinds = {name: _kind_of_type(type_) for name, type_ in spans.schema.items()}
    return [_trace_json(trace, by_trace[trace], kinds) for trace in order if trace in by_trace]


def _trace_json(trace: str, rows: list[dict[str, Any]], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return one trace as Jaeger's JSON; *rows* are its spans, *kinds* maps a tag column to Jaeger's value type."""
    processes: dict[tuple[Any, ...], str] = {}
    described, spans = {}, []
    for row in rows:
        tags = _tags_of_row(row, kinds, PROCESS)
        key = (row["service"], *(tag["value"] for tag in tags), *(tag["key"] for tag in tags))
        if key not in processes:
            processes[key] = f"p{len(processes) + 1}"
            described[processes[key]] = {"serviceName": row["service"] or "", "tags": tags}
        parent = {"refType": "CHILD_OF", "traceID": trace, "spanID": row["parent_id"]}
        spans.append(
            {
                "traceID": trace, "spanID": row["span_id"], "flags": 1, "operationName": row["operation"] or "",
                "references": [parent] if row["parent_id"] else [], "startTime": row["start_us"],
                "duration": (row["duration_ns"] or 0) // 1000, "tags": _tags_of_row(row, kinds, TAG), "logs": [],
                "processID": processes[key], "warnings": None,
            }
        )  # fmt: skip
    return {"traceID": trace, "spans": spans, "processes": described, "warnings": None}


def _tags_of_row(row: Mapping[str, Any], kinds: Mapping[str, str], prefix: str) -> list[dict[str, Any]]:
    """Return the columns of *row* with *prefix* as Jaeger's tags, without empty ones; *kinds* maps a column to its type."""
    return [
        {"key": name.removeprefix(prefix), "type": kinds[name], "value": value}
        for name, value in row.items()
        if value is not None and name.startswith(prefix)
    ]


def _read_tag(column: str, type_: pl.DataType) -> pl.Expr:
    """Return the expression for *column*, of *type_*, as a tag's value; NaN and infinity become null."""
    key, read = column.removeprefix("attr."), pl.col(column)
    if type_.is_float():
        read = pl.when(read.is_finite()).then(read)
    elif not (type_.is_integer() or isinstance(type_, pl.Boolean)):
        read = read.cast(pl.String, strict=False)
    return read.alias(f"{PROCESS}{key}" if key.startswith("k8s.") else f"{TAG}{key}")


def _kind_of_type(type_: pl.DataType) -> str:
    """Return Jaeger's name for the column type *type_*: int64, float64, string or bool."""
    if type_.is_integer():
        return "int64"
    return "float64" if type_.is_float() else _KINDS.get(type(type_), "string")
