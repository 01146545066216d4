"""Task sets: what agents are asked, as files in ``STATE/task_sets/``: a part of a plan without agents, of one domain.

::

    domain: finops
    description: Questions about a cloud bill.
    baselines: [constant, chance]
    part: {tasks: [insight, anomaly], repeats: 2}

Files that the part names lie beside it. What a benchmark asks is frozen by the digests of its tasks when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from opsassay.core.errors import NotFoundError
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
}
"""Who stands on the boards of a domain when a task set names nobody: what no skill looks like there."""


class TaskSet(Written):
    """One task set; *part* has the keys of its domain's plan but ``agents``."""

    domain: str = Field(min_length=1)
    description: str = ""
    baselines: tuple[str, ...] | None = Field(
        default=None, description="who stands on every board of it, beside who asks; the usual ones when left out"
    )
    attempts: int = Field(default=20, ge=1, description="how many benchmarks on it each owner may ask for")
    closed: bool = Field(
        default=False, description="nobody is graded on it any more, and why verdicts are what they are is shown"
    )
    part: dict[str, Any] = Field(default_factory=dict)

    def digest(self) -> str:
        """Return the SHA-256 of what is asked; closing the set does not change it."""
        return super().digest() if not self.closed else self.model_copy(update={"closed": False}).digest()


def baselines_of(tasks: TaskSet) -> tuple[str, ...]:
    """Return who stands on the boards of *tasks* beside who asks."""
    return USUAL_BASELINES.get(tasks.domain, ()) if tasks.baselines is None else tasks.baselines


def task_set_names(state: Path) -> list[str]:
    """Return the names of the task sets in the folder *state*."""
    return sorted(path.stem for path in (state / FOLDER).glob("*.yaml"))


def load_task_set(state: Path, name: str) -> TaskSet:
    """Return the task set *name*; raises NotFoundError and ConfigError."""
    names = task_set_names(state)
    if name not in names:
        raise NotFoundError("task set", name, names)
    return load_yaml(state / FOLDER / f"{name}.yaml", TaskSet)


def jobs_of(
    state: Path, name: str, tasks: TaskSet, agents: Sequence[Any], further: Mapping[str, Any]
) -> list[PlannedRun]:
    """Return the runs of *agents* on *tasks*, with *further* keys of the part; raises what the domain raises."""
    part = {**tasks.part, **further, "agents": list(agents)}
    return list(domain_named(tasks.domain).jobs(part, state / FOLDER, f"task set {name}"))
