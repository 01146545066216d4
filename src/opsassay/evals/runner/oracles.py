"""Oracles: scripted solvers that know the truth, by which a task's grading is tested; they are never ranked.

An oracle is a list of actions (of a scenario), an answer, or a folder of files that it copies into the agent's
workspace. Each has a name and a digest; plans name it ``oracle:NAME``, and its runs are stored like any others.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.run import Solver
from opsassay.evals.runner.ranking import ORACLE

EVERY_ORACLE = ORACLE + "*"
"""In a plan: all oracles of a task."""


class TaskOracle(Protocol):
    """One oracle of one task."""

    @property
    def name(self) -> str:
        """The oracle's name, unique in its task."""

    def digest(self) -> str:
        """Return the SHA-256 over the oracle's content."""


@dataclass(frozen=True)
class AnswerOracle:
    """An oracle that answers *diagnosis*."""

    name: str
    diagnosis: Diagnosis

    def digest(self) -> str:
        """Return the SHA-256 over the answer."""
        return self.diagnosis.digest()


@dataclass(frozen=True)
class FilesOracle:
    """An oracle that copies the files of *folder*, with their subfolders, into the agent's workspace."""

    name: str
    folder: Path

    def digest(self) -> str:
        """Return the SHA-256 over the files' paths and contents; raises UserError as `files`."""
        total = hashlib.sha256()
        for file in self.files():
            content = hashlib.sha256((self.folder / file).read_bytes()).hexdigest()
            total.update(f"{file.as_posix()}\0{content}\0".encode())
        return total.hexdigest()

    def files(self) -> list[Path]:
        """Return the sorted relative paths of all files in *folder*; UserError if it has none, or links."""
        entries = sorted(self.folder.rglob("*")) if self.folder.is_dir() else []
        if strange := next((e for e in entries if e.is_symlink() or not (e.is_file() or e.is_dir())), None):
            raise UserError(f"Oracle {self.name}: {strange} is neither a file nor a folder; put the file itself there.")
        files = [entry.relative_to(self.folder) for entry in entries if entry.is_file()]
        if not files:
            raise UserError(f"Oracle {self.name}: {self.folder} holds no files; put there what it is to leave behind.")
        return files

    def place(self, workspace: Path) -> list[Path]:
        """Copy the files into *workspace*, overwriting others; return the copies. Raises UserError as `files`."""
        placed = []
        for file in self.files():
            (workspace / file).parent.mkdir(parents=True, exist_ok=True)
            placed.append(Path(shutil.copyfile(self.folder / file, workspace / file)))
        return placed


def oracle_solver(oracle: TaskOracle) -> Solver:
    """Return *oracle* as a Solver record; its name, ``oracle:NAME``, excludes it from rankings."""
    return Solver(name=ORACLE + oracle.name, kind="agent", configuration={"digest": oracle.digest()})


def oracles_asked(solver: str, available: Iterable[str], task: str) -> list[str]:
    """Return the names in *available* that *solver* (``oracle:NAME`` or ``oracle:*``) selects; [] for other solvers.

    Raises NotFoundError for an oracle that *task* does not have.
    """
    if solver == EVERY_ORACLE:
        return list(available)
    if not solver.startswith(ORACLE):
        return []
    name, names = solver.removeprefix(ORACLE), list(available)
    if name not in names:
        raise NotFoundError(f"oracle of {task}", name, names, f"{EVERY_ORACLE} is all of them.")
    return [name]
