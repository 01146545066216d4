"""The systems that ship with OpsAssay, one YAML file each, and how a system is found by name or path."""

from __future__ import annotations

import functools
from pathlib import Path

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.system import System
from opsassay.testbed.apps import generate
from opsassay.testbed.apps.compose import is_compose_file, load_compose
from opsassay.testbed.apps.programs import place_programs

APPS = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the systems that ship with OpsAssay."""
    return sorted(path.stem for path in APPS.glob("*.yaml"))


def load_system(name: str) -> System:
    """Return the system *name*: one that ships, one in the YAML file of that path, or a generated one (``layered-20-7``).

    Raises NotFoundError, ConfigError, and UserError for a size that cannot be generated.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        return load_compose(path) if is_compose_file(path) else place_programs(load_yaml(path, System), path)
    if (generated := generate.by_name(name)) is not None:
        return generated
    if name not in names():
        raise NotFoundError("system", name, names(), "A YAML file is accepted too, and a name such as layered-20-7.")
    return _load_shipped(name)


@functools.cache
def _load_shipped(name: str) -> System:
    """Return the system *name* that comes with the package; each file is read once."""
    return load_yaml(APPS / f"{name}.yaml", System)
