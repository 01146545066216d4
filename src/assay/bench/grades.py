"""Verdicts of stored runs: the run folder and the truth tree are all that grading needs, at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from assay.bench.store import RunStore, read_diagnosis, read_run, write_verdict
from assay.errors import AssayError, UserError
from assay.grading.evidence import ROWS_KEPT, evidence_of
from assay.grading.profiles import PROFILES, Profile
from assay.grading.verdict import grade
from assay.model.run import Run, RunStatus, Verdict
from assay.telemetry.content import content_hash
from assay.telemetry.sql import LockedSql
from assay.telemetry.tree import Case

SQL_TIMEOUT_S = 30.0
"""Wall clock that each SQL of an answer gets."""


def grade_run(run_dir: Path, case: Case, profile: Profile = PROFILES["default"]) -> Verdict:
    """Grade the run in *run_dir* against *case*, write the verdict beside it and return it.

    Services that the incident itself lists as load generators are left out of graphs too. Raises UserError when the
    case has no truth or when the run was made on another recording of it, DatapackError for damaged files.
    """
    run = read_run(run_dir)
    if case.truth is None:
        raise UserError(
            f"{case.name} has no truth beside it, so {run_dir} cannot be graded; give the tree it was made in."
        )
    found = content_hash(case.datapack.path)
    if run.item_hash != found:
        raise UserError(
            f"{run_dir} was made on another recording than {case.datapack.path} ({run.item_hash[:12]} against "
            f"{found[:12]}); grade it against that one, or run it again."
        )
    diagnosis = read_diagnosis(run_dir) if run.status is RunStatus.DONE else None
    clients = tuple(sorted({*profile.load_generators, *case.datapack.load_generators()}))
    of_case = profile.model_copy(update={"load_generators": clients})
    if diagnosis is not None and evidence_of(diagnosis):
        with LockedSql(case.datapack, timeout_s=SQL_TIMEOUT_S, max_rows=ROWS_KEPT) as sql:
            verdict = grade(run, diagnosis, case.truth, case.annotation, sql, of_case)
    else:
        verdict = grade(run, diagnosis, case.truth, case.annotation, None, of_case)
    write_verdict(run_dir, verdict)
    return verdict


def grade_all(
    store: RunStore,
    cases: Iterable[Case],
    profile: Profile = PROFILES["default"],
    on_error: Callable[[Path, AssayError], None] | None = None,
) -> list[Verdict]:
    """Grade every run of *store* that has ended and whose incident is among *cases*, in the order of the store.

    *on_error* is told of each run that cannot be graded, and the rest goes on; without it the first one is raised.
    Aborted and running attempts are left out; they stand in the log of attempts.
    """
    by_hash = {content_hash(case.datapack.path): case for case in cases}
    verdicts = []
    for run_dir in store.runs():
        try:
            run = read_run(run_dir)
            if run.status in {RunStatus.RUNNING, RunStatus.ABORTED}:
                continue
            verdicts.append(grade_run(run_dir, _case_of(run, run_dir, by_hash), profile))
        except AssayError as error:
            if on_error is None:
                raise
            on_error(run_dir, error)
    return verdicts


def _case_of(run: Run, run_dir: Path, by_hash: dict[str, Case]) -> Case:
    if run.item_hash not in by_hash:
        raise UserError(
            f"{run_dir} was made on incident {run.item}, which is not among the given ones; add its folder."
        )
    return by_hash[run.item_hash]
