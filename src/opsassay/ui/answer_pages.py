"""Pages of runs of made tasks: whether it passed, what was asked, what its domain shows of it, and every grade."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsassay.core.errors import OpsAssayError
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.grading import GradedRun, problem_lines
from opsassay.evals.runner.store import RunStore
from opsassay.evals.runner.tables import ResultTable
from opsassay.ui.audit_svg import Figure
from opsassay.ui.page import render, write_whole
from opsassay.ui.plain import plain
from opsassay.ui.reports import PageRequest

FILE_SHOWN = 20_000
"""Characters of a file that a page shows."""


@dataclass(frozen=True)
class ShownTask:
    """What a domain shows of one run: the *goal* that the agent read, drawings, tables, and files as name and text."""

    goal: str
    figures: Sequence[Figure] = ()
    tables: Sequence[ResultTable] = ()
    files: Sequence[tuple[str, str]] = ()


Show = Callable[[RunStore, GradedRun], ShownTask]


def write_run_pages(domain: str, show: Show, request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
    """Write ``TASK-CELL.html`` for every run of *domain* that counts; return what could not be shown."""
    graded = domain_named(domain).grade({request.store.root: None}, request.settings)
    problems = problem_lines([graded])
    for one in graded.counted:
        try:
            page = answer_page(one, show(request.store, one))
        except OpsAssayError as error:
            problems.append(f"{one.folder}: {error}")
            continue
        request.pages[one.folder] = f"{one.run.item.replace('@', '-')}-{one.run.cell}.html"
        written_to(write_whole(request.output / request.pages[one.folder], page))
    return problems


def answer_page(one: GradedRun, task: ShownTask) -> str:
    """Return the page of *one* as HTML."""
    metrics = one.verdict.metrics
    passed = metrics.get("passed")
    why = f"not passed: {passed.reason if passed else 'ungraded'}"
    grades = ResultTable(
        "Grades",
        ("metric", "value", "why"),
        tuple(
            (name, "–" if m.value is None else f"{m.value:.4g}", m.reason or m.status.value)
            for name, m in metrics.items()
        ),
    )
    return render(
        "answer.html", f"{one.run.item}, {one.run.solver.name}",
        headline=plain("passed" if passed is not None and passed.value == 1.0 else why, 600),
        goal=plain(task.goal, 4000), figures=task.figures,
        tables=(*task.tables, grades),
        files=[(plain(name, 200), plain(text, FILE_SHOWN)) for name, text in task.files],
    )  # fmt: skip
