"""The one form of OTLP JSON: names in lowerCamelCase, ids as lower-case hexadecimal, what is null left out.

Protobuf's JSON mapping takes lowerCamelCase and the names of the .proto files alike, so both are read. Ids are
hexadecimal (OTLP specification, "JSON Protobuf Encoding"); Tempo answers with protobuf's own base64, which is read where
it is as long as 16 or 8 bytes are in it, as no hexadecimal id is. Older and other names of the same spans are read too.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import Any

REQUESTS = {"resourceSpans": "traces", "resourceLogs": "logs", "resourceMetrics": "metrics"}
"""The field of an export request that holds a signal, and the signal."""

IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
"""The fields of ids, and their lengths in bytes."""

_ENUMS = {
    "kind": ("SPAN_KIND_", "UNSPECIFIED|INTERNAL|SERVER|CLIENT|PRODUCER|CONSUMER"),
    "code": ("STATUS_CODE_", "UNSET|OK|ERROR"),
    "severityNumber": ("SEVERITY_NUMBER_", "UNSPECIFIED|(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)[234]?"),
    "aggregationTemporality": ("AGGREGATION_TEMPORALITY_", "UNSPECIFIED|DELTA|CUMULATIVE"),
}
"""What the names of an enum's values begin with, and how they end."""

_KIND_OF_VALUE = {str: "stringValue", bool: "boolValue", int: "intValue", float: "doubleValue"}
"""Fields of an AnyValue, which some write as the plain value: of a log's body, or of an attribute beside its key."""
_ITEMS = frozenset({"spans", "logRecords", "links", "exemplars"})
_OTHER_NAMES = {
    "instrumentationLibrarySpans": "scopeSpans",  # before OTLP 0.19
    "instrumentationLibraryLogs": "scopeLogs",
    "instrumentationLibraryMetrics": "scopeMetrics",
    "instrumentationLibrary": "scope",
    "batches": "resourceSpans",  # Tempo
}


def requests_in(payload: Any, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the export requests in *payload*, a JSON value, with names, ids and enums normalised; raises ValueError.

    They are the value itself, each of a list, or what is under ``trace``, as Tempo answers. Why a span, record, link or
    exemplar is left out is added to *problems*.
    """
    if isinstance(payload, list):
        for part in payload:
            yield from requests_in(part, problems)
    elif isinstance(payload, dict):
        answer = payload.get("trace")
        yield _normalise_value(answer if isinstance(answer, dict) else payload, problems)
    else:
        raise ValueError(f"{json.dumps(payload)[:40]} is no object")  # noqa: TRY004 - as for all that is no OTLP


def _normalise_value(value: Any, problems: list[str]) -> Any:
    """Return OTLP JSON in the form that protobuf reads: camelCase names, ids and enums converted.

    Items that cannot be read are left out and added to *problems*. Raises ValueError for a field that is there twice.
    """
    if isinstance(value, list):
        return [_normalise_value(part, problems) for part in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, part in value.items():
        name = re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), key)
        name = _OTHER_NAMES.get(name, name)
        if part is None:
            continue
        if name in found:
            raise ValueError(f"{name} is there in two spellings")
        if name in IDS:
            found[name] = _normalise_id(name, part)
        elif name in _ENUMS and isinstance(part, str):
            found[name] = _value_of_enum(name, part)
        elif isinstance(part, str | int | float) and (name == "body" or (name == "value" and "key" in value)):
            found[name] = {_KIND_OF_VALUE[type(part)]: part}
        elif name == "status" and isinstance(part, str | int):
            found[name] = _normalise_value({"code": part}, problems)
        elif name in _ITEMS and isinstance(part, list):
            found[name] = list(_keep_readable(part, problems))
        else:
            found[name] = _normalise_value(part, problems)
    return found


def _keep_readable(items: list[Any], problems: list[str]) -> Iterator[Any]:
    """Yield those of *items* that can be normalised; for each other its error is added to *problems*."""
    for item in items:
        try:
            yield _normalise_value(item, problems)
        except ValueError as error:
            problems.append(str(error))


def _value_of_enum(name: str, text: str) -> int | str:
    """Return the enum value *text* of the field *name* as its full name or number; raises ValueError for an unknown one."""
    begin, ends = _ENUMS[name]
    if text.isdecimal():
        return int(text)
    if re.fullmatch(ends, end := text.upper().removeprefix(begin)) is None:
        raise ValueError(f"{name} {json.dumps(text)[:40]} is no value that OTLP has")
    return begin + end


def _normalise_id(name: str, text: Any) -> str:
    """Return *text*, the id in the field *name*, in hexadecimal; '' for zeros alone, which mean none; raises ValueError."""
    try:
        if len(text) in {22, 24, 11, 12} and len(known := base64.b64decode(f"{text}==")) == IDS[name]:
            return known.hex()
        return bytes.fromhex(text).hex() if text.strip("0") else ""
    except (TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise ValueError(f"{name} {json.dumps(text)[:40]} is no hexadecimal id") from error


def with_bytes(value: Any) -> Any:
    """Return OTLP JSON with ids in base64, as protobuf's JSON mapping has them, instead of hexadecimal."""
    if isinstance(value, list):
        return [with_bytes(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(part)).decode() if key in IDS else with_bytes(part)
        for key, part in value.items()
    }
