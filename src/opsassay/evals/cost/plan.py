"""The plan of cost tasks, as written in YAML: which solvers, on which tasks and seeds, how often."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from opsassay.core.errors import NotFoundError, UserError
from opsassay.evals.cost.live.tasks import CLASS, CLASS_ON_KUBERNETES, LOCAL_TASKS, TASKS
from opsassay.evals.cost.tasks import CostTask, TaskClass, class_of, names, own_names, own_tasks
from opsassay.evals.runner.generated_tasks import GeneratedPlan
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

CLASSES = get_args(TaskClass)


class CostPlan(GeneratedPlan):
    """The keys of a plan's part with ``domain: finops``."""

    tasks: tuple[str, ...] = Field(
        default=("all",),
        min_length=1,
        description="names, a class (insight, anomaly, kpi, alert, alert-on-kubernetes), or `all`: insight and anomaly",
    )
    own: str | None = Field(
        default=None,
        description="folder that `opsassay task generate` wrote, next to the plan: its tasks are run instead",
    )
    prompts: tuple[Literal["full", "terse"], ...] = Field(
        default=("full",), min_length=1, max_length=2,
        description="full, or terse: the question without its conventions, as in the paper; each is an arm",
    )  # fmt: skip
    cluster: ClusterSettings = Field(
        default_factory=ClusterSettings, description="which cluster the tasks for Kubernetes happen on"
    )

    def chosen(self, folder: Path) -> list[CostTask]:
        """Return the chosen tasks on cost data with their seeds; raises NotFoundError, UserError."""
        if self.own is not None:
            if self.held_out is not None:
                raise UserError("held_out draws data by a secret, and own names costs that are there; leave one out.")
            named = self._chosen_names(own_names())
            return [one for one in own_tasks(folder / self.own) if one.name in named]
        return self.seeded(CostTask, self._chosen_names(names()), folder)

    def knobs(self) -> list[dict[str, str]]:
        """Return the settings of one variant per prompt; {} for the full prompt."""
        return [{} if prompt == "full" else {"prompt": prompt} for prompt in dict.fromkeys(self.prompts)]

    def live(self) -> list[str]:
        """Return the names of the chosen tasks on live systems; "all" includes none of them."""
        asked = {*self.tasks, *(LOCAL_TASKS if CLASS in self.tasks else ())}
        asked |= {*(TASKS[len(LOCAL_TASKS) :] if CLASS_ON_KUBERNETES in self.tasks else ())}
        return [one for one in TASKS if one in asked]

    def _chosen_names(self, task_names: list[str]) -> list[str]:
        """Return those of *task_names* that are chosen by name, class or "all"; raises NotFoundError."""
        there = [*task_names, *TASKS, *CLASSES, CLASS, CLASS_ON_KUBERNETES, "all"]
        for name in self.tasks:
            if name not in there:
                raise NotFoundError("cost task", name, there)
        asked = {*self.tasks, *(("insight", "anomaly") if "all" in self.tasks else ())}
        return [one for one in task_names if {one, class_of(one)} & asked]
