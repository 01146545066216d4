"""Tables 2, 8 and 9 of OpenRCA 2.0 from stores of graded runs, and the service-level scores of its SDK beside them.

Run: ``python -m benchmarks.papers.openrca2 STORE... [--cases DIR]``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import click

from opsassay.cli.output import json_option, print_json, print_tables, say
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.run import MetricStatus, Verdict
from opsassay.evals.diagnosis.score import cases_of
from opsassay.evals.runner.grading import GradedRun, GradeSettings, choose_stores, grade_stores, problem_lines
from opsassay.evals.runner.store import read_diagnosis
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.metrics import harmonic_mean
from opsassay.scoring.outcome import match, true_roots
from opsassay.scoring.profiles import Profile, profile_named
from opsassay.telemetry.tree import Case

from .running import run

_PATH = click.Path(path_type=Path)
MAIN = {
    "EM": "exact_match", "F1": "f1", "precision": "precision", "recall": "recall", "AnySvc": "any_service",
    "PR": "path_reachability", "node F1": "node_f1", "edge F1": "edge_f1", "SQL exec": "sql_exec",
}  # fmt: skip
"""Columns of Tables 2 and 8, by metric."""

GRAPHS = {
    "node precision": "node_precision", "node recall": "node_recall", "edge precision": "edge_precision",
    "edge recall": "edge_recall",
}  # fmt: skip
SERVICES = (
    "service precision", "service recall", "service F1", "service EM", "any_root_cause_hit", "any_service_hit",
    "all_service_hit", "fault kind accuracy",
)  # fmt: skip
"""The SDK's scores of sets of services, kinds left aside, and its hits."""

ALL = "all"
HIT_ANCHORED = "path_reachability_hit"


@dataclass(frozen=True)
class Graded:
    """One run with the *values* of its metrics by name, in [0, 1], None where one is not applicable."""

    solver: str
    system: str
    item: str
    values: Mapping[str, float | None]


def values_of(one: GradedRun, case: Case, profile: Profile) -> dict[str, float | None]:
    """Return the metrics of a run: without an answer it counts 0 in all that its incident has a truth for."""
    values = {name: _value(one.verdict, name) for name in (*MAIN.values(), *GRAPHS.values(), HIT_ANCHORED)}
    return values | service_scores(one.folder, case, profile)


def _value(verdict: Verdict, name: str) -> float | None:
    metric = verdict.metrics[name]
    return 0.0 if metric.status is MetricStatus.FAILED else metric.value


def service_scores(folder: Path, case: Case, profile: Profile) -> dict[str, float | None]:
    """Return SERVICES of the run in *folder*: claims and roots are matched one to one, a hit where the service is right."""
    roots = true_roots(case.truth, profile) if case.truth else ()
    if not roots:
        return dict.fromkeys(SERVICES)
    diagnosis = read_diagnosis(folder)
    claims = diagnosis.root_causes if diagnosis is not None else ()
    found = match(claims, roots, profile)
    precision, recall = len(found) / len(claims) if claims else 0.0, len(found) / len(roots)
    full = sum(one.full for one in found)
    return dict(
        zip(
            SERVICES,
            (
                precision, recall, harmonic_mean(precision, recall), float(len(found) == len(claims) == len(roots)),
                float(full > 0), float(bool(found)), float(len(found) == len(roots)),
                full / len(found) if found else None,
            ),
            strict=True,
        )
    )  # fmt: skip


def mean_of(rows: Iterable[Graded], name: str) -> float | None:
    """Return the mean of a metric in percent over incidents, repeats averaged first; None where none has a value."""
    of: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        value = row.values[name]
        if value is not None:
            of.setdefault((row.system, row.item), []).append(value)
    return 100 * fmean(map(fmean, of.values())) if of else None


def tables_of(rows: Sequence[Graded]) -> list[ResultTable]:
    """Return Table 2, the SDK's scores, the gaps that the paper reads off, and Tables 8 and 9."""
    solvers, systems = sorted({row.solver for row in rows}), sorted({row.system for row in rows})
    of = {solver: [row for row in rows if row.solver == solver] for solver in solvers}

    def per_solver(cells: Callable[[Sequence[Graded]], tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
        return tuple((solver, str(len({row.item for row in of[solver]})), *cells(of[solver])) for solver in solvers)

    def per_system(name: str) -> tuple[tuple[str, ...], ...]:
        parts = [*systems, ALL]
        return tuple((solver, *(_text(mean_of(_of(of[solver], one), name)) for one in parts)) for solver in solvers)

    broken_down = tuple(
        (solver, system, str(len({row.item for row in part})), *_means(part, MAIN.values()))
        for solver in solvers
        for system in (*systems, ALL)
        if (part := _of(of[solver], system))
    )
    graphs = ("AnySvc - PR", "PR / AnySvc", "node F1 - edge F1", *GRAPHS)
    note = "Percentages, means over incidents; a run without an answer counts 0."
    return [
        ResultTable(
            "Outcome and process", ("solver", "n", *MAIN), per_solver(lambda r: _means(r, MAIN.values())), note, 2
        ),
        ResultTable("Gaps, nodes and edges", ("solver", "n", *graphs), per_solver(_gaps)),
        ResultTable(
            "Service-level scores of the SDK", ("solver", "n", *SERVICES), per_solver(lambda r: _means(r, SERVICES))
        ),
        ResultTable("Per system", ("solver", "system", "n", *MAIN), broken_down, number=8),
        ResultTable("HIT-anchored path reachability", ("solver", *systems, ALL), per_system(HIT_ANCHORED), number=9),
    ]


def _of(rows: Sequence[Graded], system: str) -> list[Graded]:
    return [row for row in rows if system in (row.system, ALL)]


def _means(rows: Sequence[Graded], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(_text(mean_of(rows, name)) for name in names)


def _gaps(rows: Sequence[Graded]) -> tuple[str, ...]:
    service, path, node, edge = (mean_of(rows, MAIN[name]) for name in ("AnySvc", "PR", "node F1", "edge F1"))
    ungrounded = None if service is None or path is None else service - path
    grounded = None if not service or path is None else 100 * path / service
    gap = None if node is None or edge is None else node - edge
    return (_text(ungrounded), _text(grounded), _text(gap), *_means(rows, GRAPHS.values()))


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


@click.command("openrca2")
@click.argument("stores", nargs=-1, required=True, type=_PATH)
@click.option("--cases", type=_PATH, help="Tree with incidents and truth; the stores themselves when left out.")
@click.option(
    "--profile", default="openrca2", show_default=True, help="Profile to grade by; compat is the public scorer."
)
@json_option
@click.pass_context
def command(
    context: click.Context, stores: tuple[Path, ...], cases: Path | None, profile: str, *, as_json: bool
) -> None:
    """Print the tables of OpenRCA 2.0 of the runs in STORES, answers of others that were imported among them."""
    chosen = profile_named(profile)
    graded = grade_stores(choose_stores(stores), GradeSettings(cases, profile, say=say))
    problems = problem_lines(graded)

    def report_on(_: Path, error: OpsAssayError) -> None:
        problems.append(str(error))

    known = {case.datapack.incident.id: case for store in stores for case in cases_of(store, cases, report_on)}
    rows = [
        Graded(part.name(one.run), one.run.system, one.run.item, values_of(one, known[one.run.item], chosen))
        for part in graded
        if part.domain.name == "diagnosis"
        for one in part.counted
        if one.run.item in known
    ]
    if not rows:
        raise UserError(
            f"None of the stores holds a graded run on an incident: {'; '.join(problems[:3]) or 'no runs'}."
        )
    for problem in dict.fromkeys(problems):
        say(f"opsassay: not graded: {problem}")
    if as_json:
        print_json("openrca2", [table.as_item() for table in tables_of(rows)], profile=profile, problems=problems)
    else:
        print_tables(tables_of(rows))
    context.exit(1 if problems else 0)


if __name__ == "__main__":
    sys.exit(run(command))
