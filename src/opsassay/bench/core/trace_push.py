"""Traces of agents sent to an OTLP receiver while their runs go on: each step as soon as it is written down.

A run is one trace whose ids follow from the name of the run, so that its steps, its root and the evaluation events that
come after grading belong together whoever sends them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from opsassay.agents.record import TRACE
from opsassay.bench.core.evaluation_events import exported_runs, push_events, push_spans
from opsassay.bench.core.ranking import run_id
from opsassay.bench.core.store import ATTEMPTS, RunStore, read_run
from opsassay.errors import OpsAssayError
from opsassay.model.json_lines import follow_json_lines
from opsassay.model.run import RunStatus
from opsassay.model.trajectory import TraceStep
from opsassay.proxy.formats import read_one
from opsassay.proxy.formats.gen_ai import export_root, export_steps
from opsassay.telemetry.otlp.pushing import require_url

TICK_S = 0.5


class TracePush:
    """A thread that sends the steps of the attempts that begin in *store*, while the block runs, to the receiver at *url*.

    With the end of the block `graded` sends what was graded; *on_problem* hears of what was not taken, once each.
    """

    def __init__(self, store: RunStore, url: str, on_problem: Callable[[str], None]) -> None:
        self._store, self._url, self._on_problem = store, require_url(url), on_problem
        log = store.root / ATTEMPTS
        self._read_to = log.stat().st_size if log.exists() else 0
        self._following: dict[Path, int] = {}
        self._seen: set[Path] = set()
        self._problems: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="trace-push", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def graded(self) -> None:
        """Send the evaluation events of every run that was followed and has been graded."""
        for run in exported_runs(self._store, lambda _path, _why: None, only=self._seen):
            self._tried(partial(push_events, run.events, self._url))

    def _work(self) -> None:
        while not self._ended.wait(TICK_S):
            self._tried(self._look)
        self._tried(self._look)

    def _tried(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OpsAssayError, OSError) as error:
            if str(error) not in self._problems:
                self._problems.add(str(error))
                self._on_problem(str(error))

    def _look(self) -> None:
        log = self._store.root / ATTEMPTS
        if not log.exists():
            return
        for end, entry in follow_json_lines(log, self._read_to):
            self._read_to = end
            if entry.get("event") == "begun":
                folder = self._store.runs_dir / str(entry["cell"]) / str(entry["attempt"])
                self._following.setdefault(folder, 0)
                self._seen.add(folder)
        for folder, offset in list(self._following.items()):
            self._follow(folder, offset)

    def _follow(self, folder: Path, offset: int) -> None:
        run = read_run(folder)
        if (folder / TRACE).exists():
            for end, line in follow_json_lines(folder / TRACE, offset):
                step = TraceStep.model_validate(line)
                push_spans(export_steps([step], run_id(run), run.solver.name), self._url)
                self._following[folder] = end
        if run.status is not RunStatus.RUNNING:
            if (folder / TRACE).exists():
                push_spans(export_root(read_one(folder), run_id(run)), self._url)
            del self._following[folder]
