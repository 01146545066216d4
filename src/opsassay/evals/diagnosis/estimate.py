"""What a suite of runs will cost, estimated before it begins: from earlier runs, else from stated assumptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from opsassay.core.text import counted
from opsassay.evals.diagnosis.agent_runs import Setup
from opsassay.evals.diagnosis.exams import IncidentJob
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.solvers.agents.limits import Price

ASSUMED_CALLS, ASSUMED_INPUT, ASSUMED_OUTPUT = 30, 12_000, 350
"""Model calls of a run, and tokens of each, when nothing is known of an agent."""


@dataclass(frozen=True)
class Estimate:
    """What the runs that are still to be made will spend; *money_usd* None when the prices are not known."""

    runs: int
    with_result: int
    input_tokens: float
    output_tokens: float
    money_usd: float | None
    basis: str

    def sentence(self) -> str:
        """Return the estimate in one line."""
        cost = "prices not given" if self.money_usd is None else f"about USD {self.money_usd:.2f}"
        return (
            f"{counted(self.runs, 'run')} to make ({self.with_result} have a result): about "
            f"{self.input_tokens / 1e6:.2f} M input and "
            f"{self.output_tokens / 1e6:.2f} M output tokens, {cost}; {self.basis}"
        )


def estimate(store: RunStore, jobs: Sequence[IncidentJob], price: Price, *, again: bool = False) -> Estimate:
    """Return what those of *jobs* will spend that have no result yet and ask a paid model.

    Tokens of a run are the mean over earlier runs of its solver in *store*, else what is assumed.
    """
    open_ = [job for job in jobs if again or store.finished(job.cell.hash) is None]
    paid = [job for job in open_ if isinstance(job.solver, Setup) and job.solver.paid]
    known: dict[str, list[dict[str, float]]] = {}
    for run_dir in store.runs():
        run = read_run(run_dir)
        if run.spent.get("model_calls"):
            known.setdefault(run.solver.name, []).append(run.spent)
    spent = [_of(known.get(job.solver_name, [])) for job in paid]
    used, sent = sum(tokens for tokens, _ in spent), sum(tokens for _, tokens in spent)
    seen = sum(len(known.get(name, ())) for name in {job.solver_name for job in paid})
    basis = (
        f"by {counted(seen, 'run')} in the store"
        if seen
        else f"assuming {ASSUMED_CALLS} calls of {ASSUMED_INPUT} and {ASSUMED_OUTPUT} tokens a run"
    )
    money = None if price == Price() else price.of(used, sent)
    return Estimate(len(open_), len(jobs) - len(open_), used, sent, money, basis)


def _of(runs: Sequence[dict[str, float]]) -> tuple[float, float]:
    if not runs:
        return ASSUMED_CALLS * ASSUMED_INPUT, ASSUMED_CALLS * ASSUMED_OUTPUT
    return tuple(fmean(spent.get(name, 0.0) for spent in runs) for name in ("input_tokens", "output_tokens"))  # type: ignore[return-value]
