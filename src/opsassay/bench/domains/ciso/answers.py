"""What an agent leaves: the policy files of its workspace, copied out of it, bounded and without links."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from opsassay.agents.contract import AnswerError
from opsassay.bench.domains.ciso.kyverno.documents import MAX_BYTES
from opsassay.bench.domains.ciso.repository import FOLDER
from opsassay.errors import UserError
from opsassay.outside import read_plain

ANSWER = "answer"
"""Folder of a run with the files that were handed in."""
MAX_FILES = 50
SUFFIXES = (".yaml", ".yml")


def place(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Write *files*, by their paths, into *folder*."""
    for path, content in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def collect(workspace: Path, run_dir: Path) -> None:
    """Copy the policy files of *workspace* into *run_dir*.

    Raises AnswerError with what is wrong when there are none, too many, or one that is too large or a link.
    """
    place(read_files(workspace / FOLDER), run_dir / ANSWER)


def collected(run_dir: Path) -> dict[str, bytes]:
    """Return the files that were handed in, by path; raises AnswerError as `collect`."""
    return dict(read_files(run_dir / ANSWER / FOLDER))


def read_files(folder: Path) -> list[tuple[str, bytes]]:
    """Return the policy files of *folder* as paths and contents, sorted; raises AnswerError."""
    if folder.is_symlink() or not folder.is_dir():
        raise AnswerError(f"there is no folder {FOLDER}/; put the policies there, as *.yaml")
    with os.scandir(folder) as entries:
        found = sorted(entry.name for entry in entries if entry.name.endswith(SUFFIXES))
    if not found:
        raise AnswerError(f"{FOLDER}/ holds no *.yaml; put the policies there")
    if len(found) > MAX_FILES:
        raise AnswerError(f"{FOLDER}/ holds {len(found)} files, more than {MAX_FILES}")
    try:
        return [(f"{FOLDER}/{name}", read_plain(folder / name, MAX_BYTES)) for name in found]
    except UserError as error:
        raise AnswerError(f"{FOLDER}/: {error}") from error
