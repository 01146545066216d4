"""Verdicts on stored runs, computed from the run folder and the truth alone."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from opsassay.core.errors import DatapackError, OpsAssayError, UserError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.run import EvidenceResult, Run, RunStatus, Verdict
from opsassay.core.schema.trajectory import Trace
from opsassay.core.untrusted import CAUSED_BY_CONTENT
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run, write_verdict
from opsassay.scoring import metrics
from opsassay.scoring.budget import TimeBudget
from opsassay.scoring.evidence import ROWS_KEPT, evidence_of
from opsassay.scoring.metrics import scored
from opsassay.scoring.profiles import PROFILES, Profile
from opsassay.scoring.topology import Topology, topology_of
from opsassay.scoring.verdict import grade
from opsassay.solvers.agents.models.base import Message, Model
from opsassay.solvers.proxy.formats.finding import read_one
from opsassay.telemetry.content import content_hash
from opsassay.telemetry.sql import LockedSql
from opsassay.telemetry.tree import Case, resolve

SUPPORTED = "evidence_supported"
JUDGED = "-judged"
"""Suffix of the profile's name of a verdict with a judge's opinion."""

CALLS_AT_ONCE = 8


def judge_evidence(verdict: Verdict, judge: Model) -> Verdict:
    """Return *verdict* with evidence_supported: the share of its SQL statements that *judge* finds support their claim.

    A statement without rows, or with a vacuous condition, counts as no support and is not sent to the model. Without
    evidence the metric is not applicable; when a call fails it is failed, with the reason.
    """
    named = {"profile": verdict.profile + JUDGED}
    if not verdict.evidence:
        grade = metrics.not_applicable((SUPPORTED,), "the answer gives no evidence")
        return verdict.model_copy(update={**named, "metrics": {**verdict.metrics, **grade}})
    distinct = list({_format_question(result): result for result in verdict.evidence if _is_asked_about(result)})
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        answers = dict(zip(distinct, pool.map(lambda question: _ask_judge(judge, question), distinct), strict=True))
    results = tuple(_with_opinion(result, answers) for result in verdict.evidence)
    failed = [why for supported, why in answers.values() if supported is None]
    grade = (
        metrics.failed((SUPPORTED,), f"the judge failed: {failed[0]}")
        if failed
        else {SUPPORTED: scored(sum(bool(r.supported) for r in results) / len(results))}
    )
    return verdict.model_copy(update={**named, "metrics": {**verdict.metrics, **grade}, "evidence": results})


def _with_opinion(result: EvidenceResult, answers: dict[str, tuple[bool | None, str]]) -> EvidenceResult:
    """Return *result* with the model's opinion from *answers* (by question), or why the model was not asked."""
    if not _is_asked_about(result):
        why = result.finding if result.vacuous else f"the statement gave no rows ({result.status})"
        return result.model_copy(update={"supported": False, "opinion": f"not asked: {why}"})
    supported, why = answers[_format_question(result)]
    return result.model_copy(update={"supported": supported, "opinion": why})


def _is_asked_about(result: EvidenceResult) -> bool:
    """Return whether the model is asked: the statement returned rows and is not vacuous."""
    return result.status == "ok" and not result.vacuous


def _format_question(result: EvidenceResult) -> str:
    """Return the text that asks the model whether the rows of *result* support its claim."""
    rows = json.dumps(result.rows, default=str, ensure_ascii=False)
    return Path(__file__).with_name("evidence_judge.txt").read_text(encoding="utf-8").format(
        about=result.about, claim=result.claim or "(none was given)", sql=result.sql,
        columns=", ".join(result.columns), rows=rows, most=len(result.rows),
    )  # fmt: skip


def _ask_judge(judge: Model, question: str) -> tuple[bool | None, str]:
    """Ask the model *judge*; return (whether it finds support, why), or (None, problem) without a valid answer."""
    try:
        reply = judge.complete([Message(role="user", content=question)], temperature=0.0)
    except OpsAssayError as error:
        return None, str(error)
    return _read_judgement(reply.text)


def _read_judgement(text: str) -> tuple[bool | None, str]:
    """Return (whether the claim is supported, why) from the model's *text*; None when unreadable."""
    try:
        payload = json.loads(text.strip().removeprefix("```json").removeprefix("```").removesuffix("```"))
    except (ValueError, RecursionError):
        return None, f"its answer is no JSON: {text[:80]!r}"
    if not isinstance(payload, dict) or not isinstance(payload.get("supported"), bool):
        return None, f"its answer does not say whether the claim is supported: {text[:80]!r}"
    return payload["supported"], str(payload.get("why", ""))[:200]


def questions(verdict: Verdict) -> int:
    """Return the number of model calls that judging *verdict* takes."""
    return len({_format_question(result) for result in verdict.evidence if _is_asked_about(result)})


TRACE = "trace.jsonl"

SQL_TIMEOUT_S = 30.0
"""Time limit of each SQL statement of an answer."""

OnError = Callable[[Path, OpsAssayError], None]


class Grader:
    """Grades runs on one *case* under one *profile*; a context manager.

    Its SQL worker and topology are made when first needed. Services that the incident lists as load generators are left
    out of graphs too.
    """

    def __init__(self, case: Case, profile: Profile = PROFILES["default"]) -> None:
        clients = tuple(sorted({*profile.load_generators, *case.datapack.load_generators()}))
        self.case, self.profile = case, profile.model_copy(update={"load_generators": clients})
        self._open, self._ended = ExitStack(), threading.Event()
        self._sql: LockedSql | None = None
        self._topology: Topology | None = None
        self._hash = ""

    def __enter__(self) -> Grader:
        self._hash = content_hash(self.case.datapack.path)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def cancel(self) -> None:
        """Cancel the grading from another thread: current and later calls raise GradingEndedError."""
        self._ended.set()
        if self._sql is not None:
            self._sql.cancel()

    def grade(self, run_dir: Path) -> Verdict:
        """Grade the run in *run_dir* and return its verdict; nothing is written.

        All SQL statements of its answer have ANSWER_SECONDS together. Raises UserError when the case has no truth or
        the run was made on another recording of it, DatapackError for damaged files.
        """
        run = read_run(run_dir)
        diagnosis = read_diagnosis(run_dir) if run.status is RunStatus.DONE else None
        return self.grade_answer(run, diagnosis, _trace_of(run_dir), str(run_dir))

    def grade_answer(
        self, run: Run, diagnosis: Diagnosis | None, trace: Trace | None = None, name: str = "the answer"
    ) -> Verdict:
        """Grade *diagnosis* (None: no answer), the answer of *run*; *name* is used in errors.

        The run need not be stored; *trace* are its steps, if known. Raises as `grade`.
        """
        case = self.case
        if case.truth is None:
            raise UserError(
                f"{case.name} has no truth beside it, so {name} cannot be graded; give the tree it was made in."
            )
        if run.item_hash != self._hash:
            raise UserError(
                f"{name} was made on another recording than {case.datapack.path} ({run.item_hash[:12]} against "
                f"{self._hash[:12]}); grade it against that one, or run it again."
            )
        try:
            return self._grade_run(run, diagnosis, trace)
        except CAUSED_BY_CONTENT as error:  # what an answer can do to its grader is a failure of the answer
            said = f"its answer cannot be graded ({type(error).__name__}: {str(error)[:200]})"
            gone = run.model_copy(update={"status": RunStatus.FAILED, "error": said})
            return grade(gone, None, case.truth, case.annotation, None, self.profile)

    def _grade_run(self, run: Run, diagnosis: Diagnosis | None, trace: Trace | None) -> Verdict:
        """Return the verdict on *diagnosis* (None: no answer); its SQL may run for ANSWER_SECONDS in total."""
        case = self.case
        assert case.truth is not None
        sql = self._open_sql() if diagnosis is not None and evidence_of(diagnosis) else None
        return grade(
            run,
            diagnosis,
            case.truth,
            case.annotation,
            sql,
            self.profile,
            topology=self._observed_topology() if diagnosis is not None else None,
            trace=trace,
            budget=TimeBudget(ended=self._ended),
        )

    def _open_sql(self) -> LockedSql:
        """Return the read-only SQL session over the case's tables, opened at the first call."""
        if self._sql is None:
            self._sql = LockedSql(self.case.datapack, timeout_s=SQL_TIMEOUT_S, max_rows=ROWS_KEPT)
            self._open.enter_context(self._sql)
        return self._sql

    def _observed_topology(self) -> Topology:
        """Return the service graph of the case's telemetry, computed on the first call."""
        if self._topology is None:
            self._topology = topology_of(self.case.datapack, self.profile.service)
        return self._topology


def _trace_of(run_dir: Path) -> Trace | None:
    """Return the trace stored in *run_dir*, None when it is missing or cannot be read."""
    try:
        return read_one(run_dir / TRACE) if (run_dir / TRACE).exists() else None
    except UserError:
        return None


def grade_run(run_dir: Path, case: Case, profile: Profile = PROFILES["default"]) -> Verdict:
    """Grade the run in *run_dir*, write the verdict into its folder and return it; raises as `Grader.grade`."""
    with Grader(case, profile) as grader:
        verdict = grader.grade(run_dir)
    write_verdict(run_dir, verdict)
    return verdict


def grade_all(
    store: RunStore,
    cases: Iterable[Case],
    profile: Profile = PROFILES["default"],
    on_error: OnError | None = None,
    *,
    run_filter: Callable[[Run], bool] = lambda _: True,
) -> list[Verdict]:
    """Grade every ended run of *store* on an incident in *cases* and write its verdict; return the verdicts.

    *on_error* is called for each run that cannot be graded; without it the first error is raised. Aborted and running
    attempts, and runs for which *run_filter* is False, are left out. Cases are graded in parallel; an interruption
    keeps every verdict that was written.
    """
    by_hash = {content_hash(case.datapack.path): case for case in cases}
    groups: dict[str, list[Path]] = {}
    problems: list[tuple[Path, OpsAssayError]] = []
    order: dict[Path, int] = {}
    for run_dir in store.runs():
        order[run_dir] = len(order)
        try:
            run = read_run(run_dir)
            if run.status in {RunStatus.RUNNING, RunStatus.ABORTED} or not run_filter(run):
                continue
            if store.domain_of(run) != "diagnosis":
                continue
            if run.item_hash not in by_hash:
                raise UserError(
                    f"{run_dir} was made on incident {run.item}, which is not among the given ones; add its folder."
                )
            groups.setdefault(run.item_hash, []).append(run_dir)
        except OpsAssayError as error:
            problems.append((run_dir, error))
    graded: dict[Path, Verdict] = {}
    graders = {item: Grader(by_hash[item], profile) for item in groups}
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the work is in the SQL workers, a process per case
        jobs = [pool.submit(_grade_case, graders[item], run_dirs) for item, run_dirs in groups.items()]
        try:
            for job in jobs:
                verdicts, failed = job.result()
                graded |= verdicts
                problems += failed
        except BaseException:  # interrupted: what is written is kept, what runs is ended
            pool.shutdown(wait=False, cancel_futures=True)
            for grader in graders.values():
                grader.cancel()
            raise
    for run_dir, problem in sorted(problems, key=lambda found: order[found[0]]):
        if on_error is None:
            raise problem
        on_error(run_dir, problem)
    return [graded[run_dir] for run_dir in sorted(graded, key=order.__getitem__)]


def _grade_case(
    grader: Grader, run_dirs: Sequence[Path]
) -> tuple[dict[Path, Verdict], list[tuple[Path, OpsAssayError]]]:
    """Grade the runs in *run_dirs* on one case and write verdicts; return (verdicts by folder, [(folder, error), ...])."""
    graded: dict[Path, Verdict] = {}
    problems: list[tuple[Path, OpsAssayError]] = []
    with grader:
        for run_dir in run_dirs:
            try:
                verdict = grader.grade(run_dir)
                write_verdict(run_dir, verdict)
                graded[run_dir] = verdict
            except OpsAssayError as error:
                problems.append((run_dir, error))
    return graded, problems


def calm_items(cases: Iterable[Case]) -> frozenset[str]:
    """Return the ids of those *cases* whose truth says that nothing was broken."""
    return frozenset(case.datapack.incident.id for case in cases if case.truth and case.truth.broken is False)


def cases_of(store: Path, cases: Path | None = None, on_error: OnError | None = None) -> list[Case]:
    """Return the incidents for grading the runs of *store*: those at *cases*, else those in the store.

    Raises UserError, and calls *on_error*, as `resolve`; also for a store that has no incidents of its own.
    """
    try:
        return resolve(cases or store, on_error)
    except DatapackError:
        raise
    except UserError as error:
        if cases is not None or not any(RunStore(store).runs()):
            raise
        raise UserError(
            f"{store} holds runs and no incidents; give --cases DIR, the folder that they were run on."
        ) from error
