"""The remediation scenarios that ship with OpsAssay, one YAML file each, and their look-up by name or path."""

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
"""The seed of the generated scenarios that lists include; scenarios of other seeds are found by name."""


def generated_names(substrate: str | None = None, seed: int = GENERATED_SEED) -> list[str]:
    """Return the names of the scenarios that *seed* generates, all or those of *substrate* (local, kubernetes)."""
    return [one.id for one in generated(seed) if substrate in (None, one.environment.substrate)]


def names(substrate: str | None = None) -> list[str]:
    """Return the names of the scenarios that ship with OpsAssay, all or those of *substrate* (local, kubernetes)."""
    folders = {"local": (SCENARIOS,), "kubernetes": (SCENARIOS / "kubernetes",)}
    chosen = folders[substrate] if substrate else [one for each in folders.values() for one in each]
    return sorted(path.stem for folder in chosen for path in folder.glob("*.yaml"))


def scenario_path(name: str) -> Path:
    """Return the YAML file of the scenario *name*, a shipped one or itself a path; raises NotFoundError."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    if name not in names():
        hint = "Generated ones have names such as gen0-high-cpu-1; the path of a YAML file is accepted too."
        raise NotFoundError("scenario", name, names(), hint)
    return next(SCENARIOS.rglob(f"{name}.yaml"))


def load_scenario(name: str) -> Scenario:
    """Return the scenario *name*: shipped, generated, or the path of a YAML file; raises NotFoundError, ConfigError."""
    return by_name(name) or load_yaml(scenario_path(name), Scenario)


def place_of(name: str, field: str) -> str:
    """Return the location of *field* in the scenario *name*: "FILE:LINE: FIELD", of a generated one "NAME: FIELD"."""
    return f"{name}: {field}" if by_name(name) else where(scenario_path(name), field)


def system_of(scenario: Scenario) -> System:
    """Return the system that *scenario* breaks; raises NotFoundError, ConfigError."""
    return load_system(scenario.environment.system)
