"""Runs as table rows, split into pages; all texts in them are safe to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.text import number_text
from opsassay.ui.browsing.catalogue import Catalogue, StoredRun, place_key, slug, status_of
from opsassay.ui.browsing.stored_incidents import task_name
from opsassay.ui.browsing.verdicts import StoredVerdicts
from opsassay.ui.plain import plain, utc

if TYPE_CHECKING:
    from opsassay.ui.browsing.systems import SystemWatches

View = dict[str, Any]
ROWS = 50
"""Rows per page."""


@dataclass(frozen=True, eq=False)
class Shown:
    """The data that pages are made from: the current *catalogue* and the stored *verdicts*.

    *cases* is the tree with incidents and truth, None for the runs' own stores. *live*: a server answers; *allow_run*: it
    may end jobs; *systems* are recordings of running systems.
    """

    catalogue: Catalogue
    verdicts: StoredVerdicts
    cases: Path | None = None
    live: bool = True
    allow_run: bool = False
    systems: SystemWatches | None = None


def run_page(stored: StoredRun) -> str:
    """Return the URL of the page of the run *stored*, relative to the site."""
    return f"runs/{stored.key}.html"


def task_page(domain: str, task: str) -> str:
    """Return the URL of the page of *task* in *domain*, relative to the site."""
    return f"tasks/{place_key((domain, task))}.html"


def solver_page(domain: str, solver: str) -> str:
    """Return the URL of the page of *solver* in *domain*, relative to the site."""
    return f"solvers/{place_key((domain, solver))}.html"


def board_page(domain: str) -> str:
    """Return the URL of the leaderboard of *domain*."""
    return f"boards/{slug(domain)}.html"


def trials_page(domain: str) -> str:
    """Return the URL of the matrix tasks x solvers of *domain*."""
    return f"trials/{slug(domain)}.html"


def audit_page(domain: str) -> str:
    """Return the URL of the audit of *domain*."""
    return f"audit/{slug(domain)}.html"


def compare_page(domain: str, one: str, two: str) -> str:
    """Return the URL of the page that compares the solvers *one* and *two*, the same for either order."""
    first, second = sorted((one, two))
    return f"compare/{slug(domain)}.{slug(first)}.{slug(second)}.html"


def run_row(state: Shown, stored: StoredRun) -> View:
    """Return a run as a table row: solver, task, status, outcome, duration, usage, with the URLs of their pages."""
    run, solver = stored.run, state.catalogue.solver_of(stored)
    return {
        "page": run_page(stored),
        "task": plain(run.item, 120),
        "task_name": task_name(state, stored.domain, run.item),
        "task_page": task_page(stored.domain, run.item),
        "solver": plain(solver, 120),
        "solver_page": solver_page(stored.domain, solver),
        "domain": plain(stored.domain, 60),
        "system": plain(run.system, 60),
        "store": plain(stored.store, 60),
        "seed": run.seed,
        "status": status_of(stored),
        "outcome": outcome_of(state, stored),
        "counts": stored.key in state.catalogue.counting,
        "started": utc(run.started_ns or None),
        "seconds": seconds_of(stored),
        "spent": spent_words(run.spent),
        "problem": plain(run.error, 300) if run.error else "",
    }


def outcome_of(state: Shown, stored: StoredRun) -> str:
    """Return the outcome of the run *stored* in words, such as "succeeded" or "not graded"."""
    if stored.runs_now:
        return "runs now"
    if stored.gone or stored.run.status.value == "aborted":
        return "no result"
    if state.verdicts.void(stored):
        return "not applicable"
    succeeded = state.verdicts.succeeded(stored)
    return "not graded" if succeeded is None else "succeeded" if succeeded else "did not succeed"


def seconds_of(stored: StoredRun) -> float | None:
    """Return the duration of the run *stored* in seconds, None while it is running."""
    run = stored.run
    return round((run.ended_ns - run.started_ns) / 1e9, 1) if run.ended_ns and run.started_ns else None


def spent_words(amounts: Mapping[str, float]) -> str:
    """Return *amounts* (usage by unit) as text, "unit amount" joined by commas; zeros are left out."""
    some = sorted((name, value) for name, value in amounts.items() if value)
    return ", ".join(f"{plain(name.replace('_', ' '), 40)} {number_text(value, 4)}" for name, value in some)


def page_of(runs: Sequence[Any], number: int, path: str) -> tuple[Sequence[Any], View]:
    """Return (the items of page *number* of *runs*, paging links); *path* is the URL of the first page."""
    paging = paging_of(len(runs), number, path)
    at = (paging["number"] - 1) * ROWS
    return runs[at : at + ROWS], paging


def paging_of(count: int, number: int, path: str) -> View:
    """Return the paging links for page *number* of *count* rows; *path* is the URL of the first page."""
    last = max(1, -(-count // ROWS))
    number = min(max(number, 1), last)
    at = (number - 1) * ROWS
    return {
        "number": number,
        "last": last,
        "of": count,
        "first_row": at + 1 if count else 0,
        "last_row": min(at + ROWS, count),
        "before": page_address(path, number - 1) if number > 1 else None,
        "behind": page_address(path, number + 1) if number < last else None,
    }


def page_address(path: str, number: int) -> str:
    """Return the URL of page *number* when *path* is the URL of the first page."""
    return path if number == 1 else f"{path.removesuffix('.html')}~{number}.html"
