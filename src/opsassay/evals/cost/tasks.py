"""Cost tasks: what is asked, of which seed, and what a store keeps of one so that its runs can be graded for ever."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from opsassay.core.errors import DatapackError, NotFoundError
from opsassay.core.schema.base import Artefact
from opsassay.core.schema.task import Task
from opsassay.evals.cost.anomaly.task import ANOMALY_TASKS, AnomalyTask
from opsassay.evals.cost.insight.keys import KPIS, QUESTIONS, TEMPLATES, Question
from opsassay.evals.runner.held_out import PUBLISHED_SEED, held_out_seeds, keep_body, kept_body

DOMAIN, SYSTEM = "finops", "focus"
BODIES = "cost_tasks"
"""Folder of a store with the bodies of its tasks, which hold their seeds and so their truth."""
GENERATOR = "1"
"""Version of what makes data and keys; another one makes other truth, so it is part of every commitment."""

LIMITS = {"agent_timeout_s": 900.0}
Body = Question | AnomalyTask
TaskClass = Literal["insight", "anomaly", "kpi"]


class CostTask(Artefact):
    """One task on cost data: its *name*, and the *seed* that its data, its question and its truth follow from."""

    name: str
    seed: int
    held_out: int | None = Field(default=None, description="number among the held-out ones of a plan; None: published")
    generator: str = GENERATOR

    @cached_property
    def body(self) -> Body:
        """What is asked; raises NotFoundError."""
        if self.name in TEMPLATES:
            return Question(TEMPLATES[self.name], self.seed)
        if self.name in ANOMALY_TASKS:
            return ANOMALY_TASKS[self.name](self.seed)
        raise NotFoundError("cost task", self.name, names())

    @property
    def task_class(self) -> TaskClass:
        """What kind of task it is."""
        return class_of(self.name)

    @cached_property
    def commitment(self) -> str:
        """The digest of the whole task: seed, words and the version of what makes its truth."""
        parts = (self.generator, self.name, str(self.seed), self.body.goal)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def head(self) -> Task:
        """What everybody may know of the task."""
        held_out = f"@held-out-{self.held_out}" if self.held_out is not None else ""
        return Task(
            id=self.name + held_out,
            domain=DOMAIN,
            name=self.name.replace("-", " "),
            description=self.body.about,
            task_class=self.task_class,
            stratum=self.body.stratum,
            system=SYSTEM,
            goal=self.body.goal,
            limits=LIMITS,
            oracles=self.body.oracles,
            commitment=self.commitment,
        )

    def keep(self, root: Path) -> None:
        """Write it into the store at *root* under its commitment, if it is not there."""
        keep_body(root / BODIES, self.commitment, self)


def names() -> list[str]:
    """Return the names of the tasks on cost data: questions, anomalies, and the KPIs that are asked by name."""
    return [*QUESTIONS, *ANOMALY_TASKS, *KPIS]


def class_of(name: str) -> TaskClass:
    """Return the class of the task called *name*."""
    return "insight" if name in QUESTIONS else "kpi" if name in KPIS else "anomaly"


def published() -> Iterator[CostTask]:
    """Yield every task with the seed that everybody knows."""
    yield from (CostTask(name=name, seed=PUBLISHED_SEED) for name in names())


def held_out(name: str, secret: Path, count: int) -> list[CostTask]:
    """Return *count* tasks called *name* whose seeds follow from what stands in the file *secret*; raises UserError."""
    return [CostTask(name=name, seed=seed, held_out=n) for n, seed in enumerate(held_out_seeds(name, secret, count), 1)]


def kept_task(root: Path, commitment: str) -> CostTask:
    """Return the task that runs of the store at *root* were begun with; raises DatapackError."""
    task = kept_body(root / BODIES, commitment, CostTask)
    if task.generator != GENERATOR:
        raise DatapackError(
            f"{root / BODIES / commitment}.json was made by generator {task.generator}, and this is {GENERATOR}; grade "
            "it with the OpsAssay of its run."
        )
    if task.commitment != commitment:
        raise DatapackError(f"{root / BODIES / commitment}.json is not what its name says; restore it.")
    return task
