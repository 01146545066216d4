"""Routes of the platform: a table of its pages, with the JSON of those for everybody, and the forms on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.ui.page import respond
from opsassay.ui.plain import plain
from opsassay.ui.platform import accounts, task_set_pages
from opsassay.ui.platform.data import PlatformAccess, PlatformData, PlatformRequest, Visitor
from opsassay.ui.platform.task_set_pages import SELF_HOSTED

COOKIE = "opsassay"
COOKIE_S = 7 * 86_400
FORM_BYTES, FORM_FIELDS = 100_000, 200
View = dict[str, Any]
Fields = Mapping[str, list[str]]


@dataclass(frozen=True)
class PlatformPage:
    """The pages at *path*: *make* returns what *template* shows, and under ``item`` what the page is as JSON.

    Those *for_owners* need a user who is signed in; those that are *live* are renewed when something happens.
    """

    path: str
    template: str
    make: Callable[[PlatformRequest], View]
    for_owners: bool = False
    live: bool = False

    @property
    def board(self) -> str:
        """The path of the leaderboard that the page belongs to, '' for none."""
        return "/leaderboards/{task_set}" if "{task_set}" in self.path else ""


PAGES = (
    PlatformPage("/", "platform_home.html", task_set_pages.home_view, live=True),
    PlatformPage("/leaderboards", "platform_overall.html", task_set_pages.overall_view),
    PlatformPage("/leaderboards/{task_set}", "platform_board.html", task_set_pages.task_set_view),
    PlatformPage(f"/leaderboards/{{task_set}}{SELF_HOSTED}", "platform_board.html", task_set_pages.self_hosted_view),
    PlatformPage("/leaderboards/{task_set}/runs", "platform_runs.html", task_set_pages.runs_view),
    PlatformPage("/leaderboards/{task_set}/runs/{cell}/{attempt:int}", "platform_run.html", task_set_pages.run_view),
    PlatformPage("/leaderboards/{task_set}/tasks", "platform_tasks.html", task_set_pages.tasks_view),
    PlatformPage("/leaderboards/{task_set}/tasks/{task:path}", "platform_task.html", task_set_pages.task_view),
    PlatformPage("/leaderboards/{task_set}/compare", "compare.html", task_set_pages.compare_view),
    PlatformPage("/login", "platform_login.html", accounts.login_view),
    PlatformPage("/agents", "platform_agents.html", accounts.agents_view, for_owners=True),
    PlatformPage("/agents/{agent}", "platform_agent.html", accounts.agent_view, for_owners=True, live=True),
    PlatformPage("/users", "platform_users.html", accounts.users_view, for_owners=True),
    PlatformPage("/benchmarks/{benchmark}", "platform_benchmark.html", accounts.benchmark_view, for_owners=True, live=True),
)  # fmt: skip
BY_PATH = {page.path: page for page in PAGES}


def platform_routes(access: PlatformAccess) -> list[Route]:
    """Return the routes of all pages and forms of the platform behind *access*."""
    forms = {"/agents": _register_agent, "/benchmarks": _request_benchmark, "/users": _change_users}
    return [
        *(Route(page.path, _make_endpoint(access, page, _html_response)) for page in PAGES),
        *(Route(f"/api{page.path}", _make_endpoint(access, page, _json_response)) for page in PAGES
          if page.path.startswith("/leaderboards")),
        *(Route(f"{old}{rest}", _redirect_moved) for old in ("/boards", "/api/boards") for rest in ("", "/{rest:path}")),
        Route("/login", _form_endpoint(access, _sign_in, for_owners=False), methods=["POST"]),
        Route("/logout", _form_endpoint(access, _sign_out, for_owners=False), methods=["POST"]),
        *(Route(path, _form_endpoint(access, work), methods=["POST"]) for path, work in forms.items()),
    ]  # fmt: skip


async def _redirect_moved(request: Request) -> Response:
    """Redirect from the former address of a leaderboard page to its present one."""
    path = request.url.path.replace("/boards", "/leaderboards", 1)
    return RedirectResponse(f"{path}?{request.url.query}" if request.url.query else path, status_code=308)


Answer = Callable[[PlatformPage, PlatformRequest], Response]


def _make_endpoint(access: PlatformAccess, page: PlatformPage, answer: Answer) -> Callable[[Request], Any]:
    """Return the endpoint of a page, which sends visitors of pages for owners to /login first."""

    def work(request: Request) -> Response:
        """Make the answer, in a thread."""
        with access.reading() as data:
            asked = _platform_request(access, data, request)
            if page.for_owners and asked.visitor is None:
                return RedirectResponse("/login", status_code=303)
            return answer(page, asked)

    async def endpoint(request: Request) -> Response:
        """Answer, an error as a page."""
        try:
            return await run_in_threadpool(work, request)
        except OpsAssayError as error:
            return _error_response(access, error)

    return endpoint


def _platform_request(access: PlatformAccess, data: PlatformData, request: Request) -> PlatformRequest:
    """Return the request with the data and with who has signed in, None for nobody."""
    token = request.cookies.get(COOKIE)
    visitor = data.visitor(token) if token else None
    return PlatformRequest(access, data, visitor, request.path_params, request.query_params)


def _html_response(
    page: PlatformPage, request: PlatformRequest, view: View | None = None, status: int = 200
) -> HTMLResponse:
    """Return the page as HTML; *view* is made unless given."""
    view = view or page.make(request)
    level = request.query.get("level", "") if page.board else ""
    return _show_view(page.template, view, request.visitor, status=status, live=page.live,
                 page=page.board.format(**request.path), of_level=level)  # fmt: skip


def _show_view(
    template: str, view: View, visitor: Visitor | None, *, live: bool = False, **further: Any
) -> HTMLResponse:
    """Return the template with its view; a *live* page follows the server's events."""
    scripts, follow = (("live",), "/api/live") if live else ((), "")
    return respond(template, view["title"], scripts, connects=live, follow=follow, layout="platform.html", view=view,
                   user=visitor, **further)  # fmt: skip


def _json_response(page: PlatformPage, request: PlatformRequest) -> JSONResponse:
    """Return the page's item as JSON."""
    item = page.make(request)["item"]
    return JSONResponse(item() if callable(item) else item)


def _error_response(access: PlatformAccess, error: OpsAssayError) -> HTMLResponse:
    """Return the error as a page."""
    view = {"title": "It cannot be done", "answer": plain(access.said(error), 1000)}
    return _show_view("platform.html", view, None, status=access.status_of(error), sorry=True)


Work = Callable[[PlatformRequest, Fields], Response]


def _form_endpoint(access: PlatformAccess, work: Work, *, for_owners: bool = True) -> Callable[[Request], Any]:
    """Return an endpoint that calls *work* with the fields of a form sent from a page of this server."""

    def answer_form(request: Request, fields: Fields) -> Response:
        """Carry out the form, in a thread; forms for owners ask for a login first."""
        with (access.writing if for_owners else access.reading)() as data:
            asked = _platform_request(access, data, request)
            if for_owners and asked.visitor is None:
                return RedirectResponse("/login", status_code=303)
            return work(asked, fields)

    async def endpoint(request: Request) -> Response:
        """Answer a form that a page of this server sent; the cookie is Secure under https."""
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if origin not in (None, f"http://{host}", f"https://{host}"):
            return HTMLResponse("Only pages of this server may send something to it.", status_code=403)
        try:
            found = await run_in_threadpool(answer_form, request, await _read_fields(request))
        except OpsAssayError as error:
            return _error_response(access, error)
        if request.url.scheme == "https" and "set-cookie" in found.headers:
            found.headers["set-cookie"] += "; Secure"
        return found

    return endpoint


async def _read_fields(request: Request) -> Fields:
    """Return the form's fields; raises UserError when it is too large or cannot be read."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > FORM_BYTES:
            raise UserError(f"A form has at most {FORM_BYTES:,} bytes.")
    try:
        return parse_qs(content.decode(), max_num_fields=FORM_FIELDS)
    except ValueError as error:
        raise UserError("The form cannot be read; send it from the page.") from error


def _first_value(fields: Fields, name: str) -> str:
    """Return the field's first value without spaces around, "" when it is missing."""
    return fields.get(name, [""])[0].strip()


def _require_visitor(request: PlatformRequest) -> Visitor:
    """Return who has signed in."""
    assert request.visitor is not None  # an endpoint for owners has made sure of it
    return request.visitor


def _sign_in(request: PlatformRequest, fields: Fields) -> Response:
    """Set the cookie of a known token and go to the agents, else show the login again."""
    token = _first_value(fields, "token")
    if request.data.visitor(token) is None:
        view = accounts.login_view(PlatformRequest(request.access, request.data, None, {}, {}), wrong=True)
        return _html_response(BY_PATH["/login"], request, view, 403)
    found = RedirectResponse("/agents", status_code=303)
    found.set_cookie(COOKIE, token, httponly=True, samesite="strict", max_age=COOKIE_S)
    return found


def _sign_out(_asked: PlatformRequest, _fields: Fields) -> Response:
    """Remove the cookie and go home."""
    found = RedirectResponse("/", status_code=303)
    found.delete_cookie(COOKIE)
    return found


def _register_agent(request: PlatformRequest, fields: Fields) -> Response:
    """Register an agent of the visitor and go to the agents."""
    form = {name: _first_value(fields, name) for name in ("name", "kind", "level", "source")}
    request.data.register(_require_visitor(request), {**form, "domains": fields.get("domains", [])})
    return RedirectResponse("/agents", status_code=303)


def _request_benchmark(request: PlatformRequest, fields: Fields) -> Response:
    """Request a benchmark of an agent on a task set and go to its page."""
    benchmark = request.data.request(
        _require_visitor(request), _first_value(fields, "agent"), _first_value(fields, "task_set")
    )
    return RedirectResponse(f"/benchmarks/{benchmark}", status_code=303)


def _change_users(request: PlatformRequest, fields: Fields) -> Response:
    """Add a user or renew a token, and show the new token once."""
    if renewed := _first_value(fields, "renew"):
        name, token = renewed, request.data.renew_token(_require_visitor(request), renewed)
    else:
        form = {name: value for name in ("name", "role", "days") if (value := _first_value(fields, name))}
        name, token = form.get("name", ""), request.data.add_user(_require_visitor(request), form)
    view = accounts.users_view(request, {"name": plain(name, 100), "text": token})
    return _html_response(BY_PATH["/users"], request, view)
