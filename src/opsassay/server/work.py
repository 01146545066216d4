"""A worker: it takes cells from the queue, runs each as `opsassay run` would, and stores the results.

Many workers, also on several machines that share the state folder, can work on one database.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from procrastinate import RetryStrategy
from procrastinate.exceptions import ConnectorException
from psycopg import OperationalError as LostConnectionError
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from opsassay.core.errors import LostError, OpsAssayError
from opsassay.core.logs import Log
from opsassay.core.schema.run import RunStatus
from opsassay.evals.runner.domain import domain_named, outcome_of
from opsassay.evals.runner.lease import LeasedError
from opsassay.evals.runner.ranking import why_not_ranked
from opsassay.evals.runner.results import row_of
from opsassay.evals.runner.run import PlannedRun, RunEnd, verdict_of
from opsassay.evals.runner.store import VERDICTS, RunStore, write_verdict
from opsassay.server.access import relay_token
from opsassay.server.api import DISK_FULL
from opsassay.server.artefacts import folder_digest
from opsassay.server.benchmarks import (
    HEARTBEAT_S,
    FrozenBenchmark,
    HeldError,
    Platform,
    asked_by,
    beat,
    claim_cell,
    give_back,
    move_cell,
    put_error,
    put_off,
    put_result,
    require_frozen,
)
from opsassay.server.phases import PhaseFollower, PhaseReader
from opsassay.server.presence import is_left
from opsassay.server.queue import RUN_CELL, STALLED_S, QueueWorker, app_of, queue_name
from opsassay.server.relay import NOTE

_log = Log(__name__)
T = TypeVar("T")

KEPT_BENCHMARKS = 8
MOST_TRIES = 5
"""Most attempts at a cell, after which it ends with an error."""
ALL_ENDED = "Every worker that took it ended before the run did."
LOOK_S = 0.2
"""Seconds between checks whether a run is to be ended."""
ENDING_S = 60.0
"""Seconds that a stopping worker waits for its runs."""
LEAVING_S = 3.0
"""Seconds that a worker without runs waits for the database to remove it from the queue."""
PATIENCE_S = 300.0
"""Seconds that a worker waits for a database that restarts."""


@dataclass
class _Hold:
    """A cell in progress: its *jobs*, whether they must end (*ended*), and whether because the agent is absent (*left*)."""

    jobs: list[PlannedRun] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    left: bool = False


@dataclass
class Worker:
    """One process that runs cells; *server* is the URL at which self-hosted agents' relays reach the platform.

    *lost_at* is the monotonic time (s) since which the database does not answer; None while it answers.
    """

    platform: Platform
    server: str = ""
    name: str = field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
    stopping: threading.Event = field(default_factory=threading.Event)
    lost_at: float | None = None
    _relaying: threading.Lock = field(default_factory=threading.Lock)
    _asking: threading.Lock = field(default_factory=threading.Lock)
    _asked: dict[str, FrozenBenchmark] = field(default_factory=dict)

    def run(self, cell: str) -> None:
        """Run *cell* and store its result or error; nothing if it has ended; raises HeldError if it must wait."""
        row = self._retry(lambda: claim_cell(self.platform, cell, self.name))
        if row is None:
            return
        hold = _Hold()
        with self._sending_heartbeats(cell, hold):
            try:
                self._run_cell(row, hold)
            except LostError as error:
                _log.warning("cell lost", cell=cell, why=str(error))
            except LeasedError as error:  # the same cell for another benchmark: its result will be this one's too
                self._retry(lambda: give_back(self.platform, cell, self.name))
                raise HeldError(str(error)) from error
            except OpsAssayError as error:
                said = str(error)
                with suppress(LostError):
                    self._retry(lambda: put_error(self.platform, cell, self.name, said))
            except OSError as error:
                full = error.errno in DISK_FULL  # which is nobody's fault, and lasts until somebody makes room
                with suppress(SQLAlchemyError):
                    give_back(self.platform, cell, self.name, counts_attempt=not full)
                if not full:
                    raise
                _log.warning("the disk is full; the cell is begun again later", cell=cell)
                raise HeldError("The disk is full.") from error
            except Exception as error:
                with suppress(SQLAlchemyError):
                    give_back(self.platform, cell, self.name, ended_by=type(error).__name__)
                raise
            except BaseException:
                with suppress(SQLAlchemyError):
                    give_back(self.platform, cell, self.name)
                raise

    def _run_cell(self, row: Mapping[str, Any], hold: _Hold) -> None:
        """Run the cell *row* (its job goes into *hold*) and store its result; release it if the worker stops."""
        cell = row["id"]
        if row["tries"] > MOST_TRIES:
            raise OpsAssayError(f"It was begun {MOST_TRIES} times. {row['error'] or ALL_ENDED}")
        asked = self._frozen_benchmark(row["benchmark_id"])
        job = require_frozen(asked.jobs.get(row["hash"]), row)
        hold.jobs.append(job)
        store = RunStore(self.platform.store(asked.task_set))
        with ExitStack() as stack:
            if job.live:
                reader = PhaseReader(self.platform, store, cell, job.cell.hash, self.name, asked.hosted)
                stack.enter_context(PhaseFollower(reader))
            else:
                self._retry(lambda: self._make_ready(cell, hosted=asked.hosted))
            if asked.hosted:
                stack.enter_context(self._providing_entry(cell))
            end = job.run(store, lambda: hold.ended.is_set() or self.stopping.is_set(), lambda _message: None)
        if end.run is None or end.run.status is RunStatus.ABORTED:
            if hold.left:
                self._retry(lambda: put_off(self.platform, cell, self.name))
                return
            if self.stopping.is_set():
                give_back(self.platform, cell, self.name)
                return
        result, agent = self._result_columns(job, end, store), _agent_state_after(end)
        self._retry(lambda: put_result(self.platform, cell, self.name, result, agent))

    def _frozen_benchmark(self, benchmark: str) -> FrozenBenchmark:
        """Return the frozen tasks and settings of *benchmark*, from a cache of the latest."""
        with self._asking:
            asked = self._asked.pop(benchmark, None) or asked_by(self.platform, benchmark)
            self._asked[benchmark] = asked
            if len(self._asked) > KEPT_BENCHMARKS:
                del self._asked[next(iter(self._asked))]
            return asked

    def _make_ready(self, cell: str, *, hosted: bool) -> None:
        """Move *cell*, for which nothing is deployed, to the state in which its agent may start.

        An agent of the platform starts at once; a *hosted* (self-hosted) one reports its start itself.
        """
        with self.platform.writing() as connection:
            if hosted:
                move_cell(connection, cell, bundle="FaultInjected")
            else:
                move_cell(connection, cell, bundle="Ready", agent="Executing")

    def _result_columns(self, job: PlannedRun, end: RunEnd, store: RunStore) -> dict[str, Any]:
        """Return the result's columns for the run *job* that ended as *end*, and write the verdict into its folder."""
        if end.run_dir is None or end.run is None or end.run.status is RunStatus.ABORTED:
            raise OpsAssayError(end.error or (end.run.error if end.run else None) or "The run came to no result.")
        row = row_of(end)
        if row.problem and not row.metrics:
            raise OpsAssayError(row.problem)
        write_verdict(end.run_dir, verdict_of(end.run, row.metrics))
        return {
            "passed": outcome_of(domain_named(job.cell.task.domain), end.run, row.metrics),
            "errored": end.run.status is not RunStatus.DONE,
            "metrics": {name: metric.model_dump(mode="json") for name, metric in row.metrics.items()},
            "evidence": folder_digest(end.run_dir, ignored_names=(VERDICTS,)),
            "run": end.run_dir.relative_to(store.root).as_posix(),
            "not_ranked": list(why_not_ranked(end.run)),
            "ended_ns": end.run.ended_ns or 0,
            "record": end.run.pretty_json(),
        }

    def _retry(self, work: Callable[[], T]) -> T:
        """Return the result of *work*, repeated while the database is unreachable, PATIENCE_S seconds at most."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return work()
            except OperationalError:
                if self.stopping.wait(1.0) or time.monotonic() > deadline:
                    raise

    @contextmanager
    def _sending_heartbeats(self, cell: str, hold: _Hold) -> Iterator[None]:
        """Send heartbeats for *cell*; end the jobs in *hold* when it is lost, its agent left or the worker stops."""
        ended = threading.Event()

        def beating() -> None:
            """Send heartbeats until the cell ends; runs in a thread."""
            due = time.monotonic() + HEARTBEAT_S
            while not ended.wait(LOOK_S):
                if hold.ended.is_set() or self.stopping.is_set():
                    for job in hold.jobs:
                        job.end_all()
                elif time.monotonic() > due:
                    due = time.monotonic() + HEARTBEAT_S
                    with suppress(SQLAlchemyError):  # a database that is being started again
                        hold.left = is_left(self.platform.engine, cell)
                        if hold.left or not beat(self.platform, cell, self.name):
                            hold.ended.set()

        thread = threading.Thread(target=beating, name=f"beat-{cell}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @contextmanager
    def _providing_entry(self, cell: str) -> Iterator[None]:
        """Provide server, id and token of *cell* to the relay process during the block; one cell at a time."""
        with self._relaying, os.fdopen(os.memfd_create(NOTE), "w", encoding="utf-8") as note:
            token = relay_token(self.platform.signer, cell)
            note.write(json.dumps({"server": self.server, "entry": cell, "token": token}))
            note.flush()
            yield


def _agent_state_after(end: RunEnd) -> str:
    """Return the end state of the agent by how its run ended."""
    assert end.run is not None
    return {RunStatus.DONE: "Finished", RunStatus.TIMEOUT: "TimedOut"}.get(end.run.status, "Error")


async def run_worker(
    worker: Worker, url: str, domains: Sequence[str], *, concurrency: int, until_empty: bool = False
) -> None:
    """Run cells of the queues of *domains*, *concurrency* at a time, until a signal or, *until_empty*, none is left."""
    runs = set[asyncio.Task[None]]()
    working = asyncio.create_task(_work_with_retries(worker, url, domains, runs, concurrency, until_empty=until_empty))
    _end_with_signals(worker, working, runs)
    with suppress(asyncio.CancelledError):
        await working


async def _work_with_retries(
    worker: Worker,
    url: str,
    domains: Sequence[str],
    runs: set[asyncio.Task[None]],
    concurrency: int,
    *,
    until_empty: bool,
) -> None:
    """Run `_work_through` with these arguments, again while the database is away for up to PATIENCE_S seconds."""
    while not worker.stopping.is_set():
        try:
            await _work_through(worker, url, domains, runs, concurrency, until_empty=until_empty)
            return
        except (ConnectorException, LostConnectionError) as error:
            if worker.stopping.is_set():
                return
            worker.lost_at = worker.lost_at or time.monotonic()
            if time.monotonic() - worker.lost_at > PATIENCE_S:
                raise
            _log.warning("the database is gone; trying again", error=str(error))
            await asyncio.sleep(1.0)


async def _work_through(
    worker: Worker,
    url: str,
    domains: Sequence[str],
    runs: set[asyncio.Task[None]],
    concurrency: int,
    *,
    until_empty: bool,
) -> None:
    """Run cells of *domains*, each a task in *runs*, until cancelled or, with *until_empty*, until none is left."""
    app = app_of(url)

    @app.task(name=RUN_CELL, retry=RetryStrategy(wait=5, retry_exceptions=[HeldError]))
    async def run_cell(cell: str) -> None:
        run = asyncio.create_task(asyncio.to_thread(worker.run, cell))
        runs.add(run)
        run.add_done_callback(runs.discard)
        await run

    async with app.open_async():
        worker.lost_at = None
        queue_worker = QueueWorker(
            app, queues=[queue_name(domain) for domain in domains], name=worker.name, concurrency=concurrency,
            wait=not until_empty, update_heartbeat_interval=HEARTBEAT_S, stalled_worker_timeout=STALLED_S,
            shutdown_graceful_timeout=ENDING_S, install_signal_handlers=False,
        )  # fmt: skip
        await queue_worker.run()  # type: ignore[no-untyped-call]


def _end_with_signals(worker: Worker, working: asyncio.Task[None], runs: Collection[asyncio.Task[None]]) -> None:
    """On SIGINT or SIGTERM stop the running cells of *worker*, which are released, then cancel *working*."""
    loop, leaving = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    async def leave() -> None:
        if runs:
            await asyncio.wait(runs)
        await asyncio.sleep(LEAVING_S)
        working.cancel()

    def end() -> None:
        worker.stopping.set()
        working.cancel()
        leaving.add(loop.create_task(leave()))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
