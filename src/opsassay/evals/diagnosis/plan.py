"""The plan of runs on incidents: which solvers, on which incidents, how often, and their estimated cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from opsassay.core.errors import ConfigError
from opsassay.core.schema.base import Written
from opsassay.core.text import plural
from opsassay.evals.diagnosis.setups.agents import RunSettings, Setup
from opsassay.evals.diagnosis.setups.methods import MethodSetup
from opsassay.evals.diagnosis.setups.sweeps import AskedMethod, asked_method, is_asked_method, methods_of, solvers_named
from opsassay.evals.diagnosis.solve import IncidentRun
from opsassay.evals.diagnosis.tasks import NAMES, IncidentItem
from opsassay.evals.runner.mounts import kept_of, require_apart
from opsassay.evals.runner.oracles import oracles_asked
from opsassay.evals.runner.plan import PlannedAgent
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.evals.runner.tool_servers import PlannedTools, no_mcp
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.limits import Price
from opsassay.telemetry.tree import Case


class PlannedSolver(PlannedAgent):
    """A solver in a plan; a method may have *parameters*, where a list of values is a sweep."""

    parameters: dict[str, Any] = Field(default_factory=dict)

    def solvers(self, folder: Path, settings: RunSettings) -> list[MethodSetup | Setup | str]:
        """Return the agent (by *settings*), oracle, or all variants of the method; files are relative to *folder*.

        Raises ConfigError for parameters of a solver that is no method, and as `solvers_named` and `methods_of`.
        """
        asked = asked_method(self.name)
        if is_asked_method(self.name):
            return [*methods_of([AskedMethod(asked.name, asked.values, (self.parameters,))], folder)]
        if self.parameters:
            raise ConfigError(f"agents: {self.name} is no method, and methods alone have parameters.")
        name = str(folder / self.name) if self.is_file else self.name
        return solvers_named([name], self.model, settings, [])


class IncidentPlan(Written):
    """The keys of a plan of runs on incidents."""

    incidents: tuple[str, ...] = Field(min_length=1, description="suites or folders of incidents, beside the plan")
    agents: tuple[PlannedSolver, ...] = Field(min_length=1, description="agents, agent.yaml files, methods, or oracles")
    tools: tuple[PlannedTools, ...] = Field(default=(), description="MCP servers whose tools agents have besides ours")
    repeats: int = Field(default=1, ge=1)
    settings: RunSettings = Field(default=RunSettings(), description="as -c of opsassay run")


def with_servers(solver: MethodSetup | Setup | str, servers: Sequence[CommandAgent]) -> MethodSetup | Setup | str:
    """Return agent *solver* with the tools of *servers*, a method or oracle unchanged; ConfigError for one without MCP."""
    if not servers or not isinstance(solver, Setup):
        return solver
    if isinstance(solver.agent, CommandAgent) and "mcp" not in solver.agent.file.needs:
        raise no_mcp(solver.agent.name)
    return replace(solver, servers=tuple(servers))


def plan(
    opened: Iterable[tuple[Case, IncidentItem]],
    solvers: Sequence[MethodSetup | Setup | str],
    repeats: int,
    settings: RunSettings,
) -> list[IncidentRun]:
    """Return all runs of *solvers* on the *opened* cases, the first repeat of every case before any second one.

    ``oracle:right``, ``oracle:wrong`` and ``oracle:*`` are solvers too. Repeat n has the seed of *settings* plus n,
    from 0. Raises NotFoundError for another oracle, and UserError for an oracle on a case without truth.
    """
    cases = list(opened)
    jobs = [
        IncidentRun(case, item, one, settings.seed + repeat, settings)
        for repeat in range(repeats)
        for case, item in cases
        for solver in solvers
        for one in _expand_oracles(solver, case)
    ]
    for job in jobs:
        _ = job.oracle  # a case that has none is refused before anything runs
    return jobs


def _expand_oracles(solver: MethodSetup | Setup | str, case: Case) -> Sequence[MethodSetup | Setup | str]:
    """Return the oracles of *case* that *solver* (``oracle:NAME``, ``oracle:*``) selects; [solver] for other solvers."""
    asked = oracles_asked(solver, NAMES, case.name) if isinstance(solver, str) else []
    return [*(ORACLE + name for name in asked)] or [solver]


def require_apart_from(store: RunStore, jobs: Iterable[IncidentRun]) -> None:
    """Raise UserError if any agent of *jobs* could read a folder with the store, incidents or truth."""
    jobs = list(jobs)
    kept = {store.root, *kept_of([job.case.datapack.path for job in jobs])}
    setups = {id(job.solver): job.solver for job in jobs if isinstance(job.solver, Setup)}.values()
    for command in (one for setup in setups for one in (setup.agent, *setup.servers)):
        if isinstance(command, CommandAgent):
            require_apart(command, sorted(kept))


ASSUMED_CALLS, ASSUMED_INPUT, ASSUMED_OUTPUT = 30, 12_000, 350
"""Assumed model calls per run, and tokens per call, of an agent without earlier runs."""


@dataclass(frozen=True)
class Estimate:
    """The expected usage of planned runs; *money_usd* is None when prices are unknown, *basis* says how it was derived."""

    runs: int
    with_result: int
    input_tokens: float
    output_tokens: float
    money_usd: float | None
    basis: str

    def sentence(self) -> str:
        """Return the number of runs, tokens and cost in one line."""
        cost = "prices not given" if self.money_usd is None else f"about USD {self.money_usd:.2f}"
        return (
            f"{plural(self.runs, 'run')} to make ({self.with_result} have a result): about "
            f"{self.input_tokens / 1e6:.2f} M input and "
            f"{self.output_tokens / 1e6:.2f} M output tokens, {cost}; {self.basis}"
        )


def estimate(store: RunStore, jobs: Sequence[IncidentRun], price: Price, *, repeat: bool = False) -> Estimate:
    """Return the expected usage of the planned runs *jobs* that use a paid model and have no result (all if *repeat*).

    The tokens of a run are the mean over earlier runs of its solver in *store*, else assumed constants; the cost
    follows from *price*.
    """
    open_ = [job for job in jobs if repeat or store.finished(job.cell.hash) is None]
    paid = [job for job in open_ if isinstance(job.solver, Setup) and job.solver.paid]
    known: dict[str, list[dict[str, float]]] = {}
    for run_dir in store.runs():
        run = read_run(run_dir)
        if run.spent.get("model_calls"):
            known.setdefault(run.solver.name, []).append(run.spent)
    spent = [_mean_tokens(known.get(job.solver_name, [])) for job in paid]
    used, sent = sum(tokens for tokens, _ in spent), sum(tokens for _, tokens in spent)
    seen = sum(len(known.get(name, ())) for name in {job.solver_name for job in paid})
    basis = (
        f"by {plural(seen, 'run')} in the store"
        if seen
        else f"assuming {ASSUMED_CALLS} calls of {ASSUMED_INPUT} and {ASSUMED_OUTPUT} tokens a run"
    )
    money = None if price == Price() else price.cost_of({"input_tokens": used, "output_tokens": sent})
    return Estimate(len(open_), len(jobs) - len(open_), used, sent, money, basis)


def _mean_tokens(runs: Sequence[dict[str, float]]) -> tuple[float, float]:
    """Return (mean input tokens, mean output tokens) of *runs*; assumed constants without runs."""
    if not runs:
        return ASSUMED_CALLS * ASSUMED_INPUT, ASSUMED_CALLS * ASSUMED_OUTPUT
    return tuple(fmean(spent.get(name, 0.0) for spent in runs) for name in ("input_tokens", "output_tokens"))  # type: ignore[return-value]
