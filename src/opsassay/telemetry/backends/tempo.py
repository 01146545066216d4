"""Tempo's HTTP API over one view: searches by tags or TraceQL, traces, tags.

Traces are OTLP JSON in Tempo's form: ids in base64, full names of kinds and states.
"""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import polars as pl

from opsassay import __version__
from opsassay.core.errors import UserError
from opsassay.telemetry.backends.jaeger import MOST_SPANS, MOST_TRACES
from opsassay.telemetry.backends.requests import TEXT, ApiCall, ApiReply, duration_ns
from opsassay.telemetry.backends.spans import (
    DERIVED,
    PROCESS,
    SCOPES,
    TAG,
    SpanStore,
    attribute_columns,
    is_trace_id,
    trace_ids,
)
from opsassay.telemetry.backends.traceql import INTRINSICS, KINDS, STATUS, TraceqlError, read_traceql

_STATUS = {"ERROR": "STATUS_CODE_ERROR", "OK": "STATUS_CODE_OK"}
Row = Mapping[str, Any]


def resource_spans(spans: pl.DataFrame) -> list[dict[str, Any]]:
    """Return *spans* (columns of `SpanStore`) as OTLP JSON: a list of resources, each with its spans."""
    resources: dict[tuple[Any, ...], dict[str, Any]] = {}
    columns = [name for name in spans.columns if name.startswith(PROCESS)]
    for row in spans.iter_rows(named=True):
        key = (row["service"], *(row[name] for name in columns))
        if key not in resources:
            resource = {"attributes": attributes({"service.name": row["service"]} | tagged(row, PROCESS))}
            resources[key] = {"resource": resource, "scopeSpans": [{"scope": {}, "spans": []}]}
        resources[key]["scopeSpans"][0]["spans"].append(_span_as_json(row))
    return list(resources.values())


def tagged(row: Row, prefix: str) -> dict[str, Any]:
    """Return attribute name to value from the columns of *row* with *prefix*, without tags that only Jaeger has."""
    found = {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
    return {key: value for key, value in found.items() if value is not None and key not in DERIVED}


def attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return *values* as OTLP JSON: a list of {"key", "value"}."""
    return [{"key": key, "value": _value_as_json(value)} for key, value in values.items() if value is not None]


def _span_as_json(row: Row) -> dict[str, Any]:
    """Return the span in *row* as OTLP JSON."""
    span = {
        "traceId": encoded_id(row["trace_id"], 16), "spanId": encoded_id(row["span_id"] or "", 8),
        "name": row["operation"] or "", "kind": f"SPAN_KIND_{(row[f'{TAG}span.kind'] or 'unspecified').upper()}",
        "startTimeUnixNano": str(row["start_ns"]), "endTimeUnixNano": str(row["start_ns"] + (row["duration_ns"] or 0)),
        "attributes": attributes(tagged(row, TAG)),
    }  # fmt: skip
    if row["parent_id"]:
        span["parentSpanId"] = encoded_id(row["parent_id"], 8)
    status = _STATUS.get(row[f"{TAG}otel.status_code"] or "")
    return span | {"status": {"code": status} if status else {}}


def encoded_id(text: str, size: int) -> str:
    """Return the id *text* in base64: the *size* bytes of its hexadecimal digits, else the bytes of its characters."""
    try:
        plain = bytes.fromhex(text.zfill(2 * size))
    except ValueError:
        plain = text.encode("utf-8", "replace")
    return b64encode(plain).decode()


def _value_as_json(value: Any) -> dict[str, Any]:
    """Return *value* in the JSON form of an attribute in OTLP, as {"intValue": "3"}."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": str(value)}


DEFAULT_TRACES = 20
DEFAULT_SPANS = 3
MOST_VALUES = 10_000
_NO_ROOT = "<root span not yet received>"
_VERSION = "2.6.0"
_SERVICE = "service.name"
_NAMED = {"name": "operation", "root.name": "root_name", "root.service.name": "root_service"}
"""Columns for the ``tags`` that are not attributes (``labelMappings`` of Tempo's search of blocks)."""


class TempoError(UserError):
    """A request that gets an error reply with the HTTP *status*."""

    def __init__(self, message: str, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


class TempoApi:
    """Answers requests to the paths of Tempo's query frontend from the spans in *store*."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store

    @cached_property
    def _spans(self) -> pl.DataFrame:
        """All spans, each with its duration in ns and the root span of its trace."""
        spans = self._store.spans
        end = pl.col("start_ns") + pl.col("duration_ns").fill_null(0)
        roots = (
            spans.filter(pl.col("parent_id").fill_null("") == "")
            .unique("trace_id", keep="first", maintain_order=True)
            .select("trace_id", root_service="service", root_name="operation")
        )
        whole = spans.group_by("trace_id").agg(
            trace_start=pl.col("start_ns").min(), trace_ns=end.max() - pl.col("start_ns").min()
        )
        return spans.join(whole, on="trace_id", maintain_order="left").join(
            roots, on="trace_id", how="left", maintain_order="left"
        )

    def reply_to(self, call: ApiCall) -> ApiReply | None:
        """Return the HTTP reply to *call*, None when its path is not of Tempo's API."""
        try:
            return self._route_call(call)
        except TempoError as error:
            return ApiReply(error.status, str(error).encode("utf-8", "replace"), TEXT)
        except TraceqlError as error:
            return ApiReply(400, str(error).encode("utf-8", "replace"), TEXT)

    def _route_call(self, call: ApiCall) -> ApiReply | None:  # noqa: PLR0911 - one for each endpoint
        """Return the reply of the endpoint at the path of *call*; None for a path that Tempo does not have."""
        match call.path:
            case ("ready",):
                return ApiReply(200, b"ready\n", TEXT)
            case ("api", "echo"):
                return ApiReply(200, b"echo", TEXT)
            case ("api", "status", "buildinfo"):
                return _json_reply(
                    {"version": _VERSION, "revision": f"opsassay-{__version__}", "branch": "", "goVersion": ""}
                )
            case ("api", "traces", trace):
                return _json_reply({"batches": self._spans_of_trace(trace)})
            case ("api", "v2", "traces", trace):
                return _json_reply({"trace": {"resourceSpans": self._spans_of_trace(trace)}, "metrics": {}})
            case ("api", "search"):
                return self._reply_search(call)
            case ("api", "search", "tags"):
                return _json_reply(
                    {"tagNames": sorted({*self._attribute_keys(TAG), *self._attribute_keys(PROCESS)}), "metrics": {}}
                )
            case ("api", "v2", "search", "tags"):
                return self._reply_scopes(call)
            case ("api", "search", "tag", name, "values"):
                return _json_reply({"tagValues": [value for _, value in self._values(name)], "metrics": {}})
            case ("api", "v2", "search", "tag", name, "values"):
                values = [{"type": kind, "value": value} for kind, value in self._values(name)]
                return _json_reply({"tagValues": values, "metrics": {}})
        return None

    def _spans_of_trace(self, trace: str) -> list[dict[str, Any]]:
        """Return the spans of the trace id *trace* in OTLP JSON by resource; raises TempoError (400, 404, 422)."""
        spans = self._store.traces(trace_ids(trace))
        if not spans.height:
            if not is_trace_id(trace):
                raise TempoError("trace IDs can only contain hex characters, up to 32 of them")
            raise TempoError("trace not found", 404)
        if spans.height > MOST_SPANS:
            raise TempoError(f"trace exceeds max size: it has {spans.height} spans, {MOST_SPANS} are sent at most", 422)
        return resource_spans(spans)

    def _reply_search(self, call: ApiCall) -> ApiReply:
        """Answer a search, by TraceQL or by tags, with summaries of the newest matching traces."""
        limit, kept = _read_positive(call, "limit", DEFAULT_TRACES), _read_positive(call, "spss", DEFAULT_SPANS)
        query = call.first("q")
        condition = read_traceql(query, self._spans.schema) if query is not None else self._tags(call)
        found = self._spans.filter(condition, *_times(call))
        latest = found.group_by("trace_id").agg(pl.col("trace_start").first())
        latest = latest.sort("trace_start", "trace_id", descending=[True, False]).head(min(limit, MOST_TRACES))
        ids = latest["trace_id"].to_list()
        by_trace = found.filter(pl.col("trace_id").is_in(ids)).partition_by("trace_id", as_dict=True)
        traces = [_summary(by_trace[(one,)], kept if query is not None else None) for one in ids]
        return _json_reply({"traces": traces, "metrics": {"inspectedTraces": self._spans["trace_id"].n_unique()}})

    def _tags(self, call: ApiCall) -> pl.Expr:
        """Return the filter on spans from *call*: all ``tags`` (logfmt), and minDuration and maxDuration of the trace."""
        try:
            words = shlex.split(call.first("tags") or "")
        except ValueError as error:
            raise TempoError(f"invalid tags: {error}") from error
        conditions = [pl.lit(value=True)]
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or not key:
                raise TempoError(f"invalid tags: {word[:200]!r} is not KEY=VALUE")
            if key == "status.code" and value in STATUS:
                conditions.append(read_traceql(f"{{status={value}}}", self._spans.schema))
                continue
            columns = [_NAMED[key]] if key in _NAMED else self._columns(key)
            equal = [(pl.col(column).cast(pl.String) == value).fill_null(value=False) for column in columns]
            conditions.append(pl.any_horizontal([pl.lit(value=False), *equal]))
        if (shortest := _go_duration(call, "minDuration")) is not None:
            conditions.append(pl.col("trace_ns") >= shortest)
        if (longest := _go_duration(call, "maxDuration")) is not None:
            conditions.append(pl.col("trace_ns") <= longest)
        return pl.all_horizontal(conditions)

    def _reply_scopes(self, call: ApiCall) -> ApiReply:
        """Answer with the attribute names of each scope: resource, span, intrinsic."""
        scopes = {
            "resource": sorted(self._attribute_keys(PROCESS)),
            "span": sorted(self._attribute_keys(TAG)),
            "intrinsic": list(INTRINSICS),
        }
        asked = call.first("scope") or "none"
        if asked not in {"none", *scopes}:
            raise TempoError(f"invalid scope: {asked[:200]}")
        found = [{"name": name, "tags": tags} for name, tags in scopes.items() if asked in {"none", name}]
        return _json_reply({"scopes": found, "metrics": {}})

    def _values(self, name: str) -> list[tuple[str, str]]:
        """Return (type, value) of each value of the tag *name*, sorted by value; [] for an unknown tag."""
        match name.removeprefix(".") if name.startswith(".") else name:
            case "status":
                return [("keyword", value) for value in sorted(STATUS)]
            case "kind":
                return [("keyword", value) for value in sorted(KINDS)]
            case "name":
                return self._distinct_values(["operation"])
            case "rootName" | "root.name":
                return self._distinct_values(["root_name"])
            case "rootServiceName" | "root.service.name":
                return self._distinct_values(["root_service"])
        return self._distinct_values(self._columns(name))

    def _distinct_values(self, columns: list[str]) -> list[tuple[str, str]]:
        """Return (type, value as text) of each value in *columns*, sorted by text, at most `MOST_VALUES`."""
        found = set()
        for column in columns:
            values = self._spans[column].drop_nulls().unique()
            kind = "string" if isinstance(values.dtype, pl.String) else "int" if values.dtype.is_integer() else "float"
            kind = "bool" if isinstance(values.dtype, pl.Boolean) else kind
            found |= {(kind, value) for value in values.cast(pl.String).to_list() if value}
        return sorted(found, key=lambda one: one[1])[:MOST_VALUES]

    def _attribute_keys(self, prefix: str) -> set[str]:
        """Return the names of the attributes in columns with *prefix* that have any value."""
        found = {name.removeprefix(prefix) for name in self._store.spans.columns if name.startswith(prefix)} - DERIVED
        found = {key for key in found if self._store.spans[f"{prefix}{key}"].null_count() < self._store.spans.height}
        return found | ({_SERVICE} if prefix == PROCESS else set())

    def _columns(self, name: str) -> list[str]:
        """Return the columns that hold the attribute *name*, which may have its scope in front, such as ``span.``."""
        scope, dot, key = name.partition(".")
        if not dot or scope not in SCOPES:
            scope, key = "", name
        return attribute_columns(scope, key, self._spans.columns)


def _summary(matched_spans: pl.DataFrame, limit: int | None) -> dict[str, Any]:
    """Return Tempo's search result for the trace of *matched_spans*: its root, times, and *limit* spans (None: none)."""
    first = matched_spans.row(0, named=True)
    summary = {
        "traceID": first["trace_id"], "rootServiceName": first["root_service"] or _NO_ROOT,
        "rootTraceName": first["root_name"] or "", "startTimeUnixNano": str(first["trace_start"]),
        "durationMs": first["trace_ns"] // 10**6,
    }  # fmt: skip
    if limit is None:
        return summary
    spans = [
        {
            "spanID": row["span_id"], "name": row["operation"] or "", "startTimeUnixNano": str(row["start_ns"]),
            "durationNanos": str(row["duration_ns"] or 0), "attributes": attributes({_SERVICE: row["service"]}),
        }
        for row in matched_spans.head(limit).iter_rows(named=True)
    ]  # fmt: skip
    matched = {"spans": spans, "matched": matched_spans.height}
    return summary | {"spanSet": matched, "spanSets": [matched]}


def _times(call: ApiCall) -> list[pl.Expr]:
    """Return the filters for traces that overlap the parameters ``start`` to ``end`` (s since 1970); [] when absent."""
    start_s, end_s = _read_positive(call, "start", 0), _read_positive(call, "end", 0)
    if bool(start_s) != bool(end_s):
        raise TempoError("please provide non-zero values for http parameters start and end")
    if not start_s:
        return []
    if end_s <= start_s:
        raise TempoError(f"http parameter start must be before end. received start={start_s} end={end_s}")
    ends = pl.col("trace_start") + pl.col("trace_ns")
    return [pl.col("trace_start") <= end_s * 10**9, ends >= start_s * 10**9]


def _read_positive(call: ApiCall, name: str, default: int) -> int:
    """Return the query parameter *name* as an integer from 0 (limit, spss: 1) on, else *default*; raises TempoError."""
    text = call.first(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,10}", text, re.ASCII):
        raise TempoError(f'invalid {name}: strconv.ParseInt: parsing "{text[:200]}": invalid syntax')
    if name in {"limit", "spss"} and int(text) < 1:
        raise TempoError(f"invalid {name}: must be a positive number")
    return int(text)


def _go_duration(call: ApiCall, name: str) -> int | None:
    """Return the query parameter *name*, a duration as in Go (``1.5s``), in ns; None when absent; raises TempoError."""
    text = call.first(name)
    try:
        return duration_ns(text) if text is not None else None
    except ValueError as error:
        raise TempoError(f'invalid {name}: time: invalid duration "{str(text)[:200]}"') from error


def _json_reply(content: Any) -> ApiReply:
    """Return the reply of status 200 with *content* as JSON."""
    return ApiReply(200, json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
