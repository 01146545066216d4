"""Cost tasks: what is asked, of which seed, and what a store keeps of one so that its runs can be graded for ever."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.task import Task
from opsassay.evals.cost.anomaly.task import ANOMALY_TASKS, AnomalyTask
from opsassay.evals.cost.insight.keys import KPIS, QUESTIONS, TEMPLATES, Question
from opsassay.evals.runner.generated_tasks import PUBLISHED_SEED, GeneratedTask

DOMAIN, SYSTEM = "finops", "focus"
GENERATOR = "2"
"""Version of what makes data and keys; another one makes other truth, so it is part of every commitment."""

LIMITS = {"agent_timeout_s": 900.0}
Body = Question | AnomalyTask
TaskClass = Literal["insight", "anomaly", "kpi"]


class CostTask(GeneratedTask):
    """One task on cost data: its data, its question and its truth follow from its seed."""

    BODIES = "cost_tasks"

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
        return self.committed(self.body.goal)

    @property
    def task_info(self) -> Task:
        """What everybody may know of the task."""
        return Task(
            id=self.id,
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


def names() -> list[str]:
    """Return the names of the tasks on cost data: questions, anomalies, and the KPIs that are asked by name."""
    return [*QUESTIONS, *ANOMALY_TASKS, *KPIS]


def class_of(name: str) -> TaskClass:
    """Return the class of the task called *name*."""
    return "insight" if name in QUESTIONS else "kpi" if name in KPIS else "anomaly"


def published() -> Iterator[CostTask]:
    """Yield every task with the seed that everybody knows."""
    yield from (CostTask(name=name, seed=PUBLISHED_SEED) for name in names())


def kept_task(root: Path, commitment: str) -> CostTask:
    """Return the task that runs of the store at *root* were begun with; raises DatapackError."""
    return CostTask.read_kept(root, commitment)
