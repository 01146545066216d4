"""Grades answers that were given outside of our runner, in another harness, without a store."""

from __future__ import annotations

from importlib.metadata import version

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.run import Run, RunStatus, Solver, Verdict
from opsassay.evals.diagnosis.score import Grader
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner.run import AttemptOutcome, RunSpec
from opsassay.scoring.profiles import PROFILES, Profile
from opsassay.solvers.agents.contract import AnswerError, read_answer
from opsassay.telemetry.tree import Case


def read_given(text: str | bytes, services: list[str]) -> AttemptOutcome:
    """Return the outcome of the answer *text* in which *services* may be blamed: DONE with a diagnosis, or FAILED."""
    try:
        return AttemptOutcome(RunStatus.DONE, diagnosis=read_answer(text, services).diagnosis)
    except AnswerError as problem:
        return AttemptOutcome(RunStatus.FAILED, f"no answer by the contract: {problem}")


def grade_given(
    case: Case, text: str | bytes, solver: Solver, profile: Profile = PROFILES["default"]
) -> tuple[Verdict, Diagnosis | None]:
    """Grade *text*, the answer of *solver* on *case*, by *profile*; return the verdict and the answer, None if invalid.

    Raises UserError when the case has no truth, DatapackError for damaged files.
    """
    outcome = read_given(text, case.datapack.candidates())
    cell = RunSpec(IncidentItem.from_datapack(case.datapack).task, solver, solver.digest())
    run = Run(
        cell=cell.hash,
        attempt=1,
        domain=cell.task.domain,
        item=cell.task.id,
        item_hash=cell.task.commitment,
        system=cell.task.system,
        solver=solver,
        solver_hash=cell.solver_hash,
        isolation="unsealed",
        status=outcome.status,
        error=outcome.error,
        versions={"opsassay": version("opsassay")},
    )
    with Grader(case, profile) as grader:
        return grader.grade_answer(run, outcome.diagnosis), outcome.diagnosis
