"""The web application of the platform: API, relaying of tool calls, live events, leaderboards and pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from opsassay.core.errors import OpsAssayError
from opsassay.server import itbench
from opsassay.server.access import is_token
from opsassay.server.api import BodyError, as_json_line, bearer, openapi, read_bounded, refusal, routes_of
from opsassay.server.benchmarks import Platform
from opsassay.server.database import CELLS
from opsassay.server.events import last_event, read_events
from opsassay.server.index import last_noted, note_events
from opsassay.server.itbench import ITBENCH, ended_bundles, submission, taken_bundle, uploaded
from opsassay.server.leaderboards import LeaderboardCache
from opsassay.server.operations import OPERATIONS
from opsassay.server.page_data import page_access
from opsassay.server.queue import defer_lost
from opsassay.server.relaying import Switchboard
from opsassay.server.task_sets import task_set_names
from opsassay.server.timeouts import expire
from opsassay.ui.loopback import SafeHeaders
from opsassay.ui.plain import plain
from opsassay.ui.platform.routes import error_page, platform_routes

LOOK_S, TEND_S, KEEP_ALIVE_S, PREPARE_S = 0.5, 15.0, 15.0, 5.0
MESSAGE_BYTES = 4 * 2**20
NO_DATABASE = (OperationalError, NoConnectionError)


class News:
    """Notifies waiting callers of new events, with one poll of the database for all of them."""

    def __init__(self, platform: Platform) -> None:
        self._platform, self._changed, self.last = platform, asyncio.Condition(), 0

    async def follow(self) -> None:
        """Poll for new events and wake the callers of `after`, until cancelled."""
        while True:
            with suppress(SQLAlchemyError):
                last = await run_in_threadpool(self._read_last_event)
                if last != self.last:
                    async with self._changed:
                        self.last = last
                        self._changed.notify_all()
            await asyncio.sleep(LOOK_S)

    async def after(self, seq: int) -> int:
        """Wait for an event after number *seq*, at most KEEP_ALIVE_S seconds; return the last event's number."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEP_ALIVE_S), self._changed:
                await self._changed.wait_for(lambda: self.last > seq)
        return self.last

    def _read_last_event(self) -> int:
        """Return the number of the last event in the database."""
        with self._platform.engine.connect() as connection:
            return last_event(connection)


def platform_app(platform: Platform, url: str) -> Starlette:
    """Return the web application of *platform*; *url* is that of its database."""
    lines, news, boards = Switchboard(), News(platform), LeaderboardCache(platform)
    described = openapi([*OPERATIONS, *ITBENCH])

    async def description(request: Request) -> Response:  # noqa: ARG001 - starlette's signature
        return JSONResponse(described)

    routes = [
        Route("/openapi.json", description),
        *_Relaying(platform, lines).routes(),
        Route("/api/live", _make_event_stream(platform, news)),
        *_with_effects(platform, url, lines),
        *platform_routes(page_access(platform, boards)),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001 - starlette's signature
        background = news.follow(), _maintain_platform(platform, url), prepare_boards(platform.state, boards, news)
        tending = [asyncio.create_task(work) for work in background]
        yield
        for task in tending:
            task.cancel()

    handlers: dict[Any, Any] = dict.fromkeys((HTTPException, *NO_DATABASE, Exception), _answer_error)
    app = Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(SafeHeaders)], exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or an unexpected *error*: JSON below /api and /itbench, else a page."""
    status = error.status_code if isinstance(error, HTTPException) else 503 if isinstance(error, NO_DATABASE) else 500
    sentences = {
        404: f"There is no {plain(request.url.path, 200)!r} here.",
        405: f"{plain(request.url.path, 200)} does not take {plain(request.method, 20)}; /openapi.json says what it takes.",
        500: "This failed, which is an error of the platform; its log says what. Tell its operator.",
        503: "The database does not answer now; try again.",
    }
    said = sentences.get(status, "This cannot be answered.")
    programs = request.url.path.startswith(("/api/", f"{itbench.ROOT}/"))
    found = refusal(status, said) if programs else error_page(status, said)
    found.headers.update(getattr(error, "headers", None) or {})
    return found


def _with_effects(platform: Platform, url: str, lines: Switchboard) -> list[Route]:
    """Return the routes of all operations; some queue cells, or notify relays by *lines*, after success."""

    def queue(_path: dict[str, str], _status: int) -> None:
        with platform.engine.connect() as connection:
            defer_lost(url, connection)

    async def after_request(path: dict[str, str], status: int) -> None:
        await run_in_threadpool(queue, path, status)

    async def after_status(path: dict[str, str], status: int) -> None:
        del status
        cell = path["entry"]
        state = await run_in_threadpool(_read_agent_state, platform, cell)
        if state in ("Finished", "Error", "TimedOut"):
            lines.end(cell, state)

    async def after_post_status(path: dict[str, str], status: int) -> None:
        del status
        for cell, state in await run_in_threadpool(_list_ended_bundles, platform, path["benchmark"]):
            lines.end(cell, state)

    async def after_open(path: dict[str, str], status: int) -> None:
        del status
        lines.open(path["entry"])

    effects = {
        "/api/benchmarks": after_request,
        "/api/entries/{entry}/status": after_status,
        "/api/relay/{entry}/open": after_open,
        itbench.ENROLL: after_request,
        itbench.AGENT_STATUS: after_post_status,
        itbench.FINISH: after_post_status,
    }
    found = []
    for route in routes_of([*OPERATIONS, *ITBENCH], platform):
        effect = effects.get(route.path)
        found.append(
            route
            if effect is None
            else Route(route.path, _with_effect(route.endpoint, effect), methods=list(route.methods or ()))
        )
    return found


def _with_effect(
    endpoint: Callable[[Request], Any], effect: Callable[[dict[str, str], int], Any]
) -> Callable[[Request], Any]:
    """Return *endpoint* with *effect* run after a successful POST or PUT; it gets path parameters and status."""

    async def followed(request: Request) -> Response:
        answer: Response = await endpoint(request)
        if answer.status_code < 300 and request.method in ("POST", "PUT"):
            await effect(dict(request.path_params), answer.status_code)
        return answer

    return followed


def _list_ended_bundles(platform: Platform, benchmark: str) -> list[tuple[str, str]]:
    """Return (id, agent state) of bundles of *benchmark* that a worker holds although the agent has ended."""
    with platform.engine.connect() as connection:
        return ended_bundles(connection, benchmark)


def _read_agent_state(platform: Platform, cell: str) -> str:
    """Return the state of the agent on *cell*, such as "Initializing", from the database."""
    with platform.engine.connect() as connection:
        return str(connection.execute(select(CELLS.c.agent).where(CELLS.c.id == cell)).scalar_one())


class _Relaying:
    """The endpoints between a self-hosted agent and its relay."""

    def __init__(self, platform: Platform, lines: Switchboard) -> None:
        self._platform, self._lines = platform, lines

    def routes(self) -> list[Route]:
        """Return the routes of MCP messages: agents need their entry's token, relays the relay's."""
        return [
            Route("/api/entries/{entry}/mcp", self._require_token("entry", self._relay_call), methods=["POST"]),
            Route("/api/relay/{entry}/next", self._require_token("relay", self._next_call)),
            Route("/api/relay/{entry}/answer", self._require_token("relay", self._accept_answer), methods=["POST"]),
            Route(itbench.FILE, self._submit_file, methods=["POST"]),
        ]

    async def _submit_file(self, request: Request) -> Response:
        """Submit the answer in an uploaded JSON file named after its bundle, as ITBench's harness does."""
        try:
            content = await read_bounded(request, MESSAGE_BYTES)
        except BodyError as error:
            return refusal(error.status, str(error))
        name, held = uploaded(content, request.headers.get("content-type", "")) or ("", b"")
        if not await run_in_threadpool(self._is_taken, bearer(request), request.path_params["benchmark"], name):
            return refusal(403, "There is no such bundle that your agent has taken; the file is called as its bundle.")
        try:
            answer = json.loads(held)
            for message in submission(answer):
                said = await self._lines.ask(name, message)
        except (ValueError, RecursionError):
            return refusal(400, "The file has to hold the answer as JSON: the arguments of the tool submit.")
        except (TimeoutError, asyncio.QueueFull):
            return refusal(503, "The tools do not answer now; try again.")
        result = said.get("result", {"isError": True, "content": [said.get("error")]})
        return JSONResponse(result, status_code=400 if result.get("isError") else 200)

    def _is_taken(self, token: str, benchmark: str, bundle: str) -> bool:
        """Return whether the agent of the user with *token* works on *bundle* of *benchmark* now."""
        with self._platform.engine.connect() as connection:
            return taken_bundle(connection, token, benchmark, bundle)

    def _require_token(self, kind: str, work: Callable[[str, Request], Any]) -> Callable[[Request], Any]:
        """Return an endpoint that calls *work* with the entry's id; 403 without its token of *kind*."""

        async def endpoint(request: Request) -> Response:
            entry = request.path_params["entry"]
            if not is_token(bearer(request), self._platform.signer, kind, entry):
                return refusal(403, "There is no such entry, or this is not its token.")
            try:
                found: Response = await work(entry, request)
            except BodyError as error:
                return refusal(error.status, str(error))
            return found

        return endpoint

    async def _relay_call(self, entry: str, request: Request) -> Response:
        """Pass the agent's MCP message on *entry* to its tools and return their response."""
        message = await _read_object(request)
        if message.get("jsonrpc") != "2.0":
            return refusal(400, "Send one message of MCP: a JSON object with jsonrpc 2.0.")
        if await run_in_threadpool(_read_agent_state, self._platform, entry) != "Executing":
            return refusal(409, "Say STARTED first; after FINISH there are no more calls.")
        try:
            answer = await self._lines.ask(entry, message)
        except (TimeoutError, asyncio.QueueFull):
            return refusal(503, "The tools do not answer now; try again.")
        return Response(status_code=202) if answer is None else JSONResponse(answer)

    async def _next_call(self, entry: str, request: Request) -> Response:
        """Return the next MCP message for the relay of *entry*, after waiting for one as long as the query says."""
        given = request.query_params.get("wait", "20")
        wait_s = min(float(given), 30.0) if given.isascii() and given.isdigit() else 20.0
        return JSONResponse(await self._lines.next(entry, wait_s))

    async def _accept_answer(self, entry: str, request: Request) -> Response:
        """Pass the tools' response, posted by the relay of *entry*, to the agent's waiting request."""
        given = await _read_object(request)
        if not isinstance(given.get("id"), str):
            return refusal(400, "Give the id of the call, and the message.")
        self._lines.deliver_answer(entry, given["id"], given.get("message"))
        return JSONResponse({})


async def _read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the request's body; raises BodyError (400)."""
    try:
        found = json.loads(await read_bounded(request, MESSAGE_BYTES))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BodyError(400, "The body has to be one JSON object.")
    return found


def _make_event_stream(platform: Platform, news: News) -> Callable[[Request], Any]:
    """Return the endpoint that streams new events, without their content, so that open pages reload."""

    async def live(request: Request) -> Response:
        """Answer with the stream of events after the one in Last-Event-ID, else after now."""
        given = request.headers.get("last-event-id", "")
        begun = int(given[:15]) if given.isascii() and given.isdigit() else news.last

        async def stream() -> AsyncIterator[str]:
            seen = begun
            while True:
                last = await news.after(seen)
                if last <= seen:
                    yield ": still here\n\n"
                    continue
                found = await run_in_threadpool(_read_events_after, platform, seen)
                for event in found:
                    seen = event["seq"]
                    yield f"id: {seen}\ndata: {as_json_line(event)}\n\n"
                seen = max(seen, last) if not found else seen

        return StreamingResponse(stream(), media_type="text/event-stream")

    return live


def _read_events_after(platform: Platform, seq: int) -> list[dict[str, Any]]:
    """Return seq, time_ns and kind of each platform event with a number above *seq*."""
    with platform.engine.connect() as connection:
        return [{k: event[k] for k in ("seq", "time_ns", "kind")} for event in read_events(connection, seq)]


async def prepare_boards(state: Path, boards: LeaderboardCache, news: News, pause_s: float = PREPARE_S) -> None:
    """Compute the leaderboards of all task sets in advance, again after new events; runs until cancelled.

    *pause_s* is the time between two checks for new events, in seconds.
    """
    seen = -1
    while True:
        if news.last != seen:
            seen = news.last
            for name in task_set_names(state):
                await run_in_threadpool(boards.prepare, name)
        await asyncio.sleep(pause_s)


async def _maintain_platform(platform: Platform, url: str) -> None:
    """Every TEND_S seconds expire overdue states, queue lost cells and append new events to index.jsonl."""
    noted = await run_in_threadpool(last_noted, platform.state)

    def tend() -> None:
        nonlocal noted
        expire(platform)
        with platform.engine.connect() as connection:
            defer_lost(url, connection)
            noted = note_events(connection, platform.state, noted)

    while True:
        with suppress(SQLAlchemyError, OpsAssayError):
            await run_in_threadpool(tend)
        await asyncio.sleep(TEND_S)
