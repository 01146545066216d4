"""Addresses and what stands at them: one page, as HTML and as JSON, for the server and for files alike.

Addresses are those of files (``runs/KEY.html``, ``tasks/KEY~2.html`` for a second page) and links are relative, so that
the same page works from a server and from a disk. Names in addresses are looked up, never joined to a path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opsassay.bench.domains.diagnosis.grades import TRACE
from opsassay.errors import NotFoundError, OpsAssayError, UserError
from opsassay.web.browsing.catalogue import Catalogue, StoredRun
from opsassay.web.browsing.comparing import compare_view
from opsassay.web.browsing.groups import board_page_view, solver_view, task_view
from opsassay.web.browsing.home import home_view
from opsassay.web.browsing.one_run import run_page_view
from opsassay.web.browsing.rows import Shown, View
from opsassay.web.browsing.truths import truth_view, whole_page
from opsassay.web.browsing.verdicts import StoredVerdicts
from opsassay.web.page import content_security_policy, render
from opsassay.web.plain import plain

STYLES = ("static/report.css", "static/board.css", "static/browse.css")
SCRIPTS = ("static/live.js",)
HOME = "index.html"
_Made = tuple[str, str, View]
"""A template, a title and what the template shows."""
_ADDRESS = re.compile(
    r"(?:(?P<kind>[a-z]{1,10})/)?(?P<key>[A-Za-z0-9_-]{1,90}(?:\.[A-Za-z0-9_-]{1,90}){0,3})(?:~(?P<page>[0-9]{1,6}))?"
    r"\.(?P<form>html|json)"
)


@dataclass(frozen=True)
class PageQuery:
    """What a browser asks for besides the address: filters, and whether truth is to be shown."""

    filters: Mapping[str, str] = field(default_factory=dict)
    reveal: bool = False


@dataclass(frozen=True)
class Answered:
    """A page as *text*, HTML or JSON, with the *policy* of an HTML page and the *links* that lead on from it."""

    text: str
    form: str
    policy: str | None = None
    links: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class StorePages:
    """The pages over what *catalogue* returns at the moment of asking.

    *cases* is the tree with incidents and truth, the run's own store when None. *live*: there is a server, so that pages
    may have filters, follow what happens, and show truth to whoever asks.
    """

    catalogue: Callable[[], Catalogue]
    verdicts: StoredVerdicts
    cases: Path | None = None
    live: bool = True

    def answer(self, address: str, asked: PageQuery | None = None) -> Answered:
        """Return what stands at *address*; raises NotFoundError, and UserError where a page cannot be made."""
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise _nothing(address)
        kind, key, form = found["kind"] or "", found["key"], found["form"]
        asked, shown = asked or PageQuery(), Shown(self.catalogue(), self.verdicts)
        if kind in ("traces", "whole"):
            return self._apart(kind, self._run(shown, key), form, asked)
        template, title, view = self._view(shown, kind, key, int(found["page"] or 1), asked)
        return _as_json(title, view) if form == "json" else self._as_html(address, template, title, view)

    def _view(self, shown: Shown, kind: str, key: str, page: int, asked: PageQuery) -> _Made:
        """Return what stands at *key* of *kind*; raises NotFoundError."""
        if kind == "" and key == "index":
            return "browse_home.html", "Runs", home_view(shown, page, asked.filters)
        if kind == "runs":
            one = self._run(shown, key)
            return "browse_run.html", _title(shown, one), run_page_view(shown, one, page)
        if kind == "truth" and self.live:
            one = self._run(shown, key)
            return "browse_truth.html", f"Truth of {one.run.item}", truth_view(one, self.cases, reveal=asked.reveal)
        made = _GROUPS[kind](shown, key, page) if kind in _GROUPS else None
        if made is None:
            raise _nothing(f"{kind}/{key}")
        return made

    def _run(self, shown: Shown, key: str) -> StoredRun:
        if key not in shown.catalogue.by_key:
            raise _nothing(f"runs/{key}")
        return shown.catalogue.by_key[key]

    def _apart(self, kind: str, one: StoredRun, form: str, asked: PageQuery) -> Answered:
        """Return a page that another command has too: the trace, or, where truth is to be shown, the whole report."""
        if form != "html" or (kind == "whole" and not (self.live and asked.reveal)):
            raise _nothing(f"{kind}/{one.key}")
        text = whole_page(one, self.cases) if kind == "whole" else _trace_page(one)
        return Answered(text, "html")

    def _as_html(self, address: str, template: str, title: str, view: View) -> Answered:
        up, links = "../" if "/" in address else "", set[str]()

        def to(target: str) -> str:
            links.add(target)
            return up + target

        live = self.live and address.startswith("index")
        scripts = SCRIPTS if live else ()
        policy = content_security_policy(scripts, STYLES, forms="'self'" if live else "'none'")
        policy = f"{policy}; connect-src 'self'" if live else policy
        text = render(
            template, plain(title, 200), styles=STYLES, later=scripts, policy=policy, view=view, to=to, live=self.live,
            up=up, as_json=f"{address.rpartition('/')[2].removesuffix('.html')}.json", at=address,
        )  # fmt: skip
        links.add(f"{address.removesuffix('.html')}.json")
        return Answered(text, "html", policy, frozenset(links))


def _task(shown: Shown, key: str, page: int) -> _Made | None:
    place = shown.catalogue.task_places.get(key)
    return None if place is None else ("browse_runs.html", f"Task {place[1]}", task_view(shown, place, page))


def _solver(shown: Shown, key: str, page: int) -> _Made | None:
    place = shown.catalogue.solver_places.get(key)
    return None if place is None else ("browse_runs.html", f"Solver {place[1]}", solver_view(shown, place, page))


def _board(shown: Shown, key: str, page: int) -> _Made | None:
    del page
    domain = shown.catalogue.domain_keys.get(key)
    return None if domain is None else ("browse_board.html", f"Board, {domain}", board_page_view(shown, domain))


def _compared(shown: Shown, key: str, page: int) -> _Made | None:
    del page
    domain, *solvers = key.split(".")
    places = [shown.catalogue.solver_places.get(f"{domain}.{solver}") for solver in solvers]
    if len(places) != 2 or places[0] is None or places[1] is None:
        return None
    (name, one), (_, two) = places[0], places[1]
    return "browse_compare.html", f"{one} and {two}", compare_view(shown, name, one, two)


_GROUPS: Mapping[str, Callable[[Shown, str, int], _Made | None]] = {
    "tasks": _task,
    "solvers": _solver,
    "boards": _board,
    "compare": _compared,
}


def _title(shown: Shown, one: StoredRun) -> str:
    return f"{one.run.item}, {shown.catalogue.solver_of(one)}"


def _as_json(title: str, view: View) -> Answered:
    payload = {"schema_version": 1, "title": plain(title, 200), **view}
    return Answered(json.dumps(payload, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n", "json")


def _trace_page(one: StoredRun) -> str:
    from opsassay.proxy.formats import read_one
    from opsassay.web.trace_page import render_trace_page
    from opsassay.web.trace_view import TracePage

    try:
        trace = read_one(one.folder / TRACE)
    except OSError as error:
        raise UserError(f"{one.folder / TRACE} cannot be read ({error.strerror}); run it again.") from error
    return render_trace_page([TracePage(one.run.item, trace)], title=f"Trace of {one.run.item}, {one.run.solver.label}")


def _nothing(address: str) -> OpsAssayError:
    return NotFoundError("page", plain(address, 100), [], f"Everything can be found from {HOME}.")
