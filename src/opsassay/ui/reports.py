"""The pages of a store: one writer per domain, with tables as the default.

A package adds a writer through the entry points ``opsassay.reports``, under the name of its domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.registry import Registry
from opsassay.core.schema.metric_words import word
from opsassay.core.text import number_text, plural
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.grading import GradedRun, GradeSettings, problem_lines
from opsassay.evals.runner.results import ResultRow
from opsassay.evals.runner.store import RunStore
from opsassay.evals.runner.tables import ResultTable
from opsassay.ui.audit_svg import Figure
from opsassay.ui.browsing.rows import Shown, View, run_row
from opsassay.ui.browsing.verdicts import StoredVerdicts
from opsassay.ui.browsing.watching import Watcher
from opsassay.ui.glossary import format_value
from opsassay.ui.page import render, write_whole
from opsassay.ui.plain import plain

if TYPE_CHECKING:
    from opsassay.core.schema.run import Run
    from opsassay.scoring.verifiers import TrajectoryVerdict


@dataclass(frozen=True)
class PageRequest:
    """A request for the pages of *store* in the folder *output*, graded by *settings*.

    *reproduce* are the commands that make the same pages. Writers add to *pages* the URL, relative to *output*, of each
    run's folder, for the index.
    """

    store: RunStore
    output: Path
    settings: GradeSettings = field(default_factory=GradeSettings)
    title: str = "OpsAssay report"
    reproduce: Sequence[str] = ()
    pages: dict[Path, str] = field(default_factory=dict)


PageWriter = Callable[[PageRequest, Callable[[Path], None]], Sequence[str]]
"""Writes the pages of one domain, calls the function with each path, returns problems; raises OpsAssayError."""

REPORTS = Registry(
    "report",
    "opsassay.reports",
    {
        "diagnosis": "opsassay.ui.reports:write_incident_report",
        "sre": "opsassay.ui.reports:write_trial_pages",
        "ciso": "opsassay.ui.compliance_page:write_compliance_pages",
        "finops": "opsassay.ui.cost_page:write_cost_pages",
        "triage": "opsassay.ui.triage_page:write_triage_pages",
    },
)


def write_pages(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
    """Write the pages of every domain in the store of *request*; return a line for each run without a page.

    *written_to* is called with each file. Raises UserError where there is nothing to show, NotFoundError for a domain
    whose package is not installed.
    """
    names = request.store.domains() or set(REPORTS.builtin_names()[:1])
    problems: list[str] = []
    for name in sorted(names, key=lambda name: (name == "diagnosis", name)):
        writer: PageWriter = REPORTS.load(name) if name in REPORTS.names() else _writer_of_tables(name)
        problems += writer(request, written_to)
    page = render("report_index.html", request.title, view=index_view(request.store.root, request.pages))
    written_to(write_whole(request.output / "index.html", page))
    return problems


def write_incident_report(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
    """Write ``report.html`` with all incidents and answers, tell *written_to* its path; raises UserError for none."""
    from opsassay.evals.diagnosis.score import JUDGED, cases_of
    from opsassay.evals.runner.store import read_run
    from opsassay.scoring.profiles import profile_named
    from opsassay.ui.report import case_reports, solver_summaries, write_report

    store, settings = request.store, request.settings
    profile_named(settings.profile.removesuffix(JUDGED))
    problems: list[str] = []

    def unread(_: Path, error: OpsAssayError) -> None:
        """Add a line that a run is left out because of *error*."""
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
    """Write ``SCENARIO-CELL.html`` for each counted trial, tell *written_to* its path; return a line per failure."""
    from opsassay.evals.remediation.score import grade_trial, recorded_trials
    from opsassay.evals.remediation.tasks import kept_scenario
    from opsassay.evals.runner.store import read_run

    problems, root = [], request.store.root
    for run_dir in recorded_trials(request.store):
        run = read_run(run_dir)
        try:
            page = trial_page(root, run_dir, run, grade_trial(run_dir, kept_scenario(root, run.item_hash)))
            request.pages[run_dir] = f"{run.item}-{run.cell}.html"
            written_to(write_whole(request.output / request.pages[run_dir], page))
        except OpsAssayError as error:
            problems.append(f"{run_dir}: {error}")
    return problems


def trial_page(root: Path, run_dir: Path, run: Run, verdict: TrajectoryVerdict) -> str:
    """Return the HTML page of the remediation run in *run_dir* of the store at *root*; raises OpsAssayError."""
    from opsassay.evals.remediation.score import read_recording, read_steps
    from opsassay.evals.remediation.tasks import kept_scenario
    from opsassay.ui.run_view import has_passed, render_run_page, trial_view
    from opsassay.ui.step_rows import culprit_of

    scenario, culprit = kept_scenario(root, run.item_hash), None if has_passed(verdict) else culprit_of(run_dir)
    return render_run_page(trial_view(run, scenario, read_recording(run_dir), verdict, read_steps(run_dir), culprit))


def _writer_of_tables(name: str) -> PageWriter:
    """Return a function that writes ``NAME.html`` with the tables of domain *name* and a row per run."""

    def write(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
        """Write the page of the domain's results and runs by *written_to*; return problems as lines of text."""
        graded = domain_named(name).grade({request.store.root: None}, request.settings)
        columns = list(dict.fromkeys(metric for one in graded.graded for metric in one.verdict.metrics))
        runs = ResultTable(
            f"Runs, {name}",
            ("task", "solver", "seed", "ended", *(word(metric).title for metric in columns), "run"),
            tuple(
                (row.task, row.solver, row.seed, row.run.status.value if row.run else "",
                 *(_format_metric(row, metric) for metric in columns), f"{row.folder}")
                for row in graded.rows()
            ),
        )  # fmt: skip
        tables = [*graded.results(), runs]
        page = render("answer.html", request.title, tables=tables, reproduce=request.reproduce)
        written_to(write_whole(request.output / f"{name}.html", page))
        request.pages.update({one.folder: f"{name}.html" for one in graded.graded})
        return problem_lines([graded])

    return write


def _format_metric(row: ResultRow, name: str) -> str:
    """Return the value of metric *name* in words, or its status and reason; "" if *row* lacks it."""
    metric = row.metrics.get(name)
    if metric is None:
        return ""
    return (
        metric.status.value + f": {metric.reason}"
        if metric.value is None
        else format_value(metric.value, word(name).unit)
    )


def index_view(root: Path, pages: Mapping[Path, str]) -> View:
    """Return the page data of the index: a row per run of the store *root*, latest first, linked to *pages*."""
    shown = Shown(Watcher([root]).catalogue, StoredVerdicts(), live=False)
    to = {folder.resolve(): page for folder, page in pages.items()}
    rows = [run_row(shown, one) | {"page": to.get(one.folder.resolve())} for one in shown.catalogue.newest]
    outcomes = Counter(row["outcome"] for row in rows)
    said = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
    return {"answer": f"{plural(len(rows), 'run')}: {said}." if rows else "There are no runs.", "rows": rows}


FILE_SHOWN = 20_000
"""Most characters of a file that a page shows."""


@dataclass(frozen=True)
class ShownTask:
    """The data of one run's page: the *goal* that the agent read, drawings, tables, and files as (name, text)."""

    goal: str
    figures: Sequence[Figure] = ()
    tables: Sequence[ResultTable] = ()
    files: Sequence[tuple[str, str]] = ()


Show = Callable[[RunStore, GradedRun], ShownTask]


def write_run_pages(
    domain: str, make_page: Show, request: PageRequest, written_to: Callable[[Path], None]
) -> list[str]:
    """Write ``TASK-CELL.html`` by *make_page* for each counted run of *domain*; return a line per missing page."""
    graded = domain_named(domain).grade({request.store.root: None}, request.settings)
    problems = problem_lines([graded])
    for one in graded.counted:
        try:
            page = answer_page(one, make_page(request.store, one))
        except OpsAssayError as error:
            problems.append(f"{one.folder}: {error}")
            continue
        request.pages[one.folder] = f"{one.run.item.replace('@', '-')}-{one.run.cell}.html"
        written_to(write_whole(request.output / request.pages[one.folder], page))
    return problems


def answer_page(graded: GradedRun, task: ShownTask) -> str:
    """Return the HTML page of a graded run: grades, and the figures, tables and files of *task*."""
    metrics = graded.verdict.metrics
    passed = metrics.get("passed")
    why = f"not passed: {passed.reason if passed else 'ungraded'}"
    grades = ResultTable(
        "Grades",
        ("metric", "value", "why"),
        tuple(
            (name, "–" if m.value is None else number_text(m.value, 4), m.reason or m.status.value)
            for name, m in metrics.items()
        ),
    )
    return render(
        "answer.html", f"{graded.run.item}, {graded.run.solver.name}",
        headline=plain("passed" if passed is not None and passed.value == 1.0 else why, 600),
        goal=plain(task.goal, 4000), figures=task.figures,
        tables=(*task.tables, grades),
        files=[(plain(name, 200), plain(text, FILE_SHOWN)) for name, text in task.files],
    )  # fmt: skip
