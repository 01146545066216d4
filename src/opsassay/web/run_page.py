"""The page of a trial: the system's trajectory in lanes over one time axis (Figure 1 of "side-effects"), one file.

It opens from disk, asks the network for nothing and needs no script: lanes are drawn in SVG when the page is written.
"""

from __future__ import annotations

from pathlib import Path

from opsassay.web.page import render, write_whole
from opsassay.web.run_view import TRACK, TrialView

STYLES = ("static/report.css", "static/run.css")


def render_run_page(view: TrialView) -> str:
    """Return the HTML text; the same view gives the same bytes."""
    return render("run.html", view.title, styles=STYLES, view=view, track=TRACK)


def write_run_page(view: TrialView, out: Path) -> Path:
    """Write the page of *view* to *out*, which appears whole or not at all; raises OperationError."""
    return write_whole(out, render_run_page(view))
