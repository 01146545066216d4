"""The contents of the stores at one moment: every run, found by URL, task, solver and domain."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from opsassay.core.schema.run import Run, RunStatus
from opsassay.evals.runner.ranking import counted_runs, solver_names

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_SLUG = 60
_DIGITS = 12
Key = TypeVar("Key")


def slug(name: str) -> str:
    """Return *name* made safe for URLs and file names; a changed name gets a hash that keeps it distinct."""
    safe = _UNSAFE.sub("_", name)[:_LONGEST_SLUG]
    if safe == name and name:
        return safe
    return f"{safe}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:_DIGITS]}"


@dataclass(frozen=True, eq=False)
class StoredRun:
    """An attempt in its *folder* of the store named *store*; *gone*: recorded as running, but its process has ended."""

    store: str
    root: Path
    folder: Path
    run: Run
    domain: str
    gone: bool = False

    @cached_property
    def key(self) -> str:
        """The id of the run in URLs: store, cell and attempt."""
        return f"{slug(self.store)}.{slug(self.folder.parent.name)}.{slug(self.folder.name)}"

    @property
    def runs_now(self) -> bool:
        """Whether the run is in progress and its process is alive."""
        return self.run.status is RunStatus.RUNNING and not self.gone


@dataclass(frozen=True)
class StoreState:
    """The state of one store; *missing*: its folder does not exist; *problems*: what could not be read."""

    name: str
    root: Path
    missing: bool = False
    problems: tuple[str, ...] = ()


TaskPlace = tuple[str, str]
"""(domain, task) or (domain, solver)."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """All *stores* and their *runs*, in the order on disk; it is immutable, a change makes a new one."""

    stores: tuple[StoreState, ...]
    runs: tuple[StoredRun, ...]
    last_event: int = 0
    """The number of the last event that the catalogue includes."""

    @cached_property
    def newest(self) -> tuple[StoredRun, ...]:
        """The runs, latest first."""
        return tuple(sorted(self.runs, key=lambda one: (one.run.started_ns, one.key), reverse=True))

    @cached_property
    def by_key(self) -> Mapping[str, StoredRun]:
        """Run id in URLs to the run, for all runs of the catalogue."""
        return {one.key: one for one in self.runs}

    @cached_property
    def domains(self) -> Mapping[str, Sequence[StoredRun]]:
        """Domain name to its runs."""
        return _group_runs(self.runs, lambda one: one.domain)

    @cached_property
    def _namers_by_domain(self) -> Mapping[str, Callable[[Run], str]]:
        """For each domain the function that returns the display name of a run's solver."""
        return {domain: solver_names(one.run for one in of) for domain, of in self.domains.items()}

    def solver_of(self, stored: StoredRun) -> str:
        """Return the display name of the run's solver; solvers that differ in settings get different names."""
        return self._namers_by_domain[stored.domain](stored.run)

    def names_of(self, domain: str) -> Callable[[Run], str]:
        """Return the function that returns the display name of the solver of a run of *domain*."""
        return self._namers_by_domain[domain]

    @cached_property
    def by_solver(self) -> Mapping[TaskPlace, Sequence[StoredRun]]:
        """(domain, solver) to its runs, latest first."""
        return _group_runs(self.newest, lambda one: (one.domain, self.solver_of(one)))

    @cached_property
    def by_task(self) -> Mapping[TaskPlace, Sequence[StoredRun]]:
        """(domain, task) to its runs, latest first."""
        return _group_runs(self.newest, lambda one: (one.domain, one.run.item))

    @cached_property
    def by_both(self) -> Mapping[tuple[str, str, str], Sequence[StoredRun]]:
        """The runs by (domain, task, solver), latest first."""
        return _group_runs(self.newest, lambda one: (one.domain, one.run.item, self.solver_of(one)))

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        """The index of each run (by its id in URLs) in its solver's runs of `by_solver`."""
        return {one.key: at for of in self.by_solver.values() for at, one in enumerate(of)}

    def neighbours(self, stored: StoredRun) -> dict[str, StoredRun | None]:
        """Return {"later", "earlier"}: the run of the same solver after *stored* and the one before, or None."""
        of, at = self.by_solver[stored.domain, self.solver_of(stored)], self._positions[stored.key]
        return {"later": of[at - 1] if at else None, "earlier": of[at + 1] if at + 1 < len(of) else None}

    @cached_property
    def counting(self) -> frozenset[str]:
        """The URL ids of the runs that count in results: one attempt for each cell (task, solver, seed)."""
        of = {id(one.run): one.key for one in self.runs}
        return frozenset(of[id(run)] for run in counted_runs(one.run for one in self.runs))

    @cached_property
    def running(self) -> Sequence[StoredRun]:
        """The runs still in progress, latest first."""
        return [one for one in self.newest if one.runs_now]

    @cached_property
    def statuses(self) -> Mapping[str, Counter[str]]:
        """Store name to the number of its runs by status."""
        found: dict[str, Counter[str]] = {store.name: Counter() for store in self.stores}
        for one in self.runs:
            found[one.store][status_of(one)] += 1
        return found

    @cached_property
    def spent(self) -> Mapping[str, Counter[str]]:
        """Store name to the total usage of its runs by unit."""
        found: dict[str, Counter[str]] = {store.name: Counter() for store in self.stores}
        for one in self.runs:
            for name, value in one.run.spent.items():
                found[one.store][name] += value  # type: ignore[assignment]
        return found

    @cached_property
    def solver_places(self) -> Mapping[str, TaskPlace]:
        """Solver id in URLs to (domain, solver)."""
        return {place_key(place): place for place in self.by_solver}

    @cached_property
    def task_places(self) -> Mapping[str, TaskPlace]:
        """Task id in URLs to (domain, task)."""
        return {place_key(place): place for place in self.by_task}

    @cached_property
    def domain_keys(self) -> Mapping[str, str]:
        """The id of each domain in URLs to its name."""
        return {slug(domain): domain for domain in self.domains}


def place_key(place: TaskPlace) -> str:
    """Return the id in URLs of *place*, a (domain, task) or a (domain, solver)."""
    return f"{slug(place[0])}.{slug(place[1])}"


def status_of(stored: StoredRun) -> str:
    """Return the status of the run; "lost" when it should be running and its process is gone."""
    return "lost" if stored.gone else stored.run.status.value


def _group_runs(runs: Sequence[StoredRun], key: Callable[[StoredRun], Key]) -> dict[Key, list[StoredRun]]:
    """Return lists of runs by *key*, each in the order of *runs*."""
    found: dict[Key, list[StoredRun]] = {}
    for one in runs:
        found.setdefault(key(one), []).append(one)
    return found
