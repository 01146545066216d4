"""A blame technique: the last step is blamed, and no model is asked."""

from opsassay.analysis.blame.asking import BlameAsker
from opsassay.analysis.blame.rerun import Rerun
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.core.schema.trajectory import Attribution, Trace


def last_step(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None) -> Attribution:
    """Return the last step and its agent."""
    del asker, settings, rerun
    step = trace.steps[-1]
    return Attribution(agent_name=step.agent_name, step_id=step.step_id, reason="it came last")
