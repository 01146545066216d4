"""The cell: one task, one solver, one arm, one seed. Whatever domain it is of, it is run once to a result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opsassay.core.schema.run import Solver
from opsassay.core.schema.task import Arm, Task
from opsassay.evals.runner.store import cell_hash


@dataclass(frozen=True)
class RunSpec:
    """What is run: a solver on a task, in an arm, with a seed that stands for the repeat.

    *solver_hash* is of all that the solver is made of; *identity* is what of it names the cell. *body* is what its domain
    runs the cell with.
    """

    task: Task
    solver: Solver
    solver_hash: str
    arm: Arm = field(default_factory=Arm)
    seed: int = 0
    identity: str = ""
    body: Any = field(default=None, compare=False)

    @property
    def hash(self) -> str:
        """The 16 hexadecimal digits that name it."""
        return cell_hash(self.task.commitment, self.identity or self.solver_hash, self.arm.label, self.seed)

    @property
    def label(self) -> str:
        """What a person calls it."""
        return f"{self.task.id}, {self.solver.label}, {self.arm.label}, seed {self.seed}"
