"""A candidate of the search: a few wrong changes, made one after the other, as YAML that a person can read and edit."""

from __future__ import annotations

from typing import NamedTuple

import yaml
from pydantic import Field

from opsassay.core.schema.base import Written
from opsassay.core.schema.files import parse_yaml
from opsassay.core.schema.scenario import OpsCall

CHANGES_LIMIT = 6


class Block(NamedTuple):
    """A building block of candidates: *family* is the kind of mistake, *changes* are what it does."""

    name: str
    family: str
    changes: tuple[OpsCall, ...]


class Composition(Written):
    """What a candidate does to a healthy system; no change at all is one too."""

    changes: tuple[OpsCall, ...] = Field(default=(), max_length=CHANGES_LIMIT)

    @property
    def name(self) -> str:
        """The verbs with their targets, for people."""
        return " + ".join(_words(change) for change in self.changes) or "nothing"

    def text(self) -> str:
        """Return the YAML of this composition, which `parse` reads back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def parse(text: str, name: str = "candidate") -> Composition:
    """Return the composition in *text*; raises ConfigError naming line and field."""
    return parse_yaml(text, Composition, name)


def _words(change: OpsCall) -> str:
    payload = [str(value) for value in change.arguments.values()]
    return f"{change.verb}({', '.join(payload)})"
