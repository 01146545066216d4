"""One finding about one place in a scenario, for its author."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScenarioFinding:
    """What does not fit in a scenario, at the dotted *field*; only an *error* makes the check fail."""

    field: str
    message: str
    error: bool = True
