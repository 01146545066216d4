"""Pages of alert storms: the causes of each alert, its group in the answer, and every grade."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from opsassay.evals.runner.grading import GradedRun
from opsassay.evals.runner.json_answers import ANSWER, read_object
from opsassay.evals.runner.store import RunStore
from opsassay.evals.runner.tables import ResultTable
from opsassay.evals.triage.alerts.answers import Sorted, read_sorted
from opsassay.evals.triage.tasks import DOMAIN, Storm
from opsassay.solvers.agents.contract import AnswerError
from opsassay.ui.reports import PageRequest, ShownTask, write_run_pages


def write_triage_pages(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
    """Write ``TASK-CELL.html`` for each counted run, tell *written_to* its path; return a line per missing page."""
    return write_run_pages(DOMAIN, shown_storm, request, written_to)


def shown_storm(store: RunStore, graded: GradedRun) -> ShownTask:
    """Return the page data of a run on an alert storm, with the truth; raises DatapackError."""
    storm = Storm.read_kept(store.root, graded.run.item_hash)
    try:
        answer = read_sorted(storm, read_object((graded.folder / ANSWER).read_bytes()))
    except (OSError, AnswerError):
        answer = Sorted([], [])
    put = {id_: f"group {n}" for n, group in enumerate(answer.groups, 1) for id_ in group}
    put |= dict.fromkeys(answer.noise, "noise")
    rows = tuple(
        (a.id, a.time[11:19], a.service, a.signal, a.value, a.limit, _describe_owners(storm, a.id), put.get(a.id, "–"))
        for a in storm.alerts
    )
    columns = ("alert", "time", "service", "signal", "value", "limit", "belongs to", "in the answer")
    harm = ResultTable(
        "What the problems cost users, requests", ("problem",), tuple((one,) for one in storm.harm_words())
    )
    return ShownTask(storm.goal, tables=[ResultTable("The alerts", columns, rows), harm])


def _describe_owners(storm: Storm, id_: str) -> str:
    """Return the problems that caused alert *id_*, as text: "noise" for none, "unknown: not graded" if not recorded."""
    if (owners := storm.owners.get(id_)) is None:
        return "unknown: not graded"
    return " and ".join(storm.problems[n].about for n in owners) or "noise"
