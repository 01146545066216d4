"""One run of one solver on one task on cost data: its tables in a folder of their own, its answer in the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsassay.core.schema.run import Metric, RunStatus
from opsassay.evals.cost import oracles
from opsassay.evals.cost.answers import ANSWER, read_object
from opsassay.evals.cost.grading import grade_answer
from opsassay.evals.cost.tasks import CostTask
from opsassay.evals.cost.tool_session import (
    CostToolSession,
    cost_tables,
    desk_of,
    looking_specs,
    require_answer,
    submit_spec,
)
from opsassay.evals.runner.answering import AnswerJob, ended_without
from opsassay.evals.runner.attempt import AttemptOutcome
from opsassay.evals.runner.draws import Draws
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.models.base import ToolSpec
from opsassay.solvers.agents.tool_sessions import SUBMIT

FINOPS = "finops"


@dataclass(frozen=True)
class CostJob(AnswerJob):
    """One run of one solver on one task on cost data."""

    kind_of_task = "cost task"
    built_in = FINOPS
    baselines = tuple(oracles.BASELINES)

    task: CostTask

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools over the tables, submit the last."""
        return (*looking_specs(), submit_spec(self.task))

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Grade the run in *run_dir*."""
        return grade_answer(run_dir, self.task)

    def solve(self, run_dir: Path, *, sealed: bool) -> AttemptOutcome:
        """Have the question answered at a desk; the answer that it ends with lies in *run_dir*."""
        meter = Meter(self.limits, self.settings.price)
        with cost_tables(self.task) as folder, desk_of(self.task, folder, run_dir, meter) as desk:
            error = self._answered(desk, meter, folder, run_dir, sealed=sealed)
            if desk.answer is not None:
                text = json.dumps(desk.answer, indent=1, ensure_ascii=False)
                (run_dir / ANSWER).write_text(f"{text}\n", encoding="utf-8")
            spent = {**meter.spent(), "missed_names": float(desk.tools.misses)}
            if desk.answer is None:
                return ended_without(error or desk.last_error(), meter.hit, spent)
            return AttemptOutcome(RunStatus.DONE, error, limits_hit=tuple(meter.hit), spent=spent)

    def _answered(
        self, desk: CostToolSession, meter: Meter, folder: Path, run_dir: Path, *, sealed: bool
    ) -> str | None:
        """Have the agent answer at *desk*; return why it did not, as far as it is known."""
        if self.oracle is not None:
            oracles.play(self.oracle, self.task, desk)
            return None
        if (baseline := oracles.BASELINES.get(self.agent.name)) is not None:
            answer = baseline(self.task.body, Draws(self.seed, "baseline", self.task.commitment))
            if answer is None:
                return "a detector has no answer to a question"
            desk.call(SUBMIT, answer)
            return None
        if self.command is not None:
            from opsassay.evals.cost.external_agents import answer_outside

            return answer_outside(self.command, self, desk, meter, folder, run_dir, sealed=sealed)
        from opsassay.evals.cost.built_in import answer_built_in

        return answer_built_in(self, desk, meter, run_dir)

    def take(self, desk: CostToolSession, text: str | bytes) -> str | None:
        """Take the answer in *text*, if it is one; return why it is none."""
        try:
            given = read_object(text)
            require_answer(self.task, given)
        except AnswerError as error:
            return f"no answer by the contract: {error}"
        desk.answer = given
        return None
