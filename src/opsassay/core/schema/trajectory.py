"""Timeline, actions, alerts and Trace: the course of the system, and the steps of the agent."""

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

    *incarnation* changes with every start of its process, None where it is unknown.
    """

    id: str
    service: str
    ready: bool
    host: str | None = None
    version: str | None = None
    incarnation: str | None = None


LoadCounts = tuple[int, int] | tuple[int, int, int]
"""Counts of one kind of request by the load generator: done, failed and, where recorded, total ns."""


class MachinePressure(Noun):
    """The shortage of resources on the machine at one tick, None where the kernel or the recorder has no value.

    *cpu*, *memory* and *io* are the shares of the time since the last tick in which a task waited for them
    (/proc/pressure), *runnable* the tasks ready to run per core, *steal* the share of processor time that a hypervisor
    took. *late_s* is the delay of the tick, *noop_s* the time of an empty probe. *foreign* is the share of all processor
    time used by others than the trial and its descendants, *foreign_runnable* their ready threads per core.
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
    """The speed of the machine before the first tick: median times of a fixed spin and of an empty probe."""

    spin_s: float
    noop_s: float

    @property
    def slowdown(self) -> float:
        """How many times slower this machine is than the reference machine of the time limits, from 1 to MOST_SLOWDOWN."""
        return min(max(self.spin_s / USUAL_SPIN_S, self.noop_s / USUAL_NOOP_S, 1.0), MOST_SLOWDOWN)


USUAL_SPIN_S, USUAL_NOOP_S, MOST_SLOWDOWN = 0.02, 0.005, 3.0
"""Times of the reference machine; on a slower one the limits of a scenario grow, to MOST_SLOWDOWN times at most."""


class Tick(Noun):
    """One observation of all depths.

    *entities* are those that changed since the last tick (in the first one all), *gone* those that disappeared. *load*
    has, for each kind of request ('service METHOD /route') that changed, the counts since the load generator started. All
    three are empty in timelines of version 1. *pressure* is None where it was not recorded.
    """

    index: Int64
    observations: tuple[Observation, ...]
    probes: tuple[Probe, ...] = ()
    entities: tuple[Entity, ...] = ()
    gone: tuple[str, ...] = ()
    load: dict[str, LoadCounts] = Field(default_factory=dict)
    pressure: MachinePressure | None = None


class Timeline(Artefact):
    """The trajectory of the system. Version 1 had no entities and no load.

    *cadence_s* is the time from a tick to the next one; instants are nanoseconds of UTC wall clock.
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
    """Parse the JSON lines *text*, a header and one `Tick` per line; an incomplete last line is dropped.

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

    *step_id* is the agent's step, None when unknown. *mutating*: it may change something; *touched* names the entities
    (services, replicas, stores, hosts) that it changed.
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
    """One action of the environment during a trial: background noise, not the agent's.

    *amount* is a share of the replicas, the factor of the load, or the value of the alert; *touched* are the replicas
    restarted from *started_ns* to *ended_ns*. Status *left_alone*: it was skipped, since it would have done harm.
    """

    kind: NoiseKind
    target: str
    amount: float
    started_ns: Int64
    ended_ns: Int64
    status: NoiseStatus = "done"
    touched: tuple[str, ...] = ()


class AlertReading(Noun):
    """One evaluation of the alert rules: the alerts that fire at *time_ns*."""

    time_ns: Int64
    firing: tuple[Alert, ...] = ()


class ControlPlaneReading(Noun):
    """The response of a cluster's API server at one tick, and further readings that are not part of D4.

    *reached* is whether it responded, *failing* are the failing checks of ``/readyz``, *lease_ages_s* the seconds since
    each lease of the control plane was renewed (None: never).
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
    """The settings of a system at one instant: protected ones, others, and those that apply from the next start."""

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
"""Suffix of the file of control plane readings, in place of the timeline's."""

PhaseName = Literal["deployed", "baseline", "triggered", "agent_started", "agent_ended", "ended"]
"""The instants of a trial: deployed; healthy period over; last fault applied; agent's start and end; end."""


class Phase(Noun):
    """One line of a run's phases.jsonl."""

    phase: PhaseName
    time_ns: Int64


OutcomeName = Literal[
    "alert_not_fired", "agent_idle", "agent_timeout", "acted_after_end", "left_running", "tool_flood", "fault_ended",
    "not_settled", "tools_gone",
]  # fmt: skip
"""Outcomes of a trial besides its verdict.

An alert that never fires; an agent that calls no tool, does not end, calls tools after its time, ends during a change, or
calls too many; a fault that ends before the agent changes anything; a system that does not settle; an MCP server that loses
its tools.
"""


class TrialOutcome(Noun):
    """One line of a run's outcomes.jsonl."""

    time_ns: Int64
    outcome: OutcomeName
    reason: str


class Propagation(Written):
    """One step in the propagation of a failure, from cause to effect (ITBench, Figure 20)."""

    source: str = Field(description="the cause")
    target: str = Field(description="whom it makes fail")
    condition: str = Field(default="", description="what is wrong at the source")
    effect: str = Field(default="", description="what shows at the target")


class OperatorDiagnosis(Noun):
    """One line of a run's diagnoses.jsonl: an operator's report of the cause, with its time.

    *root_causes* are services, stores or hosts, () when nothing is wrong; *propagation* is the path of the failure from the
    cause to the symptom, *edges* the same step by step.
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
    """One tool call of an agent with its output; *status* is unanswered without one."""

    tool: str
    arguments: dict[str, Any]
    output: str
    status: Literal["ok", "error", "unanswered"] = "ok"


class TraceStep(Noun):
    """One step record with full inputs and outputs (names of the TraceElephant paper).

    *step_id* counts from 1; *started_at* and *ended_at* are ns of UTC; *kind* is tool when a tool was called or
    answered; *usage* counts tokens: cached, reasoning and other ones are parts of input_tokens and output_tokens;
    *finish_reason* is the API's reason why the model stopped; *error* says why the output is incomplete (an upstream
    error, a client that disconnected).
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
    """The trajectory of an agent with its metadata."""

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
    """The agent to blame for a failed trace and its decisive step; None without an answer."""

    agent_name: str | None = None
    step_id: Int64 | None = None
    reason: str = ""
    uncertain: bool = False


class LabelledTrace(Noun):
    """A failed trace with its true label, which is never shown to a technique.

    *subset* is the benchmark's own split; *notes* say what is odd about the label.
    """

    id: str
    subset: str
    trace: Trace
    label: Attribution
    notes: tuple[str, ...] = ()
