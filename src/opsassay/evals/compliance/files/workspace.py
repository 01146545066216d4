"""The workspace of a compliance task: a git repository, and the file and git operations that an agent may use."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from opsassay.core.errors import UserError
from opsassay.core.untrusted import read_plain
from opsassay.evals.compliance.files.submitted import write_files

MAX_FILE, MAX_FILES, MAX_DEPTH, MAX_NAME = 2**20, 300, 12, 255
VERBS = ("add", "commit", "diff", "log", "restore", "show", "status")
_GIT_S = 20.0
_SAFE = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.allow=never",
    "commit.gpgSign=false",
    "gc.auto=0",
)
_OPTIONS = re.compile(
    r"-[0-9]+|-a|-A|-m|-am|-p|-s|--|--all|--cached|--message|--name-only|--oneline|--short|--staged|--stat"
)
_PERSON = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (
    ("NAME", "workspace"), ("EMAIL", "workspace@localhost"), ("DATE", "2026-01-01T00:00:00Z"),
)}  # fmt: skip


def begin(files: Mapping[str, bytes], folder: Path) -> None:
    """Write *files* into *folder* and commit them in a new git repository, if git is installed; raises UserError."""
    write_files(files.items(), folder)
    if shutil.which("git") is not None:
        _run_git(folder, "init", "--quiet", "--initial-branch=main", "--template=")
        _run_git(folder, "add", "--all")
        _run_git(folder, "commit", "--quiet", "--allow-empty", "--message=What is there")


class Workspace:
    """Files below *folder*, reached by relative path only: no links, nothing in .git, within size limits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def listed(self) -> list[str]:
        """Return a line "path (n bytes)" for each file, except those of git."""
        return [f"{path.relative_to(self.folder)} ({path.stat().st_size} bytes)" for path in self.files()]

    def read(self, path: str) -> bytes:
        """Return the content of the file *path*; raises UserError when it is missing or too large."""
        at = self._resolve_path(path)
        if at.is_symlink() or not at.is_file():
            raise UserError(f"There is no file {path} in the workspace.")
        if at.stat().st_size > MAX_FILE:
            raise UserError(f"{path} has more than {MAX_FILE} bytes.")
        return read_plain(at, MAX_FILE)

    def write(self, path: str, content: bytes) -> None:
        """Write *content* to *path*; raises UserError for a path outside the workspace, and above the size limits."""
        at = self._resolve_path(path)
        if len(content) > MAX_FILE:
            raise UserError(f"{path} would have {len(content)} bytes, more than {MAX_FILE}.")
        if not at.exists() and len(self.files()) >= MAX_FILES:
            raise UserError(f"There are {MAX_FILES} files already, which is the most.")
        if at.is_dir() or any(one.is_file() for one in at.parents if one != self.folder):
            raise UserError(f"{path}: there is a folder or a file in the way.")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(content)

    def git(self, words: Sequence[str]) -> str:
        """Run one allowed git subcommand with arguments *words*; return its output. Raises UserError."""
        if not words or words[0] not in VERBS:
            raise UserError(f"The first word is one of {', '.join(VERBS)}.")
        for before, word in itertools.pairwise(words):
            if words[0] == "commit" and before in ("-m", "-am", "--message") and not word.startswith("-"):
                continue  # a message may say what it likes
            if not _OPTIONS.fullmatch(word) if word.startswith("-") else (word.startswith(("/", ":")) or ".." in word):
                raise UserError(f"git {words[0]} with {word[:80]} is not allowed.")
        if shutil.which("git") is None:
            raise UserError("There is no git on this machine.")
        return _run_git(self.folder, *words)

    def files(self) -> list[Path]:
        """Return the paths of all files below the workspace, except those of git."""
        found = (path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink())
        return sorted(path for path in found if ".git" not in path.relative_to(self.folder).parts)

    def _resolve_path(self, path: str) -> Path:
        """Return *path* as an absolute path; raises UserError if it is outside, in .git or has odd characters."""
        parts = PurePosixPath(path).parts
        foreign = path.startswith("/") or any(part in ("..", ".git", ".gitattributes") for part in parts)
        if foreign or not parts or not path.isprintable() or len(parts) > MAX_DEPTH or len(path.encode()) > MAX_NAME:
            raise UserError(f"{path[:80]!r} is no path in the workspace, such as policies/one.yaml.")
        return self.folder.joinpath(*parts)


def _run_git(folder: Path, *words: str) -> str:
    """Run ``git`` with arguments *words* in *folder*; return its output. Raises UserError with git's message."""
    settings = [word for one in _SAFE for word in ("-c", one)]
    environment = {
        "PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8",
        "GIT_CEILING_DIRECTORIES": str(folder.parent), "GIT_PAGER": "cat", "GIT_EDITOR": "true", **_PERSON,
    }  # fmt: skip
    try:
        done = subprocess.run(
            ["git", "-C", folder, *settings, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_GIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UserError(f"git {words[0]} took longer than {_GIT_S:g} s.") from error
    said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
    if done.returncode != 0:
        raise UserError(f"git {words[0]} ended with {done.returncode}: {said[:400]}")
    return said
