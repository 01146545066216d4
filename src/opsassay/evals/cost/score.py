"""The score of a run on cost data: its answer, and the usage behind it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from opsassay.core.schema.run import Metric, MetricStatus, Run
from opsassay.core.schema.task import MetricDefinition
from opsassay.evals.cost.anomaly.grading import grade_claims
from opsassay.evals.cost.answers.contract import read_claims, read_rows
from opsassay.evals.cost.insight.grading import grade_rows
from opsassay.evals.cost.insight.keys import Question
from opsassay.evals.cost.live.score import live_definitions
from opsassay.evals.cost.tasks import CostTask
from opsassay.evals.runner.json_answers import ANSWER, read_object
from opsassay.evals.runner.store import read_run
from opsassay.solvers.agents.contract import AnswerError

OF_INSIGHT = ("passed", "cells_right")
OF_ANOMALY = (
    "passed", "anomaly_f1", "rank_importance", "rank_relative", "anomaly_precision", "anomaly_recall", "detector_f1",
)  # fmt: skip
EFFORT = {"tokens": "tokens", "missed_names": "statements"}
"""Metrics of usage with their units: input and output tokens, and statements with unknown tables or columns."""


def definitions() -> tuple[MetricDefinition, ...]:
    """Return the definitions of all metrics of answers on cost data, the most important first."""
    shares = (MetricDefinition(name=name) for name in dict.fromkeys((*OF_INSIGHT, *OF_ANOMALY)))
    return (
        *shares,
        *live_definitions(),
        *(MetricDefinition(name=n, unit=unit, direction="lower") for n, unit in EFFORT.items()),
    )


def grade_answer(run_dir: Path, task: CostTask) -> dict[str, Metric]:
    """Return every metric of the run in *run_dir*; without a valid answer they have the status FAILED."""
    run = read_run(run_dir)
    try:
        found = _grade_body(task, read_object((run_dir / ANSWER).read_bytes()))
    except (FileNotFoundError, AnswerError) as error:
        why = run.error or f"no answer by the contract: {error}"
        expected = OF_INSIGHT if isinstance(task.body, Question) else OF_ANOMALY
        failed = Metric(status=MetricStatus.FAILED, reason=why)
        found = dict.fromkeys(expected, failed)
    return {**found, **_usage_metrics(run)}


def _grade_body(task: CostTask, answer: Mapping[str, object]) -> dict[str, Metric]:
    """Return the metrics of *answer*: of its rows for a question, else of its anomalies; raises AnswerError."""
    body = task.body
    if isinstance(body, Question):
        return grade_rows(body, read_rows(answer, body.template.fields))
    return grade_claims(body, read_claims(answer, body.slices, ranked=body.ranked))


def _usage_metrics(run: Run) -> dict[str, Metric]:
    """Return the metrics tokens and missed_names (statements with unknown tables or columns)."""
    spent = run.spent
    tokens = spent.get("input_tokens", 0.0) + spent.get("output_tokens", 0.0)
    absent = Metric(status=MetricStatus.NOT_APPLICABLE, reason="no model was asked")
    return {
        "tokens": Metric(value=tokens, status=MetricStatus.SCORED) if tokens else absent,
        "missed_names": Metric(value=spent.get("missed_names", 0.0), status=MetricStatus.SCORED),
    }
