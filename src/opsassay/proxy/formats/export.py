"""Writing a trace for others: our JSON, or OpenTelemetry gen_ai spans."""

from __future__ import annotations

import json
from pathlib import Path

from opsassay.errors import NotFoundError
from opsassay.model.trajectory import Trace
from opsassay.proxy.formats.gen_ai import export_otlp
from opsassay.telemetry.content import whole_file

FORMS = ("json", "otel")


def write_trace(trace: Trace, path: Path, form: str) -> None:
    """Write *trace* whole to *path* as json or otel; raises NotFoundError for another form."""
    if form not in FORMS:
        raise NotFoundError("form of a trace", form, FORMS)
    text = (
        trace.pretty_json() if form == "json" else json.dumps(export_otlp(trace), ensure_ascii=False, indent=1) + "\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
