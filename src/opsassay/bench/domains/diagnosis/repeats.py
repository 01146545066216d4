"""What repeated runs say of a solver: pass@k, the time to an answer, what it spent, and whether it may be ranked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from opsassay.bench.core.ranking import run_id, solver_names, why_not_ranked
from opsassay.bench.core.tables import ResultTable, percent
from opsassay.bench.domains.diagnosis.grades import calm_items
from opsassay.errors import UserError
from opsassay.grading.repeats import MeanTime, complexity, mean_pass_at_k, mean_time
from opsassay.grading.void import is_void, void_items
from opsassay.model.faults import fault_type
from opsassay.model.run import Metric, MetricStatus, Run, RunStatus, Verdict
from opsassay.telemetry.tree import Case


@dataclass(frozen=True)
class SolverSummary:
    """The figures of one solver over the runs of a suite.

    *any_service* and *exact_match* are of cases in which something was broken, *calm* is how often "nothing is wrong" was
    the answer where nothing was; *graded* has the number of cases of each. *pass_at* maps k to pass@k, over cases that have
    k graded runs; a success is an exact match, or the right service where an exact match is not asked for.
    *grounded_share* is PR / AnySvc, over cases whose cascade is verified, and *ungrounded* the share of these with the
    right service and no way to the symptom. *answer_time* is what a right answer took, from the beginning of its run.
    *void* of the *cases* grade nobody and are in no share. Shares are in [0, 1]; *spent* is the sum over all runs, and
    *complexity* the mean over cases (`case_complexity`).
    """

    solver: str
    runs: int
    statuses: Mapping[str, int]
    cases: int
    void: int
    any_service: float | None
    exact_match: float | None
    ungrounded: float | None
    grounded_share: float | None
    calm: float | None
    graded: Mapping[str, int]
    pass_at: Mapping[int, float]
    answer_time: MeanTime
    complexity: float | None
    spent: Mapping[str, float]
    limits_hit: int
    not_ranked: tuple[str, ...]

    def as_item(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        return asdict(self) | {"pass_at": {str(k): value for k, value in self.pass_at.items()}}


def summary_tables(summaries: Sequence[SolverSummary], repeats: int) -> list[ResultTable]:
    """Return the table of solvers where something was broken, and one of cases in which nothing was, if there are any.

    pass@k is there where cases were repeated; figures that no solver has are no column, and every grade has its n.
    """
    ks = sorted({1, repeats}) if repeats > 1 else []
    columns = ["solver", "runs", "ended", "right service", "ungrounded", "PR / AnySvc", "exact"]
    columns += [*(f"pass@{k}" for k in ks), "time to answer", "complexity", "tokens, USD", "ranked"]
    solvers = ResultTable("Solvers", tuple(columns), tuple(_cells(summary, ks) for summary in summaries)).filled()
    quiet = sorted((s for s in summaries if s.graded["calm"]), key=lambda s: (-(s.calm or 0.0), s.solver))
    calm = tuple((s.solver, _of(s.calm, s.graded["calm"])) for s in quiet)
    return [solvers, *([ResultTable("Nothing was broken", ("solver", "said so"), calm)] if calm else [])]


def _cells(s: SolverSummary, ks: Sequence[int]) -> tuple[Any, ...]:
    took = s.answer_time
    return (
        s.solver,
        s.runs,
        ", ".join(f"{n} {status}" for status, n in s.statuses.items()),
        _of(s.any_service, s.graded["any_service"]),
        percent(s.ungrounded),
        percent(s.grounded_share),
        _of(s.exact_match, s.graded["exact_match"]),
        *(percent(s.pass_at.get(k)) for k in ks),
        None if took.seconds is None else f"{took.seconds:.1f} s ({took.successes}/{took.attempts})",
        None if s.complexity is None else f"{s.complexity:.2f}",
        _spent(s),
        "no: " + "; ".join(s.not_ranked) if s.not_ranked else "yes",
    )


def _of(share: float | None, cases: int) -> str | None:
    """Return a share with the number of its cases."""
    return None if share is None else f"{percent(share)} ({cases})"


def _spent(summary: SolverSummary) -> str | None:
    tokens = summary.spent.get("input_tokens", 0) + summary.spent.get("output_tokens", 0)
    money = summary.spent.get("money_usd")
    return f"{tokens:,.0f}" + (f", {money:.4f}" if money else "") if tokens else None


def summarise_runs(
    runs: Iterable[Run], verdicts: Iterable[Verdict], cases: Iterable[Case], most_k: int = 1
) -> list[SolverSummary]:
    """Return one summary per solver in the order of results.

    Those that may be ranked come first; then those that were graded on as many cases as any, by the right service, which is
    graded wherever something was broken, by exact match, and by "nothing is wrong" where nothing was.
    """
    by_run = {verdict.run: verdict for verdict in verdicts}
    known = {case.datapack.incident.id: case for case in cases}
    distinct = {run_id(run): run for run in runs}.values()
    name, groups = solver_names(distinct), dict[str, list[Run]]()
    for run in distinct:
        groups.setdefault(name(run), []).append(run)
    found = [_summary(solver, runs, by_run, known, most_k) for solver, runs in groups.items()]
    most = max((s.graded["any_service"] for s in found), default=0)

    def place(s: SolverSummary) -> tuple[Any, ...]:
        shares = (-(share or 0.0) for share in (s.any_service, s.exact_match, s.calm))
        return (bool(s.not_ranked), s.graded["any_service"] < most, *shares, s.solver)

    return sorted(found, key=place)


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
    calm = calm_items(case for case in cases.values())
    broken, quiet = ([one for one in graded if (one[0].item in calm) is on] for on in (False, True))
    return SolverSummary(
        solver=solver,
        runs=len(runs),
        statuses={name: count for name, count in statuses.items() if count},
        cases=len({run.item for run in runs}),
        void=len(void_items(verdict for _, verdict in graded)),
        any_service=_mean(broken, "any_service"),
        exact_match=_mean(broken, "exact_match"),
        ungrounded=_mean(on_cascades, "ungrounded"),
        grounded_share=(_mean(on_cascades, "path_reachability") or 0.0) / named if named else None,
        calm=_mean(quiet, "exact_match"),
        graded={
            "any_service": _cases(broken, "any_service"),
            "exact_match": _cases(broken, "exact_match"),
            "calm": _cases(quiet, "exact_match"),
        },
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
    for metric in (metrics[name] for name in ("exact_match", "any_service") if name in metrics):
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
    values = _by_case(graded, metric).values()
    return fmean(map(fmean, values)) if values else None


def _cases(graded: Sequence[tuple[Run, Verdict]], metric: str) -> int:
    return len(_by_case(graded, metric))


def _by_case(graded: Sequence[tuple[Run, Verdict]], metric: str) -> dict[str, list[float]]:
    per_case: dict[str, list[float]] = {}
    for run, verdict in graded:
        grade = verdict.metrics[metric]
        if grade.status is not MetricStatus.NOT_APPLICABLE:
            per_case.setdefault(run.item, []).append(grade.value or 0.0)
    return per_case


def _has_cascade(verdict: Verdict) -> bool:
    return verdict.metrics["path_reachability"].status is MetricStatus.SCORED
