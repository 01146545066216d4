"""Plan files: their parts, each of one domain, as runs for one store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from opsassay.core.errors import ConfigError, naming
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml, parse_yaml
from opsassay.core.schema.validation_errors import problem
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.run import PlannedRun
from opsassay.solvers.agents.ready import or_a_name, resolve_ready_agent

W = TypeVar("W", bound=Written)
DEFAULT_DOMAIN = "sre"
"""The domain of a part that names none: trials, as for `opsassay run trials`."""


class PlannedAgent(Written):
    """A solver in a plan: a name, an agent.yaml or a method, and the model that it uses."""

    model_config = ConfigDict(json_schema_extra=or_a_name)

    name: str = Field(min_length=1)
    model: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _wrap_bare_name(cls, value: Any) -> Any:
        """Return {"name": value} when *value* is a text, else *value*."""
        return resolve_ready_agent(value)

    @property
    def is_file(self) -> bool:
        """Whether the agent's name is the path of an agent.yaml."""
        return self.name.endswith((".yaml", ".yml"))


class TaskPlan(Written):
    """A plan of several parts; each has a ``domain`` and the keys of plans of that domain."""

    parts: tuple[dict[str, Any], ...] = Field(min_length=1)

    @field_validator("parts", mode="before")
    @classmethod
    def _restore_word_on(cls, parts: Any) -> Any:
        """Return *parts* with the key `on`, which YAML reads as True, restored in each."""
        return [_restore_on_key(part) for part in parts] if isinstance(parts, list) else parts


def load_plan(path: Path) -> list[PlannedRun]:
    """Return the runs of the plan file *path*, in order; raises ConfigError, NotFoundError and errors of domains."""
    jobs: list[PlannedRun] = []
    for where, part in _read_parts(path):
        name = str(part.pop("domain", DEFAULT_DOMAIN))
        try:
            with naming(where):
                jobs += domain_named(name).jobs(part, path.parent, where)
        except ValidationError as error:
            raise ConfigError(f"{where}: {problem(error)}.") from error
    return jobs


def _read_parts(path: Path) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return (location for errors, section) for each part of the plan file; a file without parts is one section."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):  # which reading it as a plan says with its line
        given = None
    if not isinstance(given, dict) or "parts" in given:
        plan = load_yaml(path, TaskPlan)
        return [(f"{path}: part {number}", dict(part)) for number, part in enumerate(plan.parts, 1)]
    return [(str(path), _restore_on_key(given))]


def _restore_on_key(part: Any) -> Any:
    """Return the section *part* with its key `on` restored, which YAML reads as True."""
    return {"on" if key is True else key: value for key, value in part.items()} if isinstance(part, dict) else part


def part_as(model: type[W], part: Mapping[str, Any], location: str) -> W:
    """Return the plan section *part* as *model*; raises ConfigError that names *location* and the invalid key."""
    if not part:
        raise ConfigError(f"{location}: there is nothing in it.")
    return parse_yaml(yaml.safe_dump(dict(part), sort_keys=False), model, location, lines=False)
