"""The systems that ship with Assay, one YAML file each, and how a system is found by name or path."""

from __future__ import annotations

from pathlib import Path

from assay.errors import NotFoundError
from assay.model.files import load_yaml
from assay.model.system import System

APPS = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the systems that ship with Assay."""
    return sorted(path.stem for path in APPS.glob("*.yaml"))


def load_system(name: str) -> System:
    """Return the system called *name*, or the one in the YAML file of that path; raises NotFoundError, ConfigError."""
    if name.endswith((".yaml", ".yml")):
        return load_yaml(Path(name), System)
    if name not in names():
        raise NotFoundError("system", name, names(), "A path to a YAML file is accepted too.")
    return load_yaml(APPS / f"{name}.yaml", System)
