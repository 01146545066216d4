"""Spans as Jaeger and Tempo answer them in JSON, as rows of a datapack's traces."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from opsassay.telemetry.importers.backends.placing import Placing
from opsassay.telemetry.importers.backends.redaction import Redaction
from opsassay.telemetry.importers.cases import at_ns
from opsassay.telemetry.otlp.traces import ATTRIBUTE_SOURCES, SPAN_KINDS
from opsassay.telemetry.schema import SCHEMA

_IDS = ("trace_id", "span_id", "parent_span_id")
_OWN = (*_IDS, "span_name", "attr.span_kind", "duration", "attr.status_code")
_RESOURCE = ("service_name", "attr.k8s.pod.name", "attr.k8s.service.name", "attr.k8s.namespace.name")
_SOURCE = {key: (rank, column) for column, keys in ATTRIBUTE_SOURCES.items() for rank, key in enumerate(keys)}
_SAID_OTHERWISE = frozenset({"span.kind", "error", "otel.status_code", "service.name", "internal.span.format"})
_STATUS = {1: "Ok", 2: "Error", "OK": "Ok", "ERROR": "Error", "STATUS_CODE_OK": "Ok", "STATUS_CODE_ERROR": "Error"}


class SpanRows:
    """Collects spans; `take` gives them as a table, redacted.

    *no_column* are attributes that a datapack does not keep; *lost* counts the events and links since the last `take`.
    """

    def __init__(self, placing: Placing, redaction: Redaction) -> None:
        self._placing, self._redaction = placing, redaction
        self._rows: list[tuple[Any, ...]] = []
        self.no_column: set[str] = set()
        self.lost: Counter[str] = Counter()

    def add_jaeger(self, trace: Mapping[str, Any]) -> None:
        """Add the spans of a trace of Jaeger's API."""
        places = {name: self._jaeger_resource(process) for name, process in trace["processes"].items()}
        for span in trace["spans"]:
            tags = {tag["key"]: tag["value"] for tag in span.get("tags") or ()}
            own = span.get("process")
            place = places[span["processID"]] if own is None else self._jaeger_resource(own)
            status = _STATUS.get(str(tags.get("otel.status_code", "")).upper())
            if status is None:
                status = "Error" if str(tags.get("error", "")).lower() == "true" else "Unset"
            kind = str(tags.get("span.kind", "")).capitalize() or None
            links, parent = span.get("references") or (), _jaeger_parent(span)
            kept = sum(str(one["spanID"]).lower() == parent for one in links if _is_within(one, span))
            self.lost.update(events=len(span.get("logs") or ()), links=len(links) - kept)
            start_ns, duration = int(span["startTime"]) * 1000, int(span["duration"]) * 1000
            ids = (str(span["traceID"]).lower(), str(span["spanID"]).lower(), parent)
            self._add_span(ids, str(span["operationName"]), kind, duration, status, place, tags, start_ns)

    def add_otlp(self, groups: Iterable[Mapping[str, Any]]) -> None:
        """Add the spans of resource spans in OTLP's JSON, as Tempo sends it: ids in base64 or hex, names or numbers."""
        for group in groups:
            place = self._place_of(
                {key: _attribute_value(value) for key, value in _attribute_pairs(group.get("resource") or {})}
            )
            scopes = group.get("scopeSpans") or group.get("instrumentationLibrarySpans") or ()
            for span in (span for scope in scopes for span in scope.get("spans") or ()):
                tags = {key: _attribute_value(value) for key, value in _attribute_pairs(span)}
                self.lost.update(events=len(span.get("events") or ()), links=len(span.get("links") or ()))
                start_ns, end_ns = int(span["startTimeUnixNano"]), int(span.get("endTimeUnixNano") or 0)
                ids = (
                    _hex_id(span["traceId"], 16),
                    _hex_id(span["spanId"], 8),
                    _hex_id(span.get("parentSpanId") or "", 8),
                )
                status = _STATUS.get((span.get("status") or {}).get("code", 0), "Unset")
                duration = max(0, end_ns - start_ns)
                self._add_span(
                    ids,
                    str(span.get("name", "")),
                    _span_kind(span.get("kind")),
                    duration,
                    status,
                    place,
                    tags,
                    start_ns,
                )

    def _add_span(
        self, ids: tuple[str, str, str], name: str, kind: str | None, duration: int, status: str,
        place: tuple[Any, ...], tags: Mapping[str, Any], start_ns: int,
    ) -> None:  # fmt: skip
        found: dict[str, tuple[int, str]] = {}
        for key, value in tags.items():
            if (source := _SOURCE.get(key)) is not None:
                rank, column = source
                if column not in found or rank < found[column][0]:
                    found[column] = rank, self._redaction.label(key, value)
            elif key not in _SAID_OTHERWISE:
                self.no_column.add(key)
        attributes = (found[column][1] if column in found else None for column in ATTRIBUTE_SOURCES)
        self._rows.append((*ids, name, kind, duration, status, *place, *attributes, start_ns))

    def _jaeger_resource(self, process: Mapping[str, Any]) -> tuple[Any, ...]:
        tags = {tag["key"]: tag["value"] for tag in process.get("tags") or ()}
        return self._place_of({**tags, "service.name": process["serviceName"]})

    def _place_of(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        labels = self._redaction.labels(given)
        self.no_column |= labels.keys() - {column.removeprefix("attr.") for column in _RESOURCE} - _SAID_OTHERWISE
        service = self._placing.renamed(labels.get("service.name", ""))
        pod, space = labels.get("k8s.pod.name"), labels.get("k8s.namespace.name")
        return service, pod, labels.get("k8s.service.name", service), space

    def take(self) -> pl.DataFrame:
        """Return the collected spans and begin anew."""
        names = (*_OWN, *_RESOURCE, *ATTRIBUTE_SOURCES)
        schema = {name: pl.UInt64() if name == "duration" else pl.String() for name in names}
        frame = pl.DataFrame(self._rows, schema={**schema, "ns": pl.Int64()}, orient="row", strict=False)
        self._rows, self.lost = [], Counter()
        texts = ("span_name", *_RESOURCE, "attr.http.request.method")
        return frame.with_columns(self._redaction.texts(frame[name]) for name in texts).select(
            *(pl.col(name).cast(SCHEMA["traces"][name], strict=False) for name in names), time=at_ns(pl.col("ns"))
        )


def _jaeger_parent(span: Mapping[str, Any]) -> str:
    """Return the span that *span* is a child of, else the one that it follows, '' for a root; older forms have a field."""
    links = [one for one in span.get("references") or () if _is_within(one, span)]
    children = [one for one in links if one["refType"] == "CHILD_OF"]
    found = (children or links or [{"spanID": span.get("parentSpanID") or ""}])[0]["spanID"]
    return str(found).lower()


def _is_within(link: Mapping[str, Any], span: Mapping[str, Any]) -> bool:
    return bool(link.get("traceID", span["traceID"]) == span["traceID"])


def _span_kind(given: Any) -> str | None:
    if isinstance(given, int):
        return SPAN_KINDS[given] if 0 <= given < len(SPAN_KINDS) else None
    word = str(given or "").removeprefix("SPAN_KIND_").capitalize()
    return word if word in SPAN_KINDS else None


def _hex_id(text: str, size: int) -> str:
    """Return the id *text* of *size* bytes in hexadecimal digits; '' for none."""
    plain = text.lower() if len(text) == 2 * size else b64decode(text, validate=True).hex()
    return plain if plain.strip("0") else ""


def _attribute_pairs(holder: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    return ((pair["key"], pair.get("value") or {}) for pair in holder.get("attributes") or ())


def _attribute_value(value: Mapping[str, Any]) -> Any:
    """Return an attribute's value; headers are lists, whose first element counts."""
    for form, inner in value.items():
        if form == "arrayValue":
            elements = inner.get("values") or [{}]
            return _attribute_value(elements[0])
        return inner
    return ""
