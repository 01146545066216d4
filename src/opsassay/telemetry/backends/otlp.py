"""Traces as OTLP in JSON, in the form that Tempo sends: ids in base64, names of kinds and states in full."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import polars as pl

from opsassay.telemetry.backends.spans import DERIVED, PROCESS, TAG

_STATUS = {"ERROR": "STATUS_CODE_ERROR", "OK": "STATUS_CODE_OK"}
Row = Mapping[str, Any]


def resource_spans(spans: pl.DataFrame) -> list[dict[str, Any]]:
    """Return *spans* as OTLP's list of resources, each with its spans.

    *spans* have the columns of a `SpanStore`.
    """
    resources: dict[tuple[Any, ...], dict[str, Any]] = {}
    columns = [name for name in spans.columns if name.startswith(PROCESS)]
    for row in spans.iter_rows(named=True):
        key = (row["service"], *(row[name] for name in columns))
        if key not in resources:
            resource = {"attributes": attributes({"service.name": row["service"]} | tagged(row, PROCESS))}
            resources[key] = {"resource": resource, "scopeSpans": [{"scope": {}, "spans": []}]}
        resources[key]["scopeSpans"][0]["spans"].append(_span(row))
    return list(resources.values())


def tagged(row: Row, prefix: str) -> dict[str, Any]:
    """Return the attributes of the columns with *prefix*, without those that Jaeger alone has."""
    found = {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
    return {key: value for key, value in found.items() if value is not None and key not in DERIVED}


def attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return *values* as OTLP's attributes."""
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _span(row: Row) -> dict[str, Any]:
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
    """Return the id *text* in base64: the bytes that it says in hex, filled up to *size*, else its characters."""
    try:
        plain = bytes.fromhex(text.zfill(2 * size))
    except ValueError:
        plain = text.encode("utf-8", "replace")
    return b64encode(plain).decode()


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": str(value)}
