"""The answer of a run: policies and collectors copied from the workspace, with size limits and without links."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from opsassay.core.errors import UserError
from opsassay.core.untrusted import one_sentence, read_plain, safe_text
from opsassay.evals.compliance.clusters.repository import FOLDER
from opsassay.evals.compliance.kyverno.documents import MAX_BYTES
from opsassay.evals.compliance.tasks import POLICY, ComplianceTask
from opsassay.solvers.agents.contract import AnswerError

ANSWER = "answer"
"""Folder of a run with the submitted files."""
MAX_FILES = 50
SUFFIXES = (".yaml", ".yml")


def write_files(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Write *files*, (relative path, content) pairs, below *folder*; folders in between are created."""
    for path, content in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def collect(workspace: Path, run_dir: Path, task: ComplianceTask) -> None:
    """Copy the answer files of *task* from *workspace* to *run_dir*; raises AnswerError if missing or invalid."""
    write_files(read_files(workspace, task), run_dir / ANSWER)


def collected(run_dir: Path, task: ComplianceTask) -> dict[str, bytes]:
    """Return the answer files stored in *run_dir*, content by path; raises AnswerError when missing or invalid."""
    return dict(read_files(run_dir / ANSWER, task))


def read_files(folder: Path, task: ComplianceTask) -> list[tuple[str, bytes]]:
    """Return the answer files of *task* below *folder* as sorted (path, content) pairs; raises AnswerError."""
    paths = _list_policy_files(folder / FOLDER) if task.collector is None else _list_named_files(folder, task.collector)
    try:
        return [(path, read_plain(folder / path, MAX_BYTES)) for path in paths]
    except UserError as error:
        raise AnswerError(one_sentence(str(error).replace(f"{folder}/", ""))) from error


def _list_named_files(folder: Path, collector: str) -> list[str]:
    """Return the paths of the *collector* and policy files below *folder*; raises AnswerError when one is missing."""
    for name in (collector, POLICY):
        if not os.path.lexists(folder / name):
            raise AnswerError(f"there is no {name}; put it into the workspace itself, under this name")
    return sorted((collector, POLICY))


def _list_policy_files(folder: Path) -> list[str]:
    """Return the paths of the YAML policy files below *folder*; raises AnswerError for none, too many or odd names."""
    if folder.is_symlink() or not folder.is_dir():
        raise AnswerError(f"there is no folder {FOLDER}/; put the policies there, as *.yaml")
    with os.scandir(folder) as entries:
        found = sorted(entry.name for entry in entries if entry.name.endswith(SUFFIXES))
    if not found:
        raise AnswerError(f"{FOLDER}/ holds no *.yaml; put the policies there")
    if len(found) > MAX_FILES:
        raise AnswerError(f"{FOLDER}/ holds {len(found)} files, more than {MAX_FILES}")
    if odd := next((name for name in found if not name.isprintable() or safe_text(name) != name), None):
        raise AnswerError(f"{FOLDER}/ holds a file whose name is no plain text, {odd!a}; give it another name")
    return [f"{FOLDER}/{name}" for name in found]
