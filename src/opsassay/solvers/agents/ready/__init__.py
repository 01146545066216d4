"""Agents of other projects, ready to be graded: one YAML file each in this folder, found by its name.

Each adds to the fields of an agent.yaml the program to install, the files to write for it, and how far it was checked.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from opsassay.core.errors import UserError
from opsassay.core.extras import require
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.validation_errors import problem
from opsassay.solvers.agents.command import PLACES, AgentFile, CommandAgent

FOLDER = Path(__file__).parent
TARGET = "OPSASSAY_AGENT"
"""The environment variable with the command or address of the agent that mcp, http and a2a run."""
_APIS = frozenset({"prometheus", "jaeger", "loki", "alertmanager", "tempo"})
_VERSION_S = 30.0
_SYSTEM = tuple(Path(name) for name in ("/usr", "/bin", "/lib", "/lib64", "/sbin"))


class ReadyFile(AgentFile):
    """A ready agent as its YAML describes it."""

    known: ClassVar[tuple[str, ...]] = (*PLACES, "program", "target")

    program: str = Field(default="", description="name of the executable on PATH")
    target: str = Field(default="", description="what OPSASSAY_AGENT has to be, for one that is named by it")
    install: str = Field(description="the command that installs it")
    tools: str = Field(description="how it gets its tools")
    traffic: str = Field(description="how its model is led through the proxy")
    answers: str = Field(description="how its answer is read")
    documentation: str = Field(description="where its flags are documented")
    checked: Literal["run", "documentation"] = Field(description="whether it was run, or compared with documentation")
    writes: dict[str, str] = Field(default_factory=dict, description="files of its work folder, with places filled in")


class ReadyAgent(CommandAgent):
    """The ready-made agent of the YAML file *path*; raises UserError when its program is not installed."""

    def __init__(self, path: Path) -> None:
        described = load_yaml(path, ReadyFile)
        if described.target:
            described = _with_target(described)
        super().__init__(path, ReadyFile)
        self._ready, self.file = described, described
        if not described.program:
            return
        found = shutil.which(described.program)
        if found is None:
            raise UserError(
                f"The agent {described.agent} needs the program {described.program}, which is not on PATH; install it with "
                f"`{described.install}`."
            )
        self._program = _real_path(Path(found).absolute())
        self.file = described.model_copy(
            update={
                "readable": _installed_at(self._program),
                "source": f"{described.source} {_program_version(found)}".strip(),
            }
        )

    def words(self, places: Mapping[str, str]) -> list[str]:
        """Return the command's words with {placeholders} replaced, {program} by the program's real path."""
        program = {"program": str(self._program)} if self._ready.program else {}
        return super().words({**places, **program})

    def variables(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that the agent's file sets, with all {placeholders} replaced."""
        return {name: self.filled(text, places) for name, text in self._ready.environment.items()}

    def work_files(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return the files for the agent's work folder before the start: name to content, filled in from *places*."""
        return {name: self.filled(text, places) for name, text in self._ready.writes.items()}


def ready_files() -> dict[str, Path]:
    """Return the YAML file of each ready-made agent by the agent's name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def described(name: str) -> dict[str, Any]:
    """Return the YAML fields of the ready-made agent *name*, and ``installed``: its program's path or None."""
    file = load_yaml(ready_files()[name], ReadyFile)
    shown = file.model_dump(mode="json", exclude={"files", "readable"})
    return shown | {"installed": shutil.which(file.program) if file.program else None}


def named_path(name: str) -> str:
    """Return the path of the YAML file of the ready-made agent *name*; any other *name* unchanged."""
    return str(ready_files().get(name, name))


def resolve_ready_agent(entry: Any) -> Any:
    """Return *entry* of a plan (a name, or a mapping with `name`) as a mapping; a ready-made name becomes its path."""
    if isinstance(entry, dict) and isinstance(entry.get("name"), str) and not entry.get("command"):
        return {**entry, "name": named_path(entry["name"])}
    return {"name": named_path(entry)} if isinstance(entry, str) else entry


def or_a_name(schema: dict[str, Any]) -> None:
    """Change the JSON *schema* of a model in place, so that it also accepts a non-empty string."""
    whole = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"type": "string", "minLength": 1}, whole]


def external_agent(path: Path) -> CommandAgent:
    """Return the agent described by the YAML file *path*; raises ConfigError, UserError, ModuleNotFoundError."""
    require("mcp")
    return ReadyAgent(path) if path.absolute().parent == FOLDER else CommandAgent(path)


def _with_target(file: ReadyFile) -> ReadyFile:
    """Return *file* with {target} in its command replaced by the words of the environment variable OPSASSAY_AGENT.

    Their first word becomes the program, and their {placeholders} say what the agent needs. Raises UserError when the
    variable is empty.
    """
    try:
        words = shlex.split(os.environ.get(TARGET, ""))
    except ValueError as error:
        raise UserError(f"{TARGET} cannot be split into words: {error}; close its quotes.") from error
    if not words:
        raise UserError(f"The agent {file.agent} is named by the variable {TARGET}: {file.target}.")
    command: list[str] = []
    for word in file.command:
        command += words if word == "{target}" else [word]
    named = {name for word in words for _, name, _, _ in _parse_format(word) if name}
    needs = [*file.needs, *(["model"] if named & {"model", "model_url"} else []), *(["apis"] if named & _APIS else [])]
    if not file.files:
        command[0] = "{program}"
    values = file.model_dump(exclude={"command", "needs", "program"})
    try:
        return ReadyFile(**values, command=command, needs=needs, program="" if file.files else words[0])
    except ValidationError as error:
        raise UserError(f"{TARGET}: {problem(error)}.") from error


def _parse_format(word: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """Return the parts of a command *word* as `string.Formatter.parse` does; raises UserError for a lone brace."""
    try:
        return list(Formatter().parse(word))
    except ValueError as error:
        raise UserError(f"{TARGET}: {word!r}: {error}; write {{{{ for a brace.") from error


def _installed_at(program: Path) -> tuple[str, ...]:
    """Return (the folder that the sandbox must show for *program*,), or () for a system folder, which it always shows."""
    if any(program.is_relative_to(folder) for folder in _SYSTEM):
        return ()
    for folder in reversed(program.parents):
        if folder.name == "node_modules" or (folder / "pyvenv.cfg").is_file():
            return (str(folder),)
    return (str(program.parent),)


def _real_path(program: Path) -> Path:
    """Return the path of *program* without symbolic links; a virtual environment's python keeps its own path."""
    return program if (program.parent.parent / "pyvenv.cfg").is_file() else program.resolve()


def _program_version(program: str) -> str:
    """Return the last line that ``PROGRAM --version`` prints; '' when it fails or takes too long."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=_VERSION_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter(reversed(done.stdout.strip().splitlines())), "")[:80]
