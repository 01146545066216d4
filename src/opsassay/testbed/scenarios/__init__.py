"""The remediation scenarios that ship with OpsAssay, one YAML file each, and how a scenario is found by name or path."""

from __future__ import annotations

from pathlib import Path

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.files import load_yaml, where
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.system import System
from opsassay.testbed.apps import load_system
from opsassay.testbed.scenarios.generated import by_name, generated

SCENARIOS = Path(__file__).parent


GENERATED_SEED = 0
"""Of the generated scenarios that are listed with those that ship; every other seed makes others, by their names."""


def generated_names(substrate: str | None = None, seed: int = GENERATED_SEED) -> list[str]:
    """Return the names of the scenarios generated from *seed*, all or those for one *substrate*."""
    return [one.id for one in generated(seed) if substrate in (None, one.environment.substrate)]


def names(substrate: str | None = None) -> list[str]:
    """Return the names of the scenarios that ship with OpsAssay, all or those for *substrate*: local or kubernetes."""
    folders = {"local": (SCENARIOS,), "kubernetes": (SCENARIOS / "kubernetes",)}
    chosen = folders[substrate] if substrate else [one for each in folders.values() for one in each]
    return sorted(path.stem for folder in chosen for path in folder.glob("*.yaml"))


def scenario_path(name: str) -> Path:
    """Return the file of the scenario *name*, which may be a path itself; raises NotFoundError."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    if name not in names():
        hint = "Generated ones have names such as gen0-high-cpu-1; the path of a YAML file is accepted too."
        raise NotFoundError("scenario", name, names(), hint)
    return next(SCENARIOS.rglob(f"{name}.yaml"))


def load_scenario(name: str) -> Scenario:
    """Return the scenario *name*, generated or not, or in the YAML file of that path; raises NotFoundError, ConfigError."""
    return by_name(name) or load_yaml(scenario_path(name), Scenario)


def place_of(name: str, field: str) -> str:
    """Return the place of *field* of the scenario *name* for messages: file and line, or the generated scenario."""
    return f"{name}: {field}" if by_name(name) else where(scenario_path(name), field)


def system_of(scenario: Scenario) -> System:
    """Return the system in which *scenario* takes place; raises NotFoundError, ConfigError."""
    return load_system(scenario.environment.system)
