"""The plan of compliance tasks, as a person writes it in YAML: who works on what, on which seeds, how often."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from opsassay.bench.core.answering import AnswerSettings
from opsassay.bench.core.held_out import PUBLISHED_SEED, HeldOutSeeds
from opsassay.bench.core.plan import PlannedAgent
from opsassay.bench.domains.ciso.tasks import CLASSES, ComplianceTask, held_out, names
from opsassay.errors import NotFoundError
from opsassay.model.base import Written


class CompliancePlan(Written):
    """Who works on which compliance tasks: the keys of a part of a plan with ``domain: ciso``."""

    tasks: tuple[str, ...] = Field(
        default=("all",), min_length=1, description="names, a class (new-kyverno, update-kyverno) or `all`"
    )
    agents: tuple[PlannedAgent, ...] = Field(
        min_length=1, description="oracle:NAME, oracle:*, deny-all, allow-all, untouched, or an agent.yaml"
    )
    published: bool = Field(default=True, description="the seed that everybody knows")
    held_out: HeldOutSeeds | None = None
    repeats: int = Field(default=1, ge=1)
    seed: int = Field(default=0, ge=0, description="of the first repeat; the next ones count up")
    settings: AnswerSettings = Field(default=AnswerSettings())

    def chosen(self, folder: Path) -> list[ComplianceTask]:
        """Return the tasks of the plan; raises NotFoundError, and UserError for a secret that is none."""
        known, found = names(), list[ComplianceTask]()
        for asked in self.tasks:
            if asked not in {*known, *CLASSES, "all"}:
                raise NotFoundError("compliance task", asked, [*known, *CLASSES, "all"])
        for name in known:
            if not {"all", name, ComplianceTask(name=name, seed=0).task_class} & set(self.tasks):
                continue
            if self.published:
                found.append(ComplianceTask(name=name, seed=PUBLISHED_SEED))
            if self.held_out is not None:
                found += held_out(name, folder / self.held_out.secret, self.held_out.count)
        return found
