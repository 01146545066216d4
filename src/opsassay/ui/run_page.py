"""The page of a trial: the system's trajectory in lanes over one time axis (Figure 1 of "side-effects"), one file.

It opens from disk and asks the network for nothing. Lanes are drawn in SVG when the page is written; a script alone moves
the moment that is read off them.
"""

from __future__ import annotations

from pathlib import Path

from opsassay.ui.page import render, write_whole
from opsassay.ui.run_view import TrialView


def render_run_page(view: TrialView) -> str:
    """Return the HTML text; the same view gives the same bytes."""
    return render("run.html", view.title, ("clock",), view=view)


def write_run_page(view: TrialView, out: Path) -> Path:
    """Write the page of *view* to *out*, which appears whole or not at all; raises OperationError."""
    return write_whole(out, render_run_page(view))
