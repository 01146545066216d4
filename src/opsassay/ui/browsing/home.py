"""The first page: runs in progress, latest results, usage, and links to all other pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from opsassay.ui.browsing.catalogue import StoredRun, StoreState, status_of
from opsassay.ui.browsing.matrix import first_trials
from opsassay.ui.browsing.rows import (
    Shown,
    View,
    audit_page,
    board_page,
    page_of,
    run_row,
    solver_page,
    spent_words,
    trials_page,
)
from opsassay.ui.browsing.stored_incidents import task_name
from opsassay.ui.plain import plain

FILTERS = ("domain", "solver", "task", "status", "store")
"""Names of the filters of the latest results in the URL; solver and task match a part of the name."""
MOST_RUNNING = 50
MOST_SOLVERS = 40
MOST_PROBLEMS = 20

_TITLES = {"sre": "Remediation (sre)", "ciso": "Compliance (ciso)", "finops": "Cost (finops)"}
"""Headings of domains whose name on the command line is short."""


def home_view(state: Shown, number: int, filters: Mapping[str, str]) -> View:
    """Return the page data of the first page, with page *number* of the latest results that pass *filters*."""
    catalogue = state.catalogue
    filters = {name: value for name in FILTERS if (value := filters.get(name, ""))}
    over = [
        one for one in catalogue.newest if not one.runs_now and (not filters or _passes_filters(state, one, filters))
    ]
    chosen, paging = page_of(over, number, "index.html")
    running = [run_row(state, one) for one in catalogue.running[:MOST_RUNNING]]
    results = [run_row(state, one) for one in chosen]
    problems = [plain(text, 600) for store in catalogue.stores for text in store.problems]
    return {
        "answer": _home_sentence(state, running, results if not filters else ()),
        "stores": [_store_item(state, store) for store in catalogue.stores],
        "running": running,
        "running_more": max(0, len(catalogue.running) - MOST_RUNNING),
        "results": results,
        "paging": paging,
        "asked": {name: plain(value, 200) for name, value in filters.items()},
        "choices": {
            "domain": [plain(domain, 60) for domain in catalogue.domains],
            "status": sorted({status for of in catalogue.statuses.values() for status in of}),
            "store": [plain(store.name, 60) for store in catalogue.stores],
        },
        "domains": [_domain_item(state, domain, first=not filters and number == 1) for domain in catalogue.domains],
        "problems": problems[:MOST_PROBLEMS],
        "problems_more": max(0, len(problems) - MOST_PROBLEMS),
    }


def _passes_filters(state: Shown, stored: StoredRun, filters: Mapping[str, str]) -> bool:
    """Whether the run matches *filters*: domain, status and store exactly, task and solver by a part."""
    exact = {"domain": stored.domain, "status": status_of(stored), "store": stored.store}
    return all(
        value == exact[name] if name in exact
        else value.lower()
        in (_text_of_task(state, stored) if name == "task" else state.catalogue.solver_of(stored)).lower()
        for name, value in filters.items()
    )  # fmt: skip


def _text_of_task(state: Shown, stored: StoredRun) -> str:
    """Return the text that a filter by task searches for the run *stored*: the task's id and name."""
    return f"{stored.run.item} {task_name(state, stored.domain, stored.run.item)}"


def _home_sentence(state: Shown, running: Sequence[View], results: Sequence[View]) -> str:
    """Return the first page's opening sentence: the runs in progress and the last results."""
    count = len(state.catalogue.running)
    if not state.catalogue.runs:
        return "There are no runs yet; they appear here when they begin."
    now = "Nothing runs now." if not count else "1 run goes on now." if count == 1 else f"{count:,} runs go on now."
    if running and count == 1:
        now = f"{running[0]['solver']} works on {running[0]['task_name']} now."
    if not results:
        return now
    last = results[0]
    named = last["task_name"]
    what = f"{named} of {last['system']}" if named == last["task"] else named  # the name of an incident has its system
    return f"{now} The last: {last['solver']} on {what}, {last['outcome']}."


def _store_item(state: Shown, store: StoreState) -> View:
    """Return the page data of a store: path, number of runs by status, usage."""
    counts: Counter[str] = state.catalogue.statuses[store.name]
    return {
        "name": plain(store.name, 80),
        "path": plain(str(store.root), 300),
        "state": "the folder is gone" if store.missing else "there",
        "runs": sum(counts.values()),
        "ended": ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items())),
        "spent": spent_words(state.catalogue.spent[store.name]),
        "unread": len(store.problems),
    }


def _domain_item(state: Shown, domain: str, *, first: bool) -> View:
    """Return the page data of *domain*: links, counts, solvers; on the *first* page with its task matrix."""
    runs = Counter({place[1]: len(of) for place, of in state.catalogue.by_solver.items() if place[0] == domain})
    return {
        "name": plain(domain, 60),
        "title": _TITLES.get(domain, plain(domain, 60).capitalize()),
        "board": board_page(domain),
        "trials": trials_page(domain),
        "audit": audit_page(domain),
        "tasks": sum(place[0] == domain for place in state.catalogue.by_task),
        "runs": sum(runs.values()),
        "solvers": [
            {"name": plain(name, 120), "page": solver_page(domain, name), "runs": count}
            for name, count in runs.most_common(MOST_SOLVERS)
        ],
        "solvers_more": max(0, len(runs) - MOST_SOLVERS),
        "first": first_trials(state, domain) if first else None,
    }
