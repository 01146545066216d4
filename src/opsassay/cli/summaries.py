"""What `opsassay run` and `opsassay grade` tell of solvers over the runs of a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from opsassay.cli.output import echo, percent, print_table

if TYPE_CHECKING:
    from opsassay.bench.domains.diagnosis.repeats import SolverSummary


def plain_summary(summary: SolverSummary) -> dict[str, Any]:
    """Return *summary* as JSON has it."""
    return asdict(summary) | {"pass_at": {str(k): value for k, value in summary.pass_at.items()}}


def print_summaries(summaries: Sequence[SolverSummary], *, graded: bool, repeats: int) -> None:
    """Print the table; figures that no solver has are no column."""
    ks = sorted({1, repeats}) if repeats > 1 else []
    columns = ["solver", "runs", "ended", "right service", "un-grounded", "PR / AnySvc", "exact"]
    columns += [*(f"pass@{k}" for k in ks), "time to answer", "complexity", "tokens, USD", "ranked"]
    rows = []
    for s in summaries:
        row = [s.solver, s.runs, ", ".join(f"{n} {status}" for status, n in s.statuses.items())]
        row += [percent(s.any_service), percent(s.ungrounded), percent(s.grounded_share), percent(s.exact_match)]
        row += [percent(s.pass_at.get(k)) for k in ks]
        row += [_seconds(s.answer_time), None if s.complexity is None else f"{s.complexity:.2f}", _spent(s)]
        rows.append([*row, "no: " + "; ".join(s.not_ranked) if s.not_ranked else "yes"])
    kept = [at for at in range(len(columns)) if at < 4 or any(row[at] is not None for row in rows)]
    print_table("Solvers", [columns[at] for at in kept], [[row[at] for at in kept] for row in rows])
    if not graded:
        from opsassay.bench.core.store import FINISHED

        ended = any(status in FINISHED for s in summaries for status in s.statuses)
        why = "no truth is at hand for these incidents" if ended else "no run came to a result"
        echo(f"Nothing was graded: {why}.")


def _spent(summary: SolverSummary) -> str | None:
    tokens = summary.spent.get("input_tokens", 0) + summary.spent.get("output_tokens", 0)
    money = summary.spent.get("money_usd")
    return f"{tokens:,.0f}" + (f", {money:.4f}" if money else "") if tokens else None


def _seconds(time: Any) -> str | None:
    if time is None or time.seconds is None:
        return None
    return f"{time.seconds:.1f} s ({time.successes}/{time.attempts})"
