"""Cost tasks: their questions and seeds, and how a store keeps them so that runs can be graded later."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.task import Task
from opsassay.evals.cost.anomaly.own import OWN_ANOMALIES, OwnAnomalies, own_anomalies
from opsassay.evals.cost.anomaly.task import ANOMALY_TASKS, AnomalyTask
from opsassay.evals.cost.insight.keys import KPIS, QUESTIONS, TEMPLATES, Question
from opsassay.evals.cost.insight.own import own_questions, own_template
from opsassay.evals.cost.insight.own_costs import OwnData
from opsassay.evals.runner.generated_tasks import PUBLISHED_SEED, GeneratedTask

DOMAIN, SYSTEM = "finops", "focus"
OWN = "@own-"
"""Part of the ids of tasks on a team's own costs."""
GENERATOR = "2"
"""Version of the code that generates data and keys; part of every commitment, since another gives another truth."""

LIMITS = {"agent_timeout_s": 900.0}
Body = Question | AnomalyTask
TaskClass = Literal["insight", "anomaly", "kpi"]


class OwnTask(Noun):
    """Data of a task on a team's own costs: the costs, its number, and the misreadings with another key.

    *percent* is the departure that makes an anomaly, 0 for a question.
    """

    data: OwnData
    number: int
    mistakes: tuple[str, ...]
    percent: int = Field(default=0, exclude_if=lambda percent: percent == 0)


class CostTask(GeneratedTask):
    """One task on cost data, generated from its seed or from a team's *own* costs."""

    BODIES = "cost_tasks"

    generator: str = GENERATOR
    own: OwnTask | None = Field(default=None, exclude_if=lambda own: own is None)

    @property
    def id(self) -> str:
        """The task's name, followed by "@own-N" for a team's own costs or "@held-out-N" for a secret seed."""
        return super().id if self.own is None else f"{self.name}{OWN}{self.own.number}"

    @cached_property
    def body(self) -> Body:
        """The question or anomaly task that defines goal and truth; raises NotFoundError for an unknown name."""
        if self.own is not None and self.name == OWN_ANOMALIES:
            return OwnAnomalies(self.name, self.seed, self.own.data, self.own.percent, self.own.mistakes)
        if self.own is not None:
            return Question(
                own_template(self.name, self.own.data.currency, self.own.mistakes), self.seed, self.own.data
            )
        if self.name in TEMPLATES:
            return Question(TEMPLATES[self.name], self.seed)
        if self.name in ANOMALY_TASKS:
            return ANOMALY_TASKS[self.name](self.seed)
        raise NotFoundError("cost task", self.name, names())

    @property
    def task_class(self) -> TaskClass:
        """The class of the task: "insight", "anomaly" or "kpi"."""
        return class_of(self.name)

    @cached_property
    def commitment(self) -> str:
        """The digest of everything that defines the task: seed, goal, generator version, any own costs."""
        return self.committed(self.body.goal, *(() if self.own is None else (self.own.data.sha256,)))

    def keep(self, root: Path) -> None:
        """Write the task, and a team's own costs, into the store at *root*, named by its commitment, unless there."""
        if self.own is not None:
            self.own.data.keep(root)
        super().keep(root)

    @property
    def task_info(self) -> Task:
        """The description of the task that is published: id, goal, limits, oracles and digest."""
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
    """Return the names of all tasks on generated cost data: questions, anomaly tasks, and further KPIs."""
    return [*QUESTIONS, *ANOMALY_TASKS, *KPIS]


def own_names() -> list[str]:
    """Return the names of the tasks that may be generated for a team's own costs."""
    return [*QUESTIONS, OWN_ANOMALIES]


def class_of(name: str) -> TaskClass:
    """Return the class of the task *name*: "insight", "anomaly" or "kpi"."""
    return "insight" if name in QUESTIONS else "kpi" if name in KPIS else "anomaly"


def published() -> Iterator[CostTask]:
    """Yield every task on generated cost data, with the seed that the project publishes."""
    yield from (CostTask(name=name, seed=PUBLISHED_SEED) for name in names())


def kept_task(root: Path, commitment: str) -> CostTask:
    """Return the task with the digest *commitment*, as stored at *root* when its runs started; raises DatapackError."""
    task = CostTask.read_kept(root, commitment)
    if task.own is None:
        return task
    located = task.own.model_copy(update={"data": task.own.data.located(root)})
    return CostTask(name=task.name, seed=task.seed, own=located)


def own_tasks(folder: Path) -> list[CostTask]:
    """Return the tasks that `opsassay task generate` wrote into *folder*, by name and number; raises UserError."""
    found = [kept_task(folder, path.stem) for path in (folder / CostTask.BODIES).glob("*.json")]
    if not found:
        raise UserError(
            f"{folder} has no tasks on costs; make some with opsassay task generate --cost FILE -o {folder}."
        )
    return sorted(found, key=lambda one: (own_names().index(one.name), one.own.number if one.own else 0))


def generate_own(data: OwnData, seed: int, count: int) -> tuple[list[CostTask], dict[str, str]]:
    """Return (tasks on *data*, name of each kind left out to the reason).

    There are *count* tasks per question, with seeds from *seed* on, and one on anomalies.
    """
    tasks: list[CostTask] = []
    left_out: dict[str, str] = {}
    for one in own_questions(data, seed, count):
        if one.why_not:
            left_out[one.name] = one.why_not
            continue
        number = 1 + sum(task.name == one.name for task in tasks)
        tasks.append(
            CostTask(name=one.name, seed=one.seed, own=OwnTask(data=data, number=number, mistakes=one.mistakes))
        )
    found = own_anomalies(data, seed)
    if isinstance(found, str):
        left_out[OWN_ANOMALIES] = found
    else:
        own = OwnTask(data=data, number=1, mistakes=found.mistakes, percent=found.percent)
        tasks.append(CostTask(name=OWN_ANOMALIES, seed=seed, own=own))
    return tasks, left_out
