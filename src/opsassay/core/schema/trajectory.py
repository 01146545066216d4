"""Timeline, actions, alerts and Trace: what the system went through, and what the agent did."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, model_validator

from opsassay.core.schema.base import Artefact, Int64, Noun, Written
from opsassay.core.schema.incident import Alert

Depth = Literal["D1", "D2", "D3", "D4"]
"""Observation depths of "side-effects": replicas ready, backends ready, end-to-end request, control plane."""


class Probe(Noun):
    """One end-to-end request to a protected service, with its own start and end."""

    id: str
    target: str
    started_ns: Int64
    ended_ns: Int64
    status: Int64 | None = None
    latency_s: float
    reachable: bool


class Observation(Noun):
    """One reading at one depth with its own start and end; *value* is a share in [0, 1], None when it was missed."""

    depth: Depth
    started_ns: Int64
    ended_ns: Int64
    value: float | None
    failing: tuple[str, ...] = ()


class Entity(Noun):
    """One replica, store or part at one instant; *host* is where it runs, None where that has no meaning.

    *incarnation* is another one after every start of its process, None where nobody says.
    """

    id: str
    service: str
    ready: bool
    host: str | None = None
    version: str | None = None
    incarnation: str | None = None


LoadCounts = tuple[int, int] | tuple[int, int, int]
"""What the load generator counted of one kind of request: done, failed and, where it is recorded, ns in all."""


class MachinePressure(Noun):
    """How short the machine was at one tick, None where the kernel or the recorder does not say.

    *cpu*, *memory* and *io* are the shares of the time since the tick before in which some task waited for them
    (/proc/pressure), *runnable* the tasks ready to run per core, *steal* the share of processor time that a hypervisor
    kept. *late_s* is how late the tick began, *noop_s* how long a probe took that asks for nothing. *foreign* is the
    share of all processor time that others than the trial and its descendants used, *foreign_runnable* how many of their
    threads were ready to run, per core: what the system or the agent does is in neither.
    """

    cpu: float | None = None
    memory: float | None = None
    io: float | None = None
    runnable: float | None = None
    steal: float | None = None
    foreign: float | None = None
    foreign_runnable: float | None = None
    late_s: float = 0.0
    noop_s: float | None = None


class Calibration(Noun):
    """How fast the machine was just before the first tick: medians of a fixed spin and of a probe that asks for nothing."""

    spin_s: float
    noop_s: float

    @property
    def slowdown(self) -> float:
        """How many times slower this machine is than the reference machine of the time limits, from 1 to MOST_SLOWDOWN."""
        return min(max(self.spin_s / USUAL_SPIN_S, self.noop_s / USUAL_NOOP_S, 1.0), MOST_SLOWDOWN)


USUAL_SPIN_S, USUAL_NOOP_S, MOST_SLOWDOWN = 0.02, 0.005, 3.0
"""A machine that needs no longer has the limits of the scenario as they stand; a slower one at most three times them."""


class Tick(Noun):
    """One observation of all depths.

    *entities* holds those that changed since the tick before, all of them in the first tick; *gone* those that are no
    longer there. *load* holds what the load generator has counted since it was started, (done, failed, ns that the requests
    took in all) by kind of request ('service METHOD /route'), where it changed; earlier recorders left the time out. All
    three are empty in timelines of version 1. *pressure* is None where the recorder did not look.
    """

    index: Int64
    observations: tuple[Observation, ...]
    probes: tuple[Probe, ...] = ()
    entities: tuple[Entity, ...] = ()
    gone: tuple[str, ...] = ()
    load: dict[str, LoadCounts] = Field(default_factory=dict)
    pressure: MachinePressure | None = None


class Timeline(Artefact):
    """The system trajectory. Version 1 knew no entities and no load.

    *cadence_s* is the time from a tick to the next one. All its instants are nanoseconds of UTC wall clock.
    """

    SCHEMA_VERSION: ClassVar[int] = 2
    schema_version: int = 2

    boot_id: str
    cadence_s: float
    ticks: tuple[Tick, ...] = ()
    calibration: Calibration | None = None

    @model_validator(mode="before")
    @classmethod
    def _migrate_version_1(cls, data: Any) -> Any:
        """Return *data* of schema version 1 without its version, so that it is read as the current one."""
        if isinstance(data, dict) and data.get("schema_version") == 1:
            return {key: value for key, value in data.items() if key != "schema_version"}
        return data


def parse_timeline(text: str) -> Timeline:
    """Parse JSON lines, a header and one `Tick` a line, without a torn last one.

    Raises ValueError, KeyError and the like.
    """
    whole, _, _ = text.rpartition("\n")
    header, *lines = whole.splitlines()
    head = json.loads(header)
    ticks = _TICKS.validate_json("[" + ",".join(lines) + "]")
    return Timeline(
        boot_id=head["boot_id"], cadence_s=head["cadence_s"], ticks=ticks,
        calibration=Calibration.model_validate(found) if (found := head.get("calibration")) else None,
    )  # fmt: skip


_TICKS = TypeAdapter(tuple[Tick, ...])


class Action(Noun):
    """One tool call that reached the system, on the run's clock.

    *step_id* is the step that decided on it, None when nobody says which. *mutating*: it may change something; *touched*
    names the entities (services, replicas, stores, hosts) that it changed, empty for a look.
    """

    tool: str
    arguments: dict[str, Any]
    started_ns: Int64
    ended_ns: Int64
    step_id: Int64 | None = None
    status: str = "ok"
    output: str = ""
    mutating: bool = False
    touched: tuple[str, ...] = ()


NoiseKind = Literal["restart", "redeploy", "load", "alert"]
NoiseStatus = Literal["done", "left_alone", "failed"]


class EnvironmentAction(Noun):
    """One thing that the environment itself did while a trial lasted: background noise, never the agent's.

    *amount* is a share of the replicas, the factor of the load, or the value of the alert; *touched* are the replicas that
    were restarted from *started_ns* to *ended_ns*. What would not have been harmless was *left_alone*.
    """

    kind: NoiseKind
    target: str
    amount: float
    started_ns: Int64
    ended_ns: Int64
    status: NoiseStatus = "done"
    touched: tuple[str, ...] = ()


class AlertReading(Noun):
    """One evaluation of the alert rules: what fires at *time_ns*, nothing when all is quiet."""

    time_ns: Int64
    firing: tuple[Alert, ...] = ()


class ControlPlaneReading(Noun):
    """How a cluster's API server answered at one tick, and what else is said of the cluster; D4 holds none of it.

    *reached* is whether there was an answer at all, *failing* are the checks of ``/readyz`` that fail, *lease_ages_s* the
    seconds since each lease of the control plane was renewed (None: never).
    """

    time_ns: Int64
    ready: bool
    latency_s: float
    reached: bool = True
    failing: tuple[str, ...] = ()
    lease_ages_s: dict[str, float | None] = Field(default_factory=dict)
    nodes_not_ready: tuple[str, ...] = ()
    nodes_ready: Int64 | None = None
    watches_resumed: Int64 = 0


class SettingsReading(Noun):
    """What a system is set to at one instant: what protects it, and what is given to whatever starts from then on."""

    time_ns: Int64
    settings: dict[str, str] = Field(
        description="the protected ones by name; of a secret ``set`` and a digest under a key that nobody keeps"
    )
    others: dict[str, str] = Field(default_factory=dict, description="every other one by name, in the same way")
    configured: dict[str, str] = Field(default_factory=dict, description="what the next start is given, as digests")
    pending_restart: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="who runs with something else, by the name of what is configured, or no more"
    )


CONTROL_PLANE_SUFFIX = ".control-plane.jsonl"
"""What replaces the suffix of a timeline in the name of the file that lies beside it."""

PhaseName = Literal["deployed", "baseline", "triggered", "agent_started", "agent_ended", "ended"]
"""The instants of a trial: deployed; end of the healthy stretch; the last fault applied; the agent's time; the end."""


class Phase(Noun):
    """One line of a run's phases.jsonl."""

    phase: PhaseName
    time_ns: Int64


OutcomeName = Literal[
    "alert_not_fired", "agent_idle", "agent_timeout", "acted_after_end", "left_running", "tool_flood", "fault_ended",
    "not_settled", "tools_gone",
]  # fmt: skip
"""What can come of a trial beside its verdict: an alert that never fires; an agent that calls no tool, does not end, calls
tools when its time is over, ends while a change is under way, or calls too many; a fault that ends by itself before the
agent changes anything; a system that does not settle; an MCP server that loses its tools."""


class TrialOutcome(Noun):
    """One line of a run's outcomes.jsonl."""

    time_ns: Int64
    outcome: OutcomeName
    reason: str


class Propagation(Written):
    """One step of the way of a failure, from cause to effect (ITBench, Figure 20)."""

    source: str = Field(description="the cause")
    target: str = Field(description="whom it makes fail")
    condition: str = Field(default="", description="what is wrong at the source")
    effect: str = Field(default="", description="what shows at the target")


class OperatorDiagnosis(Noun):
    """One line of a run's diagnoses.jsonl: what an operator says is the cause, when it says so.

    *root_causes* are services, stores or hosts, none when nothing is wrong; *propagation* is the way of the failure from
    the cause to where it was seen, *edges* the same step by step.
    """

    time_ns: Int64
    root_causes: tuple[str, ...]
    propagation: tuple[str, ...] = ()
    condition: str = ""
    edges: tuple[Propagation, ...] = ()

    def chain(self) -> tuple[tuple[str, str], ...]:
        """Return the claimed propagation as (cause, effect) pairs: the edges, else the neighbours in `propagation`."""
        if self.edges:
            return tuple((one.source, one.target) for one in self.edges)
        return tuple(pairwise(self.propagation))


class ToolCall(Noun):
    """One tool call of an agent, with what came back; *status* is unanswered when nothing did."""

    tool: str
    arguments: dict[str, Any]
    output: str
    status: Literal["ok", "error", "unanswered"] = "ok"


class TraceStep(Noun):
    """One step record with full inputs and outputs (names of the TraceElephant paper).

    *step_id* counts from 1; *started_at* and *ended_at* are ns of UTC; *kind* is tool when a tool was called or
    answered; *usage* counts tokens: cached, reasoning and other ones are parts of input_tokens and output_tokens;
    *finish_reason* is why the model stopped, in the API's word; *error* says why there is no whole output (an upstream
    error, a client that hung up).
    """

    step_id: Int64 = Field(ge=1)
    agent_id: str
    agent_name: str
    input_context: str
    output_content: str
    tool_logs: tuple[ToolCall, ...] = ()
    started_at: Int64 | None = None
    ended_at: Int64 | None = None
    usage: dict[str, int] = Field(default_factory=dict)
    finish_reason: str | None = Field(default=None, exclude_if=lambda reason: reason is None)
    model: str | None = None
    request_id: str | None = None
    kind: Literal["plain", "tool"] = "plain"
    error: str | None = None


class Trace(Artefact):
    """The agent trajectory with its metadata."""

    task_id: str
    task_instruction: str
    system_name: str
    agent_configuration: dict[str, Any] = Field(default_factory=dict)
    system_architecture: str | None = None
    outcome: str | None = None
    reference_answer: str | None = None
    steps: tuple[TraceStep, ...] = ()

    def agents(self) -> tuple[str, ...]:
        """Return the names of the agents, ordered by their first step."""
        return tuple(dict.fromkeys(step.agent_name for step in self.steps))

    def step(self, number: int) -> TraceStep | None:
        """Return the step whose step_id is *number*; None when this trace has no such step."""
        return next((step for step in self.steps if step.step_id == number), None)


class Attribution(Artefact):
    """Who is to blame for a failed trace and since which step; None where there is no answer."""

    agent_name: str | None = None
    step_id: Int64 | None = None
    reason: str = ""
    uncertain: bool = False


class LabelledTrace(Noun):
    """A failed trace with what is known to be true about it, which is never shown to a technique.

    *subset* is the benchmark's own split; *notes* name what is odd about the label, which is kept as it is.
    """

    id: str
    subset: str
    trace: Trace
    label: Attribution
    notes: tuple[str, ...] = ()
