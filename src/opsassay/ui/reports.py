"""The pages of a store: one writer per domain, and tables for a domain that has none of its own.

A package adds a writer under the entry points ``opsassay.reports``, by the name of the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.registry import Registry
from opsassay.core.schema.metric_words import word
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.grading import GradeSettings, problem_lines
from opsassay.evals.runner.results import ResultRow
from opsassay.evals.runner.store import RunStore
from opsassay.evals.runner.tables import ResultTable
from opsassay.ui.glossary import written
from opsassay.ui.page import render, write_whole


@dataclass(frozen=True)
class PageRequest:
    """What pages are asked for: those of *store*, into the folder *output*, with the verdicts of the settings.

    *reproduce* are the commands that make such a page again. Writers note in *pages* which address in *output* shows the
    run in a folder, for the index.
    """

    store: RunStore
    output: Path
    settings: GradeSettings = field(default_factory=GradeSettings)
    title: str = "OpsAssay report"
    reproduce: Sequence[str] = ()
    pages: dict[Path, str] = field(default_factory=dict)


PageWriter = Callable[[PageRequest, Callable[[Path], None]], Sequence[str]]
"""Writes the pages of one domain, says the path of each, and returns what could not be shown; raises OpsAssayError."""

REPORTS = Registry(
    "report",
    "opsassay.reports",
    {
        "diagnosis": "opsassay.ui.reports:write_incident_report",
        "sre": "opsassay.ui.reports:write_trial_pages",
        "ciso": "opsassay.ui.compliance_page:write_compliance_pages",
        "finops": "opsassay.ui.cost_page:write_cost_pages",
    },
)


def write_pages(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
    """Write the pages of every domain in the store of *request*; return what could not be shown, as lines.

    Raises UserError where there is nothing to show, NotFoundError for a domain whose package is not installed.
    """
    names = request.store.domains() or set(REPORTS.builtin_names()[:1])
    problems: list[str] = []
    for name in sorted(names, key=lambda name: (name == "diagnosis", name)):
        writer: PageWriter = REPORTS.load(name) if name in REPORTS.names() else _writer_of_tables(name)
        problems += writer(request, written_to)
    write_index_of(request, written_to)
    return problems


def write_index_of(request: PageRequest, written_to: Callable[[Path], None]) -> None:
    """Write the index of the pages that were written for *request*."""
    from opsassay.ui.report_index import write_index

    write_index(request.store.root, request.output, request.pages, request.title, written_to)


def write_incident_report(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
    """Write ``report.html``: every incident with all answers that were given to it; raises UserError without any."""
    from opsassay.evals.diagnosis.grades import cases_of
    from opsassay.evals.diagnosis.judging import JUDGED
    from opsassay.evals.runner.store import read_run
    from opsassay.scoring.profiles import profile_named
    from opsassay.ui.report import write_report
    from opsassay.ui.runs import case_reports, solver_summaries

    store, settings = request.store, request.settings
    profile_named(settings.profile.removesuffix(JUDGED))
    problems: list[str] = []

    def unread(_: Path, error: OpsAssayError) -> None:
        problems.append(f"opsassay: left out: {error}")

    known = cases_of(store.root, settings.cases, unread)
    reports = case_reports(store, known, settings.profile, request.reproduce, unread)
    if not reports:
        raise UserError(
            f"{store.root} holds no finished runs of these incidents; make some with `opsassay run diagnose`."
        )
    shown = {report.incident.id for report in reports}
    for run_dir in store.runs():
        with suppress(OpsAssayError):  # what cannot be read has been said
            if (item := read_run(run_dir).item) in shown:
                request.pages[run_dir] = f"report.html#{quote(item)}"
    solvers = solver_summaries(reports, known)
    if len(reports) == 1 and all(set(summary.pass_at) <= {1} for summary in solvers):
        solvers = []  # the table of grades says the same
    written_to(write_report(reports, request.output / "report.html", title=request.title, solvers=solvers))
    return problems


def write_trial_pages(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
    """Write a page per trial that counts, ``SCENARIO-CELL.html``, and note it for the index."""
    from opsassay.evals.remediation.grading import (
        grade_trial,
        kept_scenario,
        read_recording,
        read_steps,
        recorded_trials,
    )
    from opsassay.evals.runner.store import read_run
    from opsassay.ui.culprits import culprit_of
    from opsassay.ui.run_page import write_run_page
    from opsassay.ui.run_view import passed, trial_view

    problems = []
    for run_dir in recorded_trials(request.store):
        run = read_run(run_dir)
        try:
            scenario = kept_scenario(request.store.root, run.item_hash)
            verdict = grade_trial(run_dir, scenario)
            culprit = None if passed(verdict) else culprit_of(run_dir)
            view = trial_view(run, scenario, read_recording(run_dir), verdict, read_steps(run_dir), culprit)
            request.pages[run_dir] = f"{run.item}-{run.cell}.html"
            written_to(write_run_page(view, request.output / request.pages[run_dir]))
        except OpsAssayError as error:
            problems.append(f"{run_dir}: {error}")
    return problems


def _writer_of_tables(name: str) -> PageWriter:
    """Return what writes ``NAME.html``: the tables of the domain and every run with its metrics."""

    def write(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
        graded = domain_named(name).grade({request.store.root: None}, request.settings)
        columns = list(dict.fromkeys(metric for one in graded.graded for metric in one.verdict.metrics))
        runs = ResultTable(
            f"Runs, {name}",
            ("task", "solver", "seed", "ended", *(word(metric).title for metric in columns), "run"),
            tuple(
                (row.task, row.solver, row.seed, row.run.status.value if row.run else "",
                 *(_metric(row, metric) for metric in columns), f"{row.folder}")
                for row in graded.rows()
            ),
        )  # fmt: skip
        tables = [*graded.results(), runs]
        page = render("answer.html", request.title, tables=tables, reproduce=request.reproduce)
        written_to(write_whole(request.output / f"{name}.html", page))
        request.pages.update({one.folder: f"{name}.html" for one in graded.graded})
        return problem_lines([graded])

    return write


def _metric(row: ResultRow, name: str) -> str:
    metric = row.metrics.get(name)
    if metric is None:
        return ""
    return (
        metric.status.value + f": {metric.reason}" if metric.value is None else written(metric.value, word(name).unit)
    )
