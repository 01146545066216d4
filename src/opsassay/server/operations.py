"""The operations of the HTTP API: users, task sets, agents, benchmarks, entries, reports and events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from sqlalchemy import insert, select, update
from starlette.responses import JSONResponse, Response

from opsassay.core.errors import UserError
from opsassay.evals.runner.domain import domain_named
from opsassay.server.access import ROLES, ForbiddenError, add_user, entry_token, is_token, new_id, renew_token
from opsassay.server.agents import AgentForm, agent_of, register
from opsassay.server.api import ApiOperation, Call
from opsassay.server.benchmarks import benchmark_of, cell_counts, move_cell, request_benchmark
from opsassay.server.database import AGENTS, BENCHMARKS, CELLS, REPORTS, USERS
from opsassay.server.events import append, last_event, read_events
from opsassay.server.forms import BenchmarkForm, PromptForm, ReportForm, StatusForm, UserForm
from opsassay.server.handed_in import close_task_set, hand_in, opened_upload
from opsassay.server.index import note
from opsassay.server.presence import note_presence
from opsassay.server.states import BUNDLE
from opsassay.server.task_sets import TaskSet, load_task_set, task_set_names

Work = Callable[[Call], Any]
MANIFEST_PER_S = 50
"""Manifests per second that are looked up for a token; further requests get the last response."""
ACCESS_STATES = ("FaultInjected", "Ready", "Evaluating")
"""States of a bundle in which an agent can work on its entry."""
OPERATIONS: list[ApiOperation] = []
"""Every operation, in the order of this file; its summary is the docstring of its function."""
_LIMIT = {"limit": "how many at most"}


def _operation(
    method: str, path: str, roles: tuple[str, ...] | None = (), form: type[BaseModel] | None = None, **options: Any
) -> Callable[[Work], Work]:
    """Return a decorator that adds a function with these `ApiOperation` fields to OPERATIONS; its docstring: summary.

    *roles* may call it (() any token, None everybody), *form* is the model of the body, *options* further fields.
    """

    def added(work: Work) -> Work:
        OPERATIONS.append(ApiOperation(method, path, str(work.__doc__), work, roles, form, **options))
        return work

    return added


@_operation("GET", "/api/health", None)
def health(call: Call) -> dict[str, Any]:
    """Return "ok" and the number of events: the platform and its database answer."""
    return {"status": "ok", "events": last_event(call.connection)}


@_operation("POST", "/api/users", ("admin",), UserForm, status=201)
def add_user_operation(call: Call) -> dict[str, Any]:
    """Create a user; the response holds the token, which is not stored."""
    token = add_user(call.connection, call.platform.state, call.body.name, call.body.role, call.body.days)
    append(call.connection, "user", call.body.name, {"role": call.body.role})
    return {"name": call.body.name, "role": call.body.role, "token": token}


@_operation("POST", "/api/users/{name}/token", ("admin",))
def renew(call: Call) -> dict[str, Any]:
    """Give a user a new token; the former one becomes invalid."""
    call.user.require()
    token = renew_token(call.connection, call.platform.state, call.path["name"])
    append(call.connection, "token renewed", call.path["name"], {})
    return {"name": call.path["name"], "token": token}


@_operation("GET", "/api/task-sets")
def list_task_sets(call: Call) -> dict[str, Any]:
    """List the task sets on which benchmarks can be requested."""
    state = call.platform.state
    return {"items": [_task_set(name, load_task_set(state, name)) for name in task_set_names(state)]}


def _task_set(name: str, tasks: TaskSet) -> dict[str, Any]:
    """Return the public facts of the task set *name*, for an uploaded one with version and commitment."""
    handed = None if tasks.handed_in is None else tasks.handed_in.model_dump(include={"version", "commitment"})
    about = tasks.model_dump(include={"domain", "description", "baselines", "attempts", "closed"})
    classes = list(tasks.choose.classes) if tasks.choose else []
    return {"name": name, **about, "classes": classes, **(handed or {"version": None, "commitment": None})}


@_operation("GET", "/api/task-sets/{task_set}")
def show_task_set(call: Call) -> dict[str, Any]:
    """Show a task set and the metrics of its domain; its tasks stay hidden until it is closed."""
    name = call.path["task_set"]
    tasks = load_task_set(call.platform.state, name)
    metrics = domain_named(tasks.domain).metrics()
    salt = tasks.handed_in.salt if tasks.handed_in is not None and tasks.closed else None
    return {**_task_set(name, tasks), "salt": salt, "metrics": [one.model_dump(mode="json") for one in metrics]}


@_operation("POST", "/api/task-sets", ("author",), raw=True, status=201, query={"name": "its name"})
def hand_in_task_set(call: Call) -> dict[str, Any]:
    """Upload a task set, a tar with task_set.yaml at its top; a repeated upload is its next version."""
    return hand_in(call.platform, call.connection, call.user, call.query.get("name", ""), call.body)


@_operation("POST", "/api/task-sets/{task_set}/close", ("author",))
def close(call: Call) -> dict[str, Any]:
    """End grading on a task set that you uploaded, and publish it."""
    return close_task_set(call.platform, call.connection, call.user, call.path["task_set"])


@_operation("GET", "/api/task-sets/{task_set}/upload")
def get_upload(call: Call) -> Response:
    """Return the uploaded tar of a task set: to its author, and to everybody after it is closed."""
    content = opened_upload(call.platform, call.user, call.path["task_set"])
    return Response(content, media_type="application/x-tar")


@_operation("POST", "/api/agents", ("owner",), AgentForm, status=201)
def register_agent(call: Call) -> dict[str, Any]:
    """Register a built-in or a self-hosted agent."""
    agent = register(call.connection, call.platform.state, call.platform.artefacts, call.user, call.body, None)
    return _registration_answer(agent, call.body)


@_operation(
    "POST",
    "/api/agents/bundle",
    ("owner",),
    raw=True,
    status=201,
    query={"name": "its name", "level": "any, beginner, intermediate or expert", "domains": "with commas"},
)
def upload_agent(call: Call) -> dict[str, Any]:
    """Register an agent by a tar with agent.yaml; its name, domains and so on are in the query."""
    try:
        given = {name: call.query[name] for name in ("name", "level") if name in call.query}
        domains = tuple(filter(None, call.query.get("domains", "").split(",")))
        form = AgentForm.model_validate({**given, "kind": "bundle", "domains": domains})
    except ValueError as error:
        raise UserError("Say name, level and domains (with commas) of the agent in the query.") from error
    platform = call.platform
    return _registration_answer(
        register(call.connection, platform.state, platform.artefacts, call.user, form, call.body), form
    )


def _registration_answer(agent: str, form: AgentForm) -> dict[str, Any]:
    """Return the response to the registration of *agent*; only self-hosted agents have a manifest."""
    manifest = f"/api/agents/{agent}/manifest" if form.kind == "self_hosted" else None
    return {"id": agent, "name": form.name, "kind": form.kind, "manifest": manifest}


@_operation("GET", "/api/agents", ("owner",), query=_LIMIT)
def list_agents(call: Call) -> dict[str, Any]:
    """List your agents."""
    query = select(AGENTS).order_by(AGENTS.c.name)
    rows = [dict(row) for row in call.connection.execute(query).mappings() if call.user.owns(row["owner_id"])]
    return {"items": [{k: row[k] for k in ("id", "name", "kind", "level", "domains", "created_ns")} for row in rows]}


@_operation("POST", "/api/benchmarks", ("owner",), BenchmarkForm, status=201)
def ask_benchmark(call: Call) -> dict[str, Any]:
    """Request a benchmark: its tasks are frozen and queued."""
    form = call.body
    benchmark = request_benchmark(call.platform, call.connection, call.user, form.agent, form.task_set)
    return benchmark_of(call.platform, call.connection, call.user, benchmark)


@_operation("GET", "/api/benchmarks", ("owner",), query={**_LIMIT, "state": "of this state alone"})
def list_benchmarks(call: Call) -> dict[str, Any]:
    """List your benchmarks, latest first."""
    most, state = call.number("limit", 100, 1, 10_000), call.query.get("state")
    query = select(BENCHMARKS, AGENTS.c.owner_id, AGENTS.c.name.label("agent_name")).join_from(BENCHMARKS, AGENTS)
    query = query.order_by(BENCHMARKS.c.created_ns.desc()).limit(most)
    if state is not None:
        query = query.where(BENCHMARKS.c.state == state)
    if call.user.role != "admin":
        query = query.where(AGENTS.c.owner_id == call.user.id)
    names = ("id", "agent_id", "agent_name", "task_set", "state", "created_ns")
    found = [{k: row[k] for k in names} for row in call.connection.execute(query).mappings()]
    counts = cell_counts(call.connection, [one["id"] for one in found])
    return {"items": [{**one, **counts[one["id"]]} for one in found]}


@_operation("GET", "/api/benchmarks/{benchmark}", ("owner",))
def get_benchmark(call: Call) -> dict[str, Any]:
    """Show a benchmark with its cells (one task and seed each) and results."""
    return benchmark_of(call.platform, call.connection, call.user, call.path["benchmark"])


@_operation("GET", "/api/agents/{agent}/manifest", ("owner",), most_per_s=MANIFEST_PER_S)
def manifest(call: Call) -> dict[str, Any]:
    """List the open entries (tasks to work on) of a self-hosted agent, ready ones with a token of their own."""
    agent = agent_of(call.connection, call.user, call.path["agent"])
    note_presence(call.connection, agent["id"])
    query = select(CELLS).join_from(CELLS, BENCHMARKS).where(BENCHMARKS.c.agent_id == agent["id"])
    query = query.where(CELLS.c.bundle.not_in(BUNDLE.ends)).order_by(CELLS.c.since_ns)
    entries = []
    for row in call.connection.execute(query).mappings():
        ready = row["bundle"] in ACCESS_STATES and row["access"] is not None
        access = {"mcp": f"/api/entries/{row['id']}/mcp", **row["access"]} if ready else None
        status = row["bundle"] if row["bundle"] in BUNDLE.following else BUNDLE.first
        entries.append({
            "id": row["id"], "benchmark_id": row["benchmark_id"], "task": row["task"], "status": status,
            "agent_status": row["agent"], "access": access,
            "token": entry_token(call.platform.signer, row["id"]) if ready else None,
        })  # fmt: skip
    return {"agent": agent["id"], "entries": entries}


@_operation("PUT", "/api/entries/{entry}/status", None, StatusForm)
def put_status(call: Call) -> dict[str, Any]:
    """Record STARTED, FINISH or ERROR of the agent on an entry, by the entry's token; repeating it changes nothing."""
    entry = require_entry(call, "entry")
    present = entry["agent"]
    state = {"STARTED": "Executing", "FINISH": "Finished", "ERROR": "Error"}[call.body.status]
    if call.body.status != "ERROR" and entry["bundle"] not in ACCESS_STATES and present != state:
        raise ForbiddenError(f"The entry is {entry['bundle']}; wait until it is Ready.")
    if call.body.status == "FINISH" and present not in ("Executing", "Finished"):
        raise UserError("Say STARTED before FINISH: an agent that did not start cannot have finished.")
    move_cell(call.connection, entry["id"], agent=state)
    return {"id": entry["id"], "status": state}


@_operation("GET", "/api/entries/{entry}", None)
def get_entry(call: Call) -> dict[str, Any]:
    """Show the state of an entry, by the entry's token."""
    entry = require_entry(call, "entry")
    return {"id": entry["id"], "status": entry["bundle"], "agent_status": entry["agent"], "task": entry["task"]}


@_operation("POST", "/api/relay/{entry}/open", None, PromptForm)
def open_entry(call: Call) -> dict[str, Any]:
    """Make an entry ready for its agent with the prompt in the body, by the relay's token."""
    entry = require_entry(call, "relay")
    call.connection.execute(update(CELLS).where(CELLS.c.id == entry["id"]).values(access={"prompt": call.body.prompt}))
    move_cell(call.connection, entry["id"], bundle="Ready", agent="Ready")
    return {"id": entry["id"]}


def require_entry(call: Call, kind: str) -> dict[str, Any]:
    """Return the row of the entry in the path if the caller's token is its token of *kind*; raises ForbiddenError."""
    cell = call.path["entry"]
    row = call.connection.execute(select(CELLS).where(CELLS.c.id == cell).with_for_update()).mappings().first()
    if row is None or not is_token(call.token, call.platform.signer, kind, cell):
        raise ForbiddenError("There is no such entry, or this is not its token.")
    return dict(row)


@_operation("POST", "/api/reports", ("owner",), ReportForm, status=201)
def report(call: Call) -> dict[str, Any]:
    """Store results that you report for your own agent: they are shown, marked and never ranked."""
    form = call.body
    agent = agent_of(call.connection, call.user, form.agent)
    load_task_set(call.platform.state, form.task_set)
    id_ = new_id()
    said = {"figures": form.said, "source": form.source}
    row = {"id": id_, "agent_id": agent["id"], "task_set": form.task_set, "said": said, "created_ns": time.time_ns()}
    call.connection.execute(insert(REPORTS).values(**row))
    note(call.platform.state, "reports", [row])
    append(call.connection, "self-reported", agent["id"], {"task_set": form.task_set, **said})
    return {"id": id_, "ranked": False}


@_operation("PUT", "/api/reports/{report}/artefact", ("owner",), raw=True)
def upload(call: Call) -> dict[str, Any]:
    """Attach a file to a report; equal files are stored once."""
    row = call.connection.execute(select(REPORTS).where(REPORTS.c.id == call.path["report"])).mappings().first()
    if row is None:
        raise ForbiddenError("There is no such report, or it is not yours.")
    agent_of(call.connection, call.user, row["agent_id"])
    digest = call.platform.artefacts.keep(call.body)
    if row["artefact"] != digest:
        call.connection.execute(update(REPORTS).where(REPORTS.c.id == row["id"]).values(artefact=digest))
        note(call.platform.state, "reports", [{**row, "artefact": digest}])
        append(call.connection, "artefact", row["id"], {"sha256": digest})
    return {"sha256": digest}


@_operation("GET", "/api/events", ROLES, query={**_LIMIT, "after": "the last number that you have"})
def list_events(call: Call) -> JSONResponse:
    """List the events after a given number, with the public key of their signatures."""
    after, most = call.number("after", 0, 0, 10**9 - 1), call.number("limit", 1000, 1, 10_000)
    return JSONResponse({"items": read_events(call.connection, after, most), "key": call.platform.signer.public_hex})


@_operation("GET", "/api/events/key", None)
def events_key(call: Call) -> dict[str, Any]:
    """Return the public key that events are signed with."""
    return {"key": call.platform.signer.public_hex, "algorithm": "ed25519"}


@_operation("GET", "/api/users", ("admin",))
def list_users(call: Call) -> dict[str, Any]:
    """List the users."""
    rows = call.connection.execute(select(USERS).order_by(USERS.c.name)).mappings()
    return {"items": [{k: row[k] for k in ("name", "role", "created_ns", "expires_ns")} for row in rows]}
