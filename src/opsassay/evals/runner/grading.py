"""Grades stored runs of any domain, for `opsassay score run`, `score table` and `report`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from opsassay.core import text as counting
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Verdict
from opsassay.evals.runner.domain import DOMAINS, Domain, domain_named
from opsassay.evals.runner.ranking import (
    aborted_cells,
    counted_runs,
    retried_cells,
    run_id,
    solver_names,
    why_not_ranked,
)
from opsassay.evals.runner.results import ResultRow, solver_tables
from opsassay.evals.runner.run import verdict_of
from opsassay.evals.runner.scores import CaseLabels, ScoredAnswer
from opsassay.evals.runner.store import FINISHED, RUN, RunStore, read_run, write_verdict
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.void import is_void

Stores = Mapping[Path, frozenset[str] | None]
"""Folders of stores, each with the ids of the runs to grade, None for all of its runs."""


@dataclass(frozen=True)
class GradeSettings:
    """Settings of grading; each domain uses those that apply to it.

    *cases*: tree with the truth, for stores that lack it. *profile*: a grading profile. *judge*: a model that rates
    evidence. *truth*: whose causal graphs count. *say*: called with messages on slow steps.
    """

    cases: Path | None = None
    profile: str = "default"
    judge: str | None = None
    truth: Literal["ours", "published"] = "ours"
    say: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class GradedRun:
    """A run, its *folder* and its verdict."""

    folder: Path
    run: Run
    verdict: Verdict

    @cached_property
    def void(self) -> bool:
        """Whether the case is void, so that its runs count for no solver."""
        return is_void(self.verdict.metrics)

    @property
    def ranks(self) -> bool:
        """Whether the run may count in rankings: its case is not void, and its data do not reveal the fault."""
        return not self.verdict.fingerprinted and not self.void


@dataclass(frozen=True)
class GradedRuns:
    """Graded runs of one *domain*; *problems*: by folder, the reason why a run could not be graded.

    A domain with tables of its own makes a subclass.
    """

    domain: Domain
    graded: tuple[GradedRun, ...]
    problems: Mapping[str, str] = field(default_factory=dict)
    aborted: Mapping[str, int] = field(default_factory=dict)
    """Solver to its planned runs that were started and have no result."""
    retried: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    """Solver to its planned runs with a result after an aborted attempt."""
    baselines: frozenset[str] | None = field(default=None, kw_only=True)
    """Hashes of the solvers that count as baselines; None: solvers known as such by name."""
    ranks_unsealed: bool = field(default=False, kw_only=True)
    """Whether runs without a sandbox are ranked too, since all runs are of that kind."""

    @cached_property
    def counted(self) -> tuple[GradedRun, ...]:
        """The runs that count in tables: one per task, solver, variant and seed."""
        of = {id(one.run): one for one in self.graded}
        return tuple(of[id(run)] for run in counted_runs(one.run for one in self.graded))

    @cached_property
    def name(self) -> Callable[[Run], str]:
        """The function that returns the display name of a run's solver: see `solver_names`."""
        return solver_names(one.run for one in self.counted)

    @cached_property
    def solver_of_cell(self) -> dict[str, str]:
        """The display name of the solver by the id of each counted planned run."""
        return {one.run.cell: self.name(one.run) for one in self.counted}

    def labelled(self) -> list[Verdict]:
        """Return the verdicts of the counted runs, their solvers named with variant and hash where needed."""
        return [one.verdict.model_copy(update={"solver": self.name(one.run)}) for one in self.counted]

    def scored(self) -> list[ScoredAnswer]:
        """Return the counted runs that may be ranked, with metrics and answer labels, for a score table."""
        ranked = [one for one in self.counted if not why_not_ranked(one.run)]
        return [
            ScoredAnswer.from_run(self.name(one.run), one.run, one.verdict, self.answer_label(one)) for one in ranked
        ]

    def answer_label(self, graded: GradedRun) -> str | None:
        """Return a short label of the run's answer, None in domains without labels."""
        del graded
        return None

    def not_ranked(self) -> dict[str, str]:
        """Return the reasons, as one text, by the name of each solver that is not ranked."""
        reasons: dict[str, dict[str, None]] = {}
        for one in self.counted:
            for reason in why_not_ranked(one.run):
                reasons.setdefault(self.name(one.run), {})[reason] = None
        for solver, cells in self.aborted.items():
            reasons.setdefault(solver, {})[f"{cells} of its cells were aborted and have no result"] = None
        return {solver: "; ".join(of) for solver, of in reasons.items()}

    def case_labels(self) -> Mapping[str, CaseLabels]:
        """Return by task id its family, expected answer label and covariates; {} by default."""
        return {}

    def rows(self) -> list[ResultRow]:
        """Return a result row per counted run."""
        return [
            ResultRow(
                self.domain.name, one.run.item, one.run.solver.label, one.run.arm, one.run.seed, one.run, one.folder,
                one.verdict.metrics,
            )
            for one in self.counted
        ]  # fmt: skip

    def tables(self) -> list[ResultTable]:
        """Return the tables that `opsassay score run` prints: the metrics of every solver."""
        return solver_tables(self.rows())

    def results(self) -> list[ResultTable]:
        """Return the tables that `opsassay score table` prints."""
        return self.tables()

    def notes(self) -> list[str]:
        """Return sentences to print below the tables."""
        return []

    def summary(self) -> dict[str, list[dict[str, Any]]]:
        """Return further entries, by name, of the JSON that `opsassay score run --json` prints; {} by default."""
        return {}


def choose_stores(paths: Iterable[Path]) -> dict[Path, frozenset[str] | None]:
    """Return for *paths* (stores or run folders) store to the ids of its chosen runs, None for all; raises UserError."""
    chosen: dict[Path, frozenset[str] | None] = {}
    for path in {path.resolve(): path for path in paths}.values():
        if not (path / RUN).is_file():
            chosen[path] = None
        elif (ids := chosen.setdefault(path.resolve().parents[2], frozenset())) is not None:
            chosen[path.resolve().parents[2]] = ids | {run_id(read_run(path))}
    if (absent := next((path for path in chosen if not path.exists()), None)) is not None:
        raise UserError(f"There is no {absent}; check the path.")
    if empty := next((root for root in chosen if not any(RunStore(root).runs())), None):
        raise UserError(f"{empty} holds no runs; make some with `opsassay run`.")
    return chosen


def grade_stores(stores: Stores, settings: GradeSettings) -> list[GradedRuns]:
    """Grade the runs of *stores* by *settings*; return one result per domain. NotFoundError for an unknown domain."""
    of_domain: dict[str, dict[Path, frozenset[str] | None]] = {}
    for root, ids in stores.items():
        store = RunStore(root)
        found = store.domains() if ids is None else {store.domain_of(read_run(store.runs_dir / one)) for one in ids}
        for name in found or {DOMAINS.builtin_names()[0]}:  # runs that cannot be read are reported by the first
            of_domain.setdefault(name, {})[root] = ids
    order = DOMAINS.names()
    names = sorted(of_domain, key=lambda name: order.index(name) if name in order else len(order))
    return [_with_aborted(domain_named(name).grade(of_domain[name], settings), of_domain[name]) for name in names]


def _with_aborted(graded: GradedRuns, stores: Stores) -> GradedRuns:
    """Return *graded* plus the numbers of aborted and retried planned runs by solver, counted in whole *stores*."""
    begun = []
    for store in (RunStore(root) for root, ids in stores.items() if ids is None):
        for folder in store.runs():
            with suppress(OpsAssayError):  # one that cannot be read is a problem already
                run = read_run(folder)
                begun += [run] if store.domain_of(run) == graded.domain.name else []
    cells = aborted_cells(begun, graded.name)
    said = {
        s: f"{counting.plural(n, 'cell')} of {s} aborted, without a result; run the same again"
        for s, n in cells.items()
    }
    retried = retried_cells(begun, graded.name)
    return replace(graded, aborted=cells, retried=retried, problems={**graded.problems, **said})


def grade_each(
    domain: Domain, stores: Stores, evaluate: Callable[[RunStore, Path, Run], Mapping[str, Metric]]
) -> GradedRuns:
    """Grade every run of *stores* in *domain* that has a result, and write its verdict.

    *evaluate* gets the store, the folder and the record of a run with an answer, and returns its metrics. For a run
    without one, every metric of the domain is failed, so that it counts. An OpsAssayError of *evaluate* is a problem of
    the result.
    """
    graded, problems = [], {}
    for root, ids in stores.items():
        store = RunStore(root)
        for folder in store.runs():
            try:
                run = read_run(folder)
                ours = run.status in FINISHED and store.domain_of(run) == domain.name
                if not ours or (ids is not None and run_id(run) not in ids):
                    continue
                done = run.status is RunStatus.DONE
                verdict = verdict_of(run, evaluate(store, folder, run) if done else _failed_metrics(domain, run))
            except OpsAssayError as error:
                problems[str(folder)] = str(error)
                continue
            write_verdict(folder, verdict)
            graded.append(GradedRun(folder, run, verdict))
    return GradedRuns(domain, tuple(graded), problems)


def _failed_metrics(domain: Domain, run: Run) -> dict[str, Metric]:
    """Return every metric of the domain with the status FAILED and the reason why *run* has no answer."""
    reason = f"the run ended as {run.status.value}" + (f": {run.error}" if run.error else "")
    failed = Metric(status=MetricStatus.FAILED, reason=reason)
    return {definition.name: failed for definition in domain.metrics()}


def problem_lines(graded: Sequence[GradedRuns]) -> list[str]:
    """Return each problem of *graded* as a line that names its run folder."""
    found = ((folder, problem) for one in graded for folder, problem in one.problems.items())
    return [problem if folder in problem else f"{folder}: {problem}" for folder, problem in found]
