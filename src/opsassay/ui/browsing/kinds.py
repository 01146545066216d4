"""Every kind of page: its URL, its template, its data and its filters; server, files and OpenAPI use this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsassay.ui.browsing import audits, incidents, jobs, systems
from opsassay.ui.browsing.catalogue import StoredRun, TaskPlace
from opsassay.ui.browsing.groups import board_page_view, solver_view, task_view
from opsassay.ui.browsing.home import FILTERS, home_view
from opsassay.ui.browsing.matrix import trials_view
from opsassay.ui.browsing.one_run import run_page_view
from opsassay.ui.browsing.rows import Shown, View
from opsassay.ui.browsing.stored_incidents import incident_named, name_of, task_name
from opsassay.ui.browsing.truths import truth_view
from opsassay.ui.browsing.two_solvers import beside_view, compare_view

REVEAL = "reveal"
"""The filter whose value "1" makes a page show the truth."""


@dataclass(frozen=True)
class PageQuery:
    """The query of a page's URL: its filters."""

    filters: Mapping[str, str] = field(default_factory=dict)

    @property
    def reveal(self) -> bool:
        """Whether the query asks to show the true answers."""
        return self.filters.get(REVEAL) == "1"


@dataclass(frozen=True)
class Made:
    """A page not yet rendered: the data (*view*) for *template*, its *title*, and further *scripts*.

    *drawn* names the keys of the data that only the template needs, which the JSON omits.
    """

    template: str
    title: str
    view: View
    scripts: Sequence[str] = ()
    drawn: Sequence[str] = ()


@dataclass(frozen=True)
class PageAsked:
    """A request for page *number* of the object *of*, in the stores *shown*, with a *query*."""

    shown: Shown
    of: Any
    number: int
    query: PageQuery

    @property
    def task(self) -> str:
        """The display name of the task of the requested run."""
        return task_name(self.shown, self.of.domain, self.of.run.item)


def _key_as_is(state: Shown, key: str) -> str:
    """Return *key* unchanged, for pages that look it up themselves."""
    del state
    return key


@dataclass(frozen=True)
class PageKind:
    """A kind of page: *find* returns the object of a key in the URL, *view* the data for *template*, *title* its heading.

    *find* and *view* return None if there is no such page; *view* raises OpsAssayError if it cannot be made. *key*
    describes the key, *filters* are the allowed ones. *live*: only a server has the page, never the files. *paged*: its
    rows are split into pages.
    """

    about: str
    template: str
    title: Callable[[PageAsked], str]
    view: Callable[[PageAsked], View | None]
    find: Callable[[Shown, str], Any | None] = _key_as_is
    key: str = ""
    filters: Sequence[str] = ()
    scripts: Sequence[str] = ()
    drawn: Sequence[str] = ()
    live: bool = False
    paged: bool = True

    def make_page(self, state: Shown, key: str, number: int, query: PageQuery) -> Made | None:
        """Return the page of the object *key*, None when there is none; raises OpsAssayError on failure."""
        asked = PageAsked(state, self.find(state, key), number, query)
        if asked.of is None or (view := self.view(asked)) is None:
            return None
        scripts = () if view.get("clock", self) is None else self.scripts  # there are no lanes to move a moment over
        return Made(self.template, self.title(asked), view, scripts, self.drawn)


def run_named(state: Shown, key: str) -> StoredRun | None:
    """Return the run with the id *key* in URLs, None when it does not exist."""
    return state.catalogue.by_key.get(key)


def _find_task(state: Shown, key: str) -> TaskPlace | None:
    """Return the (domain, task) with the id *key* in URLs, None when it does not exist."""
    return state.catalogue.task_places.get(key)


def _find_solver(state: Shown, key: str) -> TaskPlace | None:
    """Return the (domain, solver) with the id *key* in URLs, None when it does not exist."""
    return state.catalogue.solver_places.get(key)


def _find_domain(state: Shown, key: str) -> str | None:
    """Return the domain with the id *key* in URLs, None when it does not exist."""
    return state.catalogue.domain_keys.get(key)


def _find_two_solvers(state: Shown, key: str) -> tuple[str, str, str] | None:
    """Return the (domain, solver, solver) that the id *key* of a comparison names, None when one is unknown."""
    domain, *solvers = key.split(".")
    places = [place for solver in solvers if (place := _find_solver(state, f"{domain}.{solver}"))]
    return (places[0][0], places[0][1], places[1][1]) if len(places) == len(solvers) == 2 else None


def _find_task_of_two(state: Shown, key: str) -> tuple[str, str, tuple[str, str]] | None:
    """Return the (domain, task, two solvers) that the id *key* of a comparison names, None when unknown."""
    domain, task, solvers = [*key.split(".", 2), "", ""][:3]
    place, two = _find_task(state, f"{domain}.{task}"), _find_two_solvers(state, f"{domain}.{solvers}")
    return (*place, two[1:]) if place and two else None


TOP: Mapping[str, PageKind] = {
    "index": PageKind(
        "What runs now, the last results, solvers, stores", "browse_home.html", lambda _: "Runs",
        lambda asked: home_view(asked.shown, asked.number, asked.query.filters), filters=FILTERS,
    ),
    "systems": PageKind(
        "Running systems", "browse_systems.html", lambda _: "Systems",
        lambda asked: systems.systems_view(asked.shown.systems), live=True, paged=False,
    ),
    "jobs": PageKind(
        "What is being run: progress, estimate, what it spends", "browse_jobs.html", lambda _: "Jobs",
        lambda asked: jobs.jobs_view(asked.shown), live=True, paged=False,
    ),
    "incidents": PageKind(
        "Recorded incidents", "browse_incidents.html", lambda _: "Incidents",
        lambda asked: incidents.incidents_view(asked.shown, asked.number, asked.query.filters), filters=incidents.FILTERS,
    ),
}  # fmt: skip
"""Pages without a key, by name."""

KINDS: Mapping[str, PageKind] = {
    "runs": PageKind(
        "One run: its course on one clock, metrics, steps, actions", "browse_run.html",
        lambda asked: f"{asked.task}, {asked.shown.catalogue.solver_of(asked.of)}",
        lambda asked: run_page_view(asked.shown, asked.of, asked.number), run_named, "STORE.CELL.ATTEMPT",
        scripts=("clock",),
    ),
    "truth": PageKind(
        "What was broken", "browse_truth.html", lambda asked: f"Truth of {asked.task}",
        lambda asked: truth_view(asked.of, asked.task, asked.shown.cases, reveal=asked.query.reveal), run_named,
        "STORE.CELL.ATTEMPT", (REVEAL,), live=True, paged=False,
    ),
    "incidents": PageKind(
        "One incident: alerts, graph, golden signals", "report.html",
        lambda asked: f"Incident {name_of(asked.of.incident())}",
        lambda asked: incidents.incident_view(asked.shown, asked.of, reveal=asked.query.reveal and asked.shown.live),
        incident_named, "STORE.ID", (REVEAL,), ("report",), ("inert",), paged=False,
    ),
    "systems": PageKind(
        "Graph, golden signals and alerts of a running system", "browse_system.html", lambda asked: f"System {asked.of}",
        lambda asked: systems.system_view(asked.shown.systems, asked.of, reveal=asked.query.reveal), key="NAME",
        filters=(REVEAL,), live=True, paged=False,
    ),
    "sql": PageKind(
        "One SELECT over the telemetry of an incident", "browse_sql.html", lambda _: "SQL over an incident",
        lambda asked: incidents.sql_view(asked.of, asked.query.filters.get("sql", "")), incident_named, "STORE.ID",
        ("sql",), live=True, paged=False,
    ),
    "tasks": PageKind(
        "All runs of a task", "browse_runs.html", lambda asked: f"Task {task_name(asked.shown, *asked.of)}",
        lambda asked: task_view(asked.shown, asked.of, asked.number), _find_task, "DOMAIN.TASK",
    ),
    "solvers": PageKind(
        "A solver with its figures and runs", "browse_runs.html", lambda asked: f"Solver {asked.of[1]}",
        lambda asked: solver_view(asked.shown, asked.of, asked.number), _find_solver, "DOMAIN.SOLVER",
    ),
    "boards": PageKind(
        "The leaderboard of a domain", "boards.html", lambda asked: f"Leaderboard, {asked.of}",
        lambda asked: board_page_view(asked.shown, asked.of), _find_domain, "DOMAIN", paged=False,
        scripts=("board",),
    ),
    "trials": PageKind(
        "Solvers by rank, and the matrix of task by solver by repeat", "browse_trials.html",
        lambda asked: f"Trials, {asked.of}", lambda asked: trials_view(asked.shown, asked.of, asked.number), _find_domain,
        "DOMAIN",
    ),
    "beside": PageKind(
        "Two solvers on one task, on one time axis", "browse_beside.html",
        lambda asked: f"Two solvers on {task_name(asked.shown, *asked.of[:2])}",
        lambda asked: beside_view(asked.shown, *asked.of), _find_task_of_two, "DOMAIN.TASK.SOLVER.SOLVER",
        scripts=("clock",), paged=False,
    ),
    "audit": PageKind(
        "Which solver may be chosen for which system", "audit.html",
        lambda asked: f"Which solver may be chosen, {asked.of}", lambda asked: audits.audit_view(asked.shown, asked.of),
        _find_domain, "DOMAIN", drawn=("parts",), paged=False,
    ),
    "compare": PageKind(
        "Two solvers on their common tasks", "compare.html", lambda asked: f"{asked.of[1]} and {asked.of[2]}",
        lambda asked: compare_view(asked.shown, *asked.of), _find_two_solvers, "DOMAIN.SOLVER.SOLVER", paged=False,
    ),
}  # fmt: skip
"""Kinds of pages with a key, by the first part of their URL."""
