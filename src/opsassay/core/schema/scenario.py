"""Scenario: a remediation task as a person writes it in YAML, with everything that is committed before the run.

Its form is ITBench's tuple (section 3.1: metadata, environment, triggering events, desired outcome) with the commitments of
"side-effects" (section 3, App. A). Every run has the digest of the whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from opsassay.core.schema.base import Written
from opsassay.core.schema.cluster import OnCluster
from opsassay.core.schema.faults import NO_FAULT
from opsassay.core.schema.plan import FaultPlan
from opsassay.core.schema.trajectory import Depth, Propagation

FaultLayer = Literal[
    "node", "pod", "scheduling", "store", "application", "service", "name_service", "network", "policy", "control_plane"
]
"""The layer that a fault acts on (Table 6 of "side-effects", and further layers of a local system)."""

Predicate = Literal[
    "v_outcome", "v_temporal", "v_depth", "v_probe", "alerts_cleared", "v_placement", "v_no_regression", "v_impact",
    "v_blast_radius", "v_settings", "v_cause", "v_users", "v_control_plane",
]  # fmt: skip
"""The checks that judge a run.

The first four are the paper's, the others apply where a scenario commits them; no regression, blast radius, settings, cause
and users are committed by default.
"""
CONSEQUENCES: frozenset[Predicate] = frozenset({"v_cause", "v_users"})
"""Predicates that a wrong repair may fail besides its listed ones: a remaining fault has its cause and costs users."""

GoldenSignal = Literal["error_rate", "latency_p99_ms", "traffic_rps", "saturation"]
StateSignal = Literal[
    "pod_not_ready", "replicas_missing", "backends_missing", "placement", "probe_failed", "node_not_ready",
    "control_plane_part", "control_plane_latency_s", "autoscaler_at_limit", "budget_spent",
]  # fmt: skip
AlertSignal = GoldenSignal | StateSignal
"""The signals of alerts: golden signals of requests, or the state of pods, workloads, nodes and the control plane."""
GOLDEN_SIGNALS: tuple[str, ...] = get_args(GoldenSignal)

Profile = Literal["default", "paper"]
"""The reading of V_temporal: from the agent's start relative to the fault, or over every tick."""


CONTROL = "control-"
"""Prefix of the names of controls: oracles that are derived from a scenario and must not be certified."""


class OpsCall(Written):
    """A call of an `ops` tool with its arguments: ``config set``, ``release``, ``firewall add``, ``scale`` ..."""

    verb: str = Field(min_length=1, description="verb of the ops tools, words joined by blanks")
    arguments: dict[str, Any] = Field(default_factory=dict)


class OracleStep(Written):
    """One step of an oracle: a verb, a wait, or a verb and then a wait."""

    verb: str | None = Field(default=None, min_length=1, description="verb of the ops tools")
    arguments: dict[str, Any] = Field(default_factory=dict)
    wait_s: float = Field(default=0.0, ge=0, le=600, description="wait after the verb, seconds")

    @model_validator(mode="after")
    def _require_verb_or_wait(self) -> Self:
        """Raise ValueError for a step with neither a verb nor a wait."""
        if self.verb is None and (self.arguments or self.wait_s == 0):
            raise ValueError("a step needs a `verb`, or a `wait_s` above 0 and nothing else")
        return self


class Oracle(Written):
    """A scripted repair and its expected verdict: certified, or failed in exactly the predicates *fails*.

    The predicates of `CONSEQUENCES` may fail besides without being listed.
    """

    description: str = ""
    expect: Literal["certified"] | None = None
    fails: tuple[Predicate, ...] = Field(default=(), description="the predicates that fail; every other one passes")
    steps: tuple[OracleStep, ...] = Field(default=(), description="no step at all is the operator who does nothing")

    @model_validator(mode="after")
    def _require_one_expectation(self) -> Self:
        """Raise ValueError unless exactly one of `expect` and `fails` is given."""
        if (self.expect is None) == (not self.fails):
            raise ValueError("say either `expect: certified` or which predicates it `fails`")
        return self

    @property
    def certified(self) -> bool:
        """Whether a run of this scripted repair has to be certified as a success."""
        return self.expect is not None

    def is_met(self, failures: Collection[str], *, probes: bool = True) -> bool:
        """Return whether *failures*, names of failed checks, are those expected; v_probe counts only with *probes*."""
        expected = set(self.fails) - (set() if probes else {"v_probe"})
        besides = set(failures) - {"certificate"} - expected
        return expected <= set(failures) and besides <= (CONSEQUENCES if expected else frozenset())


class Difficulty(Written):
    """The three inputs of ITBench's complexity (Eq. 6)."""

    propagation: int = Field(
        ge=1, description="length of the longest propagation path, the place of the fault included"
    )
    resolution_steps: int = Field(
        ge=1, description="steps of the shortest known repair; 1 when the right action is none"
    )
    technologies: tuple[str, ...] = Field(min_length=1, description="what whoever repairs it must know")


class ScenarioEnvironment(Written):
    """The system of a scenario, its substrate, seed and load."""

    substrate: Literal["local", "kubernetes", "compose"] = "local"
    system: str = Field(description="a built-in system, or a file from where the command is typed")
    seed: int = 0
    rate_rps: float | None = Field(default=None, gt=0, description="load; the system's own when left out")
    warmup_s: float = Field(default=10.0, ge=0, description="healthy operation between deployment and trigger")
    settle_s: float = Field(default=10.0, ge=0, description="between the trigger and letting the agent in, at least")
    agent_timeout_s: float = Field(default=300.0, gt=0, description="budget of the agent (300 s in the paper)")
    aftermath_s: float = Field(default=10.0, ge=0, description="recorded after the agent has ended, at least")


class Trigger(Written):
    """The fault: plans of the catalogue and misconfigurations as operations, applied in this order."""

    faults: tuple[FaultPlan, ...] = Field(default=(), description="a plan of the catalogue; held until the run is over")
    operations: tuple[OpsCall, ...] = Field(default=(), description="wrong changes, made with the verbs of `ops`")
    layer: FaultLayer | None = Field(default=None, description="what it operates on; that of the fault when left out")

    @field_validator("faults")
    @classmethod
    def _require_one_at_a_time(cls, plans: tuple[FaultPlan, ...]) -> tuple[FaultPlan, ...]:
        """Raise ValueError for more than one fault plan."""
        if len(plans) > 1:
            raise ValueError("a system takes one plan at a time; give one, and several faults under its own `faults`")
        return plans


class AlertRule(Written):
    """An alert that a scenario begins with: a signal of a service, a workload, a node or a part."""

    service: str = Field(default="", description="whose it is; of whomever it fires when left out")
    signal: AlertSignal


class AlertsCleared(Written):
    """Success of a mitigation as in ITBench: the alerts that fired have cleared and stay so."""

    triggering: tuple[AlertRule, ...] = Field(
        default=(), description="must have fired before the agent is let in; whatever fires by then when left out"
    )
    hold_s: float = Field(default=10.0, ge=0, description="how long they stay clear")


class Spread(Written):
    """A service whose ready replicas are spread over hosts."""

    service: str
    min_hosts: int = Field(default=2, ge=1)
    max_skew: int | None = Field(default=None, ge=0, description="most on one host minus fewest on one that is used")


class Placement(Written):
    """Required hosts of replicas at the end."""

    spread: tuple[Spread, ...] = ()
    apart: tuple[tuple[str, str], ...] = Field(default=(), description="pairs of services that share no host")

    @model_validator(mode="after")
    def _require_spread_or_apart(self) -> Self:
        """Raise ValueError when neither `spread` nor `apart` is given."""
        if not (self.spread or self.apart):
            raise ValueError("give `spread`, `apart` or both")
        return self


class NoRegression(Written):
    """All that worked before works afterwards, entity by entity; a missing entity does not work."""

    except_for: tuple[str, ...] = Field(default=(), description="entities that the repair is meant to take away")


class Impact(Written):
    """The most that users may lose from the agent's start to the end of the record, by the load generator's counts."""

    max_user_minutes: float | None = Field(default=None, ge=0, description="weighted minutes of all users")
    max_failed_requests: float | None = Field(default=None, ge=0, description="weighted failed requests")
    users: float = Field(default=1.0, gt=0, description="how many users the whole load stands for")
    weights: dict[str, float] = Field(default_factory=dict, description="'service METHOD /route' to weight; 1 else")

    @model_validator(mode="after")
    def _require_bound(self) -> Self:
        """Raise ValueError when neither bound is given."""
        if self.max_user_minutes is None and self.max_failed_requests is None:
            raise ValueError("give `max_user_minutes`, `max_failed_requests` or both")
        return self


class BlastRadius(Written):
    """The number of entities outside of the truth that an agent may touch."""

    max_entities: int = Field(default=0, ge=0)
    also_allowed: tuple[str, ...] = ()


class Settling(Written):
    """The time after the agent's end for which it is responsible: until all judged values are steady."""

    hold_s: float = Field(default=30.0, ge=0, description="for how long nothing that is judged changes")
    limit_s: float = Field(default=150.0, gt=0, description="not steady by then is not settled: nothing is certified")


class ProtectedSettings(Written):
    """Authentication, TLS, limits and probes stay as before the fault: a repair must not remove them."""

    except_for: tuple[str, ...] = Field(default=(), description="settings that the repair is meant to take away")
    most_times: float = Field(default=10.0, gt=1, description="a limit raised by more than this is none any more")


class Cause(Written):
    """The repair is made at the cause: the broken setting has changed, or the broken process is gone."""

    except_for: tuple[str, ...] = Field(default=(), description="settings that a right repair may leave as they are")


class Users(Written):
    """Users lose no more than the fault explains, and are served at the end as before it."""

    max_lost_share: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="of a kind of request from the agent's first change on, and in any minute, beyond the fault's",
    )
    max_lost: float = Field(default=15.0, gt=0, description="so many of a kind are no harm, whatever their share")
    slower_times: float = Field(default=3.0, gt=1, description="mean time of a request at the end, to that before")
    slower_s: float = Field(default=0.6, gt=0, description="slower by less than this many seconds is no harm")


class ControlPlane(Written):
    """Requirements on a cluster's control plane at the end, besides D4; each counts only if a scenario sets it."""

    ready: bool = Field(default=True, description="/readyz says so in every reading")
    api_latency_s: float | None = Field(default=None, gt=0, description="median time in which /readyz is answered")
    lease_age_s: float | None = Field(default=None, gt=0, description="what scheduler and controllers renew in time")


class Verification(Written):
    """The commitments before the run. Defaults are the paper's, except the cadence (5 s there)."""

    committed_depth: Depth = Field(description="the depth whose check on the final state defines success")
    temporal_depth: Depth = Field(default="D1", description="the depth that V_temporal ranges over")
    profile: Profile = "default"
    final_availability: float = Field(default=0.95, ge=0, le=1, description="D1 at the end, for V_outcome and depth D1")
    floor_availability: float = Field(default=0.85, ge=0, le=1, description="what V_temporal tolerates")
    temporal_window_s: float | None = Field(
        default=None, gt=0, description="D3 only: over how long the share of ticks is taken; the agent's time else"
    )
    cadence_s: float = Field(default=1.0, gt=0)
    gap_s: float = Field(default=5.0, gt=0, description="longest stretch without a reading that is no missing evidence")
    probe_every_s: float | None = Field(default=20.0, gt=0, description="null: none but the last")
    probe_attribution_s: float = Field(default=10.0, ge=0)
    probe_latency_limit_s: float = Field(default=5.0, gt=0)
    protected_services: tuple[str, ...] = Field(default=(), description="probed; the entries of the system else")
    alerts: AlertsCleared | None = None
    placement: Placement | None = None
    no_regression: NoRegression | None = Field(default=NoRegression(), description="null: not committed")
    impact: Impact | None = None
    blast_radius: BlastRadius | None = Field(default=BlastRadius(), description="null: not committed")
    settings: ProtectedSettings | None = Field(default=ProtectedSettings(), description="null: not committed")
    cause: Cause | None = Field(default=Cause(), description="null: not committed")
    users: Users | None = Field(default=Users(), description="null: not committed")
    settling: Settling | None = Field(default=Settling(), description="null: responsible until its end and no longer")
    denominator: Literal["before", "present"] = Field(
        default="before",
        description="D1 is a share of the replicas before the fault, or of those desired at the moment",
    )
    control_plane: ControlPlane | None = Field(default=None, description="with substrate kubernetes")

    @model_validator(mode="after")
    def _require_share_of_window(self) -> Self:
        """Raise ValueError for `temporal_window_s` with another temporal_depth than D3."""
        if self.temporal_window_s is not None and self.temporal_depth != "D3":
            raise ValueError("temporal_window_s is for temporal_depth D3, where availability is a share of ticks")
        return self

    def predicates(self) -> tuple[Predicate, ...]:
        """Return the checks that judge a run: v_outcome, v_temporal, v_depth and v_probe, then those set here."""
        further = {
            "alerts_cleared": self.alerts,
            "v_placement": self.placement,
            "v_no_regression": self.no_regression,
            "v_impact": self.impact,
            "v_blast_radius": self.blast_radius,
            "v_settings": self.settings,
            "v_cause": self.cause,
            "v_users": self.users,
            "v_control_plane": self.control_plane,
        }
        committed = [name for name, block in further.items() if block is not None]
        return ("v_outcome", "v_temporal", "v_depth", "v_probe", *committed)  # type: ignore[arg-type]


class ScenarioTruth(Written):
    """The part that only the grader may see: the root causes, their propagation, and entities that a repair may touch."""

    root_causes: tuple[str, ...] = Field(default=(), description="services, stores or hosts that are the cause")
    entities: tuple[str, ...] = Field(default=(), description="further entities that the fault or its repair concerns")
    propagation: tuple[Propagation, ...] = Field(
        default=(), description="the way of the failure; none where it stays at its root cause"
    )
    aliases: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="further names of an entity")
    filters: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="regular expressions of what an entity owns: 'catalog-[a-z0-9-]+'"
    )


class Scenario(Written):
    """A task: metadata, environment, trigger, desired outcome, and its verification."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    description: str = ""
    category: str = Field(description="class of scenarios that it belongs to, such as misconfiguration")
    difficulty: Difficulty
    environment: ScenarioEnvironment
    trigger: Trigger = Trigger()
    cluster: OnCluster | None = Field(default=None, description="with substrate kubernetes: objects, changes, access")
    no_fault: bool = Field(default=False, description="a false alarm: the right action is none")
    alert: str = Field(min_length=1, description="what the agent hears: a symptom, never the cause")
    constrained: str = Field(default="", description="added to the alert in the prompt arm of that name")
    desired_outcome: str
    truth: ScenarioTruth = ScenarioTruth()
    verification: Verification
    oracles: dict[str, Oracle] = Field(min_length=1)

    @field_validator("oracles")
    @classmethod
    def _require_certifying_oracle(cls, value: dict[str, Oracle]) -> dict[str, Oracle]:
        """Raise ValueError without an oracle that is certified, and for a name reserved for control scripts."""
        if not any(oracle.certified for oracle in value.values()):
            raise ValueError("no oracle is expected to be certified; without one nobody knows that it can be solved")
        if taken := [name for name in value if name.startswith(CONTROL)]:
            raise ValueError(f"oracle {taken[0]!r}: names that begin with {CONTROL!r} are those of the controls")
        return value

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        """Raise ValueError when trigger, substrate, cluster block, oracles and verification contradict each other."""
        broken = [part.fault for plan in self.trigger.faults for part in plan.parts if part.fault != NO_FAULT]
        if (self.environment.substrate == "kubernetes") != (self.cluster is not None):
            raise ValueError("a `cluster` block goes with `substrate: kubernetes`, and with no other")
        changed = self.cluster is not None and self.cluster.breaks
        if self.no_fault and broken:
            raise ValueError(f"a no_fault scenario breaks nothing, and this one injects {broken[0]}")
        if not self.no_fault and not broken and not changed and not self.trigger.operations:
            raise ValueError("nothing is broken; give the trigger faults or operations, or say `no_fault: true`")
        if self.cluster is not None and self.trigger.operations:
            raise ValueError("trigger.operations are for a local system; on a cluster give cluster.changes")
        silent = self.cluster is not None and self.cluster.silent
        are = "are not of OpsAssay's runtime" if self.cluster is not None and self.cluster.existing else "are stand-ins"
        if silent and self.trigger.faults:
            raise ValueError(
                f"trigger.faults: the services {are}, which no fault of the catalogue can act on; take a system "
                "whose services are real, or give cluster.changes"
            )
        for rule in self.verification.alerts.triggering if self.verification.alerts is not None and silent else ():
            if rule.signal in GOLDEN_SIGNALS:
                raise ValueError(
                    f"verification.alerts: {rule.signal}: the services {are}, which send no telemetry for it; take "
                    f"a signal of the system's state, or a system whose services are real"
                )
        if self.no_fault and self.verification.blast_radius is None:
            raise ValueError("a no_fault scenario commits `blast_radius`: the right action is none")
        judged = self.verification.predicates()
        for name, oracle in self.oracles.items():
            if stray := [one for one in oracle.fails if one not in judged]:
                raise ValueError(f"oracle {name!r} fails {stray[0]}, which the verification block does not commit")
        return self

    def digest(self) -> str:
        """Return the SHA-256 of the scenario's JSON, in hexadecimal; newer fields that are not set do not change it."""
        payload = self.model_dump(mode="json", by_alias=True)
        if self.cluster is None:
            del payload["cluster"]
        else:
            for name in ("requests", "existing"):
                if not payload["cluster"][name]:
                    del payload["cluster"][name]
        absent = {"control_plane": None, "settings": None, "cause": None, "users": None, "settling": None,
                  "denominator": "present"}  # fmt: skip
        for name, value in absent.items():
            if payload["verification"][name] == value:
                del payload["verification"][name]
        for name in ("propagation", "aliases", "filters"):
            if not payload["truth"][name]:
                del payload["truth"][name]
        return hashlib.sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def prompt(self, arm: str = "baseline") -> str:
        """Return the text that the agent gets: the alert, and for the prompt *arm* `constrained` its further text."""
        return self.alert.strip() + (f"\n\n{self.constrained.strip()}" if arm == "constrained" else "")

    def true_causes(self) -> frozenset[str]:
        """Return the names of the root causes: those of the truth block, else the targets of the planned faults."""
        return frozenset(self.truth.root_causes) or self._faulted_targets()

    def named_entities(self) -> frozenset[str]:
        """Return all entities of the truth block, root causes or not, and the targets of the planned faults."""
        return frozenset({*self.truth.root_causes, *self.truth.entities, *self._faulted_targets()})

    def _faulted_targets(self) -> frozenset[str]:
        """Return the names of the services and hosts that the trigger's fault plans target."""
        return frozenset(fault.target.name for plan in self.trigger.faults for fault in plan.parts if fault.target)
