"""Task sets, as files in ``STATE/task_sets/``: each has the plan part of one domain, without agents.

::

    domain: finops
    description: Questions about a cloud bill.
    baselines: [constant, chance]
    part: {tasks: [insight, anomaly], repeats: 2}

Files that the part names are in the same folder, or in the upload of the set (`handed_in.py`). A requested benchmark
freezes the tasks by their digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.run import PlannedRun

FOLDER = "task_sets"
USUAL_BASELINES: Mapping[str, tuple[str, ...]] = {
    "diagnosis": ("constant", "chance"),
    "sre": ("oracle:control-no-op", "oracle:control-scale-to-zero", "oracle:control-constant-diagnosis"),
    "ciso": ("untouched", "allow-all", "deny-all"),
    "finops": ("constant", "chance"),
    "triage": ("by-time", "by-calls"),
}
"""The baselines on a domain's leaderboards for a task set that names none."""


class Choice(Written):
    """Which tasks of the part are asked: those of the *classes* and *levels*, and of these *count*, drawn by *seed*."""

    classes: tuple[str, ...] = Field(default=(), description="those of these classes alone; of every class: none")
    levels: tuple[Literal["easy", "medium", "hard"], ...] = Field(default=(), description="of these levels alone")
    count: int | None = Field(default=None, ge=1, description="how many of them; all when left out")
    seed: int = Field(default=0, ge=0, description="that these are drawn by")

    def chosen(self, jobs: Sequence[PlannedRun], where: str) -> list[PlannedRun]:
        """Return the *jobs* of the drawn tasks, the same tasks for every agent; raises UserError naming *where*."""
        tasks = {(job.cell.task.id, job.cell.task.commitment): job.cell.task for job in jobs}
        fitting = sorted(
            key
            for key, task in tasks.items()
            if (not self.classes or task.task_class in self.classes) and (not self.levels or task.level in self.levels)
        )
        if len(fitting) < (self.count or 1):
            raise UserError(f"{where}: choose asks for {self.count or 1} or more tasks, and {len(fitting)} fit.")
        drawn = set(sorted(fitting, key=self._sort_key)[: self.count])
        return [job for job in jobs if (job.cell.task.id, job.cell.task.commitment) in drawn]

    def _sort_key(self, task: tuple[str, str]) -> str:
        """Return a hash of *task* and the seed: tasks are drawn in its order, random but reproducible."""
        return hashlib.sha256("\0".join((str(self.seed), *task)).encode()).hexdigest()


class HandedIn(Written):
    """How a set came here over HTTP: its *version*, the *author* (a user's id) and the *commitment* to all of the upload.

    That is the SHA-256 of the *salt* and the tar, whose own SHA-256 is *artefact*; it lies unpacked in *folder*.
    """

    version: int
    author: str
    commitment: str
    salt: str
    artefact: str
    folder: str


class TaskSet(Written):
    """One task set; *part* has the keys of its domain's plan but ``agents``."""

    domain: str = Field(min_length=1)
    description: str = ""
    baselines: tuple[str, ...] | None = Field(
        default=None, description="baselines on every leaderboard of it; the usual ones when left out"
    )
    attempts: int = Field(default=20, ge=1, description="how many benchmarks on it each owner may ask for")
    closed: bool = Field(
        default=False, description="nobody is graded on it any more, and why verdicts are what they are is shown"
    )
    part: dict[str, Any] = Field(default_factory=dict)
    choose: Choice | None = Field(default=None, description="which tasks of the part; all of them when left out")
    handed_in: HandedIn | None = Field(default=None, description="written by the platform")

    def digest(self) -> str:
        """Return a SHA-256 of the set's tasks and settings; it is the same after the set is closed."""
        unused = {name for name in ("choose", "handed_in") if getattr(self, name) is None}
        payload = self.model_dump(mode="json", exclude=unused) | {"closed": False}
        return hashlib.sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def baselines_of(tasks: TaskSet) -> tuple[str, ...]:
    """Return the names of the baselines that run on *tasks*."""
    return USUAL_BASELINES.get(tasks.domain, ()) if tasks.baselines is None else tasks.baselines


def task_set_names(state: Path) -> list[str]:
    """Return the names of the task sets in the folder *state*."""
    return sorted(path.stem for path in (state / FOLDER).glob("*.yaml"))


def load_task_set(state: Path, name: str) -> TaskSet:
    """Return the task set *name* of the folder *state*; raises NotFoundError and ConfigError."""
    names = task_set_names(state)
    if name not in names:
        raise NotFoundError("task set", name, names)
    return load_yaml(state / FOLDER / f"{name}.yaml", TaskSet)


def jobs_of(
    state: Path, name: str, tasks: TaskSet, agents: Sequence[Any], settings: Mapping[str, Any]
) -> list[PlannedRun]:
    """Return the planned runs of *agents* on *tasks*; *settings* override the plan's; raises the domain's errors."""
    part, where = {**tasks.part, **settings, "agents": list(agents)}, f"task set {name}"
    folder = state / FOLDER / (tasks.handed_in.folder if tasks.handed_in else "")
    jobs = list(domain_named(tasks.domain).jobs(part, folder, where))
    return jobs if tasks.choose is None else tasks.choose.chosen(jobs, where)
