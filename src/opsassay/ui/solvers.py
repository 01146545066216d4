"""The solvers of a report over all its cases, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsassay.evals.diagnosis.results.repeats import SolverSummary, calmest, share_titles, shown_shares
from opsassay.scoring.figures import MeanFigure, percent
from opsassay.ui.plain import plain

COLUMNS = ("Solver", "Runs", "Cases")
"""Those before the shares of cases in which something was broken."""

CALM_COLUMNS = ("Solver", "Said that nothing is wrong (n)")
"""Those of cases in which nothing was broken."""


def solvers_view(summaries: Sequence[SolverSummary]) -> dict[str, Any]:
    """Return head and rows of the table of solvers; pass@k for every k that a solver has, and why one is not ranked.

    Cases in which nothing was broken have a table of their own, ``calm``; it is None where there are none.
    """
    ks = sorted({k for summary in summaries for k in summary.pass_at})
    columns = [
        *COLUMNS,
        *(f"{title} (n)" for title in share_titles()),
        *(f"pass@{k}" for k in ks),
        "Right answers took",
        "Ranked",
    ]
    calm = [[plain(s.solver, 120), _share(s.calm)] for s in calmest(summaries)]
    return {
        "columns": columns,
        "rows": [_row(summary, ks) for summary in summaries],
        "calm": {"columns": list(CALM_COLUMNS), "rows": calm} if calm else None,
    }


def _row(summary: SolverSummary, ks: Sequence[int]) -> list[str]:
    took = summary.answer_time
    return [
        plain(summary.solver, 120),
        ", ".join(f"{number} {status}" for status, number in summary.statuses.items()),
        f"{summary.cases} ({summary.void} void)" if summary.void else str(summary.cases),
        *(_share(share) for share in shown_shares(summary)),
        *(percent(summary.pass_at.get(k)) or "–" for k in ks),
        "–" if took.seconds is None else f"{took.seconds:.1f} s (n = {took.successes})",
        plain("no: " + "; ".join(summary.not_ranked)) if summary.not_ranked else "yes",
    ]


def _share(share: MeanFigure | None) -> str:
    return "–" if share is None else share.text_with_n
