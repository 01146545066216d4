"""Samples of Prometheus as they were scraped: a range selector at one instant, page by page.

`query_range` would repeat the last sample for up to five minutes, also after a series has ended. A range selector gives
what is stored: a series ends with its last sample (staleness markers are no samples), and gaps are gaps.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from opsassay.core.schema.backends import Backend
from opsassay.core.schema.incident import Window
from opsassay.core.text import plural
from opsassay.telemetry.importers.backends.client import BackendClient, BackendError, RejectedError, is_too_much
from opsassay.telemetry.importers.backends.pages import Pages
from opsassay.telemetry.importers.backends.placing import Placing
from opsassay.telemetry.importers.cases import at_ns
from opsassay.telemetry.schema import SCHEMA

METRICS_A_PAGE = 20
HISTOGRAM_PARTS = "histogram_parts"
"""Samples of the counters of histograms: what happened between them is counted when all pages are there."""

_PLACES = {name: pl.String() for name in (*SCHEMA["metrics"], *SCHEMA["metrics_histogram"]) if name.startswith("attr.")}
Page = tuple[tuple[str, ...], int, int]


class SeriesReader:
    """Reads the series of one Prometheus into *pages*; *notes* say what was read and what gives nothing."""

    def __init__(self, client: BackendClient, pages: Pages, placing: Placing) -> None:
        self._client, self._pages, self._placing = client, pages, placing
        self._backend: Backend = client.backend
        self._kinds: dict[str, str] = {}
        self.notes: list[str] = []

    async def read(self, windows: Sequence[Window]) -> None:
        """Read all samples in *windows* and store them as pages; raises BackendError."""
        kinds, names = await self._read_metadata(), await self._read_metric_names(windows)
        self._kinds = {**kinds, **_histograms(names, kinds)}
        out = [name for name in names if any(re.fullmatch(one, name) for one in self._backend.leave_out)]
        buckets = [name for name in names if self._kinds.get(name.removesuffix("_bucket")) == "histogram"
                   and name.endswith("_bucket")]  # fmt: skip
        read = [name for name in names if name not in {*out, *buckets}]
        batches = [tuple(read[at : at + METRICS_A_PAGE]) for at in range(0, len(read), METRICS_A_PAGE)]
        seen: Counter[str] = Counter()
        for window in windows:
            for batch in batches:
                seen += await self._read_page((batch, window.start_ns // 10**6, window.end_ns // 10**6))
        self._note_what_was_read(read, out, buckets, seen)

    def _note_what_was_read(
        self, metrics: list[str], excluded: list[str], buckets: list[str], counts: Counter[str]
    ) -> None:
        """Note how many samples and metrics were read, and which were left out."""
        self.notes.append(f"prometheus: {plural(counts['samples'], 'sample')} of {plural(len(metrics), 'metric')}")
        if buckets:
            self.notes.append(f"prometheus: {plural(len(buckets), 'metric')} of buckets are left out: a datapack keeps "
                              f"none ({_join_first_names(buckets)})")  # fmt: skip
        if excluded:
            self.notes.append(
                f"prometheus: {plural(len(excluded), 'metric')} are left out by leave_out ({_join_first_names(excluded)})"
            )
        for what, about in (
            ("nameless", "have no label that names a service"),
            ("repeated", "coincide with another series once labels are dropped"),
        ):
            if named := sorted(key.partition(" ")[2] for key in counts if key.startswith(f"{what} ")):
                self.notes.append(
                    f"prometheus: series of {plural(len(named), 'metric')} {about}; they are kept "
                    f"({_join_first_names(named)})"
                )

    async def _read_metadata(self) -> dict[str, str]:
        """Return the type of each metric, as "counter"; empty when the store has no metadata."""
        if (kept := self._pages.kept_note("prometheus", "metadata")) is None:
            try:
                answer = await self._client.get("/api/v1/metadata")
            except RejectedError as error:
                if error.status != 404:
                    raise
                answer = {"data": {}}  # not every store that speaks PromQL has it
            kinds = self._client.read(
                lambda got: {str(name): str(found[0]["type"]) for name, found in got["data"].items() if found}, answer
            )
            kept = self._pages.keep("prometheus", "metadata", kinds=kinds)
        return dict(kept["kinds"])

    async def _read_metric_names(self, windows: Sequence[Window]) -> list[str]:
        """Return the names of all metrics with samples in *windows*."""
        if (kept := self._pages.kept_note("prometheus", "names")) is None:
            found: set[str] = set()
            for window in windows:
                asked = {
                    "start": window.start_ns / 1e9,
                    "end": window.end_ns / 1e9,
                    "match[]": self._make_selector('__name__!=""'),
                }
                answer = await self._client.get("/api/v1/label/__name__/values", asked)
                found |= set(self._client.read(lambda got: [str(name) for name in got["data"]], answer))
            kept = self._pages.keep("prometheus", "names", names=sorted(found))
        return list(kept["names"])

    async def _read_page(self, page: Page) -> Counter[str]:
        """Read and store *page*; when the result is too large, split it by metric, then by time. Return counts."""
        names, start_ms, end_ms = page
        kept = self._pages.kept_note("prometheus", names, start_ms, end_ms)
        if kept is None:
            try:
                answer = await self._ask_page(page)
                tables, seen = self._client.read(lambda got: self._tables(got, start_ms, end_ms), answer)
                kept = self._pages.keep("prometheus", names, start_ms, end_ms, tables=tables, seen=dict(seen))
            except BackendError as error:
                if not is_too_much(error) or (len(names) == 1 and end_ms - start_ms <= 1000):
                    raise
                kept = self._pages.keep("prometheus", names, start_ms, end_ms, split=True)
        if not kept.get("split"):
            return Counter(kept["seen"])
        total: Counter[str] = Counter()
        for half in _split_page(page):
            total += await self._read_page(half)
        return total

    async def _ask_page(self, page: Page) -> Any:
        """Ask for the raw samples of the metrics and the time of *page*; return Prometheus's answer."""
        names, start_ms, end_ms = page
        words = "|".join(re.escape(name) for name in names)
        selector = self._make_selector(f"__name__=~{json.dumps(words, ensure_ascii=False)}")
        asked = {"query": f"{selector}[{end_ms - start_ms}ms]", "time": f"{(end_ms - 1) / 1000:.3f}"}
        return await self._client.get("/api/v1/query", asked, post=True)

    def _make_selector(self, matcher: str) -> str:
        """Return the PromQL selector "{...}" that joins *matcher* and the matchers in the settings' `select`."""
        further = self._backend.select.strip().removeprefix("{").removesuffix("}").strip(" ,")
        return "{" + ",".join(part for part in (matcher, further) if part) + "}"

    def _tables(self, answer: Any, start_ms: int, end_ms: int) -> tuple[dict[str, pl.DataFrame], Counter[str]]:
        """Return the samples of *answer* by table, and counts of what was in it; 2.x includes both ends of a range."""
        if answer["data"]["resultType"] != "matrix":
            raise ValueError
        rows: dict[str, list[dict[str, Any]]] = {}
        samples: dict[str, list[tuple[Any, Any]]] = {}
        seen, places = Counter[str](), set[tuple[Any, ...]]()
        for one in answer["data"]["result"]:
            ms = np.rint(np.array([at for at, _ in one["values"]], dtype=np.float64) * 1000).astype(np.int64)
            values = np.array([float(value) for _, value in one["values"]], dtype=np.float64)
            inside = (ms >= start_ms) & (ms < end_ms)
            if not inside.any():
                continue
            table, row = self._make_row(one["metric"])
            place = tuple(sorted((name, value) for name, value in row.items() if name != "series"))
            raw = one["metric"]["__name__"]
            odd = {f"nameless {raw}": not row["service_name"], f"repeated {raw}": place in places}
            seen.update(samples=int(inside.sum()), **odd)
            places.add(place)
            rows.setdefault(table, []).append(row)
            samples.setdefault(table, []).append((ms[inside], values[inside]))
        return {table: self._make_table(table, rows[table], samples[table]) for table in rows}, +seen

    def _make_row(self, metric: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Return the table and the columns for the series with the labels *metric*."""
        raw = str(metric["__name__"])
        labels = self._client.redaction.labels(metric)
        suffix, service, columns = self._placing.series(labels)
        base, _, part = raw.rpartition("_")
        if part in {"count", "sum"} and self._kinds.get(base) in {"histogram", "summary"}:
            whole = {**metric, "__name__": base}
            series = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]
            row = {"metric": self._placing.name(base) + suffix, "service_name": service, "part": part, "series": series}
            return HISTOGRAM_PARTS, row | columns
        table = self._placing.table(raw, self._kinds.get(raw, self._kinds.get(raw.removesuffix("_total"), "")))
        return table, {"metric": self._placing.name(raw) + suffix, "service_name": service, **columns}

    def _make_table(self, table: str, rows: list[dict[str, Any]], samples: list[tuple[Any, Any]]) -> pl.DataFrame:
        """Return the samples of one table: a row of *rows* describes the series of each (ms, values) of *samples*."""
        own = {
            name: pl.String()
            for name in ("metric", "service_name", *(("part", "series") if table == HISTOGRAM_PARTS else ()))
        }
        series = pl.DataFrame(rows, schema={**own, **_PLACES})
        series = series.with_columns(self._client.redaction.texts(series[name]) for name in series.columns)
        owners = np.repeat(np.arange(len(rows), dtype=np.uint32), [len(ms) for ms, _ in samples])
        ns = np.concatenate([ms for ms, _ in samples]) * 10**6
        found = series[pl.Series(owners)].with_columns(
            ns=pl.Series(ns), value=pl.Series(np.concatenate([v for _, v in samples]))
        )
        columns = SCHEMA["metrics_histogram" if table == HISTOGRAM_PARTS else table]
        kept = [*own, *(name for name in _PLACES if name in columns)]
        return found.select(*kept, "value", time=at_ns(pl.col("ns")))


def _histograms(names: list[str], kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the base names of ``_count`` and ``_sum`` pairs that Prometheus knows as counters or not at all."""
    known, found = set(names), {}
    for name in names:
        base = name.removesuffix("_count")
        if base != name and f"{base}_sum" in known and base not in kinds and kinds.get(name, "counter") != "gauge":
            found[base] = "histogram"
    return found


def _split_page(page: Page) -> list[Page]:
    """Return *page* as two: by its metrics, else by its time."""
    names, start_ms, end_ms = page
    if len(names) > 1:
        middle = len(names) // 2
        return [(names[:middle], start_ms, end_ms), (names[middle:], start_ms, end_ms)]
    at = (start_ms + end_ms) // 2
    return [(names, start_ms, at), (names, at, end_ms)]


def _join_first_names(names: Sequence[str]) -> str:
    """Return the first three *names*, and "..." when there are more."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
