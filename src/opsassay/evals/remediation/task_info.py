"""The head of a scenario's task. Of it an agent reads the goal alone; oracles are names, and what they do is not in it."""

from __future__ import annotations

from opsassay.core.schema.scenario import Difficulty, Scenario
from opsassay.core.schema.task import Task
from opsassay.evals.remediation.controls import applicable
from opsassay.scoring.repeats import complexity


def scenario_complexity(difficulty: Difficulty) -> float:
    """Return ITBench's complexity: the geometric mean of path length, resolution steps and technologies (Eq. 6)."""
    return complexity(difficulty.propagation, difficulty.resolution_steps, len(set(difficulty.technologies)))


def scenario_task(scenario: Scenario) -> Task:
    """Return the head of the task that *scenario* is."""
    environment = scenario.environment
    return Task(
        id=scenario.id,
        domain="sre",
        name=scenario.title,
        description=scenario.desired_outcome,
        task_class=scenario.category,
        stratum=environment.substrate,
        complexity=scenario_complexity(scenario.difficulty),
        system=environment.system,
        goal=scenario.prompt(),
        limits={"agent_timeout_s": environment.agent_timeout_s},
        oracles=(*scenario.oracles, *(control.name for control in applicable(scenario))),
        commitment=scenario.digest(),
    )
