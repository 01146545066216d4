"""The web server of the pages: a route for every page, and a stream of events when runs begin and end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
from opsassay.core.untrusted import one_sentence
from opsassay.ui.browsing.jobs import cancel_job
from opsassay.ui.browsing.kinds import PageQuery
from opsassay.ui.browsing.rows import run_page
from opsassay.ui.browsing.site import HOME, StorePages, home_from
from opsassay.ui.browsing.watching import RunEvent, Watcher
from opsassay.ui.page import respond
from opsassay.ui.plain import plain

MOST_STREAMS = 20
"""Most pages that may follow events at the same time."""
LONGEST_FILTER = 8_000
"""Most characters of a filter or an SQL statement; a longer one is cut."""
LOOK_S = 0.2
HEARTBEAT_S = 10.0


def view_app(site: StorePages, watcher: Watcher) -> Starlette:
    """Return the web application with the pages of *site* and the events of *watcher*; it is served on loopback."""
    streams: set[object] = set()

    def page(request: Request) -> Response:
        """Answer with the page at the address, as HTML or JSON, or with the page of an error."""
        address = request.path_params.get("address") or HOME
        filters = {name: value[:LONGEST_FILTER] for name, value in request.query_params.items()}
        try:
            answered = site.answer(address, PageQuery(filters))
        except OpsAssayError as error:
            return _refuse_page(error, address)
        except OSError as error:  # a store that vanished in the middle of reading it
            text = f"A file of this page cannot be read now: {error.strerror or error}; reload it."
            return _refuse_page(NotFoundError("page", address, [], text), address)
        if answered.form == "json":
            return Response(answered.text, media_type="application/json")
        headers = {"Content-Security-Policy": answered.policy} if answered.policy else {}
        return HTMLResponse(answered.text, headers=headers)

    def end_job(request: Request) -> Response:
        """Cancel the job and go back to the list; 403 unless the pages may start and end runs."""
        if not site.allow_run:
            return _refuse_page(
                UserError("These pages only read; start `opsassay view` with --allow-run."), "jobs", 403
            )
        try:
            cancel_job(site.page_state(), request.path_params["key"])
        except OpsAssayError as error:
            return _refuse_page(error, "jobs")
        return RedirectResponse("/jobs.html", status_code=303)

    async def events(request: Request) -> Response:
        """Stream the events after the last one that the page has seen; 503 when too many pages follow."""
        if len(streams) >= MOST_STREAMS:
            return PlainTextResponse(f"{MOST_STREAMS} pages follow already; close one.", status_code=503)
        last = request.headers.get("last-event-id") or request.query_params.get("after", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else watcher.last_event
        return StreamingResponse(
            _stream_events(site, watcher, min(after, watcher.last_event), streams), media_type="text/event-stream"
        )

    return Starlette(
        routes=[
            Route("/", page),
            Route("/events", events),
            Route("/jobs/{key}/cancel", end_job, methods=["POST"]),
            Route("/{address:path}", page),
        ]
    )


async def _stream_events(site: StorePages, watcher: Watcher, after: int, streams: set[object]) -> AsyncIterator[str]:
    """Yield events after number *after* as server-sent events with keep-alives; *streams* holds all open ones."""
    this, quiet_s = object(), 0.0
    streams.add(this)
    try:
        yield "retry: 1000\n\n"
        while not watcher.closed:
            for event in watcher.events_after(after):
                after, quiet_s = event.number, 0.0
                yield _format_message(site, event)
            await asyncio.sleep(LOOK_S)
            quiet_s += LOOK_S
            if quiet_s >= HEARTBEAT_S:
                quiet_s = 0.0
                yield ": still here\n\n"
    finally:
        streams.discard(this)


def _format_message(site: StorePages, event: RunEvent) -> str:
    """Return *event*, a run that began or ended, as a server-sent event with the run's page."""
    one = event.run
    known = site.catalogue().by_key.get(one.key)
    solver = site.catalogue().solver_of(known) if known else one.run.solver.label
    payload = {
        "event": "begun" if event.kind == "begun" else "ended",
        "run": run_page(one),
        "task": plain(one.run.item, 120),
        "solver": plain(solver, 120),
        "domain": plain(one.domain, 60),
        "status": one.run.status.value,
    }
    return f"id: {event.number}\ndata: {json.dumps(payload)}\n\n"


def _refuse_page(error: OpsAssayError, address: str, status: int = 409) -> Response:
    """Return *error* as JSON or as a page (by *address*); its status is 404 for NotFoundError, else *status*."""
    status = 404 if isinstance(error, NotFoundError) else status
    text = one_sentence(str(error))
    if address.endswith(".json"):
        return Response(json.dumps({"error": text}), status_code=status, media_type="application/json")
    return respond("browse_error.html", "Nothing to show", status=status, text=text, home=home_from(address))
