"""ITBench's leaderboard API below /itbench, over this platform: agents for ITBench's leaderboard work here.

Endpoints and bodies are those that ITBench's agent harness calls, with the names of its paper (B.3, C.3) in parentheses.
One token is for everything, and an agent takes a bundle when it is Ready; a bundle is an entry of this platform.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, select

from opsassay.core.errors import UserError
from opsassay.core.schema.validation_errors import problem
from opsassay.server.access import ForbiddenError, entry_token, user_of
from opsassay.server.agents import AgentForm, agent_of, register
from opsassay.server.api import ApiOperation, Call
from opsassay.server.benchmarks import benchmark_of, move_cell, request_benchmark
from opsassay.server.database import AGENTS, BENCHMARKS, CELLS
from opsassay.server.operations import ACCESS_STATES, MANIFEST_PER_S
from opsassay.server.presence import note_presence
from opsassay.server.states import BENCHMARK, TransitionError
from opsassay.server.task_sets import load_task_set, task_set_names
from opsassay.ui.platform.forms import form_parts

ROOT = "/itbench"
AGENT_STATUS = f"{ROOT}/benchmarks/{{benchmark}}/agents/{{agent}}/status"
FINISH = f"{ROOT}/benchmarks/{{benchmark}}/finish"
ENROLL = f"{ROOT}/enroll"
FILE = f"{ROOT}/benchmarks/{{benchmark}}/file"
ENDED = ("Finished", "Error", "TimedOut")
ITBENCH: list[ApiOperation] = []
"""The operations; unknown keys in their bodies are ignored."""
_PHASES = {"STARTED": "Executing", "FINISH": "Finished", "TimedOut": "Error"}
"""Agent states by the paper's names of phases, and by the harness's name for its own timeout."""
View = dict[str, Any]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class RegistrationForm(_Body):
    """An agent as Table 8 has it; *scenario_class* may be a list, and ITBench's forms call it scenario_categories."""

    name: str = Field(max_length=80)
    type: str = Field(max_length=40)
    level: str = Field(default="any", max_length=20)
    scenario_class: str | list[str] = Field(
        default=[], validation_alias=AliasChoices("scenario_class", "scenario_categories"), max_length=20
    )


class AgentIdForm(_Body):
    """Which agent enrolls, or is ready."""

    agent_id: str = Field(max_length=40)


class AssignForm(AgentIdForm):
    """Which agent takes which bundle."""

    bundle_id: str = Field(max_length=80)


class PhaseForm(_Body):
    """A status."""

    phase: str = Field(max_length=40)
    message: str | None = Field(default=None, max_length=1_000_000)


def _register_operation(
    method: str, path: str, form: type[BaseModel] | None = None, roles: tuple[str, ...] = ("owner",), **options: Any
) -> Callable[[Callable[[Call], Any]], Callable[[Call], Any]]:
    """Return a decorator that adds a function with these `ApiOperation` fields to ITBENCH; its docstring: summary."""

    def added(work: Callable[[Call], Any]) -> Callable[[Call], Any]:
        ITBENCH.append(ApiOperation(method, path, str(work.__doc__), work, roles, form, **options))
        return work

    return added


@_register_operation("POST", f"{ROOT}/agents", RegistrationForm, status=201)
def register_itbench_agent(call: Call) -> View:
    """Register an agent by type, level and scenario_class; agent_manifest of the response is for the harness."""
    given, platform = call.body, call.platform
    classes = [given.scenario_class] if isinstance(given.scenario_class, str) else given.scenario_class
    said = {
        "name": given.name,
        "domains": [given.type.lower()],
        "level": given.level.lower(),
        "source": "\n".join(classes),
    }
    try:
        form = AgentForm.model_validate({**said, "kind": "self_hosted"})
    except ValidationError as error:
        raise UserError(f"{problem(error)}.") from error
    agent = register(call.connection, platform.state, platform.artefacts, call.user, form, None)
    return _agent_resource(call, agent_of(call.connection, call.user, agent))


@_register_operation("POST", ENROLL, AgentIdForm)
def enroll(call: Call) -> View:
    """Request benchmarks on every open task set of the agent's type and scenario_class (enroll)."""
    agent, state = agent_of(call.connection, call.user, call.body.agent_id), call.platform.state
    classes, asked = set(filter(None, agent["source"].split("\n"))), 0
    for name in task_set_names(state):
        tasks = load_task_set(state, name)
        of_class = not classes or (tasks.choose is not None and classes & set(tasks.choose.classes))
        if tasks.domain in agent["domains"] and of_class and not tasks.closed:
            request_benchmark(call.platform, call.connection, call.user, agent["id"], name)
            asked += 1
    if not asked:
        raise UserError(f"There is no open task set of the type and the scenario_class of {agent['name']}.")
    return _make_manifest(call, agent)


@_register_operation("POST", f"{ROOT}/ready", AgentIdForm)
def ready(call: Call) -> View:
    """Report that an agent is present; return its manifest: its benchmarks and bundles (ready)."""
    return _make_manifest(call, agent_of(call.connection, call.user, call.body.agent_id))


@_register_operation("GET", f"{ROOT}/agents/{{agent}}/manifest", most_per_s=MANIFEST_PER_S)
def get_manifest(call: Call) -> View:
    """Return the agent's benchmarks with their bundles; NotStarted ones are to be worked on (get_manifest)."""
    return _make_manifest(call, agent_of(call.connection, call.user, call.path["agent"]))


@_register_operation("PUT", f"{ROOT}/agents/{{agent}}/manifest/benchmark-entries/{{benchmark}}", PhaseForm)
def put_benchmark_entry(call: Call) -> View:
    """Accept the agent's view of its benchmark without effect: the state follows from the bundles."""
    benchmark_of(call.platform, call.connection, call.user, call.path["benchmark"])
    return _make_status(call.body.phase, call.body.message)


@_register_operation("GET", f"{ROOT}/benchmarks/{{benchmark}}/bundles/")
def get_bundles(call: Call) -> Sequence[View]:
    """Return the bundles (one task and seed each) of a benchmark with their status (get_bstatus)."""
    agent, cells = _agent_and_cells(call)
    note_presence(call.connection, agent["id"])
    return [_bundle(call, agent, cell) for cell in cells]


@_register_operation("GET", f"{ROOT}/benchmarks/{{benchmark}}/bundles/{{bundle}}")
def get_bstatus(call: Call) -> View:
    """Return one bundle with its status and, when Ready, the access data for its agent (get_bstatus)."""
    agent, cells = _agent_and_cells(call, call.path["bundle"])
    note_presence(call.connection, agent["id"])
    return _bundle(call, agent, cells[0])


@_register_operation("PUT", f"{ROOT}/benchmarks/{{benchmark}}/bundles/{{bundle}}/status", PhaseForm, roles=("runner",))
def post_bstatus(call: Call) -> View:
    """Confirm the present status of a bundle; only the platform's own workers change it (post_bstatus)."""
    (cell,) = _require_cells(call, CELLS.c.benchmark_id == call.path["benchmark"], CELLS.c.id == call.path["bundle"])
    if call.body.phase != cell["bundle"]:
        raise TransitionError(f"The bundle is {cell['bundle']}; the platform's own workers say when that changes.")
    return _make_status(cell["bundle"])


@_register_operation("GET", f"{ROOT}/benchmarks/{{benchmark}}/agents/{{agent}}")
def get_agent(call: Call) -> View:
    """Return the agent of a benchmark."""
    return _agent_resource(call, _agent_and_cells(call)[0])


@_register_operation("PUT", f"{ROOT}/benchmarks/{{benchmark}}/assign_agent", AssignForm)
def assign_agent(call: Call) -> View:
    """Assign a Ready bundle to its agent, which has started on it (post_status STARTED)."""
    agent, (cell,) = _agent_and_cells(call, call.body.bundle_id)
    if cell["bundle"] not in ACCESS_STATES or cell["agent"] not in ("Ready", "Executing"):
        raise TransitionError(f"The bundle is {cell['bundle']}; wait until it is Ready.")
    move_cell(call.connection, cell["id"], agent="Executing")
    return _bundle(call, agent, {**cell, "agent": "Executing"})


@_register_operation("PUT", AGENT_STATUS, PhaseForm)
def post_status(call: Call) -> View:
    """Record STARTED, FINISH or another phase of the agent on the bundle it works on (post_status)."""
    return _report_phase(call, call.body.phase)


@_register_operation("POST", FINISH)
def finish(call: Call) -> View:
    """Record that the benchmark's agent has finished the bundle it works on (finish)."""
    return _report_phase(call, "FINISH")


def _report_phase(call: Call, phase: str) -> View:
    """Record the agent's *phase* on the bundle it works on; return it as a status; raises UserError."""
    desired, (_, cells) = _PHASES.get(phase, phase), _agent_and_cells(call)
    if desired in ENDED:
        for cell in cells:
            if cell["agent"] == "Executing":
                move_cell(call.connection, cell["id"], agent=desired)
    elif desired not in ("Executing", "Ready", "Initializing"):
        raise UserError(f"An agent is not {phase[:40]!r}; say STARTED, FINISH, or a phase of ITBench's agents.")
    return _make_status(desired)


def taken_bundle(connection: Connection, token: str, benchmark: str, bundle: str) -> bool:
    """Return whether the agent of the user with *token* works on *bundle* of *benchmark* now."""
    query = select(CELLS.c.agent, AGENTS.c.owner_id).select_from(CELLS.join(BENCHMARKS).join(AGENTS))
    row = connection.execute(query.where(CELLS.c.id == bundle, BENCHMARKS.c.id == benchmark)).first()
    user = user_of(connection, token)
    return row is not None and user is not None and user.owns(row.owner_id) and row.agent == "Executing"


def ended_bundles(connection: Connection, benchmark: str) -> list[tuple[str, str]]:
    """Return (id, agent state) of bundles of *benchmark* that a worker holds although their agent has ended."""
    query = select(CELLS.c.id, CELLS.c.agent).where(CELLS.c.benchmark_id == benchmark, CELLS.c.worker.is_not(None))
    return [(row.id, row.agent) for row in connection.execute(query.where(CELLS.c.agent.in_(ENDED)))]


def uploaded(content: bytes, content_type: str) -> tuple[str, bytes] | None:
    """Return (name, content) of the first file in a multipart form; None without a file."""
    parts = form_parts(content, content_type)
    return next(((name, held) for _, name, held in parts if name), None)


def submission(answer: Any) -> list[View]:
    """Return the MCP messages that initialize a session and submit *answer* by the tool ``submit``."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "itbench", "version": "1"}}
    return [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "submit", "arguments": answer}},
    ]


def _require_cells(call: Call, *conditions: Any) -> list[View]:
    """Return the rows of cells that meet the SQL *conditions*, by task and seed; raises ForbiddenError without any."""
    query = select(CELLS).where(*conditions).order_by(CELLS.c.task, CELLS.c.seed, CELLS.c.id)
    rows = [dict(row) for row in call.connection.execute(query).mappings()]
    if not rows:
        raise ForbiddenError("There is no such benchmark or bundle, or it is not yours.")
    return rows


def _agent_and_cells(call: Call, bundle: str | None = None) -> tuple[Mapping[str, Any], list[View]]:
    """Return (the agent of the benchmark in the path, its cells or only *bundle*); raises ForbiddenError."""
    of = call.path["benchmark"]
    cells = _require_cells(call, CELLS.c.benchmark_id == of, *(() if bundle is None else (CELLS.c.id == bundle,)))
    agent = call.connection.execute(select(BENCHMARKS.c.agent_id).where(BENCHMARKS.c.id == of)).scalar_one()
    return agent_of(call.connection, call.user, agent), cells


def _make_manifest(call: Call, agent: Mapping[str, Any]) -> View:
    """Record that *agent* is present; return its access data and its benchmarks with bundles and states."""
    note_presence(call.connection, agent["id"])
    query = select(BENCHMARKS).where(BENCHMARKS.c.agent_id == agent["id"]).order_by(BENCHMARKS.c.created_ns)
    entries = []
    for row in call.connection.execute(query).mappings().all():
        at, of = f"/benchmarks/{row['id']}", f"/agents/{agent['id']}/manifest"
        cells = _require_cells(call, CELLS.c.benchmark_id == row["id"])
        working = any(cell["agent"] == "Executing" for cell in cells)
        phase = row["state"] if row["state"] in BENCHMARK.ends else "Executing" if working else "NotStarted"
        entries.append({
            "benchmark_id": row["id"],
            "agent_access_info": {"id": agent["id"], "name": agent["name"], "source_id": agent["id"],
                                  "status_endpoint": f"{at}/agents/{agent['id']}/status"},
            "bundle_access_infos": [
                {"id": cell["id"], "name": cell["task"], "source_id": cell["task"], "manifest_endpoint": of,
                 "status_endpoint": f"{at}/bundles/{cell['id']}/status"} for cell in cells
            ],
            "status": _make_status(phase, row["error"], row["since_ns"]),
        })  # fmt: skip
    return {**_make_access(call, agent), "benchmark_entries": entries}


def _make_access(call: Call, agent: Mapping[str, Any]) -> View:
    """Return how *agent* gets its work: the caller's token and the path of the agent's manifest."""
    return {"token": call.token, "manifest_endpoint": f"/agents/{agent['id']}/manifest"}


def _agent_resource(call: Call, agent: Mapping[str, Any]) -> View:
    """Return *agent*, its database row, as an ITBench agent resource."""
    return {
        "metadata": _make_metadata(agent["id"], "Agent", agent["created_ns"]),
        "spec": {
            "name": agent["name"], "type": agent["domains"][0], "level": agent["level"], "mode": "remote",
            "scenario_categories": list(filter(None, agent["source"].split("\n"))),
            "agent_manifest": {**_make_access(call, agent), "benchmark_entries": []},
        },
        "status": _make_status("Ready"),
    }  # fmt: skip


def _bundle(call: Call, agent: Mapping[str, Any], cell: Mapping[str, Any]) -> View:
    """Return the row *cell* as an ITBench bundle; a Ready one whose agent has ended is shown as Evaluating."""
    phase, data = cell["bundle"], None
    if phase == "Ready" and cell["agent"] in ENDED:
        phase = "Evaluating"
    elif phase == "Ready":
        token = entry_token(call.platform.signer, cell["id"])
        data = {**cell["access"], "task": cell["task"], "mcp": f"/api/entries/{cell['id']}/mcp", "token": token}
    return {
        "metadata": _make_metadata(cell["id"], "Bundle", cell["since_ns"]),
        "spec": {"name": cell["task"], "scenario_type": cell["domain"], "assigned_agent_id": agent["id"], "data": data},
        "status": _make_status(phase, cell["error"], cell["since_ns"]),
    }


def _make_metadata(id_: str, kind: str, created_ns: int) -> View:
    """Return the metadata of the ITBench resource *id_* of *kind*, created at *created_ns* (ns since 1970)."""
    return {"id": id_, "resource_type": kind, "creation_timestamp": _iso_time(created_ns)}


def _make_status(phase: str, message: str | None = None, at_ns: int | None = None) -> View:
    """Return an ITBench status object; *at_ns* is when *phase* began, None means now; *message* explains it."""
    return {"phase": phase, "message": message, "lastTransitionTime": _iso_time(at_ns)}


def _iso_time(at_ns: int | None) -> str:
    """Return *at_ns*, now for None, as ISO 8601 in UTC."""
    return (datetime.now(UTC) if at_ns is None else datetime.fromtimestamp(at_ns / 1e9, UTC)).isoformat()
