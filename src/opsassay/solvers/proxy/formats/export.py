"""Writes a trace to a file: as OpsAssay's JSON, OpenTelemetry gen_ai spans, or ATIF."""

from __future__ import annotations

import json
from pathlib import Path

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.trajectory import Trace
from opsassay.solvers.proxy.formats.atif_writing import atif_of
from opsassay.solvers.proxy.formats.gen_ai import export_otlp
from opsassay.telemetry.content import whole_file

FORMS = ("json", "otel", "atif")


def write_trace(trace: Trace, path: Path, form: str) -> None:
    """Write *trace* whole to *path* as json, otel or atif; raises NotFoundError for another form."""
    if form not in FORMS:
        raise NotFoundError("form of a trace", form, FORMS)
    if form == "json":
        text = trace.pretty_json()
    else:
        payload = export_otlp(trace) if form == "otel" else atif_of(trace)
        text = json.dumps(payload, ensure_ascii=False, indent=1) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
