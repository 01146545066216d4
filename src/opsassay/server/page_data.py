"""The data of the platform's pages (`ui/platform/`), read from its database and its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection, Select, and_, func, select
from sqlalchemy.exc import DataError

from opsassay.analysis.leaderboard.entries import TaskKey
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.run import Run
from opsassay.core.schema.task import Task
from opsassay.core.schema.validation_errors import problem
from opsassay.evals.runner.store import read_run
from opsassay.server import access
from opsassay.server.access import User, user_of
from opsassay.server.agents import LEVELS, AgentForm, agent_of, register
from opsassay.server.api import status_of
from opsassay.server.artefacts import MOST_BYTES
from opsassay.server.benchmarks import Platform, benchmark_of, cell_counts, request_benchmark, without_reasons
from opsassay.server.database import AGENTS, BENCHMARKS, CELLS, EVENTS, RESULTS, USERS
from opsassay.server.events import append
from opsassay.server.forms import UserForm
from opsassay.server.handed_in import hand_in
from opsassay.server.leaderboards import LeaderboardCache, self_reported
from opsassay.server.states import BUNDLE
from opsassay.server.task_info import read_head
from opsassay.server.task_sets import TaskSet, load_task_set, task_set_names
from opsassay.ui.platform.data import PlatformAccess, TaskSetLeaderboard

W = TypeVar("W", bound=BaseModel)
Row = Mapping[str, Any]


def page_access(platform: Platform, boards: LeaderboardCache) -> PlatformAccess:
    """Return the object by which pages read and change *platform*, with its leaderboards *boards*."""

    @contextmanager
    def opened(connecting: AbstractContextManager[Connection]) -> Iterator[PageData]:
        """Yield the pages' data on a database connection, open during the block."""
        try:
            with connecting as connection:
                yield PageData(platform, boards, connection)
        except DataError as error:
            raise UserError("A text holds a character that cannot be kept, such as NUL; leave it out.") from error

    return PlatformAccess(
        lambda: opened(platform.engine.connect()),
        lambda: opened(platform.asking()),
        status_of,
        access.ROLES,
        LEVELS,
        platform.hide_folders,
        MOST_BYTES,
    )


class PageData:
    """The `PlatformData` of one request, over its *connection*."""

    def __init__(self, platform: Platform, boards: LeaderboardCache, connection: Connection) -> None:
        self._platform, self._boards, self._connection = platform, boards, connection

    def visitor(self, token: str) -> User | None:
        """Return the user with *token*, None for an unknown token."""
        return user_of(self._connection, token)

    def task_sets(self) -> Mapping[str, TaskSet]:
        """Return all task sets of the platform by name."""
        state = self._platform.state
        return {name: load_task_set(state, name) for name in task_set_names(state)}

    def counts(self) -> Row:
        """Return {"results", "running", "waiting"}: the numbers of results, running and waiting cells."""
        cells = select(func.count()).select_from(CELLS)
        queries = {
            "results": select(func.count()).select_from(RESULTS),
            "running": cells.where(CELLS.c.bundle.not_in((BUNDLE.first, *BUNDLE.ends))),
            "waiting": cells.where(CELLS.c.bundle == BUNDLE.first),
        }
        return {name: self._connection.execute(query).scalar_one() for name, query in queries.items()}

    def board(self, task_set: str, level: str = "", *, hosted: bool = False) -> TaskSetLeaderboard:
        """Return the leaderboard of *task_set*, of its tasks of *level* if given, of self-hosted agents if *hosted*."""
        return self._boards.board(self._connection, task_set, level, hosted=hosted)

    def self_reported(self, task_set: str) -> Sequence[Row]:
        """Return the figures that owners reported on *task_set*."""
        return self_reported(self._connection, task_set)

    def run(self, task_set: str, folder: str) -> tuple[Run, Row]:
        """Return the run in *folder* of the task set's store, with its result's row; raises NotFoundError."""
        joined = RESULTS.join(CELLS).join(BENCHMARKS)
        events = and_(EVENTS.c.kind == "result", EVENTS.c.subject == CELLS.c.id)
        query = select(RESULTS, CELLS.c.task, EVENTS.c.seq, EVENTS.c.hash.label("event")).select_from(
            joined.outerjoin(EVENTS, events)
        )
        query = query.where(BENCHMARKS.c.task_set == task_set, RESULTS.c.run == folder).order_by(EVENTS.c.seq)
        row = self._connection.execute(query.limit(1)).mappings().first()
        if row is None:
            raise NotFoundError("run", folder.removeprefix("runs/"), [])
        return read_run(self._platform.store(task_set) / folder), without_reasons(self._platform, task_set, dict(row))

    def task(self, key: TaskKey) -> Task | None:
        """Return the stored task with the id and digest *key*, None where it is missing."""
        return read_head(self._platform.state, key)

    def agents(self, visitor: User) -> Sequence[Row]:
        """Return the rows of the agents of *visitor*, by name; an admin gets all."""
        return [
            row for row in self._select_rows(select(AGENTS).order_by(AGENTS.c.name)) if visitor.owns(row["owner_id"])
        ]

    def agent(self, visitor: User, agent: str) -> Row:
        """Return the row of *agent*; raises ForbiddenError unless *visitor* owns it."""
        return agent_of(self._connection, visitor, agent)

    def benchmarks(self, agents: Sequence[str]) -> Sequence[Row]:
        """Return the rows of all benchmarks of *agents* (ids), latest first."""
        query = select(BENCHMARKS).where(BENCHMARKS.c.agent_id.in_(agents)).order_by(BENCHMARKS.c.created_ns.desc())
        rows = self._select_rows(query)
        counts = cell_counts(self._connection, [row["id"] for row in rows])
        return [{**row, **counts[row["id"]]} for row in rows]

    def latest_benchmarks(self, count: int) -> Sequence[Row]:
        """Return the *count* newest benchmarks with the names of their agents, newest first."""
        query = select(BENCHMARKS, AGENTS.c.name.label("agent_name")).join_from(BENCHMARKS, AGENTS)
        return self._select_rows(query.order_by(BENCHMARKS.c.created_ns.desc()).limit(count))

    def benchmark(self, visitor: User, benchmark: str) -> Row:
        """Return *benchmark* with its cells and results; raises ForbiddenError unless *visitor* owns it."""
        found = benchmark_of(self._platform, self._connection, visitor, benchmark)
        return {**found, "ended": sum(cell["bundle"] in BUNDLE.ends for cell in found["cells"])}

    def users(self, visitor: User) -> Sequence[Row]:
        """Return the rows of all users; raises ForbiddenError unless *visitor* is an admin."""
        visitor.require()
        return self._select_rows(select(USERS).order_by(USERS.c.name))

    def register(self, visitor: User, form: Row, bundle: bytes | None) -> None:
        """Register the agent of *form* for *visitor*; *bundle* is the tar of an agent of files."""
        visitor.require("owner")
        agent = _as_form(AgentForm, form)
        register(self._connection, self._platform.state, self._platform.artefacts, visitor, agent, bundle)

    def hand_in(self, visitor: User, name: str, content: bytes) -> None:
        """Store the task set *name* in the tar *content* for *visitor*, who must be an author."""
        visitor.require("author")
        hand_in(self._platform, self._connection, visitor, name, content)

    def request(self, visitor: User, agent: str, task_set: str) -> str:
        """Request a benchmark of *agent*, which *visitor* must own, on *task_set*; return its id."""
        visitor.require("owner")
        return request_benchmark(self._platform, self._connection, visitor, agent, task_set)

    def add_user(self, visitor: User, form: Row) -> str:
        """Create the user of *form* and return the token; raises ForbiddenError unless *visitor* is an admin."""
        visitor.require()
        given = _as_form(UserForm, form)
        token = access.add_user(self._connection, self._platform.state, given.name, given.role, given.days)
        append(self._connection, "user", given.name, {"role": given.role})
        return token

    def renew_token(self, visitor: User, name: str) -> str:
        """Return a new token for the user *name*; raises ForbiddenError unless *visitor* is an admin."""
        visitor.require()
        token = access.renew_token(self._connection, self._platform.state, name)
        append(self._connection, "token renewed", name, {})
        return token

    def _select_rows(self, query: Select[Any]) -> list[Row]:
        """Run the SQL *query* and return its rows as dicts, column to value."""
        return [dict(row) for row in self._connection.execute(query).mappings()]


def _as_form(model: type[W], fields: Row) -> W:
    """Return *fields* validated as the API's form *model*; raises UserError."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise UserError(f"{problem(error)}.") from error
