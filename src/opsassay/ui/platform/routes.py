"""Routes of the platform: its pages, the JSON of public pages, and its forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.ui.page import respond
from opsassay.ui.plain import plain
from opsassay.ui.platform import accounts, task_set_pages
from opsassay.ui.platform.data import PlatformAccess, PlatformData, PlatformRequest, Visitor
from opsassay.ui.platform.forms import MULTIPART, SentForm, read_form
from opsassay.ui.platform.task_set_pages import SELF_HOSTED

COOKIE = "opsassay"
COOKIE_S = 7 * 86_400
FORM_BYTES = 100_000
View = dict[str, Any]


@dataclass(frozen=True)
class PlatformPage:
    """The pages at *path*: *make* returns the data for *template*, with the page's JSON under ``item``.

    Pages *for_owners* need a signed-in user; *live* pages reload after events.
    """

    path: str
    template: str
    make: Callable[[PlatformRequest], View]
    for_owners: bool = False
    live: bool = False
    scripts: Sequence[str] = ()

    @property
    def has_json(self) -> bool:
        """Whether the page's data is also served as JSON below /api."""
        return self.path.startswith("/leaderboards")

    @property
    def board(self) -> str:
        """The URL path of the leaderboard that the page belongs to, '' for none."""
        return "/leaderboards/{task_set}" if "{task_set}" in self.path else ""


BOARD = ("board",)
PAGES = (
    PlatformPage("/", "platform_home.html", task_set_pages.home_view, live=True),
    PlatformPage("/leaderboards", "platform_overall.html", task_set_pages.overall_view),
    PlatformPage("/leaderboards/{task_set}", "platform_board.html", task_set_pages.task_set_view, scripts=BOARD),
    PlatformPage(f"/leaderboards/{{task_set}}{SELF_HOSTED}", "platform_board.html", task_set_pages.self_hosted_view,
                 scripts=BOARD),
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
    """Return the routes of all pages and forms of the platform, whose data *access* gives."""
    forms = {
        "/agents": _register_agent,
        "/benchmarks": _request_benchmark,
        "/users": _change_users,
        "/task-sets": _hand_in,
    }
    return [
        *(Route(page.path, _make_endpoint(access, page, _html_response)) for page in PAGES),
        *(Route(f"/api{page.path}", _make_endpoint(access, page, _json_response)) for page in PAGES if page.has_json),
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
    """Return the endpoint of *page*, whose response *answer* makes; it redirects to /login if a sign-in is needed."""

    def work(request: Request) -> Response:
        """Return the response to *request*, or a redirect to the login; blocks, so it runs in a thread."""
        with access.reading() as data:
            asked = _platform_request(access, data, request)
            if page.for_owners and asked.visitor is None:
                return RedirectResponse("/login", status_code=303)
            return answer(page, asked)

    async def endpoint(request: Request) -> Response:
        """Return the response to *request*, or an error page when an OpsAssayError is raised."""
        try:
            return await run_in_threadpool(work, request)
        except OpsAssayError as error:
            return _error_response(access, error, request)

    return endpoint


def _platform_request(access: PlatformAccess, data: PlatformData, request: Request) -> PlatformRequest:
    """Return the request with its data and the signed-in user, None for an anonymous one."""
    token = request.cookies.get(COOKIE)
    request.state.visitor = data.visitor(token) if token else None
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return PlatformRequest(access, data, request.state.visitor, request.path_params, request.query_params, address)


def _html_response(
    page: PlatformPage, request: PlatformRequest, view: View | None = None, status: int = 200
) -> HTMLResponse:
    """Return *page* as HTML with *status* and the data *view*, by default the data that the page makes."""
    view = view or page.make(request)
    level = request.query.get("level", "") if page.board else ""
    return _show_view(page.template, view, request.visitor, status=status, live=page.live,
                 page=page.board.format(**request.path), of_level=level, scripts=page.scripts,
                 as_json=f"/api{request.address}" if page.has_json else "")  # fmt: skip


def _show_view(
    template: str,
    view: View,
    visitor: Visitor | None,
    *,
    live: bool = False,
    scripts: Sequence[str] = (),
    **further: Any,
) -> HTMLResponse:
    """Return *template* with *view* and the menu of *visitor* as HTML; a *live* page follows the server's events."""
    follow = "/api/live" if live else ""
    return respond(template, view["title"], ("live",) if live else scripts, connects=live, follow=follow, home="/",
                   layout="platform.html", view=view, user=visitor, **{"as_json": "", **further})  # fmt: skip


def _json_response(page: PlatformPage, request: PlatformRequest) -> JSONResponse:
    """Return the JSON data of *page* for *request*."""
    item = page.make(request)["item"]
    return JSONResponse(item() if callable(item) else item)


def _error_response(access: PlatformAccess, error: OpsAssayError, request: Request) -> HTMLResponse:
    """Return *error* as an HTML page with its status, and with the signed-in user's menu if known."""
    return error_page(access.status_of(error), access.said(error), getattr(request.state, "visitor", None))


def error_page(status: int, said: str, visitor: Visitor | None = None) -> HTMLResponse:
    """Return an HTML page with *status*, the explanation *said* and the menu of *visitor* (None: not signed in)."""
    titles = {403: "Not allowed", 404: "There is no such page", 500: "Something failed here", 503: "Not now"}
    view = {"title": titles.get(status, "It cannot be done"), "answer": plain(said, 1000)}
    return _show_view("platform.html", view, visitor, status=status, sorry=True)


Work = Callable[[PlatformRequest, SentForm], Response]


def _form_endpoint(access: PlatformAccess, work: Work, *, for_owners: bool = True) -> Callable[[Request], Any]:
    """Return an endpoint that calls *work* with a form of this server; with *for_owners* only for signed-in users."""

    def answer_form(request: Request, form: SentForm) -> Response:
        """Carry out the form; runs in a thread; redirects to the sign-in page if that is needed."""
        with (access.writing if for_owners else access.reading)() as data:
            asked = _platform_request(access, data, request)
            if for_owners and asked.visitor is None:
                return RedirectResponse("/login", status_code=303)
            return work(asked, form)

    def is_known(request: Request) -> bool:
        """Return whether the request has a signed-in user."""
        with access.reading() as data:
            return _platform_request(access, data, request).visitor is not None

    async def endpoint(request: Request) -> Response:
        """Answer a form from a page of this server, 403 for others; under https its cookie is Secure."""
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if origin not in (None, f"http://{host}", f"https://{host}"):
            return error_page(403, "Only pages of this server may send something to it.")
        try:
            content_type = request.headers.get("content-type", "")
            files = content_type.startswith(MULTIPART) and await run_in_threadpool(is_known, request)
            content = await _read_bounded(request, access.most_bytes if files else FORM_BYTES)
            form = await run_in_threadpool(read_form, content, content_type)
            found = await run_in_threadpool(answer_form, request, form)
        except OpsAssayError as error:
            return _error_response(access, error, request)
        if request.url.scheme == "https" and "set-cookie" in found.headers:
            found.headers["set-cookie"] += "; Secure"
        return found

    return endpoint


async def _read_bounded(request: Request, most_bytes: int) -> bytes:
    """Return the body of the request; raises UserError for one of more than *most_bytes*."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > most_bytes:
            raise UserError(f"A form has at most {most_bytes:,} bytes.")
    return bytes(content)


def _require_visitor(request: PlatformRequest) -> Visitor:
    """Return the signed-in user of *request*; raises AssertionError without one."""
    assert request.visitor is not None  # an endpoint for owners has made sure of it
    return request.visitor


def _sign_in(request: PlatformRequest, form: SentForm) -> Response:
    """Set the cookie of a valid token and redirect to agents (authors: to task sets); else show the login again."""
    token = form.first("token")
    if (visitor := request.data.visitor(token)) is None:
        view = accounts.login_view(PlatformRequest(request.access, request.data, None, {}, {}), wrong=True)
        return _html_response(BY_PATH["/login"], request, view, 403)
    found = RedirectResponse("/" if visitor.role == "author" else "/agents", status_code=303)
    found.set_cookie(COOKIE, token, httponly=True, samesite="strict", max_age=COOKIE_S)
    return found


def _sign_out(_asked: PlatformRequest, _form: SentForm) -> Response:
    """Delete the session cookie and redirect to the first page."""
    found = RedirectResponse("/", status_code=303)
    found.delete_cookie(COOKIE)
    return found


def _register_agent(request: PlatformRequest, form: SentForm) -> Response:
    """Register the agent in *form* for the signed-in user and redirect to the page of agents."""
    said = {name: form.first(name) for name in ("name", "kind", "level", "source")}
    bundle = form.files.get("bundle")
    request.data.register(_require_visitor(request), {**said, "domains": form.fields.get("domains", [])}, bundle)
    return RedirectResponse("/agents", status_code=303)


def _hand_in(request: PlatformRequest, form: SentForm) -> Response:
    """Store the task set uploaded in *form* and redirect to its leaderboard."""
    name = form.first("name")
    request.data.hand_in(_require_visitor(request), name, form.files.get("task_set", b""))
    return RedirectResponse(f"/leaderboards/{name}", status_code=303)


def _request_benchmark(request: PlatformRequest, form: SentForm) -> Response:
    """Request a benchmark of the agent on the task set that *form* names, and redirect to its page."""
    benchmark = request.data.request(_require_visitor(request), form.first("agent"), form.first("task_set"))
    return RedirectResponse(f"/benchmarks/{benchmark}", status_code=303)


def _change_users(request: PlatformRequest, form: SentForm) -> Response:
    """Add the user or renew the token that *form* names; show the new token, which is not stored."""
    if renewed := form.first("renew"):
        name, token = renewed, request.data.renew_token(_require_visitor(request), renewed)
    else:
        said = {name: value for name in ("name", "role", "days") if (value := form.first(name))}
        name, token = said.get("name", ""), request.data.add_user(_require_visitor(request), said)
    view = accounts.users_view(request, {"name": plain(name, 100), "text": token})
    return _html_response(BY_PATH["/users"], request, view)
