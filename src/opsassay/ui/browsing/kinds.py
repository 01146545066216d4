"""Every kind of page: its address, what makes it, what it may be asked for; server, files and OpenAPI read this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opsassay.ui.browsing import audits, incidents, jobs, systems
from opsassay.ui.browsing.beside import beside_view
from opsassay.ui.browsing.catalogue import StoredRun
from opsassay.ui.browsing.comparing import compare_view
from opsassay.ui.browsing.groups import board_page_view, solver_view, task_view
from opsassay.ui.browsing.home import FILTERS, home_view
from opsassay.ui.browsing.matrix import trials_view
from opsassay.ui.browsing.one_run import run_page_view
from opsassay.ui.browsing.rows import Shown, View
from opsassay.ui.browsing.stored_incidents import incident_named, task_name
from opsassay.ui.browsing.truths import truth_view

REVEAL = "reveal"
"""The filter, "1", with which a page shows truth."""


@dataclass(frozen=True)
class PageQuery:
    """What a browser asks for besides the address: filters, truth among them."""

    filters: Mapping[str, str] = field(default_factory=dict)

    @property
    def reveal(self) -> bool:
        """Whether truth is to be shown."""
        return self.filters.get(REVEAL) == "1"


@dataclass(frozen=True)
class Made:
    """A page: what fills *template*, and its *title*; *scripts* are those of its own.

    *drawn* names what of the view only the template needs and JSON has not.
    """

    template: str
    title: str
    view: View
    scripts: Sequence[str] = ()
    drawn: Sequence[str] = ()


Maker = Callable[[Shown, str, int, PageQuery], Made | None]
"""Makes a page of a key, a number and a query; None where the key names nothing, OpsAssayError where it cannot be made."""


@dataclass(frozen=True)
class PageKind:
    """Pages that are *made* alike; *key* says what names one, *filters* what the address may ask for.

    *live*: there is one only where a server can answer, and never among files. *paged*: it has rows, a page at a time.
    """

    about: str
    made: Maker
    key: str = ""
    filters: Sequence[str] = ()
    live: bool = False
    paged: bool = True


def run_named(shown: Shown, key: str) -> StoredRun | None:
    """Return the run that *key* names in addresses."""
    return shown.catalogue.by_key.get(key)


def _home(shown: Shown, key: str, page: int, asked: PageQuery) -> Made:
    del key
    return Made("browse_home.html", "Runs", home_view(shown, page, asked.filters))


def _run(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del asked
    one = run_named(shown, key)
    if one is None:
        return None
    title = f"{task_name(shown, one.domain, one.run.item)}, {shown.catalogue.solver_of(one)}"
    view = run_page_view(shown, one, page)
    return Made("browse_run.html", title, view, ("clock",) if view["clock"] else ())


def _truth(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del page
    one = run_named(shown, key)
    if one is None:
        return None
    name = task_name(shown, one.domain, one.run.item)
    return Made("browse_truth.html", f"Truth of {name}", truth_view(one, name, shown.cases, reveal=asked.reveal))


def _task(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del asked
    place = shown.catalogue.task_places.get(key)
    return place and Made("browse_runs.html", f"Task {task_name(shown, *place)}", task_view(shown, place, page))


def _solver(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del asked
    place = shown.catalogue.solver_places.get(key)
    return place and Made("browse_runs.html", f"Solver {place[1]}", solver_view(shown, place, page))


def _board(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del page, asked
    domain = shown.catalogue.domain_keys.get(key)
    return None if domain is None else Made("boards.html", f"Board, {domain}", board_page_view(shown, domain))


def _compared(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del page, asked
    domain, *solvers = key.split(".")
    places = [shown.catalogue.solver_places.get(f"{domain}.{solver}") for solver in solvers]
    if len(places) != 2 or places[0] is None or places[1] is None:
        return None
    (name, one), (_, two) = places[0], places[1]
    return Made("compare.html", f"{one} and {two}", compare_view(shown, name, one, two))


def _trials(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del asked
    domain = shown.catalogue.domain_keys.get(key)
    return None if domain is None else Made("browse_trials.html", f"Trials, {domain}", trials_view(shown, domain, page))


def _beside(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del page, asked
    domain, *names = key.split(".")
    if len(names) != 3 or (place := shown.catalogue.task_places.get(f"{domain}.{names[0]}")) is None:
        return None
    one, two = (shown.catalogue.solver_places.get(f"{domain}.{name}") for name in names[1:])
    if one is None or two is None or (view := beside_view(shown, *place, (one[1], two[1]))) is None:
        return None
    return Made("browse_beside.html", f"Two solvers on {task_name(shown, *place)}", view, ("clock",))


def _incidents(shown: Shown, key: str, page: int, asked: PageQuery) -> Made:
    del key
    return Made("browse_incidents.html", "Incidents", incidents.incidents_view(shown, page, asked.filters))


def _incident(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del page
    one, reveal = incident_named(shown, key), asked.reveal and shown.live
    if one is None:
        return None
    view = incidents.incident_view(shown, one, reveal=reveal)
    return Made("report.html", f"Incident {view['name']}", view, ("report",), ("inert",))


def _sql(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del page
    one = incident_named(shown, key)
    if one is None:
        return None
    return Made("browse_sql.html", "SQL over an incident", incidents.sql_view(one, asked.filters.get("sql", "")))


def _jobs(shown: Shown, key: str, page: int, asked: PageQuery) -> Made:
    del key, page, asked
    return Made("browse_jobs.html", "Jobs", jobs.jobs_view(shown))


def _systems(shown: Shown, key: str, page: int, asked: PageQuery) -> Made:
    del key, page, asked
    return Made("browse_systems.html", "Systems", systems.systems_view(shown.systems))


def _system(shown: Shown, key: str, page: int, asked: PageQuery) -> Made:
    del page
    view = systems.system_view(shown.systems, key, reveal=asked.reveal)
    return Made("browse_system.html", f"System {key}", view)


def _audit(shown: Shown, key: str, page: int, asked: PageQuery) -> Made | None:
    del page, asked
    domain = shown.catalogue.domain_keys.get(key)
    if domain is None:
        return None
    view = audits.audit_view(shown, domain)
    return Made("audit.html", f"Which solver may be chosen, {domain}", view, drawn=("parts",))


TOP: Mapping[str, PageKind] = {
    "index": PageKind("What runs now, the last results, solvers, stores", _home, filters=FILTERS),
    "systems": PageKind("Running systems", _systems, live=True, paged=False),
    "jobs": PageKind("What is being run: progress, estimate, what it spends", _jobs, live=True, paged=False),
    "incidents": PageKind("Recorded incidents", _incidents, filters=incidents.FILTERS),
}
"""Pages that there is one of."""

KINDS: Mapping[str, PageKind] = {
    "runs": PageKind("One run: its course on one clock, metrics, steps, actions", _run, "STORE.CELL.ATTEMPT"),
    "truth": PageKind("What was broken", _truth, "STORE.CELL.ATTEMPT", (REVEAL,), live=True, paged=False),
    "incidents": PageKind("One incident: alerts, graph, golden signals", _incident, "STORE.ID", (REVEAL,), paged=False),
    "systems": PageKind(
        "Graph, golden signals and alerts of a running system", _system, "NAME", (REVEAL,), live=True, paged=False
    ),
    "sql": PageKind("One SELECT over the telemetry of an incident", _sql, "STORE.ID", ("sql",), live=True, paged=False),
    "tasks": PageKind("All runs of a task", _task, "DOMAIN.TASK"),
    "solvers": PageKind("A solver with its figures and runs", _solver, "DOMAIN.SOLVER"),
    "boards": PageKind("The board of a domain", _board, "DOMAIN", paged=False),
    "trials": PageKind("Solvers by rank, and the matrix of task by solver by repeat", _trials, "DOMAIN"),
    "beside": PageKind("Two solvers on one task, on one time axis", _beside, "DOMAIN.TASK.SOLVER.SOLVER", paged=False),
    "audit": PageKind("Which solver may be chosen for which system", _audit, "DOMAIN", paged=False),
    "compare": PageKind("Two solvers on their common tasks", _compared, "DOMAIN.SOLVER.SOLVER", paged=False),
}
"""Pages that there is one of for each key."""
