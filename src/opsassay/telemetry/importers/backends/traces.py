"""Traces of Tempo (search, then each by its id) and of Jaeger (by service); windows are halved where a limit is hit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from opsassay.core.schema.incident import Window
from opsassay.core.text import plural
from opsassay.telemetry.importers.backends.client import BackendClient, BackendError, RejectedError, is_too_much
from opsassay.telemetry.importers.backends.pages import Pages
from opsassay.telemetry.importers.backends.placing import Placing
from opsassay.telemetry.importers.backends.spans import SpanRows

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

    def _say(self, name: str) -> None:
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

    def _took(self, kept: dict[str, Any]) -> None:
        self._seen += Counter(kept.get("seen", {}))
        self._no_column |= set(kept.get("no_column", ()))


class TempoReader(_Reader):
    """Reads the traces of one Tempo into *pages*; *notes* say what was read and what gives nothing."""

    async def read(self, windows: Sequence[Window]) -> None:
        """Read all traces with a span in *windows*; raises BackendError."""
        found: set[str] = set()
        for window in windows:
            found |= await self._search(window.start_ns // _SECOND_NS, -(-window.end_ns // _SECOND_NS))
        ids = sorted(found)
        for at in range(0, len(ids), IDS_A_PAGE):
            batch = ids[at : at + IDS_A_PAGE]
            self._took(self._pages.kept_note("tempo", batch) or await self._read_batch(batch))
        self._say("tempo")

    async def _search(self, start_s: int, end_s: int) -> set[str]:
        """Return the ids of the traces from *start_s* to *end_s*, whole seconds of the epoch."""
        kept = self._pages.kept_note("tempo", "search", start_s, end_s)
        if kept is None:
            kept = self._pages.keep("tempo", "search", start_s, end_s, **await self._searched(start_s, end_s))
        self._took(kept)
        if not kept["split"]:
            return set(kept["ids"])
        middle = (start_s + end_s) // 2
        return await self._search(start_s, middle) | await self._search(middle, end_s)

    async def _searched(self, start_s: int, end_s: int) -> dict[str, Any]:
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
        seen = Counter(await _gathered([self._trace(id_) for id_ in ids]))
        seen["traces"] = seen["whole"] + seen["partial"]
        seen.update(self._rows.lost)
        table = self._rows.take()
        seen.update(spans=table.height)
        note = {"seen": dict(+seen), "no_column": sorted(self._rows.no_column)}
        return self._pages.keep("tempo", ids, tables={"traces": table}, **note)

    async def _trace(self, id_: str) -> str:
        """Add the spans of a trace and return what is to be said of it; older versions have one path alone."""
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
            spans, what = self._client.read(_resource_spans, answer)
            self._client.read(self._rows.add_otlp, spans)
            return str(what)
        return "gone"


class JaegerReader(_Reader):
    """Reads the traces of one Jaeger into *pages*; *notes* say what was read and what gives nothing."""

    async def read(self, windows: Sequence[Window]) -> None:
        """Read all traces with a span in *windows*; raises BackendError.

        A trace is answered for each service that it passes; it is kept once.
        """
        known: set[str] = set()
        for service in self._client.backend.services or await self._services():
            for window in windows:
                await self._search(service, window.start_ns // _US, -(-window.end_ns // _US), known)
        self._say("jaeger")

    async def _services(self) -> Sequence[str]:
        answer = await self._client.get("/api/services")
        names: list[str] = self._client.read(lambda got: sorted(str(name) for name in got["data"] or ()), answer)
        return names

    async def _search(self, service: str, start_us: int, end_us: int, known: set[str]) -> None:
        """Read the traces of *service* from *start_us* to before *end_us*, but for the *known* ones."""
        key = ("jaeger", service, start_us, end_us)
        kept = self._pages.kept_note(*key)
        if kept is None:
            kept = await self._searched(service, start_us, end_us, known)
        elif (ids := self._pages.read(*key, table="traces", columns=["trace_id"])) is not None:
            known |= set(ids["trace_id"])
        self._took(kept)
        if kept["split"]:
            middle = (start_us + end_us) // 2
            await self._search(service, start_us, middle, known)
            await self._search(service, middle, end_us, known)

    async def _searched(self, service: str, start_us: int, end_us: int, known: set[str]) -> dict[str, Any]:
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
            return self._keep(key, traces, known, lost=int(full))

    def _keep(self, key: Sequence[object], traces: Iterable[Any], known: set[str], lost: int) -> dict[str, Any]:
        new = 0
        for trace in traces:
            id_ = self._client.read(lambda one: str(one["traceID"]).lower(), trace)
            if id_ not in known:
                known.add(id_)
                new += 1
                self._client.read(self._rows.add_jaeger, trace)
        losses = self._rows.lost
        table = self._rows.take()
        seen = +Counter(traces=new, spans=table.height, lost=lost, **losses)
        note = {"split": False, "seen": dict(seen), "no_column": sorted(self._rows.no_column)}
        return self._pages.keep(*key, tables={"traces": table}, **note)


def _resource_spans(answer: Any) -> tuple[list[dict[str, Any]], str]:
    trace = answer.get("trace") or answer
    partial = str(answer.get("status", "")).upper() == "PARTIAL"
    return list(trace.get("resourceSpans") or trace.get("batches") or ()), "partial" if partial else "whole"


def _ids_found(answer: Any) -> list[str]:
    """Return the ids of the traces that a search found; Tempo leaves out zeros in front, and a list without any."""
    if not answer.keys() & {"traces", "metrics"} and answer:
        raise ValueError
    return [str(one["traceID"]).lower().zfill(32) for one in answer.get("traces") or ()]


async def _gathered(asks: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what *asks* give, in their order; the first that fails ends the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask) for ask in asks]
    return [task.result() for task in tasks]
