"""The built-in FinOps agent in a run: a model by its name, our tools, and the contract of the task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.evals.cost.tool_session import CostToolSession, problem_of
from opsassay.evals.runner.answering import conversed
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.finops import FinopsAgent
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.tool_sessions import SUBMIT

if TYPE_CHECKING:
    from opsassay.evals.cost.job import CostJob


def answer_built_in(job: CostJob, desk: CostToolSession, meter: Meter, run_dir: Path) -> str | None:
    """Let the agent work at *desk*; return why it did not answer. Raises ModelError as `conversed`."""

    def work(asker: Asker) -> str | None:
        answer = FinopsAgent(asker, desk, desk.specs(), lambda given: problem_of(job.task, given)).run(
            job.task.body.goal
        )
        if answer is None:
            return "its turns were over"
        desk.call(SUBMIT, answer)
        return None

    return conversed(job, meter, run_dir, work)
