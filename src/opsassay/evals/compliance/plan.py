"""The plan of compliance tasks, as a person writes it in YAML: which solvers, on which tasks and seeds, how often."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from opsassay.core.errors import NotFoundError
from opsassay.evals.compliance.on_cluster.place import ClusterPlace
from opsassay.evals.compliance.on_cluster.read_worlds import CLUSTER
from opsassay.evals.compliance.tasks import CLASSES, EXAMPLES, ComplianceTask, names
from opsassay.evals.runner.generated_tasks import GeneratedPlan


class CompliancePlan(GeneratedPlan):
    """Which solvers are run on which compliance tasks: the keys of a part of a plan with ``domain: ciso``."""

    tasks: tuple[str, ...] = Field(
        default=("all",), min_length=1, description="names, a class, as new-kyverno, or `all`"
    )
    examples: tuple[int, ...] = Field(
        default=(EXAMPLES,), min_length=1, description="how many examples of each kind are shown; each number is an arm"
    )
    on: Literal["objects", "cluster"] = Field(default="objects", description="what the worlds are served from")
    engine: Literal["subset", "cluster"] = Field(default="subset", description="who judges Kyverno policies")
    kubeconfig: str | None = Field(
        default=None, description="of the cluster, beside the plan; kubectl's own when left out"
    )
    context: str | None = Field(default=None, description="of the kubeconfig, the current one when left out")

    @model_validator(mode="after")
    def _cluster_is_used(self) -> CompliancePlan:
        if (self.kubeconfig or self.context) and CLUSTER not in (self.on, self.engine):
            raise ValueError("kubeconfig and context are of a cluster; say `on: cluster`, `engine: cluster` or both")
        return self

    def place(self, folder: Path) -> ClusterPlace | None:
        """Return the cluster of the plan in *folder*, None when it needs none."""
        if CLUSTER not in (self.on, self.engine):
            return None
        file = folder / self.kubeconfig if self.kubeconfig else None
        return ClusterPlace(file, self.context, kyverno=self.engine == CLUSTER)

    @field_validator("examples")
    @classmethod
    def _are_there(cls, given: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(given)) != len(given) or not set(given) <= set(range(EXAMPLES + 1)):
            raise ValueError(f"numbers from 0 to {EXAMPLES}, none twice")
        return given

    def knobs(self) -> list[dict[str, int]]:
        """Return the knobs of an arm for each number of examples; the usual one has none."""
        return [{} if count == EXAMPLES else {"examples": count} for count in self.examples]

    def chosen(self, folder: Path) -> list[ComplianceTask]:
        """Return the tasks of the plan; raises NotFoundError, and UserError for a secret that is none."""
        known = names()
        for asked in self.tasks:
            if asked not in {*known, *CLASSES, "all"}:
                raise NotFoundError("compliance task", asked, [*known, *CLASSES, "all"])
        classes = {name: ComplianceTask(name=name, seed=0).task_class for name in known}
        chosen = [name for name in known if {"all", name, classes[name]} & set(self.tasks)]
        return self.seeded(ComplianceTask, chosen, folder)
