"""Makes the page at a URL, as HTML and as JSON, for the server and for files.

URLs are those of files (``runs/KEY.html``, ``tasks/KEY~2.html`` for a second page) and links are relative, so that a page
works on a server and on a disk. Keys in URLs are looked up, never joined to a path. The OpenAPI description of the JSON
pages is made from the table of kinds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsassay import __version__
from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
from opsassay.core.schema.run_folder import TRACE
from opsassay.ui.browsing.catalogue import Catalogue, StoredRun
from opsassay.ui.browsing.kinds import KINDS, TOP, Made, PageKind, PageQuery, run_named
from opsassay.ui.browsing.lines import size_of
from opsassay.ui.browsing.rows import Shown, run_page
from opsassay.ui.browsing.stored_incidents import task_name
from opsassay.ui.browsing.systems import SystemWatches
from opsassay.ui.browsing.truths import whole_page
from opsassay.ui.browsing.verdicts import StoredVerdicts
from opsassay.ui.page import content_security_policy, render
from opsassay.ui.plain import plain
from opsassay.ui.step_rows import LARGEST_TRACE

ADDRESS = "openapi.json"
_PAGE = {
    "type": "object",
    "required": ["schema_version", "title", "answer"],
    "properties": {
        "schema_version": {"const": 1},
        "title": {"type": "string"},
        "answer": {"type": "string", "description": "what the page says first, in a sentence"},
    },
}
_PROBLEM = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


def description() -> dict[str, Any]:
    """Return the OpenAPI description of the JSON that `opsassay view` serves."""
    paths = {
        f"/{name}{page}.json": _describe_path(kind, page) for name, kind in TOP.items() for page in _page_suffixes(kind)
    }
    paths |= {
        f"/{name}/{{key}}{page}.json": _describe_path(kind, page)
        for name, kind in KINDS.items()
        for page in _page_suffixes(kind)
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "OpsAssay, pages over stores", "version": __version__},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "key"}},
            "schemas": {"Page": _PAGE, "Problem": _PROBLEM},
        },
    }


def _page_suffixes(kind: PageKind) -> tuple[str, ...]:
    """Return the URL suffixes of a kind of page: "" and, when it has several pages, one with a page number."""
    return ("", "~{page}") if kind.paged else ("",)


def _describe_path(kind: PageKind, page: str) -> dict[str, Any]:
    """Return the OpenAPI entry of a kind of page; *page* is its URL suffix."""
    parameters = [
        _describe_parameter(name, "query", "reveals truth when 1" if name == "reveal" else "") for name in kind.filters
    ]
    if kind.key:
        parameters.insert(0, _describe_parameter("key", "path", kind.key))
    if page:
        parameters.append(_describe_parameter("page", "path", "number of the page, from 1", type_="integer"))
    answers = {
        "200": _describe_response("the page", "Page"),
        "404": _describe_response("there is no such page", "Problem"),
        "409": _describe_response("the page cannot be made now; the sentence says why", "Problem"),
    }
    return {"get": {"summary": kind.about, "parameters": parameters, "responses": answers}}


def _describe_parameter(name: str, location: str, about: str, type_: str = "string") -> dict[str, Any]:
    """Return an OpenAPI parameter described by *about* of type *type_*; *location* is "path" or "query"."""
    shown = {"description": about} if about else {}
    return {"name": name, "in": location, "required": location == "path", "schema": {"type": type_}, **shown}


def _describe_response(about: str, schema: str) -> dict[str, Any]:
    """Return an OpenAPI response, described by *about*, with the schema named *schema*."""
    return {
        "description": about,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }


HOME = "index.html"
_ADDRESS = re.compile(
    r"(?:(?P<kind>[a-z]{1,10})/)?(?P<key>[A-Za-z0-9_-]{1,90}(?:\.[A-Za-z0-9_-]{1,90}){0,3})(?:~(?P<page>[0-9]{1,6}))?"
    r"\.(?P<form>html|json)"
)


def home_from(address: str) -> str:
    """Return the URL of the first page relative to *address*."""
    return "../" * address.count("/") + HOME


@dataclass(frozen=True)
class Answered:
    """A page as *text*, HTML or JSON, with the Content-Security-*policy* of HTML and the *links* to other pages."""

    text: str
    form: str
    policy: str | None = None
    links: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class StorePages:
    """The pages over the current result of *catalogue*.

    *cases* is the tree with incidents and truth, None for the runs' own stores. *live*: a server answers, so that pages may
    have filters, follow events, and show the truth if requested. *allow_run*: they may end jobs. *systems* are recordings
    of running systems.
    """

    catalogue: Callable[[], Catalogue]
    verdicts: StoredVerdicts
    cases: Path | None = None
    live: bool = True
    allow_run: bool = False
    systems: SystemWatches | None = None

    def page_state(self) -> Shown:
        """Return the current contents of the stores, from which pages are made."""
        return Shown(self.catalogue(), self.verdicts, self.cases, self.live, self.allow_run, self.systems)

    def answer(self, address: str, query: PageQuery | None = None) -> Answered:
        """Return the response to a GET of *address*; raises NotFoundError, and UserError when it cannot be made."""
        after = self.catalogue().last_event  # before the page is made: whoever has it asks for what follows
        made = self._make_page(address, query or PageQuery())
        if isinstance(made, Answered):
            return made
        return _page_as_json(made) if address.endswith(".json") else self._as_html(address, made, after)

    def files(self, address: str) -> dict[str, Answered]:
        """Return the page at *address* by file name: its HTML and, if it has one, its JSON."""
        made = self._make_page(address, PageQuery())
        if isinstance(made, Answered):
            return {address: made}
        return {address: self._as_html(address, made), _json_address(address): _page_as_json(made)}

    def _make_page(self, address: str, query: PageQuery) -> Made | Answered:
        """Return the page at *address*, not yet rendered; an `Answered` for OpenAPI, a trace or a whole report."""
        if address == ADDRESS and self.live:
            return Answered(json.dumps(description(), indent=1) + "\n", "json")
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise _no_such_page(address)
        kind, key, shown = found["kind"] or "", found["key"], self.page_state()
        if kind in ("traces", "whole"):
            return self._external_page(shown, kind, key, found["form"], query)
        of = KINDS.get(kind) if kind else TOP.get(key)
        made = of.make_page(shown, key, int(found["page"] or 1), query) if of and (self.live or not of.live) else None
        if made is None:
            raise _no_such_page(f"{kind}/{key}" if kind else key)
        return made

    def _external_page(self, state: Shown, kind: str, key: str, form: str, query: PageQuery) -> Answered:
        """Return the page of run *key*: its trace, or for *kind* "whole" its report with the truth, if so queried."""
        one = run_named(state, key)
        if one is None or form != "html" or (kind == "whole" and not (self.live and query.reveal)):
            raise _no_such_page(f"{kind}/{key}")
        text = whole_page(one, self.cases) if kind == "whole" else _trace_page(state, one)
        return Answered(text, "html")

    def _as_html(self, address: str, page: Made, after: int = 0) -> Answered:
        """Return *page* rendered; its script follows the events after number *after* where pages are live."""
        up, links = "../" if "/" in address else "", set[str]()

        def to(target: str) -> str:
            """Return the relative link to *target*, and note that the page links there."""
            links.add(target)
            return up + target

        follows = self.live and address.startswith(("index", "jobs", "systems"))
        scripts = [*page.scripts, *(("live",) if follows else ())]
        policy = content_security_policy(scripts, served=self.live, connects=follows)
        text = render(
            page.template, page.title, scripts, policy=policy, layout="store.html", view=page.view, to=to, live=self.live,
            up=up, follow=f"events?after={after}" if follows else "", as_json=_json_address(address.rpartition("/")[2]),
            home=up + HOME,
        )  # fmt: skip
        links.add(_json_address(address))
        return Answered(text, "html", policy, frozenset(links))


def _json_address(address: str) -> str:
    """Return the URL of the JSON of the page at *address*."""
    return f"{address.removesuffix('.html')}.json"


def _page_as_json(page: Made) -> Answered:
    """Return the page's data as JSON, without the parts that only the drawing needs."""
    payload = {
        "schema_version": 1,
        "title": plain(page.title, 200),
        **{name: value for name, value in page.view.items() if name not in page.drawn},
    }
    return Answered(json.dumps(payload, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n", "json")


def _trace_page(shown: Shown, stored: StoredRun) -> str:
    """Return the HTML page of the run's trace; raises UserError when it is too large or unreadable."""
    from opsassay.solvers.proxy.formats import read_one
    from opsassay.ui.trace_view import TracePage, render_trace_page

    if size_of(stored.folder / TRACE) > LARGEST_TRACE:
        raise UserError(f"{stored.folder / TRACE} is too large for one page; the page of the run shows its steps.")
    try:
        trace = read_one(stored.folder / TRACE)
    except OSError as error:
        raise UserError(f"{stored.folder / TRACE} cannot be read ({error.strerror}); run it again.") from error
    task, run = task_name(shown, stored.domain, stored.run.item), f"../{run_page(stored)}"
    return render_trace_page(
        [TracePage(stored.run.item, trace)], title=f"Trace of {task}, {stored.run.solver.label}",
        back={"All runs": f"../{HOME}", "The run": run},
    )  # fmt: skip


def _no_such_page(address: str) -> OpsAssayError:
    """Return the NotFoundError for *address*."""
    return NotFoundError("page", plain(address, 100), [], f"Everything can be found from {HOME}.")
