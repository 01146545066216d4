"""Task: the common head of the tasks of all domains, the arms of an experiment, and the metrics of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from opsassay.core.schema.base import Noun
from opsassay.core.schema.metric_words import is_share, word

LEVELS = ("easy", "medium", "hard")
EASY_BELOW, HARD_FROM = 1.8, 2.8
"""Bounds of the levels, chosen so that ITBench's examples (Table 2) have their levels; ITBench gives no bounds."""


def level_of(complexity: float) -> str:
    """Return "easy", "medium" or "hard" for an ITBench *complexity*."""
    return "easy" if complexity < EASY_BELOW else "hard" if complexity >= HARD_FROM else "medium"


class MetricDefinition(Noun):
    """A metric of a domain: its name, its unit ('' for a share or a mark) and whether more of it is better.

    Tables show its *title*; JSON and options use its *name*.
    """

    name: str
    unit: str = ""
    direction: Literal["higher", "lower", "neither"] = "higher"

    @property
    def title(self) -> str:
        """The metric's name for tables and pages, followed by its unit unless it is a share."""
        unit = self.unit or word(self.name).unit
        return word(self.name).title + (f", {unit}" if unit and not self.is_share else "")

    @property
    def is_share(self) -> bool:
        """Whether the metric is a share in [0, 1], which tables show in percent."""
        return is_share(self.name, self.unit or "share")


class Task(Noun):
    """The visible head of a task; its body belongs to its domain.

    *oracles* are names only. *complexity* is ITBench's (Equation 6), None where it is unknown or would reveal the truth.
    """

    id: str
    domain: str
    name: str
    description: str = ""
    task_class: str | None = Field(default=None, alias="class", description="what kind of failure it is")
    stratum: str | None = Field(default=None, description="the group that results are shown by")
    complexity: float | None = None
    system: str
    goal: str = Field(default="", description="what the agent reads")
    limits: dict[str, float] = Field(default_factory=dict)
    oracles: tuple[str, ...] = ()
    commitment: str = Field(description="digest of the whole task, its body included")

    @property
    def level(self) -> str | None:
        """Easy, medium or hard: the stratum if it is one of them, else by complexity; None when neither is known."""
        if self.stratum in LEVELS:
            return self.stratum
        return None if self.complexity is None else level_of(self.complexity)


class Arm(Noun):
    """One arm of an experiment: named knobs and their values, as text.

    Its *label*, in run.json and in cell names, is ``default`` without a knob, else ``name-value`` of every knob (the bare
    value of ``prompt``), joined by slashes.
    """

    knobs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, knobs: Mapping[str, Any]) -> Arm:
        """Return the arm (variant of an experiment) with *knobs*, setting to value, in the given order."""
        return cls(knobs=tuple((name, str(value)) for name, value in knobs.items()))

    @classmethod
    def parse(cls, label: str) -> Arm:
        """Parse the *label* of an arm, such as ``constrained/mask-traces``; the reverse of `label`."""
        if label == "default":
            return cls()
        parts = (part.partition("-") for part in label.split("/"))
        return cls(knobs=tuple((name, value) if dash else ("prompt", name) for name, dash, value in parts))

    @property
    def label(self) -> str:
        """This arm as text: ``default``, or its knobs as ``name-value`` (of ``prompt`` the value), joined by slashes."""
        return "/".join(value if name == "prompt" else f"{name}-{value}" for name, value in self.knobs) or "default"

    def without(self, name: str) -> Arm:
        """Return a copy of this arm without the knob (setting) *name*."""
        return Arm(knobs=tuple(knob for knob in self.knobs if knob[0] != name))

    def knob(self, name: str) -> str | None:
        """Return the value of this arm's knob (setting) *name*, None where it is not set."""
        return dict(self.knobs).get(name)
