"""Grading what an agent left, stage by stage: artefact, evidence, what was asked for and kept, posture; mutants beside it.

A run passes when every stage that its class has does. Posture is right when each world that nobody saw is judged as its
label says; mutants are those worlds with their one violation put in or mended, and tell a policy about the control from
one about the worlds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from opsassay.core.errors import LeftByAgentError
from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.core.schema.task import MetricDefinition
from opsassay.evals.compliance.answers import collected
from opsassay.evals.compliance.collected import grade_collected
from opsassay.evals.compliance.enforced import Admits, grade_enforced
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.kyverno.judge import admitted
from opsassay.evals.compliance.stages import RATES, STAGES, not_asked, without_artefact
from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.evals.runner.attempt import reading_what_was_left
from opsassay.evals.runner.store import read_run
from opsassay.solvers.agents.contract import AnswerError

KEPT = "evidence"
"""Folder of a run with the evidence that was collected when it was graded."""


def definitions() -> tuple[MetricDefinition, ...]:
    """Return the metrics, those to look at first at the front."""
    lower = {"false_positive_rate", "false_negative_rate"}
    return (
        MetricDefinition(name="passed"),
        *(MetricDefinition(name=name) for name in STAGES),
        *(MetricDefinition(name=name, direction="lower" if name in lower else "higher") for name in RATES),
        MetricDefinition(name="tokens", unit="tokens", direction="lower"),
    )


def grade_run(run_dir: Path, task: ComplianceTask, admits: Admits = admitted) -> dict[str, Metric]:
    """Return every metric of the run in *run_dir*; what a stage that failed keeps from being looked at is failed too.

    *admits* judges policies that are enforced, our own evaluator unless another is given.
    """
    run = read_run(run_dir)
    tokens = run.spent.get("input_tokens", 0.0) + run.spent.get("output_tokens", 0.0)
    effort = {"tokens": Metric(value=tokens, status=MetricStatus.SCORED) if tokens else not_asked("no model was asked")}
    try:
        files = collected(run_dir, task)
    except AnswerError as error:
        return {**without_artefact(run.error or str(error)), **effort}
    return {**grade_files(files, task, EvidenceCache(run_dir / KEPT), admits), **effort}


def grade_files(
    files: Mapping[str, bytes], task: ComplianceTask, shelf: EvidenceCache, admits: Admits = admitted
) -> dict[str, Metric]:
    """Return the metrics of *files* for *task*; evidence that has to be collected is kept on *shelf*, *admits* judges.

    What their content can raise is a failure of theirs, so that one answer does not end the grading of others.
    """
    try:
        with reading_what_was_left():
            if task.collector is None:
                return grade_enforced(files, task, admits)
            return grade_collected(files, task, shelf)
    except LeftByAgentError as error:
        return without_artefact(str(error))
