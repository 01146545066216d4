"""OTLP files: export requests as JSON (one object, or one a line, as collectors write them) or protobuf.

A case is a folder with ``normal/`` and ``abnormal/``, each with files whose name begins with traces, logs or metrics:
``traces.json``, ``traces.jsonl``, ``traces-2.pb`` and so on, gzipped or not. injection.json beside them, in the public
form, is its truth; without one the case has none.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
from google.protobuf import json_format  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from opsassay.core.errors import DatapackError, OpsAssayError
from opsassay.core.schema.incident import Incident, Window
from opsassay.core.schema.json_lines import numbered_lines
from opsassay.core.text import first_line
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
)
from opsassay.telemetry.injection import INJECTION, read_public_truth
from opsassay.telemetry.otlp.logs import LogColumns
from opsassay.telemetry.otlp.metrics import MetricColumns, histogram_deltas
from opsassay.telemetry.otlp.requests import parse
from opsassay.telemetry.otlp.traces import TraceColumns
from opsassay.telemetry.schema import PERIODS, empty

_SIGNALS: dict[str, tuple[Any, Any]] = {
    "traces": (TraceColumns, ExportTraceServiceRequest),
    "logs": (LogColumns, ExportLogsServiceRequest),
    "metrics": (MetricColumns, ExportMetricsServiceRequest),
}
_JSON, _BINARY = (".json", ".jsonl", ".ndjson"), (".pb", ".bin", ".binpb", ".otlp")
_HEX_FIELDS = frozenset({"traceId", "spanId", "parentSpanId"})


def import_otlp(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Bring every case in *source* into the tree *out*; windows are the time ranges of what was recorded.

    Files and lines that cannot be read are in the notes of the report and the rest is used; a case without spans,
    logs or metrics in one of its periods is failed. The folder's name is taken as the name of the system.
    Raises UserError when *source* holds no such folder.
    """
    expected = "expected a folder with normal/ and abnormal/ of OTLP files, or a folder of those."
    folders = folders_below(source, lambda f: all((f / period).is_dir() for period in PERIODS), expected)
    return import_sources(map(_source, folders), out, on_case)


def _source(folder: Path) -> Source:
    digest = hashlib.sha256()
    for file in sorted(f for period in PERIODS for f in (folder / period).iterdir() if f.is_file()):
        digest.update(f"{file.name}\0{file_digest(file)}\0".encode())
    id_ = case_id("otlp", digest.hexdigest())
    return Source(folder.name, id_, partial(_read, folder, id_))


def _read(folder: Path, id_: str) -> ReadCase:
    notes: list[str] = []
    frames: Frames = {}
    windows = []
    for period in PERIODS:
        tables = _tables(folder / period, notes)
        times = [t for frame in tables.values() if (t := frame.get_column("time").drop_nulls().dt.epoch("ns")).len()]
        if not times:
            raise DatapackError(
                f"{folder / period} holds no rows that can be read; export again. {' '.join(notes)}".strip()
            )
        windows.append(
            Window(start_ns=min(int(str(t.min())) for t in times), end_ns=max(int(str(t.max())) for t in times) + 1)
        )
        frames |= {(period, modality): frame for modality, frame in tables.items()}
    system = folder.parent.name if folder.name.isdigit() else folder.name
    incident = Incident(id=id_, system=system, normal=windows[0], abnormal=windows[1], provenance={"format": "otlp"})
    truth = read_public_truth(folder, incident) if (folder / INJECTION).exists() else None
    return ReadCase(incident, truth, frames, {"namespace": system}, notes=tuple(notes))


def _tables(folder: Path, notes: list[str]) -> dict[str, pl.DataFrame]:
    tables = {"traces": empty("traces")}
    for signal, (make, message) in _SIGNALS.items():
        columns = make()
        for file in sorted(folder.glob(f"{signal}*")):
            for request in _requests(file, signal, message, notes):
                columns.add(request, 0)
        if columns.rows:
            taken = columns.take()
            tables |= taken if isinstance(taken, dict) else {signal: taken}
    if "metrics_histogram" in tables:
        points = tables["metrics_histogram"]
        opened = points.get_column("time").drop_nulls().dt.epoch("ns").min()
        tables["metrics_histogram"] = histogram_deltas(points, int(str(opened or 0)))
    for modality, frame in tables.items():
        untimed = frame.get_column("time").null_count()
        if untimed:
            notes.append(f"{folder.name}: {untimed} rows of {modality} have no possible time and are left out")
    return {modality: frame.filter(pl.col("time").is_not_null()) for modality, frame in tables.items()}


def _requests(file: Path, signal: str, message: Any, notes: list[str]) -> Iterator[Any]:
    """Yield the export requests of *file*; what cannot be read goes into *notes*."""
    name = f"{file.parent.name}/{file.name}"
    suffixes = [s for s in file.suffixes if s != ".gz"]
    form = suffixes[-1] if suffixes else ""
    if form not in (*_JSON, *_BINARY):
        notes.append(f"{name} is neither JSON ({', '.join(_JSON)}) nor protobuf ({', '.join(_BINARY)})")
        return
    try:
        most = most_expanded(file.stat().st_size, 256 * 2**20, 32)
        with open_plain(file) as plain:
            packed = gzip.GzipFile(fileobj=plain) if file.suffix == ".gz" else plain
            stream = bound_stream(packed, most, str(file))
            if form in _BINARY:
                yield parse(signal, stream.read())
                return
            for number, payload in _objects(stream):
                try:
                    value = _with_bytes(json.loads(payload))
                    yield json_format.ParseDict(value, message(), ignore_unknown_fields=True)
                except (ValueError, json_format.ParseError) as error:
                    notes.append(f"{name}:{number} is no export request of {signal} ({first_line(error)[:120]})")
    except (OSError, EOFError, zlib.error, OpsAssayError) as error:
        notes.append(f"{name} cannot be read ({first_line(error)})")


def _objects(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers and JSON texts: the whole file where it is one object over several lines, else every line."""
    for place, (number, line) in enumerate(numbered_lines(stream)):
        if place == 0 and line.strip() in {b"{", b"["}:
            yield 1, line + stream.read()
            return
        yield number, line


def _with_bytes(value: Any) -> Any:
    """Return OTLP JSON, whose ids are hexadecimal, as protobuf JSON, whose bytes are base64."""
    if isinstance(value, list):
        return [_with_bytes(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(part)).decode()
        if key in _HEX_FIELDS and isinstance(part, str)
        else _with_bytes(part)
        for key, part in value.items()
    }
