"""The report of incidents, one HTML file that sends no requests, and the data that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.run import RunStatus
from opsassay.evals.diagnosis.results.repeats import SolverSummary, summarise_runs
from opsassay.evals.diagnosis.score import OnError
from opsassay.evals.runner.ranking import counted_runs, most_repeats
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run, read_verdicts
from opsassay.telemetry.content import content_hash
from opsassay.telemetry.tree import Case
from opsassay.ui.page import inert_json, render, write_whole
from opsassay.ui.payload import AnswerPayload, CaseReport, build_case
from opsassay.ui.tables import solvers_view
from opsassay.ui.view import page_view


def write_report(cases: Sequence[CaseReport], out: Path, *, title: str, solvers: Sequence[SolverSummary] = ()) -> Path:
    """Write the HTML report of *cases* to the file *out* and return its path; equal cases give equal bytes.

    *solvers* are summaries over all cases. Missing folders are made; the write is atomic. Raises OperationError.
    """
    return write_whole(Path(out), render_report(cases, title=title, solvers=solvers))


def render_report(cases: Sequence[CaseReport], *, title: str, solvers: Sequence[SolverSummary] = ()) -> str:
    """Return the HTML report of *cases*, with its data as JSON; *solvers* are summaries over all cases."""
    payload = {"cases": page_view(cases), "solvers": solvers_view(solvers) if solvers else None}
    return render("report.html", title, ("report",), payload=inert_json(payload))


def case_reports(
    store: RunStore, cases: Sequence[Case], profile: str = "default", reproduce: Sequence[str] = (),
    on_error: OnError | None = None,
) -> list[CaseReport]:  # fmt: skip
    """Return a report for each of *cases* that has runs in *store*, in order, with verdicts under *profile*.

    *on_error* is called with each run folder that cannot be read; without it the first error is raised.
    *reproduce* are the commands that give the same results.
    """
    answers: dict[str, list[AnswerPayload]] = {}
    for run_dir in store.runs():
        try:
            if (answer := _answer_payload(run_dir, profile)) is not None:
                answers.setdefault(answer.run.item_hash, []).append(answer)
        except OpsAssayError as error:
            if on_error is None:
                raise
            on_error(run_dir, error)
    return [
        build_case(case.datapack, case.truth, case.annotation, answers[digest], reproduce=reproduce)
        for case in cases
        if (digest := content_hash(case.datapack.path)) in answers
    ]


def _answer_payload(run_dir: Path, profile: str) -> AnswerPayload | None:
    """Return the run in *run_dir* with diagnosis and verdict of *profile*; None while it runs or when aborted."""
    run = read_run(run_dir)
    if run.status in (RunStatus.RUNNING, RunStatus.ABORTED):
        return None
    verdict = next((v for v in read_verdicts(run_dir) if v.profile == profile), None)
    return AnswerPayload(run=run, diagnosis=read_diagnosis(run_dir), verdict=verdict)


def solver_summaries(reports: Sequence[CaseReport], cases: Sequence[Case]) -> list[SolverSummary]:
    """Return the summary of every solver over all *reports*, with pass@k for cases repeated k times."""
    answers = [answer for report in reports for answer in report.answers]
    runs = counted_runs(answer.run for answer in answers)
    return summarise_runs(runs, (a.verdict for a in answers if a.verdict), cases, most_repeats(runs))
