"""The pages of the platform: boards for everybody, agents and benchmarks for whom they belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DataError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.text import counted
from opsassay.server.access import ROLES, User, add_user, renew_token, user_of
from opsassay.server.agent_pages import AgentPages
from opsassay.server.agents import AgentForm, register
from opsassay.server.api import read_bounded
from opsassay.server.benchmarks import Platform, benchmark_of, request_benchmark
from opsassay.server.board_pages import LeaderboardPages
from opsassay.server.events import append
from opsassay.server.forms import UserForm
from opsassay.server.leaderboards import LeaderboardCache
from opsassay.server.schema import AGENTS, BENCHMARKS, CELLS, RESULTS, USERS
from opsassay.server.showing import shown, sorry
from opsassay.server.states import BUNDLE
from opsassay.server.task_pages import TaskPages
from opsassay.server.task_sets import load_task_set, task_set_names
from opsassay.ui.plain import plain, utc

COOKIE = "opsassay"
FORM_BYTES = 100_000
SHOWN_CELLS, SHOWN_BENCHMARKS = 500, 100
W = TypeVar("W", bound=BaseModel)


class Pages:
    """The pages of *platform*, whose boards stand on *shelf*."""

    def __init__(self, platform: Platform, shelf: LeaderboardCache) -> None:
        self._platform, self._boards, self._tasks = (
            platform,
            LeaderboardPages(platform, shelf),
            TaskPages(platform, shelf),
        )
        self._agents = AgentPages(platform, shelf)

    def routes(self) -> list[Route]:
        """Return the routes of all pages."""
        boards, tasks, agents = self._boards, self._tasks, self._agents
        return [
            Route("/", self._page(self._home)),
            *(
                Route(f"{of}/boards{path}", self._page(work))
                for path, page, data in (
                    ("", boards.overall, boards.overall_json),
                    ("/{task_set}", boards.board, boards.board_json),
                    ("/{task_set}/runs", boards.runs, boards.runs_json),
                    ("/{task_set}/runs/{cell}/{attempt:int}", boards.run, boards.run_json),
                    ("/{task_set}/tasks", tasks.tasks, tasks.tasks_json),
                    ("/{task_set}/tasks/{task:path}", tasks.task, tasks.task_json),
                    ("/{task_set}/compare", boards.compare, boards.compare_json),
                )
                for of, work in (("", page), ("/api", data))
            ),
            Route("/login", self._page(self._login_form)),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/agents", self._page(agents.agents)),
            Route("/agents/{agent}", self._page(agents.agent)),
            Route("/agents", self._form(self._register), methods=["POST"]),
            Route("/benchmarks", self._form(self._ask), methods=["POST"]),
            Route("/users", self._page(self._users)),
            Route("/users", self._form(self._change_users), methods=["POST"]),
            Route("/benchmarks/{benchmark}", self._page(self._benchmark)),
        ]

    def _page(self, work: Callable[[Connection, User | None, Request], Response]) -> Callable[[Request], Any]:
        def answer(request: Request) -> Response:
            with self._platform.engine.connect() as connection:
                return work(connection, self._user(connection, request), request)

        async def page(request: Request) -> Response:
            try:
                return await run_in_threadpool(answer, request)
            except (OpsAssayError, DataError) as error:
                return sorry(error)

        return page

    def _form(self, work: Callable[[Connection, User, Mapping[str, list[str]]], Response]) -> Callable[[Request], Any]:
        """Return an endpoint that does *work* with the form of a user and answers with the page that it returns."""

        def answer(request: Request, form: Mapping[str, list[str]]) -> Response:
            with self._platform.asking() as connection:
                user = self._user(connection, request)
                if user is None:
                    return RedirectResponse("/login", status_code=303)
                return work(connection, user, form)

        async def page(request: Request) -> Response:
            if not _is_from_here(request):
                return HTMLResponse("Only pages of this server may send something to it.", status_code=403)
            try:
                return await run_in_threadpool(answer, request, await _fields(request))
            except (OpsAssayError, DataError) as error:
                return sorry(error)

        return page

    def _user(self, connection: Connection, request: Request) -> User | None:
        token = request.cookies.get(COOKIE)
        return user_of(connection, token) if token else None

    def _home(self, connection: Connection, user: User | None, _request: Request) -> Response:
        state = self._platform.state
        sets = [
            {
                "name": name,
                "description": load_task_set(state, name).description,
                "domain": load_task_set(state, name).domain,
            }
            for name in task_set_names(state)
        ]
        ended = select(func.count()).select_from(RESULTS)
        open_cells = select(func.count()).select_from(CELLS).where(CELLS.c.bundle.not_in((BUNDLE.first, *BUNDLE.ends)))
        waiting = select(func.count()).select_from(CELLS).where(CELLS.c.bundle == BUNDLE.first)
        numbers = {
            "boards": len(sets),
            "results": connection.execute(ended).scalar_one(),
            "running": connection.execute(open_cells).scalar_one(),
            "waiting": connection.execute(waiting).scalar_one(),
        }
        return shown("platform_home.html", "OpsAssay boards", user, task_sets=sets, numbers=numbers)

    def _login_form(self, _connection: Connection, user: User | None, _request: Request) -> Response:
        return shown("platform_login.html", "Sign in", user, wrong=False)

    async def _login(self, request: Request) -> Response:
        if not _is_from_here(request):
            return HTMLResponse("Only pages of this server may send something to it.", status_code=403)
        try:
            token = (await _fields(request)).get("token", [""])[0].strip()
        except OpsAssayError as error:
            return sorry(error)

        def known() -> bool:
            with self._platform.engine.connect() as connection:
                return user_of(connection, token) is not None

        if not await run_in_threadpool(known):
            answer = shown("platform_login.html", "Sign in", None, wrong=True)
            answer.status_code = 403
            return answer
        found = RedirectResponse("/agents", status_code=303)
        secure = request.url.scheme == "https"
        found.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure, max_age=7 * 86_400)
        return found

    async def _logout(self, request: Request) -> Response:
        if not _is_from_here(request):
            return HTMLResponse("Only pages of this server may send something to it.", status_code=403)
        answer = RedirectResponse("/", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    def _register(self, connection: Connection, user: User, form: Mapping[str, list[str]]) -> Response:
        user.require("owner")
        given = {name: form.get(name, [""])[0].strip() for name in ("name", "kind", "level", "source")}
        agent = _as_form(AgentForm, {**given, "domains": form.get("domains", [])})
        register(connection, self._platform.state, self._platform.artefacts, user, agent, None)
        return RedirectResponse("/agents", status_code=303)

    def _ask(self, connection: Connection, user: User, form: Mapping[str, list[str]]) -> Response:
        user.require("owner")
        agent, task_set = (form.get(name, [""])[0] for name in ("agent", "task_set"))
        benchmark = request_benchmark(self._platform, connection, user, agent, task_set)
        return RedirectResponse(f"/benchmarks/{benchmark}", status_code=303)

    def _users(
        self,
        connection: Connection,
        user: User | None,
        _request: Request | None,
        token: Mapping[str, str] | None = None,
    ) -> Response:
        if user is None:
            return RedirectResponse("/login", status_code=303)
        user.require()
        users = [
            {"name": plain(row.name, 100), "role": row.role, "since": utc(row.created_ns),
             "ends": utc(row.expires_ns) if row.expires_ns else "never"}
            for row in connection.execute(select(USERS).order_by(USERS.c.name))
        ]  # fmt: skip
        query = select(BENCHMARKS, AGENTS.c.name.label("agent_name")).join_from(BENCHMARKS, AGENTS)
        latest = connection.execute(query.order_by(BENCHMARKS.c.created_ns.desc()).limit(SHOWN_BENCHMARKS))
        benchmarks = [
            {"id": row.id, "agent": plain(row.agent_name, 100), "task_set": plain(row.task_set, 100), "state": row.state,
             "when": utc(row.created_ns)}
            for row in latest
        ]  # fmt: skip
        answer = f"{counted(len(users), 'user')}, and the latest benchmarks of everybody."
        return shown(
            "platform_users.html",
            "Users",
            user,
            answer=answer,
            users=users,
            roles=ROLES,
            token=token,
            benchmarks=benchmarks,
        )

    def _change_users(self, connection: Connection, user: User, form: Mapping[str, list[str]]) -> Response:
        user.require()
        given = {name: form[name][0].strip() for name in ("name", "role", "days") if form.get(name)}
        if (name := form.get("renew", [""])[0]) != "":
            token = renew_token(connection, self._platform.state, name)
            append(connection, "token renewed", name, {})
        else:
            asked = _as_form(UserForm, given)
            name, token = asked.name, add_user(connection, self._platform.state, asked.name, asked.role, asked.days)
            append(connection, "user", name, {"role": asked.role})
        return self._users(connection, user, None, {"name": plain(name, 100), "text": token})

    def _benchmark(self, connection: Connection, user: User | None, request: Request) -> Response:
        if user is None:
            return RedirectResponse("/login", status_code=303)
        found = benchmark_of(connection, user, request.path_params["benchmark"])
        cells = found["cells"]
        ended = sum(cell["bundle"] in BUNDLE.ends for cell in cells)
        rows = [
            {
                "task": plain(cell["task"], 120),
                "seed": cell["seed"],
                "bundle": cell["bundle"],
                "agent": cell["agent"],
                "passed": {True: "yes", False: "no", None: "–"}[cell["passed"]],
                "run": cell["run"],
                "error": plain(cell["error"] or "", 300),
                "tries": cell["tries"],
            }
            for cell in cells[:SHOWN_CELLS]
        ]
        view = {
            "agent": plain(found["agent_name"], 100),
            "task_set": plain(found["task_set"], 100),
            "state": found["state"],
            "error": plain(found["error"] or "", 500),
            "ended": ended,
            "all": len(cells),
            "passed": sum(bool(cell["passed"]) for cell in cells),
            "states": dict(Counter(cell["bundle"] for cell in cells)),
            "left_out": max(0, len(cells) - SHOWN_CELLS),
        }
        return shown("platform_benchmark.html", f"Benchmark of {view['agent']}", user, benchmark=view, cells=rows)


def _as_form(model: type[W], given: Mapping[str, Any]) -> W:
    """Return what was *given* as a form of the API; raises UserError."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from error


def _is_from_here(request: Request) -> bool:
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    return origin in (None, f"http://{host}", f"https://{host}")


async def _fields(request: Request) -> Mapping[str, list[str]]:
    try:
        content = (await read_bounded(request, FORM_BYTES)).decode()
        return parse_qs(content, max_num_fields=200)
    except ValueError as error:
        raise UserError("The form cannot be read; send it from the page.") from error
