"""Runs on disk: one folder per attempt, claimed by exclusive mkdir, and a log of every attempt that was ever begun.

::

    ROOT/scenarios/<digest>.json              the scenarios that trials were begun with, which hold their truth
    ROOT/leases/<cell>.json                   who runs the cell now
    ROOT/attempts.jsonl                       one line per beginning and per end of an attempt, appended only
    ROOT/runs/<cell>/<attempt>/run.json       who was run on what, and how it ended
    ROOT/runs/<cell>/<attempt>/diagnosis.json the answer, if there is one
    ROOT/runs/<cell>/<attempt>/solver.log     the end of what the solver printed
    ROOT/runs/<cell>/<attempt>/verdicts/      one file per profile, never overwritten

A cell is (item, solver, arm, seed), each by its content. Folders are the truth; any database is an index over them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.json_lines import whole_lines
from opsassay.core.schema.locks import folder_lock
from opsassay.core.schema.run import Run, RunStatus, Verdict
from opsassay.core.untrusted import storable
from opsassay.evals.runner.lease import LeaseTimes, is_alive
from opsassay.telemetry.content import whole_file
from opsassay.telemetry.tree import read_noun, write_noun

RUN, DIAGNOSIS, LOG, VERDICTS, ATTEMPTS = "run.json", "diagnosis.json", "solver.log", "verdicts", "attempts.jsonl"
LOG_LOCK, SCENARIOS = ".attempts.lock", "scenarios"

FINISHED = frozenset({RunStatus.DONE, RunStatus.FAILED, RunStatus.TIMEOUT})
"""The statuses that count as a result; an aborted attempt is none, and its cell is run again."""


def cell_hash(item_hash: str, solver_hash: str, arm: str, seed: int) -> str:
    """Return a planned run's id: 16 hexadecimal digits of SHA-256 over the hashes of task and solver, variant, seed."""
    text = json.dumps([item_hash, solver_hash, arm, seed], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RunStore:
    """The runs below the folder *root*; several processes may use it at once."""

    def __init__(self, root: Path, lease_times: LeaseTimes | None = None) -> None:
        self.root, self.lease_times = Path(root), lease_times or LeaseTimes()
        self.runs_dir = self.root / "runs"

    def begin(self, run: Run) -> tuple[Path, Run]:
        """Create the next attempt's folder for *run*'s cell, write and log it; return (folder, numbered run).

        The log line comes last, so that its reader finds the run; `mark_aborted` adds the line of an attempt killed in
        between.
        """
        cell = self.runs_dir / run.cell
        cell.mkdir(parents=True, exist_ok=True)
        attempt = max((int(path.name) for path in self.attempts_of(run.cell)), default=0) + 1
        while True:
            try:
                (cell / str(attempt)).mkdir()
                break
            except FileExistsError:  # another process was faster
                attempt += 1
        numbered = run.model_copy(update={"attempt": attempt})
        write_noun(cell / str(attempt) / RUN, numbered)
        self._log_attempt("begun", numbered, pid=os.getpid(), process_started=psutil.Process().create_time())
        return cell / str(attempt), numbered

    def end(self, run_dir: Path, run: Run, diagnosis: Diagnosis | None = None) -> None:
        """Write *diagnosis*, if any, and the ended *run* into *run_dir*, and log the end."""
        if diagnosis is not None:
            write_noun(run_dir / DIAGNOSIS, diagnosis)
        write_noun(run_dir / RUN, run)
        self._log_attempt("ended", run, status=run.status.value, error=run.error)

    def attempts_of(self, cell: str) -> list[Path]:
        """Return the folders of all attempts of the planned run *cell*, by number."""
        folder = self.runs_dir / cell
        found = (
            [path for path in folder.iterdir() if path.name.isascii() and path.name.isdigit()]
            if folder.is_dir()
            else []
        )
        return sorted(found, key=lambda path: int(path.name))

    def finished(self, cell: str) -> Path | None:
        """Return the folder of the attempt of *cell* whose result counts, None without a result.

        That is the first result with a sandbox, else the first result.
        """
        runs = {path: read_run(path) for path in self.attempts_of(cell) if (path / RUN).exists()}
        results = [path for path, run in runs.items() if run.status in FINISHED]
        ranked = (path for path in results if runs[path].isolation != "unsealed")
        return next(ranked, results[0] if results else None)

    def runs(self) -> Iterator[Path]:
        """Yield the folders of all attempts that have a run.json, sorted by planned run and attempt."""
        cells = sorted(self.runs_dir.iterdir()) if self.runs_dir.is_dir() else []
        for cell in cells:
            yield from (path for path in self.attempts_of(cell.name) if (path / RUN).exists())

    def domain_of(self, run: Run) -> str:
        """Return the domain of *run*; for a record without one, "sre" if its scenario is stored, else "diagnosis"."""
        if run.domain is not None:
            return run.domain
        return "sre" if (self.root / SCENARIOS / f"{run.item_hash}.json").exists() else "diagnosis"

    def domains(self) -> set[str]:
        """Return the names of the domains of all readable runs."""
        found: set[str] = set()
        for path in self.runs():
            with suppress(OpsAssayError):
                found.add(self.domain_of(read_run(path)))
        return found

    def attempts(self) -> list[dict[str, Any]]:
        """Return the log's entries on starts and ends of attempts, oldest first; an incomplete line is dropped."""
        path = self.root / ATTEMPTS
        return list(whole_lines(path.read_bytes())) if path.exists() else []

    def mark_aborted(self, cell: str, *, taken_over: bool = False) -> None:
        """Mark running attempts of *cell* whose process has ended as aborted; with *taken_over* all running ones.

        The caller must hold the cell's lease. After a takeover the former owner can no longer end its attempt.
        """
        runs = {path: read_run(path) for path in self.attempts_of(cell) if (path / RUN).exists()}
        running = {path: run for path, run in runs.items() if run.status is RunStatus.RUNNING}
        if not running:
            return
        begun = {e["attempt"]: e for e in self.attempts() if e["event"] == "begun" and e["cell"] == cell}
        for path, run in running.items():
            if run.attempt not in begun:  # killed before its line was there
                self._log_attempt("begun", run, time_ns=run.started_ns)
            alive = is_alive(begun.get(run.attempt, {}))
            if taken_over or not alive:
                why = (
                    "its lease was not renewed and was taken over" if alive else "its process ended before the run did"
                )
                gone = {"status": RunStatus.ABORTED, "error": why}
                self.end(path, run.model_copy(update=gone))

    def _log_attempt(self, event: str, run: Run, **further: Any) -> None:
        """Append an *event* ("begun", "ended") of *run* and *further* fields to the log, flushed to disk."""
        entry = {
            "event": event,
            "time_ns": time.time_ns(),
            "cell": run.cell,
            "attempt": run.attempt,
            "item": run.item,
            "solver": run.solver.name,
            "arm": run.arm,
            "seed": run.seed,
            **further,
        }
        line = json.dumps(storable(entry), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        with folder_lock(self.root, name=LOG_LOCK), (self.root / ATTEMPTS).open("a+b") as log:
            # A line torn by a crash is closed first, so that it cannot swallow this one.
            if log.seek(0, os.SEEK_END) and os.pread(log.fileno(), 1, log.tell() - 1) != b"\n":
                line = b"\n" + line
            log.write(line)
            log.flush()
            os.fsync(log.fileno())


def read_run(run_dir: Path) -> Run:
    """Return the run.json of the attempt in *run_dir*; raises DatapackError that names the invalid field."""
    return read_noun(Run, run_dir / RUN)


def read_diagnosis(run_dir: Path) -> Diagnosis | None:
    """Return the answer of the attempt in *run_dir*, None when it has none; raises DatapackError."""
    path = run_dir / DIAGNOSIS
    return read_noun(Diagnosis, path) if path.exists() else None


def read_verdicts(run_dir: Path) -> list[Verdict]:
    """Return all verdicts in *run_dir*, those of repeated gradings too, sorted by file name; raises DatapackError."""
    return [read_noun(Verdict, path) for path in sorted((run_dir / VERDICTS).glob("*.json"))]


def write_verdict(run_dir: Path, verdict: Verdict) -> Path:
    """Write *verdict* below *run_dir*; return its file. Earlier verdicts are never overwritten.

    An equal verdict is written once, also if an older version wrote it without today's fields. A verdict that differs
    from the first one under its profile is a second file with its digest in the name.
    """
    folder = run_dir / VERDICTS
    folder.mkdir(exist_ok=True)
    text = verdict.pretty_json()
    for path in (folder / f"{verdict.profile}.json", folder / f"{verdict.profile}.{verdict.digest()[:12]}.json"):
        if not path.exists():
            with whole_file(path) as partial:
                partial.write_text(text, encoding="utf-8")
            return path
        before = path.read_text(encoding="utf-8")
        with suppress(ValidationError):  # another wrote what cannot be read: it is not the same
            if before == text or type(verdict).model_validate_json(before) == verdict:
                return path
    raise AssertionError("two different verdicts cannot have one digest")
