"""Summaries of a solver's repeated runs: grades, pass@k, time to an answer, usage, and whether it may be ranked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from opsassay.core.errors import UserError
from opsassay.core.schema.faults import fault_type
from opsassay.core.schema.metric_words import word
from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Verdict
from opsassay.evals.diagnosis.score import calm_items
from opsassay.evals.runner.ranking import run_id, solver_names, why_not_ranked
from opsassay.evals.runner.tables import ResultTable, percent
from opsassay.scoring.aggregate import GROUNDED_SHARE, estimate, summarise
from opsassay.scoring.figures import MeanFigure
from opsassay.scoring.repeats import MeanTime, complexity, mean_pass_at_k, mean_time
from opsassay.scoring.void import is_void, void_items
from opsassay.telemetry.tree import Case

SHARES = ("any_service", "exact_match", "ungrounded", "grounded_share", "calm")
"""Fields of `SolverSummary` that are shares of cases."""

_NAMES = {"any_service": "any_service", "exact_match": "exact_match", "ungrounded": "ungrounded",
          "grounded_share": GROUNDED_SHARE}  # fmt: skip


@dataclass(frozen=True)
class SolverSummary:
    """The figures of one solver over the runs of a suite.

    *any_service* and *exact_match* are over cases with a fault; *calm* is the share of "nothing is wrong" over cases
    without. *pass_at* maps k to pass@k, over cases with k graded runs; success is an exact match, or the right service
    where that is not defined. *grounded_share* is PR / AnySvc, over cases with a verified cascade, and *ungrounded* the
    share of these with the right service but no path to the symptom. *answer_time*: from the start of a run to a right
    answer. *void* cases are in no share. Shares are in [0, 1]; *spent* is the sum over all runs, *complexity* the mean
    over cases (`case_complexity`).
    """

    solver: str
    runs: int
    statuses: Mapping[str, int]
    cases: int
    void: int
    any_service: MeanFigure | None
    exact_match: MeanFigure | None
    ungrounded: MeanFigure | None
    grounded_share: MeanFigure | None
    calm: MeanFigure | None
    pass_at: Mapping[int, float]
    answer_time: MeanTime
    complexity: float | None
    spent: Mapping[str, float]
    limits_hit: int
    not_ranked: tuple[str, ...]

    def as_item(self) -> dict[str, Any]:
        """Return the summary as JSON-ready data: shares from 0 to 1, with intervals and numbers of cases by name."""
        shares = {name: getattr(self, name) for name in SHARES}
        return asdict(self) | {
            "pass_at": {str(k): value for k, value in self.pass_at.items()},
            "graded": {name: of.n if (of := shares[name]) else 0 for name in ("any_service", "exact_match", "calm")},
            "intervals": {name: of and [of.low, of.high] for name, of in shares.items()},
            **{name: of and of.value for name, of in shares.items()},
        }


SHARES_SHOWN = ("any_service", "ungrounded", "grounded_share", "exact_match")
"""Shares in the table of solvers, in order; *calm* has a table of its own."""

_OF_BROKEN = ("any_service", "exact_match", "ungrounded", "path_reachability")


def shown_shares(summary: SolverSummary) -> list[MeanFigure | None]:
    """Return the figures of *summary* that SHARES_SHOWN names, None where a figure has no cases."""
    return [getattr(summary, name) for name in SHARES_SHOWN]


def share_titles() -> list[str]:
    """Return the column titles of the figures that SHARES_SHOWN names."""
    return [word(_NAMES[name]).title for name in SHARES_SHOWN]


def calmest(summaries: Iterable[SolverSummary]) -> list[SolverSummary]:
    """Return the *summaries* with fault-free cases, by share of "nothing is wrong" answers on these, highest first."""
    found = [(summary.calm.value, summary) for summary in summaries if summary.calm]
    return [summary for _, summary in sorted(found, key=lambda one: (-one[0], one[1].solver))]


def summary_tables(summaries: Sequence[SolverSummary], repeats: int) -> list[ResultTable]:
    """Return the table of *summaries* on cases with a fault, and one on fault-free cases if there are any.

    pass@k is a column if *repeats* > 1; a figure that no solver has is no column.
    """
    ks = sorted({1, repeats}) if repeats > 1 else []
    columns = ["solver", "runs", "ended", *share_titles()]
    columns += [*(f"pass@{k}" for k in ks), "time to answer", "complexity", "tokens, USD", "ranked"]
    solvers = ResultTable(
        "Solvers", tuple(columns), tuple(_format_cells(summary, ks) for summary in summaries)
    ).filled()
    calm = tuple((s.solver, s.calm and s.calm.text_with_n) for s in calmest(summaries))
    return [solvers, *([ResultTable("Nothing was broken", ("solver", "said so"), calm)] if calm else [])]


def _format_cells(summary: SolverSummary, ks: Sequence[int]) -> tuple[Any, ...]:
    """Return the summary's table cells, with pass@k for each of *ks*."""
    took = summary.answer_time
    return (
        summary.solver,
        summary.runs,
        ", ".join(f"{n} {status}" for status, n in summary.statuses.items()),
        *(share and share.text_with_n for share in shown_shares(summary)),
        *(percent(summary.pass_at.get(k)) for k in ks),
        None if took.seconds is None else f"{took.seconds:.1f} s ({took.successes}/{took.attempts})",
        None if summary.complexity is None else f"{summary.complexity:.2f}",
        _format_usage(summary),
        "no: " + "; ".join(summary.not_ranked) if summary.not_ranked else "yes",
    )


def _format_usage(summary: SolverSummary) -> str | None:
    """Return tokens and USD as text, None when no tokens were used."""
    tokens = summary.spent.get("input_tokens", 0) + summary.spent.get("output_tokens", 0)
    money = summary.spent.get("money_usd")
    return f"{tokens:,.0f}" + (f", {money:.4f}" if money else "") if tokens else None


def summarise_runs(
    runs: Iterable[Run], verdicts: Iterable[Verdict], cases: Iterable[Case], most_k: int = 1
) -> list[SolverSummary]:
    """Return one summary per solver of *runs* and *verdicts*, with pass@k for 1 and *most_k*; rankable solvers first.

    Then come those graded on the most cases, then by the shares of the right service (on cases with a fault), of exact
    matches, and of "nothing is wrong" on fault-free cases.
    """
    by_run = {verdict.run: verdict for verdict in verdicts}
    known = {case.datapack.incident.id: case for case in cases}
    distinct = {run_id(run): run for run in runs}.values()
    name, groups = solver_names(distinct), dict[str, list[Run]]()
    for run in distinct:
        groups.setdefault(name(run), []).append(run)
    named = [by_run[run_id(run)].model_copy(update={"solver": name(run)}) for run in distinct if run_id(run) in by_run]
    shares = _shares_by_solver(named, calm_items(known.values()))
    found = [_summarise_solver(solver, runs, by_run, known, most_k, shares) for solver, runs in groups.items()]
    most = max((s.any_service.n for s in found if s.any_service), default=0)

    def rank_key(s: SolverSummary) -> tuple[Any, ...]:
        """Return the order of solvers: ranked ones first, then by shares, then by name."""
        values = (-(share.value if share else 0.0) for share in (s.any_service, s.exact_match, s.calm))
        return (bool(s.not_ranked), (s.any_service.n if s.any_service else 0) < most, *values, s.solver)

    return sorted(found, key=rank_key)


def _shares_by_solver(
    verdicts: Sequence[Verdict], fault_free: frozenset[str]
) -> dict[tuple[str, str], MeanFigure | None]:
    """Return (solver, field of SolverSummary) to the share in *verdicts*; *fault_free*: ids of such incidents."""
    broken, quiet = ([v for v in verdicts if (v.item in fault_free) is on] for on in (False, True))
    of_broken = summarise(broken, names=_OF_BROKEN).filter(scope="all").iter_rows(named=True)
    of_quiet = summarise(quiet, names=("exact_match",)).filter(scope="all").iter_rows(named=True)
    field = {metric: name for name, metric in _NAMES.items()}
    found = {(row["solver"], field[row["metric"]]): estimate(row) for row in of_broken if row["metric"] in field}
    return found | {(row["solver"], "calm"): estimate(row) for row in of_quiet}


def _summarise_solver(
    solver: str, runs: Sequence[Run], verdicts: Mapping[str, Verdict], cases: Mapping[str, Case], most_k: int,
    shares: Mapping[tuple[str, str], MeanFigure | None],
) -> SolverSummary:  # fmt: skip
    """Return the summary of one solver's runs; *verdicts* are by run id, *cases* by incident id.

    *shares* are by (solver, share name); pass@k is for k = 1 and *most_k*.
    """
    graded = [(run, verdict) for run in runs if (verdict := verdicts.get(run_id(run)))]
    outcomes: dict[str, list[bool]] = {}
    for run, verdict in graded:
        succeeded = success(verdict.metrics)
        if succeeded is not None:
            outcomes.setdefault(run.item, []).append(succeeded)
    statuses = {status.value: sum(run.status is status for run in runs) for status in RunStatus}
    names = sorted({name for run in runs for name in run.spent})
    sizes = [size for item in {run.item for run in runs} if (size := case_complexity(cases.get(item))) is not None]
    reasons = dict.fromkeys(reason for run in runs for reason in why_not_ranked(run))
    return SolverSummary(
        solver=solver,
        runs=len(runs),
        statuses={name: count for name, count in statuses.items() if count},
        cases=len({run.item for run in runs}),
        void=len(void_items(verdict for _, verdict in graded)),
        **{name: shares.get((solver, name)) for name in SHARES},
        pass_at=_pass_at(outcomes, most_k),
        answer_time=mean_time(
            verdict.metrics["time_to_diagnosis_s"].value for _, verdict in graded if not is_void(verdict.metrics)
        ),
        complexity=fmean(sizes) if sizes else None,
        spent={name: sum(run.spent.get(name, 0.0) for run in runs) for name in names},
        limits_hit=sum(bool(run.limits_hit) for run in runs),
        not_ranked=tuple(reasons),
    )


def case_complexity(case: Case | None) -> float | None:
    """Return the complexity of a recorded incident (Equation 6), None without a verified cascade.

    It counts services on the longest verified path, root included; faults that had an effect; and families of faults.
    """
    if case is None or case.truth is None or case.annotation is None or not case.annotation.paths:
        return None
    graph = case.annotation.graph
    longest = max(len(dict.fromkeys(graph.service_of(node) for node in path)) for path in case.annotation.paths)
    acted = [fault for fault, _, acts in case.truth.affected() if acts]
    if not acted:
        return None
    try:
        families = {fault_type(fault.type).category for fault in acted}
    except UserError:  # a type of public data that is not in the catalogue
        return None
    return complexity(longest, len(acted), len(families))


def success(metrics: Mapping[str, Metric]) -> bool | None:
    """Return whether exact_match is 1, else any_service; False for a failed run, None when neither applies."""
    for metric in (metrics[name] for name in ("exact_match", "any_service") if name in metrics):
        if metric.value is not None:
            return metric.value == 1.0
        if metric.status is MetricStatus.FAILED:
            return False
    return None


def _pass_at(outcomes: Mapping[str, Sequence[bool]], most_k: int) -> dict[int, float]:
    """Return pass@k for k = 1 and k = *most_k*, over the cases (*outcomes* by id) with at least k runs."""
    found = {}
    for k in sorted({1, most_k}):
        enough = {item: tries for item, tries in outcomes.items() if len(tries) >= k}
        if enough:
            found[k] = mean_pass_at_k(enough, k)
    return found
