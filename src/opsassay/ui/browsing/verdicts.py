"""The verdicts that `opsassay score run` stored with the runs, read once each, and the leaderboards made of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opsassay.analysis.leaderboard.board import Leaderboard, make_board
from opsassay.analysis.leaderboard.entries import Entry
from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.run import Run, RunStatus, Verdict
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.grading import GradedRun, GradedRuns
from opsassay.evals.runner.ranking import aborted_cells, retried_cells
from opsassay.evals.runner.store import FINISHED, VERDICTS
from opsassay.scoring.void import is_void
from opsassay.telemetry.tree import read_noun
from opsassay.ui.browsing.catalogue import Catalogue, StoredRun

PROFILE = "default"


@dataclass(frozen=True)
class StoredGrades(GradedRuns):
    """Runs with their stored verdicts; names of solvers are distinct among *every* run of the domain."""

    every: tuple[Run, ...] = ()

    @cached_property
    def name(self) -> Callable[[Run], str]:
        """The function that returns the display name of a run's solver; it covers ungraded runs too."""
        from opsassay.evals.runner.ranking import solver_names

        return solver_names(self.every)


@dataclass(frozen=True, eq=False)
class DomainStanding:
    """The leaderboard (*board*) of a domain, the *entries* and graded runs in it, and the number of *ungraded* results."""

    graded: StoredGrades
    board: Leaderboard
    entries: dict[str, Entry]
    ungraded: int


class StoredVerdicts:
    """Verdicts by the folder of the run; thread-safe.

    A changed folder is read again, unless *settled* is True: then the first reading stays, so that all pages agree.
    """

    def __init__(self, *, settled: bool = False) -> None:
        self._settled = settled
        self._read: dict[Path, tuple[object, Verdict | None]] = {}
        self._standings: dict[str, tuple[Catalogue, object, DomainStanding]] = {}
        self._lock = threading.Lock()

    def verdict_of(self, stored: StoredRun) -> Verdict | None:
        """Return the latest verdict on the run under the default profile, None without a readable one."""
        known = self._read.get(stored.folder)
        if known is not None and self._settled:
            return known[1]
        folder = stored.folder / VERDICTS
        try:
            state = folder.stat()
        except OSError:
            return None
        stamp = (state.st_ino, state.st_mtime_ns)  # a verdict is never overwritten: another one is another entry
        if known is None or known[0] != stamp:
            known = self._read[stored.folder] = (stamp, _read_latest(folder))
        return known[1]

    def succeeded(self, stored: StoredRun) -> bool | None:
        """Return whether the run succeeded, None when it is not graded or not gradable."""
        if stored.run.status not in FINISHED or self.void(stored):
            return None
        verdict = self.verdict_of(stored)
        if verdict is None or stored.run.status is not RunStatus.DONE:
            return None if stored.run.status is RunStatus.DONE else False
        try:
            return domain_named(stored.domain).succeeded(verdict.metrics)
        except OpsAssayError:
            return None

    def void(self, stored: StoredRun) -> bool:
        """Return whether the run's case is void (annotated as one that grades no solver); it is then not graded."""
        verdict = self.verdict_of(stored)
        return verdict is not None and is_void(verdict.metrics)

    def standing(self, catalogue: Catalogue, domain: str) -> DomainStanding:
        """Return grades and leaderboard of *domain*; raises NotFoundError when its package is not installed."""
        with self._lock:
            known = self._standings.get(domain)
            if known is not None and known[0] is catalogue and self._settled:
                return known[2]
            runs = [one for one in catalogue.domains[domain] if one.run.status in FINISHED]
            graded = [(one, verdict) for one in runs if (verdict := self.verdict_of(one)) is not None]
            stamp = tuple(id(verdict) for _, verdict in graded)
            if known is not None and known[0] is catalogue and known[1] == stamp:
                return known[2]
            before = None if known is None else known[2].board
            standing = self._make_standing(catalogue, domain, graded, len(runs), before)
            self._standings[domain] = (catalogue, stamp, standing)
            return standing

    def _make_standing(
        self, catalogue: Catalogue, domain: str, graded: Iterable[tuple[StoredRun, Verdict]], results: int,
        before: Leaderboard | None,
    ) -> DomainStanding:  # fmt: skip
        """Return grades and leaderboard of *domain*; *before* is its last leaderboard, *results* counts finished runs."""
        of = tuple(GradedRun(one.folder, one.run, verdict) for one, verdict in graded)
        every = tuple(one.run for one in catalogue.domains[domain])
        over = [one.run for one in catalogue.domains[domain] if not one.runs_now]
        name = catalogue.names_of(domain)
        aborted, retried = aborted_cells(over, name), retried_cells(over, name)
        grades = StoredGrades(domain_named(domain), of, {}, aborted, retried=retried, every=every)
        board = make_board(grades, before)
        entries = {row.entry.name: row.entry for row in board.rows}
        return DomainStanding(grades, board, entries, results - len(of))


def _read_latest(folder: Path) -> Verdict | None:
    """Return the verdict in *folder* that was written last, None without a readable one."""
    with suppress(OpsAssayError, OSError):
        files = [(path.stat().st_mtime_ns, path) for path in folder.iterdir() if _is_of_present_profile(path)]
        return read_noun(Verdict, max(files)[1]) if files else None
    return None


def _is_of_present_profile(path: Path) -> bool:
    """Whether the file *path* is a verdict under the profile `PROFILE`."""
    return path.suffix == ".json" and path.name.partition(".")[0] == PROFILE
