"""Scenarios as tasks, of which an agent only gets the goal; stores keep the scenarios of their runs by digest.

These files are outside of the run folders, since they contain truth and oracles.
"""

from __future__ import annotations

import json
from pathlib import Path

from opsassay.core.errors import DatapackError
from opsassay.core.schema.scenario import Difficulty, Scenario
from opsassay.core.schema.task import Task
from opsassay.evals.remediation.controls.scripts import applicable
from opsassay.evals.runner.store import SCENARIOS
from opsassay.scoring.repeats import complexity
from opsassay.telemetry.content import whole_file


def scenario_complexity(difficulty: Difficulty) -> float:
    """Return ITBench's complexity: the geometric mean of path length, resolution steps and technologies (Eq. 6)."""
    return complexity(difficulty.propagation, difficulty.resolution_steps, len(set(difficulty.technologies)))


def scenario_task(scenario: Scenario) -> Task:
    """Return the public task description of *scenario*: the agent's goal, without cause and verification."""
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


def keep_scenario(root: Path, scenario: Scenario) -> Path:
    """Write *scenario* into the store at *root* under its digest, unless there; return the file's path."""
    path = root / SCENARIOS / f"{scenario.digest()}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            partial.write_text(scenario.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
    return path


def kept_scenario(root: Path, digest: str) -> Scenario:
    """Return the scenario with *digest*, as stored at *root* when its runs started; raises DatapackError."""
    path = root / SCENARIOS / f"{digest}.json"
    try:
        payload = json.loads(path.read_text(encoding="utf-8"))
        if "denominator" not in payload["verification"]:  # kept before these were committed
            payload["verification"] |= {"settings": None, "settling": None, "denominator": "present"}
        if "cause" not in payload["verification"]:
            payload["verification"] |= {"cause": None, "users": None}
        scenario = Scenario.model_validate(payload)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatapackError(f"{path}: the scenario that runs were begun with cannot be read.") from error
    if scenario.digest() != digest:
        raise DatapackError(f"{path} is not what its name says: its digest is {scenario.digest()[:16]}...")
    return scenario
