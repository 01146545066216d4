"""Reports of what a run store holds: each incident with every answer that was given to it."""

from __future__ import annotations

from collections.abc import Sequence

from assay.bench.repeats import Summary, counted, most_repeats, summarise_runs
from assay.bench.store import RunStore, read_diagnosis, read_run, read_verdicts
from assay.model.run import RunStatus
from assay.telemetry.content import content_hash
from assay.telemetry.tree import Case
from assay.web.payload import Answer, CaseReport, build_case


def case_reports(
    store: RunStore, cases: Sequence[Case], profile: str = "default", reproduce: Sequence[str] = ()
) -> list[CaseReport]:
    """Return one report per case that has runs in *store*, in the order of *cases*; verdicts are those of *profile*."""
    answers: dict[str, list[Answer]] = {}
    for run_dir in store.runs():
        run = read_run(run_dir)
        if run.status in (RunStatus.RUNNING, RunStatus.ABORTED):
            continue
        verdict = next((v for v in read_verdicts(run_dir) if v.profile == profile), None)
        answer = Answer(run=run, diagnosis=read_diagnosis(run_dir), verdict=verdict)
        answers.setdefault(run.item_hash, []).append(answer)
    return [
        build_case(case.datapack, case.truth, case.annotation, answers[digest], reproduce=reproduce)
        for case in cases
        if (digest := content_hash(case.datapack.path)) in answers
    ]


def solver_summaries(reports: Sequence[CaseReport], cases: Sequence[Case]) -> list[Summary]:
    """Return the figures of every solver over all *reports*, with pass@k where cases were repeated k times."""
    answers = [answer for report in reports for answer in report.answers]
    runs = counted(answer.run for answer in answers)
    return summarise_runs(runs, (a.verdict for a in answers if a.verdict), cases, most_repeats(runs))
