"""OTLP files: export requests as JSON (one object, or one per line, as collectors write them) or protobuf.

A case is a folder with ``normal/`` and ``abnormal/``, or with files and an incident.yaml that gives the boundary or the
windows. JSON names its signal itself; the name of a protobuf file begins with traces, logs or metrics (``traces-2.pb``);
both may be gzipped. A file or item without rows is named in the notes. The truth is the folder's injection.json, in
the public form, or the roots in incident.yaml; without either the case has none.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
from google.protobuf import json_format  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from pydantic import ValidationError

from opsassay.core.errors import DatapackError, OpsAssayError, UserError
from opsassay.core.schema.incident import Incident, Window
from opsassay.core.schema.json_lines import numbered_lines
from opsassay.core.schema.validation_errors import problem
from opsassay.core.text import first_line, plural
from opsassay.core.untrusted import bound_stream, most_expanded, open_plain
from opsassay.telemetry.content import file_digest
from opsassay.telemetry.importers.cases import (
    Frames,
    ImportReport,
    OnCase,
    ReadCase,
    Source,
    case_id,
    folders_below,
    import_sources,
    split_at,
)
from opsassay.telemetry.importers.stated import STATED_FILE, StatedIncident, read_stated
from opsassay.telemetry.injection import CAUSAL_GRAPH, INJECTION, read_public_truth
from opsassay.telemetry.otlp.json_form import REQUESTS, requests_in, with_bytes
from opsassay.telemetry.otlp.logs import LogColumns
from opsassay.telemetry.otlp.losses import Losses
from opsassay.telemetry.otlp.metrics import MetricColumns, histogram_deltas
from opsassay.telemetry.otlp.requests import parse, split_messages
from opsassay.telemetry.otlp.traces import TraceColumns
from opsassay.telemetry.schema import PERIODS, empty

_SIGNALS: dict[str, tuple[Any, Any]] = {
    "traces": (TraceColumns, ExportTraceServiceRequest),
    "logs": (LogColumns, ExportLogsServiceRequest),
    "metrics": (MetricColumns, ExportMetricsServiceRequest),
}
NOT_TELEMETRY = frozenset({STATED_FILE, INJECTION, CAUSAL_GRAPH})
"""Files of a case's folder that describe it."""
_JSON, _BINARY = (".json", ".jsonl", ".ndjson"), (".pb", ".bin", ".binpb", ".otlp")
_DECODER = json.JSONDecoder()
_METRICS = frozenset(field.camelcase_name for field in Metric.DESCRIPTOR.oneofs_by_name["data"].fields)
_PREFIX = re.compile(r"Failed to parse \w+ field: ")
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_ID_DIGITS = {"trace_id": 32, "span_id": 16, "parent_span_id": 16}


def import_otlp(
    source: Path,
    out: Path,
    on_case: OnCase | None = None,
    *,
    stated: Mapping[str, Any] | None = None,
    update_truth: bool = False,
) -> ImportReport:
    """Import every case in *source* into the tree *out*; without stated windows they are the time ranges of the data.

    Files and lines that cannot be read are in the notes of the report, and the rest is imported; a case without spans,
    logs or metrics in one of its periods fails. The system has the name of the folder, unless incident.yaml gives
    another. *stated* holds keys of incident.yaml that win over those in the file of the only case in *source*. With
    *update_truth* the truth of a case that is already imported is replaced, and its annotation deleted. Raises
    UserError when *source* holds no such folder, or several and *stated*. *on_case* gets name and outcome.
    """
    expected = (
        f"expected a folder with normal/ and abnormal/ of OTLP files, or files and {STATED_FILE}, or a folder of those."
    )
    _require_valid(stated or {}, "what is stated")
    alone = {Path(source)} if stated and {"boundary", "normal"} & stated.keys() else set[Path]()
    folders = list(folders_below(source, lambda f: _is_case(f) or f in alone, expected))
    if stated and len(folders) > 1:
        raise UserError(
            f"{source} holds {len(folders)} cases; give the folder of one, or write {STATED_FILE} into each."
        )
    sources = (_source_of_folder(folder, stated or {}) for folder in folders)
    return import_sources(sources, out, on_case, update_truth=update_truth)


def _is_case(folder: Path) -> bool:
    """Return whether *folder* is a case: it holds normal/ and abnormal/, or an incident.yaml."""
    return all((folder / period).is_dir() for period in PERIODS) or (folder / STATED_FILE).is_file()


def _source_of_folder(folder: Path, overrides: Mapping[str, Any]) -> Source:
    """Return the case in *folder* as a source; its id follows from its files and windows. *overrides* as in `_stated`."""
    digest = hashlib.sha256()
    for file in sorted(file for place in _period_folders(folder).values() for file in _files_in(place)):
        digest.update(f"{file.name}\0{file_digest(file)}\0".encode())
    with suppress(OpsAssayError):  # it is said when the case is read
        if cuts := _stated(folder, overrides).model_dump(include={"boundary", "normal", "abnormal"}, exclude_none=True):
            digest.update(json.dumps(cuts, sort_keys=True).encode())
    id_ = case_id("otlp", digest.hexdigest())
    return Source(folder.name, id_, partial(_read_case, folder, id_, overrides), by_content=True)


def _stated(folder: Path, overrides: Mapping[str, Any]) -> StatedIncident:
    """Return incident.yaml of *folder* with the keys *overrides* on top; raises ConfigError and UserError."""
    return _require_valid(
        {**read_stated(folder).model_dump(exclude_unset=True), **overrides}, f"what is stated of {folder}"
    )


def _require_valid(data: Mapping[str, Any], name: str) -> StatedIncident:
    """Return *data* as a StatedIncident; raises UserError, in which the data is called *name*."""
    try:
        return StatedIncident.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{problem(error, name)}.") from error


def _period_folders(folder: Path) -> dict[str, Path]:
    """Return {period: folder} of the telemetry files; {"": folder} when both periods are in the same files."""
    apart = {period: folder / period for period in PERIODS}
    return apart if all(place.is_dir() for place in apart.values()) else {"": folder}


def _files_in(folder: Path) -> list[Path]:
    """Return the files directly in *folder* whose names are those of telemetry, sorted."""
    return sorted(file for file in folder.iterdir() if file.is_file() and file.name not in NOT_TELEMETRY)


def _read_case(folder: Path, id_: str, overrides: Mapping[str, Any]) -> ReadCase:
    """Read telemetry, windows and truth in *folder*; keys of *overrides* win over incident.yaml; raises DatapackError."""
    notes: list[str] = []
    about = _stated(folder, overrides)
    frames = _frames(folder, about, notes)
    windows = dict(about.windows)
    for period in PERIODS:
        tables = [frame for (of, _), frame in frames.items() if of == period]
        times = [t for frame in tables if (t := frame.get_column("time").drop_nulls().dt.epoch("ns")).len()]
        if not times:
            where = folder / period if (folder / period).is_dir() else f"{folder}, {period} window,"
            raise DatapackError(f"{where} holds no rows that can be read; export again. {' '.join(notes)}".strip())
        start_ns, end_ns = min(int(str(t.min())) for t in times), max(int(str(t.max())) for t in times) + 1
        if about.boundary is not None:
            start_ns, end_ns = (start_ns, about.boundary) if period == "normal" else (about.boundary, end_ns)
        windows.setdefault(period, Window(start_ns=start_ns, end_ns=end_ns))
    system = about.system or (folder.parent.name if folder.name.isdigit() else folder.name)
    incident = Incident(
        id=id_,
        system=system,
        normal=windows["normal"],
        abnormal=windows["abnormal"],
        alerts=tuple(one.alert() for one in about.alerts),
        description=about.description,
        provenance={"format": "otlp"},
    )
    truth = about.truth(incident)
    if (folder / INJECTION).exists():
        if truth is not None:
            raise DatapackError(f"{folder} has {INJECTION} and a stated root; leave out one of them.")
        truth = read_public_truth(folder, incident)
    return ReadCase(incident, truth, frames, {"namespace": system}, notes=tuple(notes))


def _frames(folder: Path, incident: StatedIncident, notes: list[str]) -> Frames:
    """Return the tables by (period, modality), from two folders or split at the boundary or windows of *incident*."""
    read = {period: _read_tables(place, notes) for period, place in _period_folders(folder).items()}
    windows = incident.windows
    if "" not in read:
        if incident.boundary is not None:
            raise DatapackError(f"{folder} has normal/ and abnormal/, so a boundary says nothing; leave it out.")
        frames = {(period, modality): frame for period, tables in read.items() for modality, frame in tables.items()}
    elif incident.boundary is not None:
        frames = split_at(incident.boundary, read[""])
    elif windows:
        frames = {(period, modality): frame for period in PERIODS for modality, frame in read[""].items()}
    else:
        raise DatapackError(
            f"{folder / STATED_FILE} says neither a boundary nor windows, and there is no normal/ and abnormal/."
        )
    at = pl.col("time").dt.epoch("ns")
    return {
        (period, modality): frame.filter(at.is_between(windows[period].start_ns, windows[period].end_ns, closed="left"))
        if windows
        else frame
        for (period, modality), frame in frames.items()
    }


def _read_tables(folder: Path, notes: list[str]) -> dict[str, pl.DataFrame]:
    """Return modality to table from all files in *folder*; what cannot be read is added to *notes*."""
    columns, losses = {signal: make() for signal, (make, _) in _SIGNALS.items()}, Losses()
    for file in sorted(one for one in folder.iterdir() if one.name not in NOT_TELEMETRY):
        before = sum(one.rows for one in columns.values())
        said = len(notes)
        for signal, request in _requests(file, notes):
            columns[signal].add(request, 0)
            losses.add(signal, request)
        if sum(one.rows for one in columns.values()) == before and len(notes) == said:
            notes.append(f"{folder.name}/{file.name} gave no rows: there is no span, log record or data point in it")
    tables = {"traces": empty("traces")}
    for signal, one in columns.items():
        if one.rows:
            taken = one.take()
            tables |= taken if isinstance(taken, dict) else {signal: taken}
    if "metrics_histogram" in tables:
        points = tables["metrics_histogram"]
        opened = points.get_column("time").drop_nulls().dt.epoch("ns").min()
        tables["metrics_histogram"] = histogram_deltas(points, int(str(opened or 0)))
        lost = points.join(tables["metrics_histogram"], on=["metric", "service_name"], how="anti")
        if names := sorted(set(lost.get_column("metric"))):
            what = f"{plural(len(names), 'metric')} without a second point to count from the first"
            notes.append(f"{folder.name}: {what}: {', '.join(names[:5])}")
    notes += [f"{folder.name}: {note}" for note in losses.notes()]
    for modality, frame in tables.items():
        notes += [f"{folder.name}: {note}" for note in _odd_rows(modality, frame)]
    return {modality: frame.filter(pl.col("time").is_not_null()) for modality, frame in tables.items()}


def _odd_rows(modality: str, frame: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence, with the number of rows, for each kind of impossible value in *frame*, of *modality*."""
    if untimed := frame.get_column("time").null_count():
        yield f"{untimed} rows of {modality} have no possible time and are left out"
    if early := frame.filter(pl.col("time") < _EARLIEST).height:
        yield f"{early} rows of {modality} lie before the year 2000: OTLP counts nanoseconds since 1970; they are kept"
    for column, digits in _ID_DIGITS.items():
        if column in frame.columns and (odd := frame.filter(~pl.col(column).str.len_bytes().is_in([0, digits])).height):
            yield f"{odd} rows of {modality} have a {column} that is not {digits // 2} bytes long; they are kept"


def _requests(file: Path, notes: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield (signal, OTLP export request) for all content of *file*; what cannot be read is added to *notes*."""
    name = f"{file.parent.name}/{file.name}"
    suffixes = [s for s in file.suffixes if s != ".gz"]
    form = suffixes[-1] if suffixes else ""
    if file.is_dir():
        notes.append(f"{name} is a folder and is not looked into")
        return
    if form not in (*_JSON, *_BINARY):
        notes.append(f"{name} is neither JSON ({', '.join(_JSON)}) nor protobuf ({', '.join(_BINARY)})")
        return
    try:
        most = most_expanded(file.stat().st_size, 256 * 2**20, 32)
        with open_plain(file) as plain:
            packed = gzip.GzipFile(fileobj=plain) if file.suffix == ".gz" else plain
            stream = bound_stream(packed, most, str(file))
            if form in _BINARY:
                signal = next((one for one in _SIGNALS if file.name.startswith(one)), None)
                if signal is None:
                    notes.append(f"{name} is protobuf, whose name has to begin with {', '.join(_SIGNALS)}; rename it")
                else:
                    yield from ((signal, parse(signal, body)) for body in split_messages(stream.read()))
                return
            for number, payload in _objects(stream):
                yield from _requests_of_json(payload, f"{name}:{number}", notes)
    except (OSError, EOFError, zlib.error, OpsAssayError) as error:
        notes.append(f"{name} cannot be read ({first_line(error)})")


def _requests_of_json(payload: bytes, place: str, notes: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield (signal, OTLP export request) from one JSON text at *place*; what cannot be read is added to *notes*."""
    left_out: list[str] = []
    try:
        for request in requests_in(json.loads(payload, parse_constant=str), left_out):
            if not request.keys() & REQUESTS:
                known = ", ".join(sorted(request)[:5]) or "none"
                notes.append(f"{place} is no export request: it has {known} and none of {', '.join(REQUESTS)}")
            for key, signal in REQUESTS.items():
                if key in request:
                    message = _SIGNALS[signal][1]()
                    json_format.ParseDict({key: with_bytes(request[key])}, message, ignore_unknown_fields=True)
                    notes += [f"{place}: {what}" for what in _without_rows(request[key], signal)]
                    yield signal, message
    except (ValueError, RecursionError, json_format.ParseError) as error:
        notes.append(f"{place} is no export request ({_PREFIX.sub('', first_line(error))[:160]})")
    notes += [f"{place}: {plural(count, 'item')} left out: {why}" for why, count in Counter(left_out).most_common(5)]


def _without_rows(groups: list[dict[str, Any]], signal: str) -> Iterator[str]:
    """Yield sentences on what in *groups* of *signal* gives no row: fields that OTLP lacks, unknown types of metrics."""
    scopes = "scope" + signal.replace("traces", "spans").capitalize()
    items = {"traces": "spans", "logs": "logRecords", "metrics": "metrics"}[signal]
    inner = [scope for group in groups for scope in group.get(scopes, ())]
    for found, known in ((groups, {"resource", scopes}), (inner, {"scope", items})):
        unknown = {key for one in found for key, value in one.items() if isinstance(value, list) and key not in known}
        if unknown:
            yield f"{', '.join(sorted(unknown))} beside {max(known)} is not read"
    if signal == "metrics":
        names = [str(one.get("name")) for scope in inner for one in scope.get(items, ()) if not one.keys() & _METRICS]
        if names:
            yield f"{plural(len(names), 'metric')} without data points of a known type: {', '.join(names[:5])}"


def _objects(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, JSON text) of each JSON value in *stream*: one a line, or else values that span lines."""
    for place, (number, line) in enumerate(numbered_lines(stream)):
        if place == 0 and not _is_object(line):
            whole = line + stream.read()
            yield from _texts(whole.decode(json.detect_encoding(whole), "replace"))
            return
        yield number, line


def _texts(text: str) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, JSON text) of each JSON value in *text*; after a broken one, each line by itself."""
    at = len(text) - len(text.lstrip())
    while at < len(text):
        number = text.count("\n", 0, at) + 1
        try:
            end = _DECODER.raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            lines = [(n, line.encode()) for n, line in enumerate(text[at:].split("\n"), number) if line.strip()]
            yield from lines if any(_is_object(line) for _, line in lines) else [(number, text[at:].encode())]
            return
        yield number, text[at:end].encode()
        at = end + len(text[end:]) - len(text[end:].lstrip())


def _is_object(line: bytes) -> bool:
    """Return whether *line* is a JSON object or list."""
    try:
        return isinstance(json.loads(line), dict | list)
    except (ValueError, RecursionError):
        return False
