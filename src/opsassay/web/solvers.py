"""The solvers of a report over all its cases, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsassay.bench.domains.diagnosis.repeats import SolverSummary
from opsassay.web.plain import plain

COLUMNS = ("Solver", "Runs", "Cases", "Any root", "Ungrounded", "PR / AnySvc", "Exact")
"""Those before pass@k."""


def solvers_view(summaries: Sequence[SolverSummary]) -> dict[str, Any]:
    """Return head and rows of the table of solvers; pass@k for every k that a solver has, and why one is not ranked."""
    ks = sorted({k for summary in summaries for k in summary.pass_at})
    columns = [*COLUMNS, *(f"pass@{k}" for k in ks), "Right answers took", "Ranked"]
    return {"columns": columns, "rows": [_row(summary, ks) for summary in summaries]}


def _row(summary: SolverSummary, ks: Sequence[int]) -> list[str]:
    shares = (summary.any_service, summary.ungrounded, summary.grounded_share, summary.exact_match)
    took = summary.answer_time
    return [
        plain(summary.solver, 120),
        ", ".join(f"{number} {status}" for status, number in summary.statuses.items()),
        str(summary.cases),
        *map(_share, shares),
        *(_share(summary.pass_at.get(k)) for k in ks),
        "–" if took.seconds is None else f"{took.seconds:.1f} s (n = {took.successes})",
        plain("no: " + "; ".join(summary.not_ranked)) if summary.not_ranked else "yes",
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
