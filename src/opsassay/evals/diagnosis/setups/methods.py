"""Methods with all that a run needs: by registered name, from a file, or any command, each with parameters.

Foreign code is only loaded in a worker process, so that its import cannot end a command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsassay.core.errors import UserError
from opsassay.core.schema.run import Solver
from opsassay.evals.diagnosis.workers.answers import how_it_died, read_worker_answer
from opsassay.evals.diagnosis.workers.pool import shared_workers
from opsassay.evals.diagnosis.workers.sources import hash_of
from opsassay.evals.diagnosis.workers.template import ANSWER, describe_method
from opsassay.solvers.methods.base import METHODS

COMMAND = "command:"
"""Prefix of the name of a method that is a command."""

LOADING_S = 60.0
"""Time limit for loading and describing a method's code."""


@dataclass(frozen=True)
class MethodSetup:
    """A method with its *parameters*, ready to run.

    *name* is what a worker loads: a registered name, MODULE:CLASS or /FILE.py:CLASS; *command*: the words of a method
    that is a command.
    """

    name: str
    solver: Solver
    solver_hash: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()

    def job(self) -> dict[str, Any]:
        """Return the JSON-ready job from which a worker process makes and runs the method."""
        if self.command:
            return {"kind": "command", "name": self.name, "command": list(self.command)}
        return {"kind": "method", "name": self.name, "parameters": dict(self.parameters)}


def method_setup(name: str, parameters: Mapping[str, Any] = {}, folder: Path = Path()) -> MethodSetup:
    """Return the method *name* (registered, MODULE:CLASS, FILE.py:CLASS or ``command:WORDS``) with *parameters*.

    File paths are relative to *folder*. Raises NotFoundError for an unknown name or parameter, UserError for a value
    that a parameter does not take, and for code that cannot be loaded or is no method.
    """
    if name.startswith(COMMAND):
        return _command_method(name, parameters, folder)
    where, colon, made = name.rpartition(":")
    if colon and where.endswith(".py"):
        name = f"{(folder / where).resolve()}:{made}"
    if not colon and name not in METHODS.names():
        METHODS.load(name)  # which says what it is near to
    if not colon and name in METHODS.builtin_names():
        found = describe_method(name, parameters)
    else:
        found = _describe_in_worker(name, parameters)
    solver = Solver.model_validate(found["solver"])
    code = solver.model_copy(update={"fault_kinds": None})  # which stand in the sources
    return MethodSetup(name, solver, hash_of(code, map(Path, found["sources"])), found["parameters"])


def is_method(name: str) -> bool:
    """Return whether *name* has the form of a method, not of an agent: registered, a Python file, or a command."""
    return name in METHODS.names() or name.startswith(COMMAND) or name.rpartition(":")[0].endswith(".py")


def _describe_in_worker(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, parameters and sources of the method *name*, whose code a worker loads; raises UserError."""
    with tempfile.TemporaryDirectory(prefix="opsassay-", ignore_cleanup_errors=True) as folder:
        job = {"kind": "describe", "name": name, "parameters": dict(parameters)}
        try:
            code = shared_workers().run(job, Path(folder), LOADING_S)
        except TimeoutError:
            raise UserError(
                f"The method {name} was not loaded within {LOADING_S:g} s; make its import do less."
            ) from None
        if code:
            raise UserError(f"The method {name} cannot be loaded: {how_it_died(code)}.")
        said = read_worker_answer(Path(folder) / ANSWER)
    if not isinstance(said, dict) or "solver" not in said:
        raise UserError(
            str(said.get("error") if isinstance(said, dict) else f"The method {name} cannot be loaded: {said}.")
        )
    return said


def _command_method(name: str, parameters: Mapping[str, Any], folder: Path) -> MethodSetup:
    """Return the method of ``command:WORDS`` *name*; raises UserError for *parameters*, which a command cannot have."""
    try:
        words = shlex.split(name.removeprefix(COMMAND))
    except ValueError as error:
        raise UserError(f"{name} cannot be read as a command ({error}); quote it as in a shell.") from error
    if not words:
        raise UserError(f"{name} names no command; write it after the colon, as in -m 'command:./my_method.sh'.")
    if parameters:
        raise UserError(f"{name} takes no parameters ({', '.join(parameters)}); write them as words of the command.")
    files = {word: (folder / word).resolve() for word in words if (folder / word).is_file()}
    program = words[0]
    if program not in files and shutil.which(program) is None:
        raise UserError(f"There is no command {program}; give the path of a file, or a program that is installed.")
    if program in files and not os.access(files[program], os.X_OK):
        raise UserError(
            f"{program} may not be executed; make it so with `chmod +x {program}`, or name its interpreter."
        )
    shown = [files[word].name if word in files else word for word in words]
    solver = Solver(name=shlex.join(shown)[:120], configuration={"command": shown})
    absolute = tuple(str(files[word]) if word in files else word for word in words)
    return MethodSetup(name, solver, hash_of(solver, files.values()), command=absolute)
