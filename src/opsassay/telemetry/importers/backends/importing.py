"""A past incident read from its backends into a datapack; what was read before an interruption is not asked for again."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import polars as pl

from opsassay.core.errors import OperationError, OpsAssayError, UserError
from opsassay.core.schema.backends import TeamBackends
from opsassay.core.schema.incident import Incident, Truth, Window
from opsassay.core.text import plural
from opsassay.telemetry.importers.backends.client import BackendClient, ImportUsage, secrets_in, tokens
from opsassay.telemetry.importers.backends.pages import Pages
from opsassay.telemetry.importers.backends.placing import Placing
from opsassay.telemetry.importers.backends.redaction import Redaction
from opsassay.telemetry.importers.backends.series import HISTOGRAM_PARTS, SeriesReader
from opsassay.telemetry.importers.backends.settings import PastIncident, read_root
from opsassay.telemetry.importers.backends.streams import StreamReader
from opsassay.telemetry.importers.backends.traces import JaegerReader, TempoReader
from opsassay.telemetry.importers.cases import ImportReport, OnCase, ReadCase, Source, case_id, import_sources
from opsassay.telemetry.importers.stated import StatedIncident
from opsassay.telemetry.otlp.metrics import histogram_deltas
from opsassay.telemetry.schema import MODALITIES, PERIODS, conform, empty
from opsassay.telemetry.tree import Tree

_READERS: Mapping[str, Any] = {
    "prometheus": SeriesReader, "loki": StreamReader, "tempo": TempoReader, "jaeger": JaegerReader,
}  # fmt: skip


class PagedTables(Mapping[tuple[str, str], pl.DataFrame]):
    """The tables of a datapack by (period, modality), each made of its *pages* when it is asked for and not kept."""

    def __init__(self, pages: Pages, windows: Mapping[str, Window], span_unit_ns: int) -> None:
        self._pages, self._windows, self._span_unit_ns = pages, windows, span_unit_ns

    def __getitem__(self, key: tuple[str, str]) -> pl.DataFrame:
        period, modality = key
        inside = self._inside(period, modality)
        if modality == "metrics_histogram":
            return self._histograms().filter(inside)
        files = self._pages.files(modality)
        return pl.scan_parquet(files, glob=False).filter(inside).collect() if files else empty(modality)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((period, modality) for period in PERIODS for modality in MODALITIES)

    def __len__(self) -> int:
        return len(PERIODS) * len(MODALITIES)

    def is_bare(self, period: str) -> bool:
        """Return whether all tables of *period* are empty."""
        return not any(self._has_rows(period, modality) for modality in MODALITIES)

    def _has_rows(self, period: str, modality: str) -> bool:
        """Return whether the table *modality* has a row within the window *period*."""
        if modality == "metrics_histogram":
            return not self[period, modality].is_empty()
        files = self._pages.files(modality)
        found = pl.scan_parquet(files, glob=False).filter(self._inside(period, modality)) if files else pl.LazyFrame()
        return not found.head(1).collect().is_empty()

    def _inside(self, period: str, modality: str) -> pl.Expr:
        """Return the filter for rows in *period*, whose ends are rounded down to the backend's precision of times."""
        window, at = self._windows[period], pl.col("time").dt.epoch("ns")
        unit = 10**6 if modality.startswith("metrics") else self._span_unit_ns if modality == "traces" else 1
        return (at >= window.start_ns // unit * unit) & (at < window.end_ns // unit * unit)

    def _histograms(self) -> pl.DataFrame:
        """Return histograms by the growth of ``_count`` and ``_sum`` between samples; a series begins with its base."""
        files = self._pages.files(HISTOGRAM_PARTS)
        if not files:
            return empty("metrics_histogram")
        parts = pl.scan_parquet(files, glob=False).collect()
        of_part = {name: parts.filter(pl.col("part") == name).drop("part") for name in ("count", "sum")}
        sums = of_part["sum"].select("series", "time", sum="value")
        both = of_part["count"].rename({"value": "count"}).join(sums, on=["series", "time"], how="left")
        normal, abnormal = (self._windows[period] for period in PERIODS)
        touching = normal.end_ns == abnormal.start_ns
        of_normal = self._inside("normal", "metrics_histogram")
        points = both.with_columns(
            start_ns=pl.lit(0, pl.UInt64()) if touching else of_normal.cast(pl.UInt64()),
            cumulative=pl.lit(value=True), min=pl.lit(None, pl.Float64()), max=pl.lit(None, pl.Float64()),
        )  # fmt: skip
        return conform(histogram_deltas(points, 2), "metrics_histogram", "histograms of Prometheus")

    def about(self) -> list[str]:
        """Return sentences on the spans: how many lie outside both windows, how many traces are incomplete."""
        files = self._pages.files("traces")
        if not files:
            return []
        spans = pl.scan_parquet(files, glob=False).select("time", "trace_id", "span_id", "parent_span_id").collect()
        inside = spans.select(self._inside("normal", "traces") | self._inside("abnormal", "traces")).to_series()
        notes = (
            [f"{plural(out, 'span')} of these traces lie outside both windows"] if (out := int((~inside).sum())) else []
        )
        kept = spans.filter(inside).drop("time")
        parents = kept.select("trace_id", parent_span_id="span_id")
        orphans = kept.filter(pl.col("parent_span_id") != "").join(
            parents, on=["trace_id", "parent_span_id"], how="anti"
        )
        if orphans.height:
            broken, whole = orphans["trace_id"].n_unique(), kept["trace_id"].n_unique()
            notes.append(f"{broken:,} of {plural(whole, 'trace')} are incomplete: a span's parent is not there")
        return notes


def import_backends(settings: PastIncident, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Read the incident of *settings* from backends and write it into the tree *out*; an existing one is skipped.

    Pages that are read lie in ``out/.importing-ID`` until the datapack is whole: an import that was cut off goes on.
    Raises UserError for settings by which nothing can be read; a backend that cannot be read is in the report.
    """
    settings.require()
    known = [settings.system, *(window.canonical_json() for window in settings.windows().values())]
    known += [f"{name} {one.url}" for name, one in settings.backends().items()]
    id_ = case_id("backends", *known)
    source = Source(settings.system, id_, partial(_read_case, settings, id_, Path(out)))
    report = import_sources([source], out, on_case)
    if Tree(out).incident_path(id_).exists():
        shutil.rmtree(_path_of_left_pages(out, id_), ignore_errors=True)
    return report


def _pages(settings: PastIncident, out: Path, id_: str) -> Pages:
    """Return the folder of pages read so far by this import; it depends on all *settings* that change what is read."""
    rules = settings.model_copy(update={"limits": type(settings.limits)(), "root": None, "postmortem": None})
    return Pages(_path_of_left_pages(out, id_) / rules.digest()[:16])


def _path_of_left_pages(out: Path, id_: str) -> Path:
    """Return the folder next to the tree *out* for pages of an unfinished import."""
    return Path(out) / f".importing-{id_}"


def _read_case(settings: PastIncident, id_: str, out: Path) -> ReadCase:
    """Read all backends of *settings* into pages in *out*, and return the case; raises UserError."""
    windows = settings.windows()
    redaction = Redaction(settings.redact, secrets_in(tokens()))
    text = settings.postmortem_text()
    further = {} if text is None else {"postmortem.md": redaction.whole(text)}
    pages = _pages(settings, out, id_)
    with _without_collections():
        notes = asyncio.run(_read_all(settings, list(windows.values()), pages, redaction))
    tables = PagedTables(pages, windows, settings.span_unit_ns)
    if bare := [period for period in PERIODS if tables.is_bare(period)]:
        raise UserError(
            f"The backends hold nothing in the {' and the '.join(bare)} window ({'; '.join(notes)}); check "
            f"--{bare[0]}, its zone, and `select`."
        )
    incident = Incident(
        id=id_, system=settings.system, normal=windows["normal"], abnormal=windows["abnormal"],
        provenance={"format": "backends", "backends": sorted(settings.backends())},
    )  # fmt: skip
    truth = _make_truth(settings, incident, postmortem=bool(further))
    notes = [*notes, *tables.about()]
    return ReadCase(incident, truth, tables, {"namespace": settings.system}, further=further, notes=tuple(notes))


def _make_truth(settings: PastIncident, incident: Incident, *, postmortem: bool) -> Truth | None:
    """Return the truth with the root cause of *settings*, None without one."""
    if settings.root is None:
        return Truth(id=incident.id, system=incident.system) if postmortem else None
    service, type_ = read_root(settings.root)
    return StatedIncident(root=({"service": service, "kind": type_},)).truth(incident)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Turn Python's garbage collection off in the block: JSON has no cycles, and it doubles the time of parsing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_window(settings: TeamBackends, window: Window) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """Return what the backends of *settings* hold of *window*, by table of a datapack, and notes on how it was read.

    Raises UserError for settings by which nothing can be read, OperationError for backends that cannot be read.
    """
    settings.require()
    after = Window(start_ns=window.end_ns, end_ns=window.end_ns + 1)
    with tempfile.TemporaryDirectory(prefix="opsassay-backends-") as folder, _without_collections():
        pages, redaction = Pages(Path(folder)), Redaction(settings.redact, secrets_in(tokens()))
        notes = asyncio.run(_read_all(settings, [window], pages, redaction))
        tables = PagedTables(pages, {"normal": window, "abnormal": after}, settings.span_unit_ns)
        return {modality: tables["normal", modality] for modality in MODALITIES}, notes


async def _read_all(settings: TeamBackends, windows: Sequence[Window], pages: Pages, redaction: Redaction) -> list[str]:
    """Read *windows* of all backends at the same time and return notes; raises one OperationError for all that fail."""
    usage = ImportUsage(settings.limits.total_bytes)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        readers = {
            name: _READERS[name](
                BackendClient(session, name, one, settings.limits, usage, redaction), pages, Placing(settings)
            )
            for name, one in settings.backends().items()
        }
        found = await asyncio.gather(*(_guarded(reader.read(windows)) for reader in readers.values()))
    if errors := [str(error) for error in found if error is not None]:
        raise OperationError("\n".join(errors))
    asked = sum(usage.requests.values())
    notes = [note for reader in readers.values() for note in reader.notes]
    return [*notes, f"asked for {plural(usage.size, 'byte')} in {plural(asked, 'request')}"]


async def _guarded(read_task: Awaitable[None]) -> OpsAssayError | None:
    """Await *read_task* and return its first OpsAssayError, also out of an exception group; None without one."""
    found: list[OpsAssayError] = []
    try:
        await read_task
    except* OpsAssayError as errors:
        group: BaseException = errors
        while isinstance(group, BaseExceptionGroup):
            group = group.exceptions[0]
        found.append(group)  # type: ignore[arg-type]
    return found[0] if found else None
