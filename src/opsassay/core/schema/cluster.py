"""The part of a scenario about a cluster: further objects, changes that break the system, the agent's access.

Texts may have placeholders that are filled when a trial begins: ``{namespace}`` (the system's), ``{watch}`` (the observer's
namespace), ``{image}`` (the image of all our containers), ``{worker1}``, ``{worker2}`` ... (the nodes, sorted by name).
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from opsassay.core.schema.base import Written
from opsassay.core.schema.cost import ResourceRequest

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
LOOKING: frozenset[str] = frozenset({"get", "list", "watch"})
NodeOp = Literal["stop", "start", "partition", "restore", "delay", "undelay"]
"""An operation on a node: stop or start its kubelet, cut or restore its network, delay it or end the delay."""
UNDO_OF_NODE_OP: dict[NodeOp, NodeOp] = {"stop": "start", "partition": "restore", "delay": "undelay"}
CONTROL_PLANE = "control-plane"
"""The name of the control plane in a node operation."""

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
"""Resources without a namespace that may be granted."""
GRANTABLE = frozenset({
    *READABLE, *CHANGEABLE, *CLUSTER_WIDE, "pods/exec", "statefulsets/scale", "pods/eviction", "horizontalpodautoscalers",
})  # fmt: skip
"""All resources that may be granted. Secrets, accounts, roles and node proxies lead to the truth or to a node."""


class AccessRule(Written):
    """The verbs that an agent may use on some resources: of the system's namespace, another one, or none (nodes)."""

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
"""The access of an agent when a scenario sets none.

It may read all but secrets in the system's namespace, change workloads, services, settings, policies and claims there,
run commands in its pods, and see nodes and volumes.
"""


class ObjectChange(Written):
    """A change of one API object: it is created, or patched as by `kubectl patch` (strategic merge)."""

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
    """An operation on a node, by the command that the user allows for it (`cluster` of a plan)."""

    node: str = Field(description="{worker1} ... or control-plane")
    op: Literal["stop", "partition", "delay"]


class ObjectState(Written):
    """A state to wait for: the value at *path* of an object; list parts are named by type, name or number."""

    kind: str
    name: str
    namespace: str | None = Field(default=None, description="the system's own when left out")
    path: str = Field(description="such as status.readyReplicas or status.conditions.Ready.status")
    equals: Any = Field(default=None, description="null: nothing stands there")
    differs: bool = Field(default=False, description="wait until it is anything else")
    within_s: float = Field(default=180.0, gt=0, le=900)


class OnCluster(Written):
    """The further settings of a scenario with ``substrate: kubernetes``."""

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
