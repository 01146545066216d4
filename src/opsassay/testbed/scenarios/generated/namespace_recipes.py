"""The faults that can be made in a namespace with a team's own deployments: pure recipes over its objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from opsassay.core.schema.cluster import AccessRule, ObjectChange, ObjectState, Verb
from opsassay.core.schema.scenario import OracleStep, Predicate
from opsassay.testbed.scenarios.generated.cluster import GONE_IMAGE, ROLLED, broken_pods
from opsassay.testbed.scenarios.generated.cluster_parts import (
    alert_of,
    broken_of,
    kubectl,
    patched,
    ready,
    restart,
    scaled_to_zero,
    state,
    template,
)
from opsassay.testbed.scenarios.generated.recipes import UNANSWERED, Broken, FaultPlace, WrongRepair

Object = dict[str, Any]
There = Mapping[str, Sequence[Object]]
"""The objects of a namespace and the nodes of its cluster, by kind."""
NOBODY_LISTENS = 9999
CRASH = ["sh", "-c", "exit 3"]
RECREATED: Object = {"strategy": {"type": "Recreate", "rollingUpdate": None}}
NEW_PODS: Object = {**RECREATED, "template": {"metadata": {"annotations": ROLLED}}}
"""Patch by which all pods end before new ones start, so that these meet a changed object."""
WRITES: tuple[Verb, ...] = ("create", "update", "patch", "delete")


@dataclass(frozen=True)
class NamespacePlace(FaultPlace):
    """A *deployment* of a namespace and the *service* that leads to it; *there* are all objects."""

    deployment: Object
    service: Object | None
    there: There

    @property
    def left_without(self) -> float:
        """The share of the namespace's replicas that remains when the target has none."""
        return self.left_by(self.target)

    def left_by(self, name: str) -> float:
        """Return the share of the namespace's replicas that remains when the deployment *name* has none."""
        workloads = [*self.there["Deployment"], *self.there.get("StatefulSet", ())]
        counts = {one["metadata"]["name"]: int(one["spec"].get("replicas", 1)) for one in workloads}
        return 1 - counts[name] / sum(counts.values())

    @property
    def container(self) -> Object:
        """The first container in the pod template of the target."""
        found: Object = self.deployment["spec"]["template"]["spec"]["containers"][0]
        return found

    @property
    def pods(self) -> Object:
        """The labels by which the target deployment selects its pods."""
        found: Object = self.deployment["spec"]["selector"].get("matchLabels") or {}
        return found

    @property
    def description(self) -> OracleStep:
        """The repair step that describes the target's pods, and changes nothing."""
        return kubectl("describe", "pods", "-l", ",".join(f"{key}={value}" for key, value in self.pods.items()))

    def to_zero(self, *failures: Predicate) -> WrongRepair:
        """Return the wrong repair that scales the target to zero; it fails *failures* in addition to its predicates."""
        return replace(scaled_to_zero(self.target), fails=(*self.taken_away, *failures))

    def restarted(self) -> WrongRepair:
        """Return the wrong repair that only restarts the target: its new pods fail in the same way."""
        steps = (restart(self.target)[0], OracleStep(wait_s=8))
        return WrongRepair(f"Restarts {self.target}, whose new pods meet the same.", self.taken_away, steps)


Make = Callable[[NamespacePlace], Broken | None]


class NamespaceRecipe(NamedTuple):
    """One class of faults: *needs* is its precondition in words, *kinds* must be readable, *more* are further rights."""

    name: str
    needs: str
    make: Make
    kinds: tuple[str, ...] = ()
    more: tuple[AccessRule, ...] = ()


def _unready(
    condition: str,
    technology: str,
    make_spec: Callable[[NamespacePlace], Object | None],
    *,
    protected: bool = False,
    make_states: Callable[[FaultPlace], tuple[ObjectState, ...]] | None = None,
) -> Make:
    """Return a recipe that keeps new pods from getting ready by the deployment patch of *make_spec*.

    *condition* describes the fault, *technology* is the knowledge that its repair needs. *protected*: the patch changes a
    program or a probe, so that v_settings fails. *make_states* returns the conditions that show the fault, by default
    that new pods are not ready.
    """

    def make(place: NamespacePlace) -> Broken | None:
        """Return the fault of pods that do not get ready at *place*; None without a patch for it."""
        if (spec := make_spec(place)) is None:
            return None
        broken = broken_pods(condition, technology, lambda _: spec)(place)
        assert broken is not None
        wrong = place.to_zero("v_settings") if protected else place.to_zero()
        return replace(broken, looks=(place.description,), wrong=wrong, until=(make_states or _not_ready)(place))

    return make


def _not_ready(place: FaultPlace) -> tuple[ObjectState, ...]:
    """Return the conditions that all pods of the target are new and none is ready."""
    return (state(place.target, "status.readyReplicas", None), *_state_when_created(place))


def _state_when_created(place: FaultPlace) -> tuple[ObjectState, ...]:
    """Return the condition that all pods of the target are of the present template."""
    return (state(place.target, "status.updatedReplicas", place.replicas),)


def _state_when_refused(place: FaultPlace) -> tuple[ObjectState, ...]:
    """Return the condition that the API server refuses to create pods of the target."""
    return (state(place.target, "status.conditions.ReplicaFailure.status", "True"),)


def _set_container(**fields: Any) -> Callable[[NamespacePlace], Object]:
    """Return a function from place (where a fault is) to the patch that sets *fields* of the target's container."""
    return lambda place: template(place.container["name"], **fields)


def _set_pod(**fields: Any) -> Callable[[NamespacePlace], Object]:
    """Return a function from place (where a fault is) to the patch that sets *fields* of the target's pod spec."""
    return lambda _: {"template": {"spec": fields}}


def _break_image(place: NamespacePlace) -> Object:
    """Return the deployment patch that sets a nonexistent image for the container at *place*."""
    return template(place.container["name"], image=GONE_IMAGE.format(name=place.target))


def _lower_memory(place: NamespacePlace) -> Object | None:
    """Return the patch that sets a memory limit of 1Mi; None for a container without a memory limit."""
    if "memory" not in ((place.container.get("resources") or {}).get("limits") or {}):
        return None
    return template(place.container["name"], resources={"limits": {"memory": "1Mi"}, "requests": {"memory": "1Mi"}})


def _break_probe(name: str, **timing: int) -> Callable[[NamespacePlace], Object | None]:
    """Return a function that returns the patch that points the probe *name* to a closed port; None without one.

    *timing* sets fields such as periodSeconds.
    """

    def asking_nobody(place: NamespacePlace) -> Object | None:
        """Return the patch of the probe at *place*; None where it is neither HTTP nor TCP."""
        handler = place.container.get(name) or {}
        how = next((one for one in ("httpGet", "tcpSocket") if one in handler), None)
        if how is None:
            return None
        return template(place.container["name"], **{name: {how: {"port": NOBODY_LISTENS}, **timing}})

    return asking_nobody


def _find_variable(place: NamespacePlace, source: str) -> tuple[str, Object] | None:
    """Return (name, reference) of the first environment variable that requires *source* (such as secretKeyRef), or None."""
    for one in place.container.get("env") or ():
        reference = (one.get("valueFrom") or {}).get(source)
        if reference is not None and not reference.get("optional"):
            return one["name"], reference
    return None


def _change_secret_key(place: NamespacePlace) -> Object | None:
    """Return the patch that makes an environment variable refer to a key that its Secret lacks; None without one."""
    if (found := _find_variable(place, "secretKeyRef")) is None:
        return None
    name, reference = found
    other = {"name": reference["name"], "key": f"{reference['key']}-v2"}
    return template(place.container["name"], env=[{"name": name, "valueFrom": {"secretKeyRef": other}}])


def _init_container(place: NamespacePlace) -> Object:
    """Return the deployment patch that adds a failing init container with the image of the container at *place*."""
    return _set_pod(initContainers=[{"name": "migrate", "image": place.container["image"], "command": CRASH}])(place)


def _blocked_by_object(place: NamespacePlace, condition: str, root: str, technology: str, **fields: Any) -> Broken:
    """Return the fault that the object *root*, not the deployment, keeps new pods from getting ready.

    *condition* describes the fault, *technology* is the knowledge that its repair needs; *fields* are others of `Broken`.
    """
    given = {
        "root": root,
        "entities": (place.target,),
        "symptom": f"pods of {place.target} do not get ready",
        "alert": alert_of(place, on_pods=True),
        "technologies": ("Kubernetes", technology),
        "layer": "scheduling",
        "until": _not_ready(place),
        "looks": (place.description,),
        "wrong": place.restarted(),
    }
    return broken_of(place, condition, **{**given, **fields})


def _config_map(place: NamespacePlace) -> Broken | None:
    """Return the fault that a key of a ConfigMap is removed; None where the target requires no key of one."""
    found = _find_variable(place, "configMapKeyRef")
    maps = {one["metadata"]["name"]: one.get("data") or {} for one in place.there["ConfigMap"]}
    if found is None or (key := found[1]["key"]) not in (data := maps.get(name := found[1]["name"], {})):
        return None
    change = ObjectChange(kind="ConfigMap", name=name, patch={"data": {key: None}})
    right = json.dumps({"data": {key: data[key]}})
    return _blocked_by_object(
        place, f"it has no {key} any more", name, "ConfigMaps", layer="pod",
        changes=(change, patched(place.target, NEW_PODS)),
        repair=(kubectl("patch", "configmap", name, "-p", right), ready(place.target)),
    )  # fmt: skip


def _add_quota(place: NamespacePlace) -> Broken | None:
    """Return the fault that a ResourceQuota, the namespace's or a new one, allows no pods at *place*."""
    standing = next((one for one in place.there["ResourceQuota"] if not one["spec"].get("scopes")), None)
    if standing is None:
        name = "team-quota"
        change = ObjectChange(kind="ResourceQuota", name=name, create={"spec": {"hard": {"pods": "0"}}})
        repair = kubectl("delete", "resourcequota", name)
    else:
        name, right = standing["metadata"]["name"], {"pods": standing["spec"].get("hard", {}).get("pods")}
        change = ObjectChange(kind="ResourceQuota", name=name, patch={"spec": {"hard": {"pods": "0"}}})
        repair = kubectl("patch", "resourcequota", name, "-p", json.dumps({"spec": {"hard": right}}))
    return _blocked_by_object(
        place, "it allows no further pod", name, "ResourceQuotas", layer="scheduling",
        until=_state_when_refused(place),
        changes=(change, patched(place.target, NEW_PODS)),
        looks=(kubectl("get", "events"), kubectl("describe", "resourcequota")),
        repair=(repair, *restart(place.target)),
    )  # fmt: skip


def _cordon_all(place: NamespacePlace) -> Broken | None:
    """Return the fault that all nodes for the target are cordoned; None if it selects no nodes, or most of them."""
    selector = place.deployment["spec"]["template"]["spec"].get("nodeSelector") or {}
    nodes = {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in place.there["Node"]}
    hit = [name for name, labels in sorted(nodes.items()) if selector and selector.items() <= labels.items()]
    if not 1 <= len(hit) <= min(2, len(nodes) - 1):
        return None
    changes = [ObjectChange(kind="Node", name=name, patch={"spec": {"unschedulable": True}}) for name in hit]
    return _blocked_by_object(
        place, "it takes no new pods", hit[0], "nodes", entities=(*hit[1:], place.target), layer="node",
        changes=(*changes, patched(place.target, NEW_PODS)),
        looks=(place.description, kubectl("get", "nodes")),
        repair=(kubectl("uncordon", *hit), ready(place.target)),
    )  # fmt: skip


def _scaled_away(place: NamespacePlace) -> Broken | None:
    """Return the fault that the deployment at *place* is scaled to zero."""
    name = place.target
    return _blocked_by_object(
        place, "no replica of it is asked for", name, "scaling", entities=(),
        until=(state(name, "status.replicas", None),), changes=(patched(name, {"replicas": 0}),),
        looks=(kubectl("get", "deployments"),),
        repair=(kubectl("scale", f"deployment/{name}", f"--replicas={place.replicas}"), ready(name)),
        wrong=WrongRepair(f"Restarts {name}, of which there is nothing to restart.", place.taken_away, (restart(name)[0],)),
    )  # fmt: skip


def _unanswered(place: NamespacePlace, condition: str, root: str, technology: str, **fields: Any) -> Broken | None:
    """Return the fault that the object *root* keeps requests from the ready pods; None for a target without a Service.

    *condition* describes the fault, *technology* is the knowledge that its repair needs; *fields* are others of `Broken`.
    """
    if place.service is None:
        return None
    return broken_of(
        place, condition, root=root, entities=() if root == place.target else (place.target,),
        technologies=("Kubernetes", technology, "HTTP"), depth="D3",
        wrong=WrongRepair(f"Restarts {place.target}, and sees ready pods.", UNANSWERED, restart(place.target)),
        **fields,
    )  # fmt: skip


def _patched_service(condition: str, make_wrong: Callable[[Object], Object]) -> Make:
    """Return a recipe that patches the target's Service with *make_wrong* of its spec; *condition* describes the fault."""

    def make(place: NamespacePlace) -> Broken | None:
        """Return the fault of the patched Service at *place*; None for a target without one."""
        if place.service is None:
            return None
        name, spec = place.service["metadata"]["name"], place.service["spec"]
        patch = make_wrong(spec)
        right = {key: spec[key] if key == "selector" else [_target_of_port(spec["ports"][0])] for key in patch}
        return _unanswered(
            place, condition, name, "Services", layer="service",
            changes=(ObjectChange(kind="Service", name=name, patch={"spec": patch}),),
            looks=(kubectl("get", "service", name, "-o", "yaml"),),
            repair=(kubectl("patch", "service", name, "-p", json.dumps({"spec": right}), wait_s=8),),
        )  # fmt: skip

    return make


def _target_of_port(port: Object) -> Object:
    """Return *port* of a Service with its port and targetPort only."""
    return {"port": port["port"], "targetPort": port.get("targetPort", port["port"])}


def _wrong_port(spec: Object) -> Object:
    """Return the patch of a Service *spec* that sets a wrong targetPort."""
    return {"ports": [{**_target_of_port(spec["ports"][0]), "targetPort": NOBODY_LISTENS}]}


def _wrong_selector(spec: Object) -> Object:
    """Return the patch of a Service *spec* whose selector matches no pod."""
    key = min(spec["selector"])
    return {"selector": {key: f"{spec['selector'][key]}-v2"[-63:]}}


def _add_network_policy(place: NamespacePlace) -> Broken | None:
    """Return the fault that a network policy blocks all requests to the target; None for one without a Service."""
    policy = f"{place.target}-hardening"
    spec = {"podSelector": {"matchLabels": place.pods}, "policyTypes": ["Ingress"], "ingress": []}
    return _unanswered(
        place, "it lets no request in", policy, "NetworkPolicy", layer="policy",
        changes=(ObjectChange(kind="NetworkPolicy", name=policy, create={"spec": spec}),),
        looks=(kubectl("get", "networkpolicies", "-o", "wide"),),
        repair=(kubectl("delete", "networkpolicy", policy, wait_s=8),),
    )  # fmt: skip


QUOTAS = AccessRule(resources=("resourcequotas",), verbs=WRITES)
NODES = AccessRule(resources=("nodes",), verbs=("get", "list", "watch", "patch"))
RETIRED_NODE = _set_pod(nodeSelector={"kubernetes.io/hostname": "worker-retired"})
_DISK = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme-retired"]}]}]
_REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _DISK}}
RETIRED_DISK, RETIRED_CLASS = (
    _set_pod(affinity={"nodeAffinity": _REQUIRED}),
    _set_pod(priorityClassName="business-retired"),
)
RETIRED_ACCOUNT, RETIRED_CLAIM = (
    _set_pod(serviceAccountName="deployer-retired"),
    _set_pod(volumes=[{"name": "state", "persistentVolumeClaim": {"claimName": "state-retired"}}]),
)
NO_NODE_HAS = {"cpu": "1k"}
ANY, REQUESTS = "a deployment with replicas", "a deployment behind a Service that answers with 200"
RECIPES = (
    NamespaceRecipe("WrongImage", ANY, _unready("its image cannot be pulled", "images", _break_image, protected=True)),
    NamespaceRecipe(
        "WrongCommand", ANY,
        _unready("its command ends at once", "processes", _set_container(command=CRASH), protected=True)
    ),
    NamespaceRecipe(
        "InitContainer", ANY, _unready("its first container fails", "init containers", _init_container, protected=True)
    ),
    NamespaceRecipe(
        "MemoryLimit", "a memory limit", _unready("its memory limit is under what it needs", "memory", _lower_memory)
    ),
    NamespaceRecipe(
        "ReadinessProbe", "a readiness probe by HTTP or TCP",
        _unready("its readiness probe asks a closed port", "probes", _break_probe("readinessProbe"), protected=True),
    ),
    NamespaceRecipe(
        "LivenessProbe", "a liveness probe by HTTP or TCP",
        _unready(
            "its liveness probe asks a closed port", "probes", protected=True, make_states=_state_when_created,
            make_spec=_break_probe("livenessProbe", initialDelaySeconds=0, periodSeconds=1, failureThreshold=1),
        ),
    ),
    NamespaceRecipe(
        "Secret", "a variable from a key of a Secret",
        _unready("it asks for a key that its Secret lacks", "secrets", _change_secret_key)
    ),
    NamespaceRecipe("ConfigValue", "a variable from a key of a ConfigMap", _config_map, ("ConfigMap",)),
    NamespaceRecipe("NodeSelector", ANY, _unready("it selects a node that does not exist", "scheduling", RETIRED_NODE)),
    NamespaceRecipe("Affinity", ANY, _unready("its affinity fits no node", "scheduling", RETIRED_DISK)),
    NamespaceRecipe(
        "Priority", ANY,
        _unready("its priority class does not exist", "scheduling", RETIRED_CLASS, make_states=_state_when_refused)
    ),
    NamespaceRecipe(
        "ServiceAccount", ANY,
        _unready("its service account does not exist", "accounts", RETIRED_ACCOUNT, make_states=_state_when_refused)
    ),
    NamespaceRecipe("VolumeClaim", ANY, _unready("its volume claim does not exist", "volumes", RETIRED_CLAIM)),
    NamespaceRecipe(
        "CpuRequest", ANY,
        _unready(
            "it asks for more processors than a node has", "scheduling",
            _set_container(resources={"requests": NO_NODE_HAS, "limits": NO_NODE_HAS})
        )
    ),
    NamespaceRecipe("Quota", ANY, _add_quota, ("ResourceQuota",), (QUOTAS,)),
    NamespaceRecipe(
        "CordonedNode", "a deployment whose node selector fits one or two of several nodes", _cordon_all, ("Node",),
        (NODES,)
    ),
    NamespaceRecipe("ScaledToZero", ANY, _scaled_away),
    NamespaceRecipe(
        "WrongPort", REQUESTS, _patched_service("its Service leads to a closed port", _wrong_port), ("Service",)
    ),
    NamespaceRecipe(
        "WrongSelector", REQUESTS, _patched_service("its Service selects no pod", _wrong_selector), ("Service",)
    ),
    NamespaceRecipe("NetworkPolicy", REQUESTS, _add_network_policy, ("Service", "NetworkPolicy")),
)  # fmt: skip
