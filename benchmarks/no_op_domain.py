"""A domain whose tasks ask nothing: what a cell of it costs is what the platform costs (see platform_queue.py)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from opsassay.core.schema.base import Written
from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Solver
from opsassay.core.schema.task import MetricDefinition, Task
from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores, grade_each
from opsassay.evals.runner.plan import part_as
from opsassay.evals.runner.run import AttemptOutcome, RunEnd, RunSpec, attempt
from opsassay.evals.runner.store import RunStore, read_run

DONE = {"done": Metric(value=1.0, status=MetricStatus.SCORED)}
NOBODY = Solver(name="nobody", kind="agent")


class NoOpPlan(Written):
    """How often nothing is done."""

    agents: tuple[str, ...] = ()
    cells: int = Field(ge=1)


TASK = Task(
    id="nothing", domain="no-op", name="nothing", system="none", goal="Do nothing.",
    commitment=hashlib.sha256(b"nothing").hexdigest(),
)  # fmt: skip


@dataclass(frozen=True)
class NoOp:
    """Nothing, once."""

    seed: int
    task_name = "nothing"
    solver_name = "nobody"
    live = False

    @property
    def cell(self) -> RunSpec:
        """The cell of this repeat."""
        return RunSpec(TASK, NOBODY, "nobody", seed=self.seed)

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> RunEnd:
        """Make an attempt, with its lease, its folder and its log, in which nothing is done."""
        del say

        def nothing(_folder: Path, _stop: Callable[[], bool]) -> AttemptOutcome:
            return AttemptOutcome(RunStatus.DONE)

        run_dir = attempt(store, self.cell, nothing, limits={}, given_up=given_up)
        return RunEnd(self, run_dir, read_run(run_dir), message="done")

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return that it was done."""
        del run_dir
        return DONE

    def end_all(self) -> None:
        """Do nothing: no process was started."""


class NoOpDomain:
    """Tasks that ask nothing."""

    name = "no-op"

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return the one metric."""
        return (MetricDefinition(name="done"),)

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return that it was done."""
        return bool(metrics)

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield the one task."""
        del paths
        yield TASK

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[NoOp]:
        """Return as many runs as the part says."""
        del folder
        return [NoOp(seed) for seed in range(part_as(NoOpPlan, part, where).cells)]

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade the stored runs."""
        del settings

        def evaluate(_store: RunStore, _run_dir: Path, _run: Run) -> Mapping[str, Metric]:
            return DONE

        return grade_each(self, stores, evaluate)


NO_OP = NoOpDomain()
