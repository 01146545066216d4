"""Incidents as tasks of inspect_ai (entry point ``inspect_ai``): ``inspect eval opsassay/diagnosis -T incidents=DIR``.

A task hands out what our own agents get, the tools and the contract of the answer, and our grader grades it. The truth is
in no sample: the scorer looks it up when the answer is there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import anyio
from inspect_ai import Task, task
from inspect_ai.agent import AgentPrompt, AgentSubmit, as_solver, react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolDef, ToolError
from inspect_ai.util import store

from opsassay.core.schema.incident import Incident
from opsassay.core.schema.run import Solver as SolverNoun
from opsassay.evals.diagnosis.harnesses.inspect_agents import answer_of
from opsassay.evals.diagnosis.harnesses.inspect_logs import ABOUT, about, shown_scores
from opsassay.evals.diagnosis.harnesses.submissions import grade_given
from opsassay.evals.diagnosis.tasks import IncidentItem, open_suite
from opsassay.scoring.profiles import profile_named
from opsassay.solvers.agents.base import AGENTS, agent_named
from opsassay.solvers.agents.contract import AnswerError, read_answer
from opsassay.solvers.agents.limits import Limits
from opsassay.solvers.agents.prompts import harness_prompt
from opsassay.solvers.agents.tools import MAX_ROWS, TOOLS, TelemetryToolbox
from opsassay.telemetry.sql import LockedSql
from opsassay.telemetry.tree import Case

LIMITS = Limits()
"""Those of every agent: calls of tools, seconds of a run and of a query."""

PLACES = (
    "- The tools list_tables, get_schema, query_sql (DuckDB) and think look at the telemetry; read only.",
    "- Hand in the answer, the JSON object itself, with submit; without such a tool, as the whole last message.",
)

_SAMPLE = "opsassay:sample"


@dataclass
class _ToolSession:
    """The tools of one sample, and how many calls it has made."""

    sql: LockedSql
    toolbox: TelemetryToolbox
    services: list[str]
    incident: Incident
    calls: int = 0


_SESSIONS: dict[str, _ToolSession] = {}
"""By the uuid of the sample; made when it begins, gone when it ends."""


@task
def diagnosis(incidents: str, profile: str = "default") -> Task:
    """Return the task to diagnose each incident below the folder *incidents*, graded by *profile*; one sample each.

    Raises UserError for a folder without incidents, DatapackError for a damaged one, NotFoundError for the profile.
    """
    samples = [
        Sample(input=harness_prompt(item.incident, LIMITS, PLACES), id=id_, metadata={ABOUT: about(item)})
        for id_, (_, item) in _opened(incidents).items()
    ]
    profile_named(profile)
    return Task(
        dataset=MemoryDataset(samples, name=Path(incidents).resolve().name),
        setup=telemetry(incidents),
        solver=investigator(),
        scorer=grades(incidents, profile),
        cleanup=_end_sample,
        time_limit=int(LIMITS.seconds),
    )


@solver
def telemetry(incidents: str) -> Solver:
    """Return the solver that gives a sample's agent tools over the telemetry of its incident, in folder *incidents*."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        """Open the tool session of the sample *state*, which `_end_sample` closes, and offer its tools."""
        del generate
        pack = _opened(incidents)[str(state.sample_id)][0].datapack
        sql = LockedSql(pack, timeout_s=LIMITS.query_seconds, max_rows=MAX_ROWS).__enter__()
        _SESSIONS[state.uuid] = _ToolSession(sql, TelemetryToolbox(sql), pack.candidates(), pack.incident)
        store().set(_SAMPLE, state.uuid)
        state.tools = [tool.as_tool() for tool in telemetry_tools()]
        return state

    return solve


@solver
def investigator() -> Solver:
    """Return inspect_ai's ReAct agent with our tools; it gets an error, and goes on, when it submits an invalid answer."""

    async def submit(answer: str) -> str:
        try:
            read_answer(answer, _session_of_sample().services)
        except AnswerError as problem:
            raise ToolError(f"That is not an answer by the contract: {problem}.") from problem
        return answer

    handing_in = ToolDef(
        submit, "submit", "Hand in the answer.", {"answer": "the whole answer, one JSON object by the contract"}
    )
    return as_solver(
        react(
            prompt=AgentPrompt(assistant_prompt=None),
            tools=telemetry_tools(),
            submit=AgentSubmit(tool=handing_in, answer_only=True, keep_in_messages=True),
        )
    )


@solver
def agent(name: str = AGENTS.builtin_names()[0]) -> Solver:
    """Return a solver that runs OpsAssay's agent *name* (or ``module:class``) with inspect_ai's model and our tools.

    Raises NotFoundError, UserError for an unknown agent.
    """
    agent_named(name)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        """Run the agent on the sample *state* in a thread; its answer becomes the output."""
        del generate
        session = _session_of_sample()
        said = await anyio.to_thread.run_sync(
            answer_of, name, session.incident, session.services, session.toolbox, LIMITS
        )
        state.output = ModelOutput.from_content(str(state.model), said)
        state.messages.append(state.output.message)
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def grades(incidents: str, profile: str = "default") -> Scorer:
    """Return the scorer that grades an answer by *profile* against the truth of its incident, in folder *incidents*."""
    graded_by = profile_named(profile)

    async def score(state: TaskState, target: Target) -> Score:
        """Return the metrics of the answer in *state*, with the blamed services; *target* is not used."""
        del target
        case, text = _opened(incidents)[str(state.sample_id)][0], state.output.completion
        by = SolverNoun(name=f"inspect ({state.model})", kind="agent")
        verdict, answer = await anyio.to_thread.run_sync(grade_given, case, text, by, graded_by)
        value, explanation = shown_scores(verdict)
        services = None if answer is None else ", ".join(claim.service for claim in answer.root_causes)
        metrics = {name: metric.model_dump(mode="json") for name, metric in verdict.metrics.items()}
        return Score(value=value, answer=services, explanation=explanation, metadata={"metrics": metrics})

    return score


def telemetry_tools() -> list[ToolDef]:
    """Return the tools of OpsAssay's agents for inspect_ai; calls beyond LIMITS.tool_calls a sample are refused."""

    async def list_tables() -> str:
        return await _call_tool("list_tables")

    async def get_schema(table: str) -> str:
        return await _call_tool("get_schema", table=table)

    async def query_sql(sql: str) -> str:
        return await _call_tool("query_sql", sql=sql)

    async def think(thought: str) -> str:
        return await _call_tool("think", thought=thought)

    tools: tuple[Callable[..., Awaitable[str]], ...] = (list_tables, get_schema, query_sql, think)
    return [
        ToolDef(
            tool,
            tool.__name__,
            TOOLS[tool.__name__].__doc__,
            {name: str(field.description) for name, field in TOOLS[tool.__name__].model_fields.items()},
            parallel=False,  # one worker answers them
        )
        for tool in tools
    ]


async def _call_tool(tool: str, **arguments: Any) -> str:
    """Call *tool* in the running sample's session; return its text; raises ToolError, also past LIMITS.tool_calls."""
    session = _session_of_sample()
    session.calls += 1
    if session.calls > LIMITS.tool_calls:
        raise ToolError(f"The hard cap of {LIMITS.tool_calls} tool calls is reached; hand in your answer.")
    call = await anyio.to_thread.run_sync(session.toolbox.call, tool, arguments)
    if call.status == "error":
        raise ToolError(call.output.removeprefix("Error: "))
    return call.output


@cache
def _opened(incidents: str) -> dict[str, tuple[Case, IncidentItem]]:
    """Return {id: (case, item)} of the incidents below the folder *incidents*; cached, and not in inspect_ai's logs."""
    return {item.incident.id: (case, item) for case, item in open_suite(Path(incidents))}


def _session_of_sample() -> _ToolSession:
    """Return the tool session that `telemetry` opened for the sample that inspect_ai runs now."""
    return _SESSIONS[store().get(_SAMPLE)]


async def _end_sample(state: TaskState) -> None:
    """Close the tool session of the sample *state*, if any; inspect_ai calls this at the end of each sample."""
    session = _SESSIONS.pop(state.uuid, None)
    if session is not None:
        session.sql.__exit__(None, None, None)
