"""The plan of compliance tasks, as written in YAML: which solvers, on which tasks and seeds, how often."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from opsassay.core.errors import NotFoundError
from opsassay.evals.compliance.tasks import CLASSES, EXAMPLES, ComplianceTask, names
from opsassay.evals.runner.generated_tasks import GeneratedPlan


class CompliancePlan(GeneratedPlan):
    """The keys of a plan's part with ``domain: ciso``."""

    tasks: tuple[str, ...] = Field(
        default=("all",), min_length=1, description="names, a class, as new-kyverno, or `all`"
    )
    examples: tuple[int, ...] = Field(
        default=(EXAMPLES,), min_length=1, description="how many examples of each kind are shown; each number is an arm"
    )

    @field_validator("examples")
    @classmethod
    def _require_examples(cls, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Raise ValueError when one of *numbers* is repeated or not from 0 to EXAMPLES."""
        if len(set(numbers)) != len(numbers) or not set(numbers) <= set(range(EXAMPLES + 1)):
            raise ValueError(f"numbers from 0 to {EXAMPLES}, none twice")
        return numbers

    def knobs(self) -> list[dict[str, int]]:
        """Return the settings of one variant per number of examples shown; {} for the default number."""
        return [{} if count == EXAMPLES else {"examples": count} for count in self.examples]

    def chosen(self, folder: Path) -> list[ComplianceTask]:
        """Return the chosen tasks (by name, class or "all") with their seeds; raises NotFoundError, UserError."""
        known = names()
        for asked in self.tasks:
            if asked not in {*known, *CLASSES, "all"}:
                raise NotFoundError("compliance task", asked, [*known, *CLASSES, "all"])
        classes = {name: ComplianceTask(name=name, seed=0).task_class for name in known}
        chosen = [name for name in known if {"all", name, classes[name]} & set(self.tasks)]
        return self.seeded(ComplianceTask, chosen, folder)
