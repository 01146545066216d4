"""Descriptions of requested tasks (name, class, level, complexity), stored in the folder ``STATE/tasks``.

Class, description and complexity are for the platform's operator only, not for agents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from opsassay.analysis.leaderboard.entries import TaskKey
from opsassay.core.schema.task import Task

FOLDER = "tasks"
LEVEL_OF: Mapping[str, str] = {"beginner": "easy", "intermediate": "medium", "expert": "hard"}
"""The task level for an agent of each level (Table 8 of ITBench); tasks without a level are for all agents."""


def keep_heads(state: Path, tasks: Iterable[Task]) -> None:
    """Store the task info (class, level, description) of *tasks* in the platform's folder *state*."""
    for task in tasks:
        path = _path_of(state, (task.id, task.commitment))
        if not path.exists():
            path.parent.mkdir(exist_ok=True, mode=0o700)
            (part := path.with_suffix(".part")).write_text(task.canonical_json(), encoding="utf-8")
            part.replace(path)


def read_head(state: Path, key: TaskKey) -> Task | None:
    """Return the stored task info with the id and digest *key*; None where it is missing."""
    with suppress(OSError, ValueError):
        return Task.model_validate_json(_path_of(state, key).read_bytes())
    return None


def is_for(task: Task, level: str) -> bool:
    """Return whether *task* suits an agent of *level*."""
    return level not in LEVEL_OF or task.level in (None, LEVEL_OF[level])


def _path_of(state: Path, key: TaskKey) -> Path:
    """Return the file in *state* that holds the task info of *key*."""
    return state / FOLDER / f"{hashlib.sha256(' '.join(key).encode()).hexdigest()}.json"
