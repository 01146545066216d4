"""Sends the runs of a store to an OTLP receiver while they go on: agents' steps, and telemetry of live systems.

A run is one trace with ids derived from its name, so that steps, root span and later evaluation events belong together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.background import Background
from opsassay.core.schema.json_lines import follow_json_lines
from opsassay.core.schema.run import Run, RunStatus
from opsassay.core.schema.run_folder import LIVE
from opsassay.core.schema.trajectory import TraceStep
from opsassay.evals.runner.evaluation_events import exported_runs, push_events, push_spans
from opsassay.evals.runner.ranking import run_id
from opsassay.evals.runner.store import ATTEMPTS, RunStore, read_run
from opsassay.solvers.agents.record import TRACE
from opsassay.solvers.proxy.formats import read_one
from opsassay.solvers.proxy.formats.gen_ai import export_root, export_steps
from opsassay.telemetry.otlp.forwarding import LAST_S, SpoolSender, require_url

TICK_S = 0.5


@dataclass
class _Attempt:
    """The state of sending one attempt: the trace file (inode), how far it was read, and the number of steps sent.

    A trace that is rewritten at the end repeats its earlier steps.
    """

    telemetry: SpoolSender
    file: int = 0
    read_to: int = 0
    line: int = 0
    sent: int = 0
    since_end: float | None = None


class RunPush(Background):
    """A thread that sends the data of attempts that begin in *store* during the with block to the receiver at *url*.

    *on_problem* is called once with each error. `push_grades` sends evaluation events. Raises UserError for an invalid
    URL.
    """

    def __init__(self, store: RunStore, url: str, on_problem: Callable[[str], None]) -> None:
        super().__init__("run-push")
        self._store, self._url, self._on_problem = store, require_url(url), on_problem
        log = store.root / ATTEMPTS
        self._read_to = log.stat().st_size if log.exists() else 0
        self._following: dict[Path, _Attempt] = {}
        self._seen: set[Path] = set()
        self._problems: set[str] = set()

    def push_grades(self) -> None:
        """Send the evaluation events of every run seen so far that has been graded."""
        for run in exported_runs(self._store, lambda _path, _why: None, folders=self._seen):
            self._try_push(partial(push_events, run.events, self._url))

    def work(self) -> None:
        """Send new steps and telemetry during the with block, and the rest for at most `LAST_S` seconds after it."""
        while self.pause(TICK_S):
            self._follow_runs()
        deadline = time.monotonic() + LAST_S
        self._follow_runs()
        while any(one.since_end is not None for one in self._following.values()) and time.monotonic() < deadline:
            time.sleep(TICK_S)
            self._follow_runs()
        for attempt in self._following.values():
            self._stop_following(attempt)

    def _try_push(self, work: Callable[[], None]) -> None:
        """Call *work*; report an error, once, instead of raising it."""
        try:
            work()
        except (OpsAssayError, OSError) as error:
            self._report_once(str(error))

    def _report_once(self, problem: str) -> None:
        """Call `on_problem` with *problem*, unless it was reported before."""
        if problem not in self._problems:
            self._problems.add(problem)
            self._on_problem(problem)

    def _follow_runs(self) -> None:
        """Send new data of every running attempt; an error in one does not stop the others."""
        self._try_push(self._find_new_runs)
        for folder, attempt in list(self._following.items()):
            self._try_push(partial(self._follow_run, folder, attempt))

    def _find_new_runs(self) -> None:
        """Add every attempt that began since the last call to those that are followed."""
        for end, entry in follow_json_lines(self._store.root / ATTEMPTS, self._read_to):
            self._read_to = end
            if entry.get("event") == "begun":
                folder = self._store.runs_dir / str(entry["cell"]) / str(entry["attempt"])
                self._following.setdefault(folder, _Attempt(SpoolSender(folder / LIVE, self._url)))
                self._seen.add(folder)

    def _follow_run(self, folder: Path, attempt: _Attempt) -> None:
        """Send once what is new in the run *folder*, after its end also its root span; forget it when all is sent."""
        run = read_run(folder)
        is_sent = attempt.telemetry.send()
        if attempt.since_end is None:
            self._send_steps(folder, run, attempt)
        if run.status is RunStatus.RUNNING:
            return
        if attempt.since_end is None:
            if (folder / TRACE).exists():
                push_spans(export_root(read_one(folder), run_id(run)), self._url)
            attempt.since_end = time.monotonic()
        if is_sent or time.monotonic() - attempt.since_end > LAST_S:
            self._stop_following(self._following.pop(folder))

    def _send_steps(self, folder: Path, run: Run, attempt: _Attempt) -> None:
        """Send the steps of the attempt's trace in *folder* that were not sent before."""
        path = folder / TRACE
        if not path.exists():
            return
        if (file := path.stat().st_ino) != attempt.file:
            attempt.file, attempt.read_to, attempt.line = file, 0, 0
        for end, line in follow_json_lines(path, attempt.read_to):
            if attempt.line >= attempt.sent:
                push_spans(export_steps([TraceStep.model_validate(line)], run_id(run), run.solver.name), self._url)
                attempt.sent += 1
            attempt.read_to, attempt.line = end, attempt.line + 1

    def _stop_following(self, attempt: _Attempt) -> None:
        """Report the notes of the attempt's telemetry sender and close it."""
        for note in attempt.telemetry.notes():
            self._report_once(note)
        attempt.telemetry.close()
