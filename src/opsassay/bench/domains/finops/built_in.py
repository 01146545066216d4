"""The built-in FinOps agent in a run: a model by its name, our tools, and the contract of the task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.agents.asking import Asker, LimitError
from opsassay.agents.finops import SUBMIT, FinopsAgent
from opsassay.agents.limits import Meter
from opsassay.agents.models.base import ModelError
from opsassay.agents.models.named import model_named
from opsassay.agents.record import AgentRecorder
from opsassay.bench.domains.finops.desk import CostDesk, problem_of

if TYPE_CHECKING:
    from opsassay.bench.domains.finops.job import CostJob


def answer_built_in(job: CostJob, desk: CostDesk, meter: Meter, run_dir: Path) -> str | None:
    """Let the agent work at *desk*; return why it did not answer. Raises ModelError when the endpoint failed.

    An endpoint that failed is not the agent's doing: the attempt is aborted and made again.
    """
    assert job.agent.model is not None
    model = model_named(job.agent.model, retries=0, timeout_s=min(meter.limits.seconds, 300.0))
    asker = Asker(model, meter, AgentRecorder(run_dir), temperature=job.settings.temperature)
    agent = FinopsAgent(asker, desk, desk.specs(), lambda given: problem_of(job.task, given))
    try:
        answer = agent.run(job.task.body.goal)
    except LimitError as error:
        return str(error)
    except ModelError as error:
        if error.passing:
            raise
        return str(error)
    if answer is None:
        return "its turns were over"
    desk.call(SUBMIT, answer)
    return None
