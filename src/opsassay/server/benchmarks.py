"""Benchmarks: an agent on a frozen task set, split into cells (one task and seed each) that workers run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, and_, func, insert, or_, select, text, update

from opsassay.core.errors import LostError, OpsAssayError, UserError
from opsassay.evals.runner.generated_tasks import HELD_OUT
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.run import PlannedRun
from opsassay.server.access import ForbiddenError, User, new_id
from opsassay.server.agents import AgentForm, agent_of, planned, register
from opsassay.server.artefacts import Artefacts
from opsassay.server.database import AGENTS, BENCHMARKS, CELLS, RESULTS, USERS
from opsassay.server.events import Signer, append, chained
from opsassay.server.index import note
from opsassay.server.presence import NOW_NS, is_free, is_present
from opsassay.server.states import AGENT, BENCHMARK, BUNDLE, StateMachine, route
from opsassay.server.task_info import LEVEL_OF, is_for, keep_heads
from opsassay.server.task_sets import TaskSet, baselines_of, jobs_of, load_task_set

HEARTBEAT_S, GONE_S = 5.0, 15.0
"""Seconds between heartbeats of a worker on its cell, and without one before another worker may take the cell."""
MOST_CELLS = 20_000
MOST_OPEN = 10
"""Most cells (MOST_CELLS) and benchmarks of one owner that have not ended; admins may have more."""
_ASKING_LOCK = 0x0A55A904


class HeldError(OpsAssayError):
    """Another worker runs this cell now."""


@dataclass(frozen=True)
class Platform:
    """The shared parts of the platform: the folder *state*, the database, the key that signs events, the uploads."""

    state: Path
    engine: Engine
    signer: Signer
    artefacts: Artefacts

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that also writes events; it commits at the end of the block.

        To avoid deadlocks, lock the row of a cell before that of its benchmark.
        """
        with self.engine.begin() as connection, chained(connection, self.signer):
            yield connection

    @contextmanager
    def asking(self) -> Iterator[Connection]:
        """Yield a connection as `writing`, to one caller at a time, so that a name can be checked and taken atomically."""
        with self.writing() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ASKING_LOCK})
            yield connection

    def hide_folders(self, error: object) -> str:
        """Return the message of *error* with this machine's folders replaced."""
        text = str(error)
        for folder in (self.state, Path(__file__).parents[1], Path.home()):
            text = text.replace(f"{folder}{os.sep}", "").replace(str(folder), "the platform")
        return text

    def store(self, task_set: str) -> Path:
        """Return the folder of the run store of *task_set*, which all agents share, so that equal cells run once."""
        return self.state / "stores" / task_set


def request_benchmark(platform: Platform, connection: Connection, user: User, agent_id: str, task_set: str) -> str:
    """Request a benchmark: freeze the tasks of *task_set* for an agent of *user*, queue its cells, return its id.

    An unfinished benchmark of the agent on the same tasks is returned instead. Raises UserError, ForbiddenError, and
    the domain's error for tasks that cannot be run.
    """
    agent = agent_of(connection, user, agent_id)
    tasks = load_task_set(platform.state, task_set)
    if tasks.domain not in agent["domains"]:
        raise UserError(f"{agent['name']} is registered for {', '.join(agent['domains'])}, not for {tasks.domain}.")
    if (same := _open_benchmark(connection, agent_id, task_set, tasks)) is not None:
        return same
    if user.role != "admin":
        _require_attempts_left(connection, user, task_set, tasks)
    for name in baselines_of(tasks):
        _ensure_baseline(platform, connection, name, task_set, tasks)
    return _queue_benchmark(platform, connection, agent, task_set, tasks)


def _open_benchmark(connection: Connection, agent_id: str, task_set: str, tasks: TaskSet) -> str | None:
    """Return the id of the unfinished benchmark of *agent_id* on the same *tasks*; None without one."""
    of_agent = and_(BENCHMARKS.c.agent_id == agent_id, BENCHMARKS.c.task_set == task_set)
    same = and_(of_agent, BENCHMARKS.c.digest == tasks.digest(), BENCHMARKS.c.state.not_in(BENCHMARK.ends))
    return connection.execute(select(BENCHMARKS.c.id).where(same)).scalars().first()


def _require_attempts_left(connection: Connection, user: User, task_set: str, tasks: TaskSet) -> None:
    """Raise UserError when *user* has used up the attempts on *tasks* or has too many open benchmarks."""
    if tasks.closed:
        raise UserError(f"{task_set} is closed; no agent is graded on it any more.")
    of_user = select(BENCHMARKS.c.task_set, BENCHMARKS.c.digest, BENCHMARKS.c.state).join_from(BENCHMARKS, AGENTS)
    rows = list(connection.execute(of_user.where(AGENTS.c.owner_id == user.id)))
    asked = sum((row.task_set, row.digest) == (task_set, tasks.digest()) for row in rows)
    if asked >= tasks.attempts:
        raise UserError(f"You have asked for {asked} benchmarks on {task_set}, which are all that an owner has.")
    if sum(row.state not in BENCHMARK.ends for row in rows) >= MOST_OPEN:
        raise UserError(f"{MOST_OPEN} of your benchmarks are not at an end yet; wait for one of them.")


def _queue_benchmark(
    platform: Platform, connection: Connection, agent: Mapping[str, Any], task_set: str, tasks: TaskSet
) -> str:
    """Store a benchmark of *agent* on *tasks* with its cells, queue these, return its id; raises UserError."""
    every = _plan_jobs(platform, agent, task_set, tasks)
    jobs = [job for job in every if is_for(job.cell.task, agent["level"])]
    if every and not jobs:
        raise UserError(
            f"{task_set} has no {LEVEL_OF[agent['level']]} task, and {agent['name']} is registered as {agent['level']}; "
            "register it for another level, or for any."
        )
    if not 0 < len(jobs) <= MOST_CELLS:
        raise UserError(f"{task_set} comes to {len(jobs)} cells; a benchmark has 1 to {MOST_CELLS}.")
    if len(jobs) + (waiting := _open_cells(connection, agent["owner_id"])) > MOST_CELLS:
        raise UserError(
            f"{task_set} comes to {len(jobs)} cells and {waiting} of yours are not at an end yet; an owner has at most "
            f"{MOST_CELLS} at a time: wait for some of them."
        )
    benchmark, now, digest = new_id(), time.time_ns(), tasks.digest()
    row = {
        "id": benchmark, "agent_id": agent["id"], "task_set": task_set, "digest": digest,
        "plan": tasks.model_dump(mode="json"), "state": BENCHMARK.first, "since_ns": now, "created_ns": now,
    }  # fmt: skip
    cells = [_make_cell_row(benchmark, job, now) for job in jobs]
    connection.execute(insert(BENCHMARKS).values(**row))
    connection.execute(insert(CELLS), cells)
    keep_heads(platform.state, (job.cell.task for job in jobs))
    note(platform.state, "benchmarks", [row])
    note(platform.state, "cells", cells)
    body = {"agent": agent["id"], "task_set": task_set, "digest": digest, "cells": len(jobs)}
    append(connection, "benchmark requested", benchmark, body)
    move_benchmark(connection, benchmark, "Queued")
    return benchmark


def _open_cells(connection: Connection, owner: str) -> int:
    """Return how many cells (task and seed) of *owner* have not ended; 0 for an admin."""
    of_owner = and_(AGENTS.c.owner_id == owner, USERS.c.role != "admin", CELLS.c.bundle.not_in(BUNDLE.ends))
    of_benchmark = CELLS.join(BENCHMARKS, CELLS.c.benchmark_id == BENCHMARKS.c.id)
    whose = of_benchmark.join(AGENTS, BENCHMARKS.c.agent_id == AGENTS.c.id).join(USERS, AGENTS.c.owner_id == USERS.c.id)
    return connection.execute(select(func.count()).select_from(whose).where(of_owner)).scalar_one()


def _ensure_baseline(platform: Platform, connection: Connection, name: str, task_set: str, tasks: TaskSet) -> None:
    """Queue a benchmark of the baseline *name* on *tasks* unless it has one."""
    label = f"{name.removeprefix(ORACLE)} (baseline of {tasks.domain})"
    ours = AGENTS.c.name == label, AGENTS.c.kind == "built_in", AGENTS.c.source == name
    agent = connection.execute(select(AGENTS).where(*ours)).mappings().first()
    if agent is not None:
        of_set = and_(BENCHMARKS.c.agent_id == agent["id"], BENCHMARKS.c.task_set == task_set)
        asked = select(BENCHMARKS.c.id).where(of_set, BENCHMARKS.c.digest == tasks.digest())
        if connection.execute(asked).first() is not None:
            return
    if tasks.baselines is None:
        try:
            _plan_jobs(platform, {"kind": "built_in", "source": name}, task_set, tasks)
        except UserError:
            return
    row = agent or _register_baseline(platform, connection, name, label, tasks.domain)
    _queue_benchmark(platform, connection, dict(row), task_set, tasks)


def _register_baseline(
    platform: Platform, connection: Connection, name: str, label: str, domain: str
) -> Mapping[str, Any]:
    """Register the baseline *name* under *label* as an agent of the first admin; return its row."""
    owner = connection.execute(select(USERS).where(USERS.c.role == "admin").order_by(USERS.c.created_ns))
    if (row := owner.mappings().first()) is None:
        raise UserError("The platform has no admin, to whom baselines belong; start it with `opsassay server start`.")
    form = AgentForm.model_validate({"name": label, "kind": "built_in", "domains": [domain], "source": name})
    user = User(row["id"], row["name"], row["role"])
    return agent_of(connection, user, register(connection, platform.state, platform.artefacts, user, form, None))


def _plan_jobs(platform: Platform, agent: Mapping[str, Any], name: str, tasks: TaskSet) -> list[PlannedRun]:
    """Return the planned runs of *agent* (its row) on the task set *name*, one for each task and seed."""
    asked, further = planned(platform.state, platform.artefacts, agent)
    merged = {key: {**tasks.part.get(key, {}), **value} for key, value in further.items()}
    return jobs_of(platform.state, name, tasks, [asked], merged)


def _make_cell_row(benchmark: str, job: PlannedRun, now: int) -> dict[str, Any]:
    """Return the row of the table `cells` for the planned run *job*; *now* is in ns."""
    cell = job.cell
    return {
        "id": f"{benchmark}-{cell.hash}", "benchmark_id": benchmark, "hash": cell.hash, "domain": cell.task.domain,
        "task": cell.task.id, "task_digest": cell.task.commitment, "arm": cell.arm.label, "seed": cell.seed,
        "bundle": BUNDLE.first, "agent": AGENT.first, "since_ns": now, "tries": 0,
    }  # fmt: skip


@dataclass(frozen=True)
class FrozenBenchmark:
    """The content of a benchmark: its *task_set*, its jobs by hash of their cell; *hosted*: the agent is self-hosted."""

    task_set: str
    hosted: bool
    jobs: Mapping[str, PlannedRun]


def asked_by(platform: Platform, benchmark: str) -> FrozenBenchmark:
    """Return the tasks and settings that *benchmark* froze when it was requested."""
    with platform.engine.connect() as connection:
        query = select(BENCHMARKS.c.plan, BENCHMARKS.c.task_set, AGENTS).join_from(BENCHMARKS, AGENTS)
        row = dict(connection.execute(query.where(BENCHMARKS.c.id == benchmark)).mappings().one())
    jobs = _plan_jobs(platform, row, row["task_set"], TaskSet.model_validate(row["plan"]))
    return FrozenBenchmark(row["task_set"], row["kind"] == "self_hosted", {job.cell.hash: job for job in jobs})


def require_frozen(job: PlannedRun | None, cell: Mapping[str, Any]) -> PlannedRun:
    """Return *job* if its task is unchanged since the row *cell* was made; raises UserError."""
    if job is None or job.cell.task.commitment != cell["task_digest"]:
        raise UserError(
            f"The task {cell['task']} is not what it was when the benchmark was asked for; ask for another."
        )
    return job


def move_benchmark(connection: Connection, benchmark: str, desired: str, error: str | None = None) -> None:
    """Move a benchmark to the state *desired*, by the states between; raises TransitionError if not allowed."""
    present = connection.execute(
        select(BENCHMARKS.c.state).where(BENCHMARKS.c.id == benchmark).with_for_update()
    ).scalar_one()
    if path := route(BENCHMARK, present, desired):
        values = {"state": desired, "since_ns": time.time_ns(), "error": error}
        connection.execute(update(BENCHMARKS).where(BENCHMARKS.c.id == benchmark).values(**values))
        append(connection, "benchmark", benchmark, {"to": list(path), "error": error})


def move_cell(connection: Connection, cell: str, **desired: str) -> None:
    """Move a cell to the ``bundle`` or ``agent`` state given by keyword; raises TransitionError if not allowed."""
    row = connection.execute(select(CELLS).where(CELLS.c.id == cell).with_for_update()).mappings().one()
    machines: dict[str, StateMachine] = {"bundle": BUNDLE, "agent": AGENT}
    routes = {name: route(machines[name], row[name], to) for name, to in desired.items()}
    if any(routes.values()):
        connection.execute(update(CELLS).where(CELLS.c.id == cell).values(**desired, since_ns=time.time_ns()))
        append(connection, "cell", cell, {name: list(path) for name, path in routes.items() if path})


def claim_cell(platform: Platform, cell: str, worker: str) -> Mapping[str, Any] | None:
    """Assign *cell* to *worker* and return its row; None when it has ended or its agent is absent.

    Raises HeldError while another worker runs it, or waits for its agent with another cell.
    """
    free = and_(or_(CELLS.c.worker.is_(None), CELLS.c.heartbeat_ns < NOW_NS - int(GONE_S * 1e9)), is_free(cell))
    with platform.writing() as connection:
        row = connection.execute(
            update(CELLS).where(and_(CELLS.c.id == cell, free, is_present(), CELLS.c.bundle.not_in(BUNDLE.ends)))
            .values(worker=worker, heartbeat_ns=NOW_NS, tries=CELLS.c.tries + 1).returning(CELLS)
        ).mappings().first()  # fmt: skip
        if row is None:
            open_one = and_(CELLS.c.id == cell, is_present(), CELLS.c.bundle.not_in(BUNDLE.ends))
            if connection.execute(select(CELLS.c.id).where(open_one)).first() is not None:
                raise HeldError(f"Another worker runs the cell {cell} now, or waits for its agent.")
            return None
        begin_anew(connection, cell)  # whatever another worker had begun
        state = select(BENCHMARKS.c.state).where(BENCHMARKS.c.id == row["benchmark_id"])
        if connection.execute(state).scalar_one() == "Queued":
            move_benchmark(connection, row["benchmark_id"], "Running")
        return dict(row)


def begin_anew(connection: Connection, cell: str) -> None:
    """Reset bundle and agent state of *cell* to the start of an attempt."""
    move_cell(connection, cell, bundle=BUNDLE.first, agent=AGENT.first)
    move_cell(connection, cell, bundle="Provisioning", agent="Initializing")


def beat(platform: Platform, cell: str, worker: str) -> bool:
    """Record a heartbeat of *worker* on *cell*; return False when it no longer has that cell."""
    with platform.engine.begin() as connection:
        mine = and_(CELLS.c.id == cell, CELLS.c.worker == worker)
        return bool(connection.execute(update(CELLS).where(mine).values(heartbeat_ns=NOW_NS)).rowcount)


def put_off(platform: Platform, cell: str, worker: str) -> None:
    """Return *cell* of *worker* to the queue because its agent is absent; the attempt does not count."""
    with platform.writing() as connection:
        mine = and_(CELLS.c.id == cell, CELLS.c.worker == worker)
        values: dict[str, Any] = {"worker": None, "heartbeat_ns": None, "access": None, "tries": CELLS.c.tries - 1}
        if connection.execute(update(CELLS).where(mine).values(values)).rowcount:
            move_cell(connection, cell, bundle=BUNDLE.first, agent=AGENT.first)


def give_back(
    platform: Platform, cell: str, worker: str, *, counts_attempt: bool = True, ended_by: str | None = None
) -> None:
    """Release *cell* without a result, for another worker; *counts_attempt* keeps the attempt counted.

    *ended_by* is the type of an unexpected error; its message stays in the worker's log, since it may hold secrets of
    the task.
    """
    with platform.engine.begin() as connection:
        mine = and_(CELLS.c.id == cell, CELLS.c.worker == worker)
        tries = CELLS.c.tries if counts_attempt else CELLS.c.tries - 1
        values: dict[str, Any] = {"worker": None, "heartbeat_ns": None, "tries": tries}
        if ended_by is not None:
            values["error"] = f"{worker} met {ended_by}, of which its log says more."
        connection.execute(update(CELLS).where(mine).values(values))


def put_result(platform: Platform, cell: str, worker: str, result: Mapping[str, Any], agent: str) -> None:
    """Store the result of *cell* and end it, the agent in the state *agent*; raises LostError if *worker* lost it."""
    with platform.writing() as connection:
        row = connection.execute(select(CELLS).where(CELLS.c.id == cell).with_for_update()).mappings().one()
        if row["worker"] != worker:
            raise LostError("The cell was taken over by another worker, whose result counts.")
        connection.execute(insert(RESULTS).values(cell_id=cell, **result))
        connection.execute(update(CELLS).where(CELLS.c.id == cell).values(error=None))
        move_cell(connection, cell, bundle="Terminated", agent=_final_agent_state(row["agent"], agent))
        append(connection, "result", cell, {k: result[k] for k in ("passed", "errored", "evidence")})
        end_if_whole(connection, row["benchmark_id"])


def put_error(platform: Platform, cell: str, worker: str, error: str) -> None:
    """End *cell*, which cannot be run, with *error*; raises LostError when *worker* no longer has it."""
    with platform.writing() as connection:
        row = connection.execute(select(CELLS).where(CELLS.c.id == cell).with_for_update()).mappings().one()
        if row["worker"] != worker:
            raise LostError("The cell was taken over by another worker, whose result counts.")
        connection.execute(update(CELLS).where(CELLS.c.id == cell).values(error=platform.hide_folders(error)[:2000]))
        move_cell(connection, cell, bundle="Error", agent=_final_agent_state(row["agent"], "Error"))
        end_if_whole(connection, row["benchmark_id"])


def _final_agent_state(agent_state: str, run_state: str) -> str:
    """Return the end state of an agent: *agent_state* if that is one, else *run_state*."""
    return agent_state if agent_state in ("Finished", "Error", "TimedOut") else run_state


def end_if_whole(connection: Connection, benchmark: str) -> None:
    """Move *benchmark* to Finished when all of its cells have ended."""
    connection.execute(select(BENCHMARKS.c.id).where(BENCHMARKS.c.id == benchmark).with_for_update())
    left = and_(CELLS.c.benchmark_id == benchmark, CELLS.c.bundle.not_in(BUNDLE.ends))
    if connection.execute(select(CELLS.c.id).where(left).limit(1)).first() is None:
        move_benchmark(connection, benchmark, "Finished")


def benchmark_of(platform: Platform, connection: Connection, user: User, benchmark: str) -> dict[str, Any]:
    """Return *benchmark* with its cells and results, for its owner; raises ForbiddenError for others."""
    query = select(BENCHMARKS, AGENTS.c.owner_id, AGENTS.c.name.label("agent_name")).join_from(BENCHMARKS, AGENTS)
    row = connection.execute(query.where(BENCHMARKS.c.id == benchmark)).mappings().first()
    if row is None or not user.owns(row["owner_id"]):
        raise ForbiddenError("There is no such benchmark, or it is not yours.")
    names = ("id", "agent_id", "agent_name", "task_set", "digest", "state", "error", "created_ns")
    cells = [without_reasons(platform, row["task_set"], cell, user) for cell in cells_of(connection, benchmark)]
    return {**{name: row[name] for name in names}, "cells": cells}


def without_reasons(
    platform: Platform, task_set: str, row: Mapping[str, Any], user: User | None = None
) -> dict[str, Any]:
    """Return the result *row*; without its metrics' reasons if the task is held out and *user* is no admin."""
    if HELD_OUT not in row["task"] or not row["metrics"] or (user is not None and user.role == "admin"):
        return dict(row)
    if load_task_set(platform.state, task_set).closed:
        return dict(row)
    return {**row, "metrics": {name: {**metric, "reason": ""} for name, metric in row["metrics"].items()}}


def cell_counts(connection: Connection, benchmarks: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return for each of *benchmarks* (ids) the numbers of *cells* and of *ended* cells."""
    ended = func.count().filter(CELLS.c.bundle.in_(BUNDLE.ends))
    query = select(CELLS.c.benchmark_id, func.count().label("cells"), ended.label("ended"))
    query = query.where(CELLS.c.benchmark_id.in_(benchmarks)).group_by(CELLS.c.benchmark_id)
    return {row.benchmark_id: {"cells": row.cells, "ended": row.ended} for row in connection.execute(query)}


def cells_of(connection: Connection, benchmark: str) -> list[dict[str, Any]]:
    """Return the cells of *benchmark* with their results, ordered by task and seed."""
    shown = ("id", "hash", "domain", "task", "arm", "seed", "bundle", "agent", "worker", "tries", "error")
    columns = [CELLS.c[name] for name in shown]
    query = select(*columns, RESULTS.c.passed, RESULTS.c.errored, RESULTS.c.metrics, RESULTS.c.evidence, RESULTS.c.run)
    query = query.outerjoin_from(CELLS, RESULTS).where(CELLS.c.benchmark_id == benchmark)
    return [
        dict(row) for row in connection.execute(query.order_by(CELLS.c.task, CELLS.c.seed, CELLS.c.hash)).mappings()
    ]


def queued_cells(connection: Connection, benchmark: str) -> Sequence[tuple[str, str]]:
    """Return (id, domain) of the cells of *benchmark* that wait to be run and whose agent is present."""
    queued = CELLS.c.benchmark_id == benchmark, CELLS.c.bundle == BUNDLE.first, is_present()
    query = select(CELLS.c.id, CELLS.c.domain).where(*queued)
    return [(row.id, row.domain) for row in connection.execute(query)]
