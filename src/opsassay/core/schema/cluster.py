"""What a scenario says of a cluster: what stands beside its system, what breaks as changes of API objects, who may do what.

Texts may hold names that are known only when a trial begins: ``{namespace}`` (the system's), ``{watch}`` (what watches over
it), ``{image}`` (the one that everything of ours runs) and ``{worker1}``, ``{worker2}`` ... (the nodes, in the order of
their names).
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from opsassay.core.schema.base import Written
from opsassay.core.schema.cost import ResourceRequest

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
LOOKING: frozenset[str] = frozenset({"get", "list", "watch"})
NodeOp = Literal["stop", "start", "partition", "restore", "delay", "undelay"]
"""What is done at a node: its kubelet stopped or started, its network cut or restored, slowed or no longer."""
UNDO_OF_NODE_OP: dict[NodeOp, NodeOp] = {"stop": "start", "partition": "restore", "delay": "undelay"}
CONTROL_PLANE = "control-plane"
"""The name under which a node operation reaches the control plane."""

READABLE = (
    "pods", "pods/log", "services", "endpoints", "configmaps", "events", "deployments", "replicasets", "statefulsets",
    "daemonsets", "jobs", "networkpolicies", "persistentvolumeclaims", "resourcequotas", "limitranges",
    "poddisruptionbudgets",
)  # fmt: skip
CHANGEABLE = (
    "pods", "services", "configmaps", "deployments", "deployments/scale", "replicasets", "networkpolicies",
    "persistentvolumeclaims",
)  # fmt: skip
CLUSTER_WIDE = ("nodes", "storageclasses", "persistentvolumes", "namespaces", "componentstatuses")
"""Resources that live in no namespace and may be granted at all."""
GRANTABLE = frozenset({
    *READABLE, *CHANGEABLE, *CLUSTER_WIDE, "pods/exec", "statefulsets/scale", "pods/eviction", "horizontalpodautoscalers",
})  # fmt: skip
"""What may be granted. Not among them: secrets, accounts and roles, nodes' proxies: ways to the truth or to a node."""


class AccessRule(Written):
    """What an agent may do with some resources: in the system's namespace, in another one, or in none (nodes)."""

    resources: tuple[str, ...] = Field(min_length=1)
    verbs: tuple[Verb, ...] = Field(min_length=1)
    namespace: str | None = Field(default=None, description="the system's own when left out")

    @field_validator("resources")
    @classmethod
    def _require_grantable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Raise ValueError for a resource that no agent may be granted."""
        if stray := [name for name in value if name not in GRANTABLE]:
            raise ValueError(f"{stray[0]!r} is never granted; there are {', '.join(sorted(GRANTABLE))}")
        return value

    @model_validator(mode="after")
    def _require_bounds(self) -> Self:
        """Raise ValueError for a rule that mixes scopes or grants too much outside of the system's namespace."""
        writes = {str(verb) for verb in self.verbs} - LOOKING
        wide = {name for name in self.resources if name in CLUSTER_WIDE}
        if wide and wide != set(self.resources):
            raise ValueError("resources of a namespace and of none need a rule each")
        if wide and self.namespace is not None:
            raise ValueError(f"{sorted(wide)[0]} live in no namespace")
        if wide and writes and (wide != {"nodes"} or writes - {"patch", "update"}):
            raise ValueError("of what lives in no namespace only nodes may be changed, by patch and update")
        if self.namespace is not None:
            self._require_harmless_elsewhere(writes)
        return self

    def _require_harmless_elsewhere(self, writes: set[str]) -> None:
        """Raise ValueError if this rule for another namespace may do harm; *writes* are its verbs that change things."""
        if self.namespace is None or "watch" in self.namespace or "{" in self.namespace:
            raise ValueError("namespace: name one of the cluster's own, or leave it out for the system's")
        if writes and (writes != {"delete"} or set(self.resources) != {"pods"}):
            raise ValueError("in a namespace that is not the system's only pods may be deleted and nothing changed")
        if "pods/exec" in self.resources or {"configmaps", "pods/log"} & set(self.resources):
            raise ValueError("in a namespace that is not the system's nobody looks into pods and their settings")

    @property
    def cluster_wide(self) -> bool:
        """Whether the resources of this rule, such as nodes, belong to the whole cluster and not to a namespace."""
        return self.resources[0] in CLUSTER_WIDE


STANDARD = (
    AccessRule(resources=READABLE, verbs=("get", "list", "watch")),
    AccessRule(resources=CHANGEABLE, verbs=("create", "update", "patch", "delete")),
    AccessRule(resources=("pods/exec",), verbs=("create",)),
    AccessRule(resources=("nodes", "storageclasses", "persistentvolumes"), verbs=("get", "list", "watch")),
)
"""What an agent may do when a scenario does not say: look at everything in the system's namespace but secrets, change
workloads, services, settings, policies and claims there, run commands in its pods, and see nodes and volumes."""


class ObjectChange(Written):
    """A change of one API object: it is made, or patched as `kubectl patch` does (strategic merge)."""

    kind: str = Field(min_length=1)
    name: str = Field(min_length=1)
    namespace: str | None = Field(default=None, description="the system's own when left out")
    create: dict[str, Any] | None = Field(default=None, description="spec, data and such of a new object")
    patch: dict[str, Any] | None = Field(default=None, description="lists are merged by their keys")

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        """Raise ValueError unless exactly one of `create` and `patch` is given."""
        if (self.create is None) == (self.patch is None):
            raise ValueError("give either `create` or `patch`")
        return self


class NodeChange(Written):
    """Something done at a node, by the command that the user allows for it (`cluster` of a plan)."""

    node: str = Field(description="{worker1} ... or control-plane")
    op: Literal["stop", "partition", "delay"]


class ObjectState(Written):
    """A state that is waited for: what stands at *path* of an object. Parts of lists are named by type, name or number."""

    kind: str
    name: str
    namespace: str | None = Field(default=None, description="the system's own when left out")
    path: str = Field(description="such as status.readyReplicas or status.conditions.Ready.status")
    equals: Any = Field(default=None, description="null: nothing stands there")
    differs: bool = Field(default=False, description="wait until it is anything else")
    within_s: float = Field(default=180.0, gt=0, le=900)


class OnCluster(Written):
    """What a scenario with ``substrate: kubernetes`` says besides."""

    stand_ins: bool = Field(
        default=False, description="services are small servers that answer every path: no calls, no load, no telemetry"
    )
    existing: bool = Field(
        default=False, description="the system is a namespace that exists: nothing is deployed into it, no telemetry"
    )
    fillers: int = Field(
        default=0, ge=0, le=200, description="idle pods beside the system: sized so that shares mean the same"
    )
    requests: dict[str, ResourceRequest] = Field(
        default_factory=dict, description="what a replica of a service requests; little when left out"
    )
    workers: int = Field(default=1, ge=1, le=100, description="nodes that are needed")
    exclusive: bool = Field(default=False, description="what breaks is felt by every system on the cluster")
    objects: tuple[ObjectChange, ...] = Field(default=(), description="made with the system, before anything is broken")
    changes: tuple[ObjectChange, ...] = Field(default=(), description="the trigger, in this order")
    nodes: tuple[NodeChange, ...] = Field(default=(), description="the trigger, after the changes")
    until: tuple[ObjectState, ...] = Field(default=(), description="what holds before the agent is let in")
    access: tuple[AccessRule, ...] = Field(
        default=STANDARD, description="what an agent may do; the standard when left out"
    )
    more_access: tuple[AccessRule, ...] = Field(default=(), description="what it may do besides")
    node_tool: tuple[NodeOp, ...] = Field(
        default=(), description="what the agent may do at nodes, with a tool of its own"
    )

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        """Raise ValueError for an object without `create`, and for `existing` with anything that changes the namespace."""
        if stray := [one.name for one in self.objects if one.create is None]:
            raise ValueError(f"objects: {stray[0]} is made with the system; give `create`")
        if self.existing and (self.stand_ins or self.fillers or self.objects or self.requests or self.nodes):
            raise ValueError(
                "existing: leave out stand_ins, fillers, objects, requests and nodes: the namespace is as it is"
            )
        return self

    @property
    def silent(self) -> bool:
        """Whether OpsAssay gets no telemetry from the services and sends them no load: stand-ins or an existing system."""
        return self.stand_ins or self.existing

    @property
    def breaks(self) -> bool:
        """Whether the scenario breaks something by changing Kubernetes objects or nodes."""
        return bool(self.changes or self.nodes)

    @property
    def changes_nodes(self) -> bool:
        """Whether the agent's access rules let it change nodes (labels, taints)."""
        return any("nodes" in rule.resources and not LOOKING.issuperset(rule.verbs) for rule in self.rules())

    def rules(self) -> tuple[AccessRule, ...]:
        """Return all access rules of the agent: `access`, then `more_access`."""
        return (*self.access, *self.more_access)
