"""PlatformData: the data that the pages of the platform read from its server, and the changes that they request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from opsassay.analysis.leaderboard.board import Leaderboard
from opsassay.analysis.leaderboard.entries import TaskKey
from opsassay.core.schema.run import Run
from opsassay.core.schema.task import Task

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TaskSetLeaderboard:
    """The leaderboard (*board*) of a task set, or of its tasks of one level.

    *agents* are the registered agents by solver, *levels* the levels of the tasks, *level_of* the level of each task.
    """

    board: Leaderboard
    agents: Mapping[str, tuple[str, ...]]
    levels: tuple[str, ...]
    level_of: Mapping[TaskKey, str | None]


class Visitor(Protocol):
    """The user who asks for a page."""

    @property
    def name(self) -> str:
        """The user's name."""

    @property
    def role(self) -> str:
        """The user's role: admin, owner, author or runner."""


class PlatformData(Protocol):
    """What one request may read and change; methods raise OpsAssayError, and show a user only their own data.

    A *visitor* argument is a result of `visitor`.
    """

    def visitor(self, token: str) -> Visitor | None:
        """Return the user to whom *token* belongs, None for an unknown token."""

    def task_sets(self) -> Mapping[str, Any]:
        """Return every task set, with its domain and description, by its name."""

    def counts(self) -> Row:
        """Return {"results", "running", "waiting"}: the numbers of results, running and waiting cells."""

    def board(self, task_set: str, level: str = "", *, hosted: bool = False) -> TaskSetLeaderboard:
        """Return the leaderboard of *task_set*, of its tasks of *level* if given, of self-hosted agents if *hosted*."""

    def self_reported(self, task_set: str) -> Sequence[Row]:
        """Return the results that owners reported for their agents on *task_set*, latest first."""

    def run(self, task_set: str, folder: str) -> tuple[Run, Row]:
        """Return the run in *folder* of the store of *task_set*, with its database rows of result and events."""

    def task(self, key: TaskKey) -> Task | None:
        """Return the task with this *key* (id, digest), None when it is not stored."""

    def agents(self, visitor: Any) -> Sequence[Row]:
        """Return the agents that *visitor* owns, as rows."""

    def agent(self, visitor: Any, agent: str) -> Row:
        """Return the row of the agent with the id *agent*, which *visitor* must own."""

    def benchmarks(self, agents: Sequence[str]) -> Sequence[Row]:
        """Return the benchmarks of *agents* (ids), latest first, with the numbers of *cells* (runs) and of *ended* ones."""

    def latest_benchmarks(self, count: int) -> Sequence[Row]:
        """Return the *count* latest benchmarks of all users."""

    def benchmark(self, visitor: Any, benchmark: str) -> Row:
        """Return the benchmark with the id *benchmark*, which *visitor* must own, with its cells."""

    def users(self, visitor: Any) -> Sequence[Row]:
        """Return all users; *visitor* must be an admin."""

    def register(self, visitor: Any, form: Row, bundle: bytes | None) -> None:
        """Register the agent described in *form* for *visitor*; *bundle* is the tar of an agent of files."""

    def hand_in(self, visitor: Any, name: str, content: bytes) -> None:
        """Store the task set *name* of *visitor*; *content* is a tar with task_set.yaml at its top."""

    def request(self, visitor: Any, agent: str, task_set: str) -> str:
        """Request a benchmark of *agent*, which *visitor* must own, on *task_set*; return its id."""

    def add_user(self, visitor: Any, form: Row) -> str:
        """Create, as the admin *visitor*, the user that *form* describes (name, role, days); return the new token."""

    def renew_token(self, visitor: Any, name: str) -> str:
        """Replace, as the admin *visitor*, the token of the user *name*; return the new one."""


@dataclass(frozen=True)
class PlatformAccess:
    """How pages reach the platform: *reading* and *writing* open its data for one request.

    *status_of* returns the HTTP status of an error, *said* the text that may be shown of it; *most_bytes* is the largest
    upload. *roles* and *levels* are the choices of forms, each level with its description.
    """

    reading: Callable[[], AbstractContextManager[PlatformData]]
    writing: Callable[[], AbstractContextManager[PlatformData]]
    status_of: Callable[[Exception], int]
    roles: Sequence[str]
    levels: Mapping[str, str]
    said: Callable[[Exception], str]
    most_bytes: int


@dataclass(frozen=True)
class PlatformRequest:
    """One request for a page: platform, signed-in user or None, path parameters, query, and the URL from its path on."""

    access: PlatformAccess
    data: PlatformData
    visitor: Visitor | None
    path: Mapping[str, Any]
    query: Mapping[str, str]
    address: str = ""
