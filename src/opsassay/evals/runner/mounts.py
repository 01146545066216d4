"""Folders of the machine that a sandboxed agent may read: checks before a run that they reveal no truth."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from opsassay.core.errors import RefusedError, UserError
from opsassay.evals.runner.commands import Sealing, refusal_to_seal
from opsassay.evals.runner.store import ATTEMPTS, DIAGNOSIS, RUN
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.sandbox.seal import own_hidden
from opsassay.telemetry.content import INCIDENT
from opsassay.telemetry.injection import CAUSAL_GRAPH, INJECTION
from opsassay.telemetry.tree import ANNOTATION, LEDGER, TRUTH

TELLING = frozenset({TRUTH, ANNOTATION, LEDGER, INJECTION, CAUSAL_GRAPH, INCIDENT, RUN, DIAGNOSIS, ATTEMPTS})
"""Names of files, of OpsAssay and public data sets, that reveal incidents, their truth or runs."""

MOST_ENTRIES = 500_000
"""A folder with more entries is not searched, and so not mounted."""

_LIVING = tuple(Path(name) for name in ("/proc", "/sys", "/dev", "/run", "/var/run"))
_TAKEN = tuple(
    Path(name)
    for name in (
        "/proc", "/sys", "/dev", "/run", "/etc", "/view", "/work", "/opt/opsassay-agent", "/usr", "/bin", "/sbin",
        "/lib", "/lib32", "/lib64", "/libx32",
    )
)  # fmt: skip


def mounts_of(agent: CommandAgent) -> dict[str, Path]:
    """Return path in the sandbox to folder, for the folders that *agent* asks to read; both are the same path.

    Raises UserError for a folder that cannot be mounted there, for one with OpsAssay's sources or the running kernel's
    files, and for one that holds a socket, a pipe or a file on incidents or runs. Symbolic links work only if their
    target is mounted too.
    """
    shown = {}
    for name in agent.file.readable:
        place, source = Path(name), Path(name).resolve()
        if not place.is_absolute() or ".." in place.parts:
            raise _mount_error(agent, name, "is no absolute path; write it from the root")
        if not source.exists():
            raise _mount_error(agent, name, "is not there; name a folder or file of this machine")
        if any(source.is_relative_to(living) for living in _LIVING):
            raise _mount_error(agent, name, "is a way into the running kernel; name files")
        if Path(tempfile.gettempdir()).resolve().is_relative_to(source):
            raise _mount_error(agent, name, "holds the folders of other runs; name one below it")
        if any(_paths_overlap(source, hidden.resolve()) for hidden in own_hidden()):
            raise _mount_error(
                agent, name, "is of OpsAssay or its Python, or holds them; name a folder apart from them"
            )
        if len(place.parts) < 2 or len(source.parts) < 2 or any(place.is_relative_to(taken) for taken in _TAKEN):
            raise _mount_error(agent, name, "has a place of its own in the seal; name a folder elsewhere, as in /opt")
        if why := _why_unmountable(source):
            raise _mount_error(agent, name, f"{why}; name a folder without it")
        shown[name] = source
    return shown


def require_image(agent: CommandAgent, sealing: Sealing) -> None:
    """Raise UserError when *agent* has a container image that is missing or, by *sealing*, cannot be sandboxed."""
    if agent.image is not None and (why := refusal_to_seal(sealing)) is not None:
        raise RefusedError(f"{agent.path}: an agent in an image runs sealed only, and is not sealed here: {why}")


def require_apart(agent: CommandAgent, folders: Iterable[Path]) -> None:
    """Raise UserError when a folder that *agent* can read contains, or lies in, one of *folders*.

    Also raised for a file of the agent in one of *folders*, unless its agent.yaml lies there too.
    """
    kept = [folder.resolve() for folder in folders]
    for folder in (one for one in kept if not agent.path.resolve().is_relative_to(one)):
        for _, file in agent.each_file():
            if file.resolve().is_relative_to(folder):
                raise UserError(f"{agent.path}: files: {file} is kept from agents; name what the agent is made of.")
    for name in agent.file.readable:
        source = Path(name).resolve()
        for folder in kept:
            if _paths_overlap(source, folder):
                raise _mount_error(agent, name, f"is not apart from {folder}, where incidents, truth or runs are")


def _paths_overlap(first: Path, second: Path) -> bool:
    """Return whether the paths are equal or one contains the other."""
    return first.is_relative_to(second) or second.is_relative_to(first)


def _why_unmountable(source: Path) -> str | None:
    """Return what in *source* must not be visible in a sandbox, None for nothing; links are not followed.

    Sockets and pipes must not be, since a process in the sandbox could reach one outside through them.
    """
    folders, seen = [source], 0
    if source.is_file():
        return f"is {source.name}, which tells of incidents or runs" if source.name in TELLING else None
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                seen += 1
                if seen > MOST_ENTRIES:
                    return f"has more than {MOST_ENTRIES:,} entries"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.name in TELLING:
                    return f"holds {entry.path}, which tells of incidents or runs"
                elif not (entry.is_symlink() or entry.is_file(follow_symlinks=False)):
                    return f"holds {entry.path}, which is no file but a way out"
    return None


def _mount_error(agent: CommandAgent, name: str, reason: str) -> UserError:
    """Return the error that the folder *name*, which *agent* asks to read, is refused; *reason* ends the sentence."""
    return UserError(f"{agent.path}: readable: {name} {reason}.")


def kept_of(paths: Sequence[Path]) -> list[Path]:
    """Return the folders with incidents and truth that agents must not read, given the *paths* of incidents."""
    return [path.parent.parent if path.parent.name == "incidents" else path for path in map(Path.resolve, paths)]
