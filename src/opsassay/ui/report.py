"""The self-contained HTML report: one file that opens from disk and asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsassay.evals.diagnosis.repeats import SolverSummary
from opsassay.ui.page import inert_json, render, write_whole
from opsassay.ui.payload import CaseReport
from opsassay.ui.solvers import solvers_view
from opsassay.ui.view import page_view


def write_report(cases: Sequence[CaseReport], out: Path, *, title: str, solvers: Sequence[SolverSummary] = ()) -> Path:
    """Write the report of *cases* to the file *out* and return its path; the same cases give the same bytes.

    *solvers* are the figures over all cases. The folder of *out* is made if need be; the file appears whole or not at all.
    Raises OperationError when it cannot be written.
    """
    return write_whole(Path(out), render_report(cases, title=title, solvers=solvers))


def render_report(cases: Sequence[CaseReport], *, title: str, solvers: Sequence[SolverSummary] = ()) -> str:
    """Return the HTML text of the report of *cases*; data stands in an inert JSON block."""
    payload = {"cases": page_view(cases), "solvers": solvers_view(solvers) if solvers else None}
    return render("report.html", title, ("report",), payload=inert_json(payload))
