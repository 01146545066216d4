"""What repeated runs say of a solver: pass@k, the time to an answer, what it spent, and whether it may be ranked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from opsassay.bench.core.ranking import run_id, solver_label, why_not_ranked
from opsassay.bench.core.tables import ResultTable, percent
from opsassay.errors import UserError
from opsassay.grading.repeats import MeanTime, complexity, mean_pass_at_k, mean_time
from opsassay.model.faults import fault_type
from opsassay.model.run import Metric, MetricStatus, Run, RunStatus, Verdict
from opsassay.telemetry.tree import Case


@dataclass(frozen=True)
class SolverSummary:
    """The figures of one solver over the runs of a suite.

    *pass_at* maps k to pass@k, over cases that have k graded runs; a success is an exact match, or the right service where
    an exact match is not asked for. *grounded_share* is PR / AnySvc, over cases whose cascade is verified, and *ungrounded*
    the share of these with the right service and no way to the symptom. *answer_time* is what a right answer took, from
    the beginning of its run.
    """

    solver: str
    runs: int
    statuses: Mapping[str, int]
    cases: int
    any_service: float | None
    exact_match: float | None
    ungrounded: float | None
    grounded_share: float | None
    pass_at: Mapping[int, float]
    answer_time: MeanTime
    complexity: float | None
    spent: Mapping[str, float]
    limits_hit: int
    not_ranked: tuple[str, ...]

    def as_item(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        return asdict(self) | {"pass_at": {str(k): value for k, value in self.pass_at.items()}}


def summary_table(summaries: Sequence[SolverSummary], repeats: int) -> ResultTable:
    """Return the table of solvers, with pass@k where cases were repeated; figures that no solver has are no column."""
    ks = sorted({1, repeats}) if repeats > 1 else []
    columns = ["solver", "runs", "ended", "right service", "un-grounded", "PR / AnySvc", "exact"]
    columns += [*(f"pass@{k}" for k in ks), "time to answer", "complexity", "tokens, USD", "ranked"]
    return ResultTable("Solvers", tuple(columns), tuple(_cells(summary, ks) for summary in summaries)).filled()


def _cells(s: SolverSummary, ks: Sequence[int]) -> tuple[Any, ...]:
    shares = (s.any_service, s.ungrounded, s.grounded_share, s.exact_match, *(s.pass_at.get(k) for k in ks))
    took = s.answer_time
    return (
        s.solver,
        s.runs,
        ", ".join(f"{n} {status}" for status, n in s.statuses.items()),
        *map(percent, shares),
        None if took.seconds is None else f"{took.seconds:.1f} s ({took.successes}/{took.attempts})",
        None if s.complexity is None else f"{s.complexity:.2f}",
        _spent(s),
        "no: " + "; ".join(s.not_ranked) if s.not_ranked else "yes",
    )


def _spent(summary: SolverSummary) -> str | None:
    tokens = summary.spent.get("input_tokens", 0) + summary.spent.get("output_tokens", 0)
    money = summary.spent.get("money_usd")
    return f"{tokens:,.0f}" + (f", {money:.4f}" if money else "") if tokens else None


def summarise_runs(
    runs: Iterable[Run], verdicts: Iterable[Verdict], cases: Iterable[Case], most_k: int = 1
) -> list[SolverSummary]:
    """Return one summary per solver, those that may be ranked first, by exact match and right service."""
    by_run = {verdict.run: verdict for verdict in verdicts}
    known = {case.datapack.incident.id: case for case in cases}
    groups: dict[str, list[Run]] = {}
    for run in {run_id(run): run for run in runs}.values():
        groups.setdefault(solver_label(run), []).append(run)
    found = [_summary(solver, runs, by_run, known, most_k) for solver, runs in groups.items()]
    return sorted(found, key=lambda s: (bool(s.not_ranked), -(s.exact_match or 0.0), -(s.any_service or 0.0), s.solver))


def _summary(
    solver: str, runs: Sequence[Run], verdicts: Mapping[str, Verdict], cases: Mapping[str, Case], most_k: int
) -> SolverSummary:
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
    on_cascades = [(run, verdict) for run, verdict in graded if _has_cascade(verdict)]
    named = _mean(on_cascades, "any_service")
    return SolverSummary(
        solver=solver,
        runs=len(runs),
        statuses={name: count for name, count in statuses.items() if count},
        cases=len({run.item for run in runs}),
        any_service=_mean(graded, "any_service"),
        exact_match=_mean(graded, "exact_match"),
        ungrounded=_mean(on_cascades, "ungrounded"),
        grounded_share=(_mean(on_cascades, "path_reachability") or 0.0) / named if named else None,
        pass_at=_pass_at(outcomes, most_k),
        answer_time=mean_time(verdict.metrics["time_to_diagnosis_s"].value for _, verdict in graded),
        complexity=fmean(sizes) if sizes else None,
        spent={name: sum(run.spent.get(name, 0.0) for run in runs) for name in names},
        limits_hit=sum(bool(run.limits_hit) for run in runs),
        not_ranked=tuple(reasons),
    )


def case_complexity(case: Case | None) -> float | None:
    """Return the complexity of a recorded incident (Equation 6), None without a verified cascade.

    Its sizes: services on the longest verified path, the fault's own included; faults that acted, each undone by one
    step; families of faults, which is what whoever repairs it must know.
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
    """Return whether the run succeeded; one that failed to give an answer did not, None when nothing could be graded."""
    for name in ("exact_match", "any_service"):
        metric = metrics[name]
        if metric.value is not None:
            return metric.value == 1.0
        if metric.status is MetricStatus.FAILED:
            return False
    return None


def _pass_at(outcomes: Mapping[str, Sequence[bool]], most_k: int) -> dict[int, float]:
    found = {}
    for k in sorted({1, most_k}):
        enough = {item: tries for item, tries in outcomes.items() if len(tries) >= k}
        if enough:
            found[k] = mean_pass_at_k(enough, k)
    return found


def _mean(graded: Sequence[tuple[Run, Verdict]], metric: str) -> float | None:
    """Return the mean over cases of the mean over their repeats; a run without an answer counts as 0."""
    per_case: dict[str, list[float]] = {}
    for run, verdict in graded:
        grade = verdict.metrics[metric]
        if grade.status is not MetricStatus.NOT_APPLICABLE:
            per_case.setdefault(run.item, []).append(grade.value or 0.0)
    return fmean(fmean(values) for values in per_case.values()) if per_case else None


def _has_cascade(verdict: Verdict) -> bool:
    return verdict.metrics["path_reachability"].status is MetricStatus.SCORED
