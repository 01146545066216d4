"""Entries of Loki: pages in the order of time; the instant at a page's edge is read again whole with the next page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import polars as pl

from opsassay.core.schema.incident import Window
from opsassay.core.text import plural
from opsassay.telemetry import severity
from opsassay.telemetry.importers.backends.client import BackendClient, BackendError, is_too_much
from opsassay.telemetry.importers.backends.pages import Pages
from opsassay.telemetry.importers.backends.placing import Placing, label_columns
from opsassay.telemetry.importers.cases import at_ns
from opsassay.telemetry.schema import SCHEMA

_LEVELS = ("level", "severity", "severity_text", "detected_level")
_TRACE = ("trace_id", "traceid", "traceID", "trace.id")
_SPAN = ("span_id", "spanid", "spanID", "span.id")
_LARGEST_PAGE = 1_000_000


class LogEntry(NamedTuple):
    """One entry: ns since 1970, its line, all its labels."""

    ns: int
    line: str
    labels: dict[str, str]


class StreamReader:
    """Reads the entries of one Loki into *pages*; *notes* say what was read and what gives nothing."""

    def __init__(self, client: BackendClient, pages: Pages, placing: Placing) -> None:
        self._client, self._pages, self._placing = client, pages, placing
        self._columns = label_columns("logs")
        self._no_column, self._seen = set[str](), Counter[str]()
        self.notes: list[str] = []

    async def read(self, windows: Sequence[Window]) -> None:
        """Read all log entries in *windows* and store them as pages; raises BackendError."""
        selector = await self._choose_selector()
        for window in windows:
            await self._read_window(selector, window.start_ns, window.end_ns)
        self.notes.append(f"loki: {plural(self._seen['entries'], 'entry').replace('entrys', 'entries')}")
        if self._seen["nameless"]:
            self.notes.append(
                f"loki: {self._seen['nameless']:,} of them have no label that names a service; they are kept"
            )
        if self._seen["lost"]:
            self.notes.append(
                f"loki: {plural(self._seen['lost'], 'instant')} have more entries than one page; the rest is lost"
            )
        if self._no_column:
            names = ", ".join(sorted(self._no_column)[:5])
            self.notes.append(
                f"loki: {plural(len(self._no_column), 'label')} have no column and are not kept ({names})"
            )

    async def _choose_selector(self) -> str:
        """Return the LogQL selector of the settings, else one that matches every stream."""
        given = self._client.backend.select.strip().removeprefix("{").removesuffix("}").strip(" ,")
        if given:
            return f"{{{given}}}"
        if (kept := self._pages.kept_note("loki", "labels")) is None:
            answer = await self._client.get("/loki/api/v1/labels")
            names = self._client.read(lambda got: [str(name) for name in got.get("data") or []], answer)
            kept = self._pages.keep("loki", "labels", names=names)
        for name in (*self._placing.service_labels, *kept["names"]):
            if name in kept["names"] and not name.startswith("__"):
                return f'{{{name}=~".+"}}'
        self.notes.append("loki: it has no label at all, so it holds nothing")
        return '{service_name=~".+"}'

    async def _read_window(self, selector: str, start_ns: int, end_ns: int) -> None:
        """Read the log lines of *selector* within the range, page by page; kept pages are not asked for again."""
        limit = self._client.limits.entries
        while start_ns < end_ns:
            key = ("loki", selector, start_ns, end_ns)
            kept = self._pages.kept_note(*key)
            if kept is None:
                entries, next_ns, limit, lost = await self._page(selector, start_ns, end_ns, limit)
                table, seen = self._make_table(entries)
                no_column = sorted(self._no_column)
                kept = self._pages.keep(
                    *key, tables={"logs": table}, next_ns=next_ns, seen={**seen, "lost": lost}, no_column=no_column
                )
            self._seen += Counter(kept["seen"])
            self._no_column |= set(kept["no_column"])
            start_ns = int(kept["next_ns"])

    async def _page(
        self, selector: str, start_ns: int, end_ns: int, limit: int
    ) -> tuple[list[LogEntry], int, int, int]:
        """Read one page; return its entries, the start of the next page, Loki's limit, and how many instants were cut.

        A full page ends before the last instant that it has: the others of that instant may not be in it. When it has no
        other instant, that one is read with a larger limit, then stream by stream.
        """
        while True:
            try:
                found = await self._ask_range(selector, start_ns, end_ns, limit)
            except BackendError as error:
                if not is_too_much(error) or limit <= 1:
                    raise
                limit = max(1, limit // 2)
                continue
            if len(found) < limit:
                return found, end_ns, limit, 0
            last_ns = max(entry.ns for entry in found)
            if before := [entry for entry in found if entry.ns < last_ns]:
                return before, last_ns, limit, 0
            whole, lost = await self._read_instant(selector, last_ns, limit, found)
            return whole, last_ns + 1, limit, lost

    async def _read_instant(
        self, selector: str, instant_ns: int, limit: int, first_entries: list[LogEntry]
    ) -> tuple[list[LogEntry], int]:
        """Read all entries of one instant with larger limits; return them and how many may be missing."""
        larger = limit
        while larger < _LARGEST_PAGE:
            larger *= 4
            try:
                entries = await self._ask_range(selector, instant_ns, instant_ns + 1, larger)
            except BackendError as error:
                if not is_too_much(error):
                    raise
                break
            if len(entries) < larger:
                return entries, 0
        return await self._read_by_stream(selector, instant_ns, limit, first_entries)

    async def _read_by_stream(
        self, selector: str, instant_ns: int, limit: int, first_entries: list[LogEntry]
    ) -> tuple[list[LogEntry], int]:
        """Read the entries of one instant stream by stream; return them and how many may be missing."""
        asked = {"match[]": selector, "start": str(instant_ns), "end": str(instant_ns + 1)}
        answer = await self._client.get("/loki/api/v1/series", asked)
        streams = self._client.read(lambda got: [dict(one) for one in got["data"]], answer)
        entries: list[LogEntry] = []
        lost = 0
        for stream in streams:
            matchers = ",".join(
                f"{name}={json.dumps(str(value), ensure_ascii=False)}" for name, value in sorted(stream.items())
            )
            one = await self._ask_range(f"{{{matchers}}}", instant_ns, instant_ns + 1, limit)
            lost |= len(one) >= limit
            entries += one
        return entries or first_entries, lost

    async def _ask_range(self, selector: str, start_ns: int, end_ns: int, limit: int) -> list[LogEntry]:
        """Return at most *limit* log lines of *selector* in [*start_ns*, *end_ns*), oldest first."""
        asked = {
            "query": selector, "start": str(start_ns), "end": str(end_ns), "limit": str(limit), "direction": "forward",
        }  # fmt: skip
        answer = await self._client.get("/loki/api/v1/query_range", asked)
        found = self._client.read(lambda got: list(_entries(got)), answer)
        return [entry for entry in found if start_ns <= entry.ns < end_ns]

    def _make_table(self, entries: list[LogEntry]) -> tuple[pl.DataFrame, Counter[str]]:
        """Return the rows of *entries* for the table logs, and how many entries there are and lack a service."""
        rows = [self._make_row(entry) for entry in entries]
        schema = {name: SCHEMA["logs"][name] for name in SCHEMA["logs"] if name != "time"}
        frame = pl.DataFrame(rows, schema={**schema, "ns": pl.Int64()})
        word = pl.col("message").str.extract(severity.WORD).str.to_uppercase()
        level = severity.levels(pl.lit(None, pl.String()), pl.coalesce(pl.col("level"), word, pl.lit("")))
        frame = frame.with_columns(level.alias("level"))
        columns = [name for name in schema if name != "level"]
        frame = frame.with_columns(self._client.redaction.texts(frame[name]) for name in columns)
        seen = Counter(entries=len(entries), nameless=sum(not row["service_name"] for row in rows))
        return frame.select(pl.exclude("ns"), time=at_ns(pl.col("ns"))), +seen

    def _make_row(self, entry: LogEntry) -> dict[str, Any]:
        """Return one log line as a row; labels without a column are noted."""
        labels = self._client.redaction.labels(entry.labels)
        service = self._placing.service(labels)
        known = {self._columns[name]: value for name, value in labels.items() if name in self._columns}
        used = {*self._columns, *_LEVELS, *_TRACE, *_SPAN, *self._placing.service_labels}
        self._no_column |= labels.keys() - used
        return {
            "ns": entry.ns, "message": entry.line, "service_name": service, "level": _find_first_label(labels, _LEVELS),
            "trace_id": (_find_first_label(labels, _TRACE) or "").lower(),
            "span_id": (_find_first_label(labels, _SPAN) or "").lower(),
            **known,
        }  # fmt: skip


def _entries(answer: Any) -> Iterable[LogEntry]:
    """Yield the log entries of Loki's *answer*, each with the labels of its stream and its own."""
    if answer["data"]["resultType"] != "streams":
        raise ValueError
    for stream in answer["data"]["result"]:
        for value in stream["values"]:
            labels = stream["stream"]
            if len(value) > 2:
                apart = value[2]
                further = {**apart.get("structuredMetadata", {}), **apart.get("parsed", {})} or (
                    {} if {"structuredMetadata", "parsed"} & apart.keys() else apart
                )
                labels = {**labels, **further}
            yield LogEntry(int(value[0]), str(value[1]), labels)


def _find_first_label(labels: dict[str, str], names: Iterable[str]) -> str | None:
    """Return the first value among the labels *names* that is not empty."""
    return next((labels[name] for name in names if labels.get(name)), None)
