"""Traces of Tempo (search, then each by its id) and of Jaeger (by service); windows are halved where a limit is hit.

Spans as Jaeger and Tempo answer them in JSON, as rows of a datapack's traces.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl

from opsassay.core.schema.incident import Window
from opsassay.core.text import plural
from opsassay.telemetry.importers.backends.client import BackendClient, BackendError, RejectedError, is_too_much
from opsassay.telemetry.importers.backends.pages import Pages
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
        """Add the spans of *trace*, in the JSON of Jaeger's API."""
        places = {name: self._read_jaeger_resource(process) for name, process in trace["processes"].items()}
        for span in trace["spans"]:
            tags = {tag["key"]: tag["value"] for tag in span.get("tags") or ()}
            own = span.get("process")
            place = places[span["processID"]] if own is None else self._read_jaeger_resource(own)
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
                {key: _attribute_value(value) for key, value in _read_attributes(group.get("resource") or {})}
            )
            scopes = group.get("scopeSpans") or group.get("instrumentationLibrarySpans") or ()
            for span in (span for scope in scopes for span in scope.get("spans") or ()):
                tags = {key: _attribute_value(value) for key, value in _read_attributes(span)}
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
                    _name_span_kind(span.get("kind")),
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
        """Add one span; *ids* are of the trace, the span and its parent, *place* its service, pod and so on.

        A tag that has no column is noted by its name.
        """
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

    def _read_jaeger_resource(self, process: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the columns about the resource (service, pod, ...) of spans whose Jaeger *process* this is."""
        tags = {tag["key"]: tag["value"] for tag in process.get("tags") or ()}
        return self._place_of({**tags, "service.name": process["serviceName"]})

    def _place_of(self, attributes: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return service, pod, Kubernetes service and namespace in a resource's *attributes*."""
        labels = self._redaction.labels(attributes)
        self.no_column |= labels.keys() - {column.removeprefix("attr.") for column in _RESOURCE} - _SAID_OTHERWISE
        service = self._placing.renamed(labels.get("service.name", ""))
        pod, space = labels.get("k8s.pod.name"), labels.get("k8s.namespace.name")
        return service, pod, labels.get("k8s.service.name", service), space

    def take(self) -> pl.DataFrame:
        """Return the collected spans and clear them."""
        names = (*_OWN, *_RESOURCE, *ATTRIBUTE_SOURCES)
        schema = {name: pl.UInt64() if name == "duration" else pl.String() for name in names}
        frame = pl.DataFrame(self._rows, schema={**schema, "ns": pl.Int64()}, orient="row", strict=False)
        self._rows, self.lost = [], Counter()
        texts = ("span_name", *_RESOURCE, "attr.http.request.method")
        return frame.with_columns(self._redaction.texts(frame[name]) for name in texts).select(
            *(pl.col(name).cast(SCHEMA["traces"][name], strict=False) for name in names), time=at_ns(pl.col("ns"))
        )


def _jaeger_parent(span: Mapping[str, Any]) -> str:
    """Return the id of the parent of *span*: by its CHILD_OF reference, else FOLLOWS_FROM, else a field of old versions."""
    links = [one for one in span.get("references") or () if _is_within(one, span)]
    children = [one for one in links if one["refType"] == "CHILD_OF"]
    found = (children or links or [{"spanID": span.get("parentSpanID") or ""}])[0]["spanID"]
    return str(found).lower()


def _is_within(link: Mapping[str, Any], span: Mapping[str, Any]) -> bool:
    """Return whether *link*, a reference of *span*, points into the same trace."""
    return bool(link.get("traceID", span["traceID"]) == span["traceID"])


def _name_span_kind(kind: Any) -> str | None:
    """Return the name of a span kind, as "Server", from its number or name in OTLP; None for an unknown one."""
    if isinstance(kind, int):
        return SPAN_KINDS[kind] if 0 <= kind < len(SPAN_KINDS) else None
    word = str(kind or "").removeprefix("SPAN_KIND_").capitalize()
    return word if word in SPAN_KINDS else None


def _hex_id(text: str, size: int) -> str:
    """Return the id *text*, hex or base64, as hexadecimal digits of *size* bytes; '' for none."""
    plain = text.lower() if len(text) == 2 * size else b64decode(text, validate=True).hex()
    return plain if plain.strip("0") else ""


def _read_attributes(holder: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return (key, value in OTLP's JSON form) of the attributes of *holder*."""
    return ((pair["key"], pair.get("value") or {}) for pair in holder.get("attributes") or ())


def _attribute_value(value: Mapping[str, Any]) -> Any:
    """Return the Python value of an OTLP attribute; of a list the first element, since headers are lists."""
    for form, inner in value.items():
        if form == "arrayValue":
            elements = inner.get("values") or [{}]
            return _attribute_value(elements[0])
        return inner
    return ""


IDS_A_PAGE = 200
_MOST_SEARCHED = 2_000_000
_SECOND_NS, _US = 10**9, 1000
_SHORTEST_US = 100_000
"""A shorter window is not halved when Jaeger gives as many traces as were asked for: more are asked for."""

T = TypeVar("T")


class _Reader:
    """What both have in common: the client, the pages, what was seen."""

    def __init__(self, client: BackendClient, pages: Pages, placing: Placing) -> None:
        self._client, self._pages = client, pages
        self._rows = SpanRows(placing, client.redaction)
        self._seen, self._no_column = Counter[str](), set[str]()
        self.notes: list[str] = []

    def _note_what_was_read(self, name: str) -> None:
        """Note how many traces the backend *name* gave, and which were left out."""
        seen = self._seen
        self.notes.append(f"{name}: {plural(seen['spans'], 'span')} of {plural(seen['traces'], 'trace')}")
        for what, about in (
            ("gone", "were found by the search and are not there any more"),
            ("partial", "are said to be incomplete by the backend"),
            ("lost", "instants have more traces than one search; the rest is lost"),
            ("large", "are larger than limits.answer_bytes and are left out"),
        ):
            if seen[what]:
                self.notes.append(f"{name}: {plural(seen[what], 'trace') if what != 'lost' else seen[what]} {about}")
        for what in ("events", "links"):
            if seen[what]:
                self.notes.append(
                    f"{name}: {plural(seen[what], f'span {what[:-1]}')} not kept: a datapack has no place for such"
                )
        if self._no_column:
            names = ", ".join(sorted(self._no_column)[:5])
            self.notes.append(
                f"{name}: {plural(len(self._no_column), 'attribute')} have no column and are not kept ({names})"
            )

    def _count_kept(self, note: dict[str, Any]) -> None:
        """Add the counts in *note*, that of a page read earlier."""
        self._seen += Counter(note.get("seen", {}))
        self._no_column |= set(note.get("no_column", ()))


class TempoReader(_Reader):
    """Reads the traces of one Tempo into *pages*; *notes* say what was read and what gives nothing."""

    async def read(self, windows: Sequence[Window]) -> None:
        """Read all traces with a span in *windows* and store them as pages; raises BackendError."""
        found: set[str] = set()
        for window in windows:
            found |= await self._search(window.start_ns // _SECOND_NS, -(-window.end_ns // _SECOND_NS))
        ids = sorted(found)
        for at in range(0, len(ids), IDS_A_PAGE):
            batch = ids[at : at + IDS_A_PAGE]
            self._count_kept(self._pages.kept_note("tempo", batch) or await self._read_batch(batch))
        self._note_what_was_read("tempo")

    async def _search(self, start_s: int, end_s: int) -> set[str]:
        """Return the ids of the traces from *start_s* to *end_s*, whole seconds of the epoch."""
        kept = self._pages.kept_note("tempo", "search", start_s, end_s)
        if kept is None:
            kept = self._pages.keep("tempo", "search", start_s, end_s, **await self._search_traces(start_s, end_s))
        self._count_kept(kept)
        if not kept["split"]:
            return set(kept["ids"])
        middle = (start_s + end_s) // 2
        return await self._search(start_s, middle) | await self._search(middle, end_s)

    async def _search_traces(self, start_s: int, end_s: int) -> dict[str, Any]:
        """Search the seconds [*start_s*, *end_s*); return the ids found, or that the range has to be split."""
        limit = self._client.limits.traces
        while True:
            asked = {"q": "{}", "start": start_s, "end": end_s, "limit": limit}
            try:
                answer = await self._client.get("/api/search", asked)
                ids = self._client.read(_ids_found, answer)
            except BackendError as error:
                if not is_too_much(error) or end_s - start_s <= 1:
                    raise
                return {"split": True}
            if len(ids) < limit:
                return {"split": False, "ids": ids}
            if end_s - start_s > 1:
                return {"split": True}
            if limit >= _MOST_SEARCHED:
                return {"split": False, "ids": ids, "seen": {"lost": 1}}
            limit *= 4

    async def _read_batch(self, ids: list[str]) -> dict[str, Any]:
        """Read the traces *ids*, keep their spans as one page, and return what was noted of it."""
        seen = Counter(await _gathered([self._trace(id_) for id_ in ids]))
        seen["traces"] = seen["whole"] + seen["partial"]
        seen.update(self._rows.lost)
        table = self._rows.take()
        seen.update(spans=table.height)
        note = {"seen": dict(+seen), "no_column": sorted(self._rows.no_column)}
        return self._pages.keep("tempo", ids, tables={"traces": table}, **note)

    async def _trace(self, id_: str) -> str:
        """Add the spans of the trace *id_* and return a remark on it, '' for none; old versions have another path."""
        for path in (f"/api/v2/traces/{id_}", f"/api/traces/{id_}"):
            try:
                answer = await self._client.get(path)
            except RejectedError as error:
                if error.status != 404:
                    raise
                if "page not found" in error.said:
                    continue
                return "gone"
            except BackendError as error:
                if not is_too_much(error):
                    raise
                return "large"
            spans, what = self._client.read(_read_resource_spans, answer)
            self._client.read(self._rows.add_otlp, spans)
            return str(what)
        return "gone"


class JaegerReader(_Reader):
    """Reads the traces of one Jaeger into *pages*; *notes* say what was read and what gives nothing."""

    async def read(self, windows: Sequence[Window]) -> None:
        """Read all traces with a span in *windows*, which Jaeger has once per service, as pages; raises BackendError."""
        known: set[str] = set()
        for service in self._client.backend.services or await self._read_services():
            for window in windows:
                await self._search(service, window.start_ns // _US, -(-window.end_ns // _US), known)
        self._note_what_was_read("jaeger")

    async def _read_services(self) -> Sequence[str]:
        """Return the names of all services that Jaeger knows, sorted."""
        answer = await self._client.get("/api/services")
        names: list[str] = self._client.read(lambda got: sorted(str(name) for name in got["data"] or ()), answer)
        return names

    async def _search(self, service: str, start_us: int, end_us: int, known_ids: set[str]) -> None:
        """Read the traces of *service* in [*start_us*, *end_us*), without those in *known_ids*."""
        key = ("jaeger", service, start_us, end_us)
        kept = self._pages.kept_note(*key)
        if kept is None:
            kept = await self._search_traces(service, start_us, end_us, known_ids)
        elif (ids := self._pages.read(*key, table="traces", columns=["trace_id"])) is not None:
            known_ids |= set(ids["trace_id"])
        self._count_kept(kept)
        if kept["split"]:
            middle = (start_us + end_us) // 2
            await self._search(service, start_us, middle, known_ids)
            await self._search(service, middle, end_us, known_ids)

    async def _search_traces(self, service: str, start_us: int, end_us: int, known_ids: set[str]) -> dict[str, Any]:
        """Read the traces of *service* in the range and keep new ones as a page, or note that it has to be split."""
        limit, key = self._client.limits.traces, ("jaeger", service, start_us, end_us)
        while True:
            asked = {"service": service, "start": start_us, "end": end_us - 1, "limit": limit}
            try:
                answer = await self._client.get("/api/traces", asked)
            except BackendError as error:
                if not is_too_much(error) or end_us - start_us <= 1:
                    raise
                return self._pages.keep(*key, split=True)
            traces = self._client.read(lambda got: list(got["data"] or ()), answer)
            full = len(traces) >= limit
            if full and end_us - start_us > _SHORTEST_US:
                return self._pages.keep(*key, split=True)
            if full and limit < _MOST_SEARCHED:
                limit *= 4
                continue
            return self._keep_new_traces(key, traces, known_ids, lost_count=int(full))

    def _keep_new_traces(
        self, key: Sequence[object], traces: Iterable[Any], known_ids: set[str], lost_count: int
    ) -> dict[str, Any]:
        """Store the new ones of *traces* as the page *key*, and return its note."""
        new = 0
        for trace in traces:
            id_ = self._client.read(lambda one: str(one["traceID"]).lower(), trace)
            if id_ not in known_ids:
                known_ids.add(id_)
                new += 1
                self._client.read(self._rows.add_jaeger, trace)
        losses = self._rows.lost
        table = self._rows.take()
        seen = +Counter(traces=new, spans=table.height, lost=lost_count, **losses)
        note = {"split": False, "seen": dict(seen), "no_column": sorted(self._rows.no_column)}
        return self._pages.keep(*key, tables={"traces": table}, **note)


def _read_resource_spans(answer: Any) -> tuple[list[dict[str, Any]], str]:
    """Return the resourceSpans of Tempo's *answer*, and "whole" or "partial"."""
    trace = answer.get("trace") or answer
    partial = str(answer.get("status", "")).upper() == "PARTIAL"
    return list(trace.get("resourceSpans") or trace.get("batches") or ()), "partial" if partial else "whole"


def _ids_found(answer: Any) -> list[str]:
    """Return the trace ids in a search result; Tempo leaves out leading zeros, and an empty list altogether."""
    if not answer.keys() & {"traces", "metrics"} and answer:
        raise ValueError
    return [str(one["traceID"]).lower().zfill(32) for one in answer.get("traces") or ()]


async def _gathered(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run *coroutines* together and return their results in order; the first failure cancels the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask) for ask in coroutines]
    return [task.result() for task in tasks]
