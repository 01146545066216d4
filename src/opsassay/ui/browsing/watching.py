"""Watches stores while other processes write to them: their contents, and the begin and end of runs.

The log of attempts is append-only, so each look reads its new lines, which name the changed runs. Other changes (grades,
copies, a removed store) are found by full scans, which take at most a twentieth of the time. Nothing is written to a
store, not even a lock.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError, OpsAssayError
from opsassay.core.schema.json_lines import whole_lines
from opsassay.core.schema.run import Run, RunStatus
from opsassay.core.text import plural
from opsassay.core.untrusted import MAX_FILE_BYTES, open_plain, read_plain
from opsassay.evals.runner.lease import is_alive, is_held
from opsassay.evals.runner.store import ATTEMPTS, RUN, RunStore
from opsassay.telemetry.tree import read_noun
from opsassay.ui.browsing.catalogue import Catalogue, StoredRun, StoreState
from opsassay.ui.plain import plain

TICK_S = 0.3
"""Seconds between two looks at the logs."""
WHOLE_LOOK_S = 3.0
"""Least seconds between two full scans."""
SHARE = 20
"""Least pause between full scans as a multiple of the last one's duration."""
EVENTS_KEPT = 1_000
_READ_AT_ONCE = 64 * 2**20

_Attempt = tuple[str, str]
"""(cell, attempt): the names of the two folders of a run."""


@dataclass(frozen=True)
class RunEvent:
    """A run that has begun or ended; *number* counts all events since the pages were opened."""

    number: int
    kind: str
    run: StoredRun


class WatchedStore:
    """The store at *root*, named *name*: its runs when it was last read."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root
        self._store = RunStore(root)
        self._runs: dict[_Attempt, tuple[object, StoredRun]] = {}
        self._problems: dict[_Attempt, tuple[object, str]] = {}
        self._begun: dict[_Attempt, dict[str, Any]] = {}
        self._log: tuple[int, int] = (0, 0)  # the file's number, and the byte up to which it was read
        self._missing = False

    @property
    def state(self) -> StoreState:
        """Return the store's name, folder and read errors."""
        return StoreState(self.name, self.root, self._missing, tuple(text for _, text in self._problems.values()))

    @property
    def runs(self) -> list[StoredRun]:
        """Return the store's runs, sorted by cell and attempt."""
        return [self._runs[at][1] for at in sorted(self._runs, key=_sort_key)]

    def read_changes(self) -> bool:
        """Look through the whole store and re-read changed runs; return whether anything changed."""
        before = (self._missing, set(self._runs), dict(self._problems))
        changed = False
        self._missing = not _is_folder(self.root)
        seen = set(_attempt_folders(self.root / "runs"))
        for at in seen:
            changed |= self._read_run(at)
        for gone in (self._runs.keys() | self._problems.keys()) - seen:
            self._runs.pop(gone, None)
            self._problems.pop(gone, None)
        return changed or before != (self._missing, set(self._runs), dict(self._problems))

    def follow(self) -> list[tuple[str, StoredRun]]:
        """Read the new lines of the log of attempts; return (event, run) for each run that began or ended."""
        found = []
        for line in self._read_appended():
            at = _attempt_of(line)
            if at is None:
                continue
            if line.get("event") == "begun":
                self._begun[at] = line
            else:
                self._begun.pop(at, None)
            self._read_run(at)
            if at in self._runs:
                found.append((str(line.get("event")), self._runs[at][1]))
        return found

    def _read_appended(self) -> Iterator[dict[str, Any]]:
        """Yield the new lines of the log of attempts; all lines when the log was replaced."""
        number, offset = self._log
        try:
            with open_plain(self.root / ATTEMPTS) as log:
                state = os.fstat(log.fileno())
                if state.st_ino != number or state.st_size < offset:  # another store lies here now
                    offset = 0
                log.seek(offset)
                whole, end, _ = log.read(_READ_AT_ONCE).rpartition(b"\n")
        except (OSError, OpsAssayError):
            return
        self._log = (state.st_ino, offset + len(whole) + len(end))
        yield from whole_lines(whole)

    def _read_run(self, attempt: _Attempt) -> bool:
        """Read the run of *attempt* again if its file changed; return whether it did."""
        folder = self.root / "runs" / attempt[0] / attempt[1]
        try:
            state = (folder / RUN).stat()
        except OSError:
            return self._forget_attempt(attempt)
        stamp = (state.st_ino, state.st_mtime_ns, state.st_size)
        known = self._runs.get(attempt) or self._problems.get(attempt)
        if known is not None and known[0] == stamp:
            return self._mark_lost(attempt)
        self._forget_attempt(attempt)
        try:
            if folder.is_symlink() or folder.parent.is_symlink():  # the log can name it, whoever wrote there
                return False
            run = _run_of(folder)
            one = StoredRun(self.name, self.root, folder, run, self._store.domain_of(run))
            self._runs[attempt] = (stamp, one)
        except OpsAssayError as error:
            self._problems[attempt] = (stamp, plain(str(error), 600))
        except OSError:
            return True
        self._mark_lost(attempt)
        return True

    def _mark_lost(self, attempt: _Attempt) -> bool:
        """Mark the run of *attempt* as lost if its process has ended; return whether it became so."""
        if attempt not in self._runs:
            return False
        stamp, one = self._runs[attempt]
        if one.gone or one.run.status is not RunStatus.RUNNING:
            return False
        if is_alive(self._begun[attempt]) if attempt in self._begun else is_held(self.root, attempt[0]):
            return False
        lost = StoredRun(one.store, one.root, one.folder, one.run, one.domain, gone=True)
        self._runs[attempt] = (stamp, lost)
        return True

    def _forget_attempt(self, attempt: _Attempt) -> bool:
        """Remove the run, or the reading problem, of *attempt*; return whether there was one."""
        return self._runs.pop(attempt, None) is not None or self._problems.pop(attempt, None) is not None


class Watcher:
    """Watches the stores at *roots* until closed; *say* is called with a line about the first scan."""

    def __init__(self, roots: Sequence[Path], say: Callable[[str], None] = lambda _: None) -> None:
        self._stores = [WatchedStore(name, root) for name, root in _name_roots(roots)]
        self._events: deque[RunEvent] = deque(maxlen=EVENTS_KEPT)
        self._count, self._ended = 0, threading.Event()
        began = time.monotonic()
        for store in self._stores:
            store.follow()
            store.read_changes()
        self._look_took = time.monotonic() - began
        self._catalogue = self._make_catalogue()
        say(f"opsassay: {plural(len(self._catalogue.runs), 'run')} read in {self._look_took:.1f} s")
        self._thread = threading.Thread(target=self._watch_until_end, name="stores", daemon=True)

    @property
    def catalogue(self) -> Catalogue:
        """The current contents of all stores."""
        return self._catalogue

    @property
    def last_event(self) -> int:
        """The number of the last event; 0 before the first one."""
        return self._count

    @property
    def closed(self) -> bool:
        """Whether the watcher was closed."""
        return self._ended.is_set()

    def start(self) -> None:
        """Start watching in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._ended.set()

    def events_after(self, number: int) -> list[RunEvent]:
        """Return the remembered events with numbers above *number*; very old ones are forgotten."""
        return [event for event in list(self._events) if event.number > number]

    def read_changes(self) -> None:
        """Look through all stores now, and publish a new catalogue if anything changed."""
        self._follow_logs()
        changed = [store.read_changes() for store in self._stores]  # all of them, also behind one that changed
        if any(changed):
            self._catalogue = self._make_catalogue()

    def _watch_until_end(self) -> None:
        """Until closed, follow the logs at each tick and now and then read all stores as a whole."""
        looked = time.monotonic()
        while not self._ended.wait(TICK_S):
            self._follow_logs()
            if time.monotonic() - looked > max(WHOLE_LOOK_S, SHARE * self._look_took):
                start = time.monotonic()
                self.read_changes()
                looked = time.monotonic()
                self._look_took = looked - start

    def _follow_logs(self) -> None:
        """Read the new lines of all logs of attempts, and publish them as events with a new catalogue."""
        found = [event for store in self._stores for event in store.follow()]
        if found:
            self._catalogue = self._make_catalogue(len(found))  # before the events: whoever hears of one finds it there
            for kind, run in found:
                self._events.append(RunEvent(self._count + 1, kind, run))
                self._count += 1

    def _make_catalogue(self, new_events: int = 0) -> Catalogue:
        """Return a catalogue of all stores and runs, numbered *new_events* after the last event."""
        stores = tuple(store.state for store in self._stores)
        runs = tuple(run for store in self._stores for run in store.runs)
        return Catalogue(stores, runs, self._count + new_events)


def _run_of(folder: Path) -> Run:
    """Return the run in *folder*; raises OpsAssayError, also for one that a newer version of OpsAssay wrote."""
    problem = None
    try:
        run = read_noun(Run, folder / RUN)
        version = run.schema_version
    except OpsAssayError as error:
        problem, version = error, _read_version(folder / RUN)
    if version > Run.SCHEMA_VERSION:
        raise DatapackError(
            f"{folder / RUN} was written by a newer OpsAssay (schema {version}, this one reads {Run.SCHEMA_VERSION}); "
            "install that version to see it."
        )
    if problem is not None:
        raise problem
    return run


def _read_version(path: Path) -> int:
    """Return the schema version in the run file at *path*, 0 when it cannot be read."""
    import json

    with suppress(OSError, OpsAssayError, ValueError, TypeError, AttributeError, RecursionError):
        return int(json.loads(read_plain(path, MAX_FILE_BYTES)).get("schema_version", 0))
    return 0


def _is_folder(path: Path) -> bool:
    """Whether *path* is a folder; False where access is denied."""
    try:
        return path.is_dir()
    except OSError:  # one that may not be looked at
        return False


def _attempt_folders(runs: Path) -> Iterator[_Attempt]:
    """Yield (cell, attempt) of each attempt's folder below *runs*; links are not followed."""
    with suppress(OSError), os.scandir(runs) as cells:
        for cell in cells:
            if cell.is_dir(follow_symlinks=False):
                with suppress(OSError), os.scandir(cell.path) as attempts:
                    yield from ((cell.name, one.name) for one in attempts if _is_number(one.name))


def _attempt_of(line: dict[str, Any]) -> _Attempt | None:
    """Return (cell, attempt) of a *line* of the log, None when it names no valid folder."""
    cell, attempt = line.get("cell"), str(line.get("attempt"))
    if not isinstance(cell, str) or cell in ("", ".", "..") or "/" in cell or "\0" in cell or not _is_number(attempt):
        return None
    return cell, attempt


def _is_number(name: str) -> bool:
    """Whether *name* consists of one to nine digits."""
    return name.isascii() and name.isdigit() and len(name) < 10


def _sort_key(attempt: _Attempt) -> tuple[str, int]:
    """Return the sort key of *attempt* (cell, number as text): the number as an integer."""
    return attempt[0], int(attempt[1])


def _name_roots(roots: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield (unique name made of the folder's, folder) for each of *roots*, each folder once."""
    taken: set[str] = set()
    for root in dict.fromkeys(root.resolve() for root in roots):
        name, number = root.name or "store", 1
        while name in taken:
            number += 1
            name = f"{root.name}-{number}"
        taken.add(name)
        yield name, root
