"""Reads values of OTLP JSON, and the events of spans that are separate log records.

Conventions 1.28 to 1.36 have a record per message, later ones one record with all messages
(``gen_ai.client.inference.operation.details``); both name their span by its id.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opsassay.solvers.proxy.apis.base import fields, list_objects

Events = tuple[tuple[str, dict[str, Any]], ...]


def read_attributes(attributes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return OTLP's list of key-value attributes as a dict."""
    return {pair["key"]: read_value(pair.get("value") or {}) for pair in attributes}


def read_value(value: dict[str, Any]) -> Any:
    """Return the Python value of an OTLP AnyValue."""
    inner: Any
    kind, inner = next(iter(value.items()), ("", None))
    if kind == "intValue":
        return int(inner)
    if kind == "arrayValue":
        return [read_value(item) for item in (inner or {}).get("values", ())]
    if kind == "kvlistValue":
        return read_attributes(inner.get("values", ()))
    return inner


def listed_events(attributes: Mapping[str, Any]) -> Events:
    """Return the events that a span lists as JSON in its attribute ``events``, as Pydantic AI writes them."""
    try:
        listed = json.loads(str(attributes.get("events") or "[]"))
    except (ValueError, RecursionError):
        return ()
    return tuple((str(one.get("event.name", "")), one) for one in list_objects(listed))


def read_record_events(requests: Sequence[dict[str, Any]]) -> tuple[dict[str, Events], int]:
    """Return (gen_ai events of the log records by span id, in time order; number of other log records)."""
    records = [
        record
        for request in requests
        for group in request.get("resourceLogs", ())
        for scope in group.get("scopeLogs", ())
        for record in scope.get("logRecords", ())
    ]
    found: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for record in sorted(records, key=lambda one: int(one.get("timeUnixNano") or one.get("observedTimeUnixNano") or 0)):
        attributes, body = read_attributes(record.get("attributes", ())), read_value(record.get("body") or {})
        name = str(record.get("eventName") or attributes.get("event.name", ""))
        if name.startswith("gen_ai.") and record.get("spanId"):
            content = {} if body is None else {"gen_ai.event.content": body}
            found[record["spanId"]].append((name, {**attributes, **fields(body), **content}))
    events = {span: tuple(given) for span, given in found.items()}
    return events, len(records) - sum(map(len, events.values()))
