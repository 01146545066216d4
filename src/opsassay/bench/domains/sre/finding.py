"""What an author of a scenario is given about one place in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScenarioFinding:
    """What does not fit in a scenario, at the dotted *field*; only an *error* makes the check fail."""

    field: str
    message: str
    error: bool = True
