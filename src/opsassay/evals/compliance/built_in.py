"""The built-in compliance agent in a run: a model by its name, the desk of the task, and its goal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.evals.compliance.tool_session import ComplianceToolSession
from opsassay.evals.runner.answering import conversed
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.ciso import ComplianceAgent
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.tool_sessions import SUBMIT

if TYPE_CHECKING:
    from opsassay.evals.compliance.job import ComplianceJob


def work_built_in(job: ComplianceJob, desk: ComplianceToolSession, meter: Meter, run_dir: Path) -> str | None:
    """Let the agent work at *desk*; return why it did not submit. Raises ModelError as `conversed`."""

    def work(asker: Asker) -> str | None:
        agent = ComplianceAgent(asker, desk, desk.specs(), desk.problem)
        if agent.run(f"{job.task.goal}\n{desk.places()}") is None:
            return "its turns were over"
        desk.call(SUBMIT, {})
        return None

    return conversed(job, meter, run_dir, work)
