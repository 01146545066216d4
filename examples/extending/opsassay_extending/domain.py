"""A domain: questions of arithmetic, two agents that answer them, and an oracle that leaves the right answer as a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.base import Written
from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Solver
from opsassay.core.schema.task import MetricDefinition, Task
from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores, grade_each
from opsassay.evals.runner.oracles import FilesOracle, oracle_solver, oracles_asked
from opsassay.evals.runner.plan import part_as
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.run import AttemptOutcome, RunEnd, RunSpec, attempt
from opsassay.evals.runner.store import RunStore, read_run

QUESTIONS: Mapping[str, tuple[int, int]] = {"small": (6, 7), "large": (1234, 5678)}
AGENTS: Mapping[str, Callable[[int, int], int]] = {"calculator": lambda a, b: a * b, "always-42": lambda _a, _b: 42}
ANSWER, WORKSPACE = "answer.json", "workspace"


def right_answer(question: str) -> FilesOracle:
    """Return the oracle of *question*: a folder of files that it puts into the workspace."""
    return FilesOracle("right", Path(__file__).parent / "oracles" / question)


class ArithmeticPlan(Written):
    """Who answers what: the keys of a part of a plan."""

    questions: tuple[str, ...] = Field(min_length=1)
    agents: tuple[str, ...] = Field(min_length=1)


def task_of(name: str) -> Task:
    """Return the head of the question *name*; its commitment covers the body."""
    a, b = QUESTIONS[name]
    return Task(
        id=name,
        domain="arithmetic",
        name=f"{name} product",
        system="none",
        goal=f"What is {a} * {b}? Write it to {ANSWER}.",
        oracles=(right_answer(name).name,),
        commitment=hashlib.sha256(f"{a}*{b}".encode()).hexdigest(),
    )


@dataclass(frozen=True)
class Question:
    """One agent on one question."""

    task_name: str
    solver_name: str
    live = False

    @property
    def cell(self) -> RunSpec:
        """The cell: the task and the agent, each by its content."""
        if self.solver_name.startswith(ORACLE):
            oracle = right_answer(self.task_name)
            return RunSpec(task_of(self.task_name), oracle_solver(oracle), oracle.digest())
        digest = hashlib.sha256(self.solver_name.encode()).hexdigest()
        return RunSpec(task_of(self.task_name), Solver(name=self.solver_name, kind="agent"), digest)

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> RunEnd:
        """Have the agent answer, unless the store has its answer."""
        del say
        known = store.finished(self.cell.hash)
        run_dir = attempt(store, self.cell, self._solve, limits={}, given_up=given_up)
        return RunEnd(self, run_dir, read_run(run_dir), message="answered", known=run_dir == known)

    def _solve(self, run_dir: Path, _stop: Callable[[], bool]) -> AttemptOutcome:
        workspace = run_dir / WORKSPACE
        workspace.mkdir()
        if self.solver_name.startswith(ORACLE):
            right_answer(self.task_name).place(workspace)
        else:
            answer = AGENTS[self.solver_name](*QUESTIONS[self.task_name])
            (workspace / ANSWER).write_text(json.dumps(answer))
        return AttemptOutcome(RunStatus.DONE)

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Compare the answer with the product."""
        return graded_answer(self.task_name, run_dir)

    def end_all(self) -> None:
        """Do nothing: no process was started."""


def graded_answer(question: str, run_dir: Path) -> dict[str, Metric]:
    """Return whether the answer in *run_dir* is the product that *question* asks for."""
    a, b = QUESTIONS[question]
    right = json.loads((run_dir / WORKSPACE / ANSWER).read_text()) == a * b
    return {"right": Metric(value=float(right), status=MetricStatus.SCORED)}


def _solvers(agent: str, task: Task) -> list[str]:
    """Return the agent, or the oracles that ``oracle:NAME`` and ``oracle:*`` ask for."""
    oracles = [ORACLE + name for name in oracles_asked(agent, task.oracles, task.id)]
    if not oracles and agent not in AGENTS:
        raise NotFoundError("agent", agent, AGENTS)
    return oracles or [agent]


class Arithmetic:
    """Products of two numbers."""

    name = "arithmetic"

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return the one metric."""
        return (MetricDefinition(name="right"),)

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether the answer was right."""
        return metrics["right"].value == 1.0 if "right" in metrics else None

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield the questions; none are read from files."""
        del paths
        yield from map(task_of, QUESTIONS)

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[Question]:
        """Return every agent of the part on every question of it."""
        del folder
        plan = part_as(ArithmeticPlan, part, where)
        for name in plan.questions:
            if name not in QUESTIONS:
                raise NotFoundError("question", name, QUESTIONS)
        return [
            Question(question, solver)
            for question in plan.questions
            for agent in plan.agents
            for solver in _solvers(agent, task_of(question))
        ]

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade the stored answers; there are no conventions to set."""
        del settings

        def evaluate(_store: RunStore, run_dir: Path, run: Run) -> Mapping[str, Metric]:
            return graded_answer(run.item, run_dir)

        return grade_each(self, stores, evaluate)


ARITHMETIC = Arithmetic()
