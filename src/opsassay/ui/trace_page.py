"""The trace page: one file that opens from disk, asks the network for nothing, and shows ten thousand steps at once.

The index and the script that draws it stand before the contents of the steps, so that the page is painted while the
rest is still being read. With *annotator*, a form beside the steps takes an annotation of each trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsassay.analysis.blame.definition import DEFINITION
from opsassay.telemetry.content import whole_file
from opsassay.ui.page import inert_json, render
from opsassay.ui.plain import plain
from opsassay.ui.trace_view import STEPS_A_CHUNK, TracePage, chunks_of, index_of


def write_trace_page(pages: Sequence[TracePage], out: Path, *, title: str, annotator: str | None = None) -> Path:
    """Write the page of *pages* whole to *out* and return its path; the same traces give the same bytes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out) as partial:
        partial.write_text(render_trace_page(pages, title=title, annotator=annotator), encoding="utf-8", newline="\n")
    return out


def render_trace_page(pages: Sequence[TracePage], *, title: str, annotator: str | None = None) -> str:
    """Return the HTML text; data stands in inert JSON blocks."""
    form = {"annotator": plain(annotator, 80), "definition": DEFINITION} if annotator else None
    index = {"traces": [index_of(page) for page in pages], "size": STEPS_A_CHUNK, "form": form}
    chunks = [
        {"id": f"chunk-{i}-{k}", "text": inert_json(chunk)}
        for i, page in enumerate(pages)
        for k, chunk in enumerate(chunks_of(page))
    ]
    scripts, later = ("trace",), ("flow",)  # the drawing of the flow is 480 kB of script, and nothing else waits for it
    return render("trace.html", title, scripts, later=later, index=inert_json(index), chunks=chunks)
