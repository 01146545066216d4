"""Locked SQL over one datapack: one SELECT at a time, in a process that can read only the tables."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import polars as pl

from opsassay.core.errors import NotFoundError, QueryError
from opsassay.telemetry.content import write_table
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import MODALITIES, PERIODS

_WORKER = Path(__file__).with_name("sql_worker.py")
_START_TIMEOUT_S = 60.0
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@dataclass(frozen=True)
class QueryResult:
    """The result of one statement; *message* is the reason for a *status* of error, timeout or refused.

    Times in *rows* are ISO text in UTC; *truncated* means that there were more rows. *executed* is the statement that ran,
    written from the parsed one; *tree* is its parse tree, if requested.
    """

    status: Literal["ok", "empty", "error", "timeout", "refused"]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    message: str = ""
    truncated: bool = False
    executed: str = ""
    tree: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Subject:
    """The rows of a service: those with one of *names* in one of *columns*; *factor* scales numbers in the views."""

    names: tuple[str, ...]
    columns: tuple[str, ...]
    factor: float = 1.01


@dataclass(frozen=True)
class TableFolder:
    """A folder of parquet files, each of which is a table with the file's name."""

    path: Path

    def files(self) -> dict[str, str]:
        """Return table name to path of its parquet file."""
        return {file.stem: str(file.resolve()) for file in sorted(self.path.glob("*.parquet"))}

    def services(self) -> list[str]:
        """Return []: these tables have no telemetry, so there are no services."""
        return []


class LockedSql:
    """SQL over the tables normal_traces, abnormal_traces, ... of *datapack*, or of a `TableFolder`, in a `with` block.

    `read_parquet('abnormal_traces.parquet')`, with the bare names of the datapack's files, reads the same tables. A
    statement may take *timeout_s* of wall clock and returns at most *max_rows*; the worker process has *memory_mb* of
    address space. A worker that died is replaced for the next statement. Threads may share it. Entering the block
    raises QueryError when no worker can be started.
    """

    def __init__(
        self, datapack: Datapack | TableFolder, *, timeout_s: float = 30, memory_mb: int = 2048, max_rows: int = 1000
    ) -> None:
        self.datapack, self.timeout_s, self.memory_mb, self.max_rows = datapack, timeout_s, memory_mb, max_rows
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._schemas: dict[str, dict[str, str]] = {}
        self._subject: Subject | None = None

    def __enter__(self) -> Self:
        with self._lock:
            self._ensure_worker()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._stop_worker()

    def tables(self) -> list[str]:
        """Return the names of all tables, also of those that have no rows in the datapack."""
        return list(self._schemas)

    def schema(self, table: str) -> dict[str, str]:
        """Return column to SQL type of *table*; raises NotFoundError for an unknown table."""
        if table not in self._schemas:
            raise NotFoundError("table", table, self._schemas)
        return dict(self._schemas[table])

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        schemas: Sequence[str] = (),
        max_rows: int | None = None,
        timeout_s: float | None = None,
        with_tree: bool = False,
    ) -> QueryResult:
        """Run *sql*, one SELECT statement, with *parameters* for its $names; those that it does not name are ignored.

        *schemas*, one for each read of a telemetry table in the order of `reads`, runs it on the views of `about`
        instead of the tables. *max_rows* and *timeout_s* can only lower the worker's limits; *with_tree* adds the parse
        tree. A statement that is refused, fails or takes too long gives a result with an error. Raises QueryError only
        when no worker can be started.
        """
        request = {"sql": sql, "parameters": dict(parameters or {}), "schemas": list(schemas), "max_rows": max_rows}
        with self._lock:
            return self._run_query({**request, "tree": with_tree}, min(self.timeout_s, timeout_s or self.timeout_s))

    def about(self, subject: Subject) -> None:
        """Make views of the tables with and without the rows of *subject*, as schemas `VIEWS`; raises QueryError."""
        with self._lock:
            if subject == self._subject and self._worker is not None and self._worker.poll() is None:
                return
            self._subject = subject
            self._ensure_worker()
            answer = self._run_query(self._subject_request(), _START_TIMEOUT_S)
        if answer.status != "empty":
            raise QueryError(f"{self.datapack.path}: {answer.message or 'the worker ended'}; allow more memory.")

    def cancel(self) -> None:
        """Stop the running statement, from any thread: it returns an error, and the next statement starts a new worker."""
        worker = self._worker
        if worker is not None:
            worker.kill()

    def _subject_request(self) -> dict[str, Any]:
        """Return the message that asks the worker to make the schemas `VIEWS` for the current subject."""
        assert self._subject is not None
        return {"subject": asdict(self._subject)}

    def _run_query(self, request: Mapping[str, Any], timeout_s: float) -> QueryResult:
        """Send *request* to the worker and return its result; a timeout or lost worker is an error in the result."""
        self._ensure_worker()
        try:
            reply = self._exchange(json.dumps(request, default=str), timeout_s)
        except TimeoutError:
            self._stop_worker()
            return QueryResult("timeout", message=f"The statement ran for more than {timeout_s:g} s.")
        except (EOFError, OSError):
            self._stop_worker()
            message = f"The worker ended in the middle of the statement; {self.memory_mb} MiB may be too little for it."
            return QueryResult("error", message=message)
        if reply.get("spent"):
            self._stop_worker()
        return QueryResult(
            status=reply["status"],
            columns=tuple(reply.get("columns", ())),
            rows=tuple(tuple(row) for row in reply.get("rows", ())),
            message=reply.get("message", ""),
            truncated=reply.get("truncated", False),
            executed=reply.get("executed", ""),
            tree=reply.get("tree"),
        )

    def _ensure_worker(self) -> None:
        """Start the worker process if none runs, and read from it the columns of the tables; raises QueryError."""
        if self._worker is not None and self._worker.poll() is None:
            return
        self._stop_worker()
        with tempfile.TemporaryDirectory(prefix="opsassay-sql-") as folder:
            setup = {"tables": self._files(Path(folder)), "memory_mb": self.memory_mb, "max_rows": self.max_rows}
            self._worker = subprocess.Popen(
                [sys.executable, "-I", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env=_ENVIRONMENT,
            )
            try:
                reply = self._exchange(json.dumps(setup), _START_TIMEOUT_S)
            except TimeoutError:
                self._stop_worker()
                raise QueryError(
                    f"{self.datapack.path} was not ready to be queried after {_START_TIMEOUT_S:g} s; try again when the "
                    "machine has less to do."
                ) from None
            except (EOFError, OSError) as error:
                reply = {"message": f"it ended early ({type(error).__name__})"}
        if reply.get("status") != "ready":
            self._stop_worker()
            raise QueryError(
                f"{self.datapack.path} cannot be queried in {self.memory_mb} MiB: {reply['message']}; allow more memory."
            )
        self._schemas = {table: dict(columns) for table, columns in reply["schemas"].items()}
        if self._subject is not None:
            self._exchange(json.dumps(self._subject_request()), _START_TIMEOUT_S)

    def _files(self, folder: Path) -> dict[str, str]:
        """Return table name to parquet file; tables that are missing or have other types are written to *folder*."""
        if isinstance(self.datapack, TableFolder):
            return self.datapack.files()
        files = {}
        for period in PERIODS:
            for modality in MODALITIES:
                name = f"{period}_{modality}"
                path = self.datapack.path / f"{name}.parquet"
                table = self.datapack.scan(period, modality)
                if not path.exists() or pl.read_parquet_schema(path) != table.collect_schema():
                    path = folder / f"{name}.parquet"
                    write_table(path, table.collect())
                files[name] = str(path.resolve())
        return files

    def _exchange(self, request: str, timeout_s: float) -> dict[str, Any]:
        """Send the line *request* to the worker, return its reply; raises TimeoutError, EOFError when the worker ended."""
        worker = self._worker
        assert worker is not None
        assert worker.stdin is not None
        assert worker.stdout is not None
        deadline = time.monotonic() + timeout_s
        unsent = memoryview(request.encode() + b"\n")
        while unsent:
            unsent = unsent[os.write(worker.stdin.fileno(), unsent) :]
        replies = select.poll()
        replies.register(worker.stdout, select.POLLIN)
        while b"\n" not in self._unread:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not replies.poll(left_s * 1000):
                raise TimeoutError
            chunk = os.read(worker.stdout.fileno(), 1 << 20)
            if not chunk:
                raise EOFError
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _stop_worker(self) -> None:
        """Kill the worker process, if there is one."""
        worker, self._worker, self._unread = self._worker, None, b""
        if worker is None:
            return
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            assert pipe is not None
            pipe.close()
