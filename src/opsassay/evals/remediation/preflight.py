"""What is looked at before the first trial of a plan: that each can begin at all. What cannot would abort one by one."""

from __future__ import annotations

from collections.abc import Sequence

from opsassay.core.errors import RefusedError, UserError
from opsassay.evals.remediation.contract import TrialAgent
from opsassay.evals.remediation.trials import TrialJob
from opsassay.evals.runner.commands import refusal_to_seal
from opsassay.evals.runner.external_agents import APIS
from opsassay.solvers.agents.models.named import model_named, require_endpoint
from opsassay.testbed.scenarios import system_of

PERFORMED_ON = ("local", "kubernetes")


def require_sound(jobs: Sequence[TrialJob]) -> None:
    """Raise UserError for the first of *jobs* whose system is not known here, or whose agent cannot begin."""
    for scenario in {job.scenario.id: job.scenario for job in jobs}.values():
        if (substrate := scenario.environment.substrate) not in PERFORMED_ON:
            raise RefusedError(f"{scenario.id} needs {substrate}; {' and '.join(PERFORMED_ON)} are performed here.")
        system_of(scenario)
    for agent in {job.agent.model_dump_json(): job.agent for job in jobs}.values():
        _require_agent(agent)


def _require_agent(agent: TrialAgent) -> None:
    asks_model = not agent.is_outside
    if agent.is_outside:
        outside = agent.outside()
        asks_model = outside.asks_model
        if "model" in outside.needs and agent.model is None:
            raise UserError(f"The agent {outside.name} asks a model: name one with `model:` in the plan.")
        if APIS in outside.needs:
            import opsassay.telemetry.backends.serving  # noqa: F401 - what is not installed is missed now
        if agent.sealing == "required" and (refusal := refusal_to_seal("required", remote=agent.remote)) is not None:
            raise UserError(f"The agent {outside.name} is to be sealed, and no seal can be made here: {refusal}")
    if asks_model and agent.model is not None:
        model_named(agent.model)
        require_endpoint(agent.model)
