"""Spans of export requests as columns of a datapack's traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from opsassay.telemetry.otlp.columns import Attributes, Resources, hexadecimal, integer, text, times
from opsassay.telemetry.schema import SCHEMA

SPAN_KINDS = (None, "Internal", "Server", "Client", "Producer", "Consumer")
_STATUSES = ("Unset", "Ok", "Error")
_CONSUMER = 5

# Columns and the attributes that fill them: the stable semantic conventions first, then what older libraries send.
ATTRIBUTE_SOURCES: dict[str, tuple[str, ...]] = {
    "attr.http.request.method": ("http.request.method", "http.method"),
    "attr.http.response.status_code": ("http.response.status_code", "http.status_code"),
    "attr.http.request.content_length": (
        "http.request.body.size",
        "http.request.content_length",
        "http.request_content_length",
        "http.request.header.content-length",
    ),
    "attr.http.response.content_length": (
        "http.response.body.size",
        "http.response.content_length",
        "http.response_content_length",
        "http.response.header.content-length",
    ),
}
_READERS: dict[str, Callable[[Any], Any]] = {
    key: text if column.endswith("method") else integer for column, keys in ATTRIBUTE_SOURCES.items() for key in keys
}


class TraceColumns:
    """Collects export requests of traces into batches of the datapack schema."""

    def __init__(self) -> None:
        self._resources = Resources("traces")
        self._clear_rows()

    def _clear_rows(self) -> None:
        """Drop all collected rows."""
        self.rows = 0
        self._resource: list[int] = []
        self._ids: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
        self._names: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._kinds: list[int] = []
        self._statuses: list[int] = []
        self._links: list[str | None] = []
        self._attributes = Attributes(_READERS)

    def add(self, request: Any, _received_ns: int) -> None:
        """Add every span of an ExportTraceServiceRequest to the collected rows."""
        for group in request.resource_spans:
            number = self._resources.number(group.resource)
            for scope in group.scope_spans:
                self._add_spans(list(scope.spans), number)

    def _add_spans(self, spans: list[Any], resource: int) -> None:
        """Add *spans*, which all have the resource of the number *resource*."""
        self.rows += len(spans)
        self._resource += [resource] * len(spans)
        self._ids[0].extend([span.trace_id for span in spans])
        self._ids[1].extend([span.span_id for span in spans])
        self._ids[2].extend([span.parent_span_id for span in spans])
        self._names += [span.name for span in spans]
        self._starts += [span.start_time_unix_nano for span in spans]
        self._ends += [span.end_time_unix_nano for span in spans]
        self._kinds += [span.kind for span in spans]
        self._statuses += [span.status.code for span in spans]
        self._links += [_links(span) for span in spans]
        self._attributes.extend(spans)

    def take(self) -> pl.DataFrame:
        """Return the collected spans as a traces table, with attr.links when any has links, and drop them here."""
        own = {
            "time": times(self._starts),
            "trace_id": hexadecimal(self._ids[0]),
            "span_id": hexadecimal(self._ids[1]),
            "parent_span_id": hexadecimal(self._ids[2]),
            "span_name": pl.Series(self._names, dtype=pl.String()),
            "attr.span_kind": _enum_names(self._kinds, SPAN_KINDS),
            "duration": _durations(self._starts, self._ends),
            "attr.status_code": _enum_names(self._statuses, _STATUSES),
            **{column: self._coalesce_attributes(column, keys) for column, keys in ATTRIBUTE_SOURCES.items()},
            **self._resources.source_columns(self._resource),
        }
        columns = {name: own[name] for name in SCHEMA["traces"]}
        if any(self._links):
            columns["attr.links"] = pl.Series(self._links, dtype=pl.String())
        self._clear_rows()
        return pl.DataFrame(columns)

    def _coalesce_attributes(self, column: str, keys: tuple[str, ...]) -> pl.Series:
        """Return the first attribute of *keys* that each span has, as the table's column *column*."""
        dtype = pl.String() if column.endswith("method") else pl.Int64()
        sources = pl.DataFrame([self._attributes.series(key, dtype).alias(key) for key in keys])
        found = sources.select(pl.coalesce(keys)).to_series()
        return found.cast(SCHEMA["traces"][column], strict=False)


def keeps_links(span: Any) -> bool:
    """Return whether the links of *span* are stored: only those of a consumer span without a parent."""
    return span.kind == _CONSUMER and not any(span.parent_span_id)


def _links(span: Any) -> str | None:
    """Return the links of *span* as ``trace_id:span_id,...``; None without links and for spans that keep none."""
    if not span.links or not keeps_links(span):
        return None
    return ",".join(f"{link.trace_id.hex()}:{link.span_id.hex()}" for link in span.links)


def _enum_names(numbers: list[int], words: tuple[str | None, ...]) -> pl.Series:
    """Return enum *numbers* as texts, *words* being indexed by number; an unknown number is null."""
    known = pl.Series(numbers, dtype=pl.Int64()).cast(pl.UInt32(), strict=False)
    known = known.set(known >= len(words), None)
    return pl.Series(words, dtype=pl.String()).gather(known)


def _durations(starts: list[int], ends: list[int]) -> pl.Series:
    """Return end - start in ns for each span; 0 where a clock went backwards."""
    frame = pl.DataFrame({"start": starts, "end": ends}, schema=dict.fromkeys(("start", "end"), pl.UInt64()))
    later = pl.max_horizontal("start", "end")
    return frame.select((later - pl.col("start")).alias("duration")).to_series()
