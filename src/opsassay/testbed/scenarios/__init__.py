"""The remediation scenarios that ship with OpsAssay, one YAML file each, and how a scenario is found by name or path."""

from __future__ import annotations

from pathlib import Path

from opsassay.errors import NotFoundError
from opsassay.model.files import load_yaml
from opsassay.model.scenario import Scenario
from opsassay.model.system import System
from opsassay.testbed.apps import load_system

SCENARIOS = Path(__file__).parent


def names(substrate: str | None = None) -> list[str]:
    """Return the names of the scenarios that ship with OpsAssay, or of those for one *substrate*: local or kubernetes."""
    folders = {"local": (SCENARIOS,), "kubernetes": (SCENARIOS / "kubernetes",)}
    chosen = folders[substrate] if substrate else [one for each in folders.values() for one in each]
    return sorted(path.stem for folder in chosen for path in folder.glob("*.yaml"))


def scenario_path(name: str) -> Path:
    """Return the file of the scenario called *name*, or that path itself; raises NotFoundError."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    if name not in names():
        raise NotFoundError("scenario", name, names(), "The path of a YAML file is accepted too.")
    return next(SCENARIOS.rglob(f"{name}.yaml"))


def load_scenario(name: str) -> Scenario:
    """Return the scenario called *name* or in the YAML file of that path; raises NotFoundError, ConfigError."""
    return load_yaml(scenario_path(name), Scenario)


def system_of(scenario: Scenario) -> System:
    """Return the system that *scenario* happens on; raises NotFoundError, ConfigError."""
    return load_system(scenario.environment.system)
