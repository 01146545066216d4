"""The faults of generated scenarios on a cluster: changes of API objects and catalogue faults, by ITBench's classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opsassay.core.schema.cluster import ObjectChange
from opsassay.core.schema.faults import fault_type
from opsassay.core.schema.plan import FaultPlan, Target
from opsassay.core.schema.scenario import AlertRule, Predicate
from opsassay.testbed.scenarios.generated.cluster_parts import (
    STAND_INS,
    alert_of,
    broken_of,
    kubectl,
    patched,
    ready,
    restart,
    rolled_out,
    scaled_to_zero,
    state,
    template,
)
from opsassay.testbed.scenarios.generated.recipes import (
    TAKEN_AWAY,
    TOLERATED,
    UNANSWERED,
    Broken,
    FaultPlace,
    Recipe,
    WrongRepair,
)

OWNED = r"{name}-[a-z0-9]+(-[a-z0-9]+)?"
"""Pattern of the names of a deployment's replica sets and pods."""
ROLLED = {"kubectl.kubernetes.io/restartedAt": "2026-01-05T08:00:00Z"}
"""Annotation that makes new pods, which have no connections from before a change."""
EVERYTHING = (
    kubectl("delete", "pods", "--all", "--wait=false", wait_s=4),
    *(ready(name) for name in ("filler", "web", "auth-service", "payment-service")),
)
"""Steps that restart all stand-in services; stores would lose their data."""


def broken_pods(
    condition: str, technology: str, make_template: Callable[[str], dict[str, Any]], *, program: bool = False
) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe (place to fault, or None) that keeps all pods of a deployment from getting ready.

    *make_template* returns the patch of the deployment's spec by its name; *condition* describes the fault, *technology*
    is the knowledge that its repair needs. *program*: the patch changes the program, so that v_settings fails until it is
    repaired.
    """

    def make(place: FaultPlace) -> Broken | None:
        """Return the fault of pods that do not get ready at *place*; None for a target without pods."""
        name = place.target
        if name not in place.system.services:
            return None
        spec = {"strategy": {"type": "Recreate", "rollingUpdate": None}, **make_template(name)}
        wrong = scaled_to_zero(name)
        return broken_of(
            place,
            condition,
            symptom=f"pods of {name} do not get ready",
            alert=alert_of(place, on_pods=True),
            technologies=("Kubernetes", technology),
            changes=(patched(name, spec),),
            until=(state(name, "status.readyReplicas", None), state(name, "status.updatedReplicas", place.replicas)),
            looks=(kubectl("describe", "pods", "-l", f"app={name}"),),
            repair=(kubectl("rollout", "undo", f"deployment/{name}"), ready(name)),
            wrong=replace(wrong, fails=(*wrong.fails, "v_settings")) if program else wrong,
        )

    return make


def _with_init_container(*command: str) -> Callable[[str], dict[str, Any]]:
    """Return a function that makes the patch that adds an init container with the shell arguments *command*."""
    container = {"name": "prepare", "image": "{image}", "command": ["sh", "-c", *command]}
    return lambda _: {"template": {"spec": {"initContainers": [container]}}}


def _with_impossible_affinity(_name: str) -> dict[str, Any]:
    """Return the patch of a pod anti-affinity to all other pods, so that no node fits."""
    labelled = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    terms = [{"topologyKey": "kubernetes.io/os", "labelSelector": labelled}]
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {"template": {"spec": {"affinity": rule}}}


def feature(
    key: str, value: str, condition: str, technology: str, *, alert: bool = False
) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe that sets the environment variable *key* to *value*, which switches on a broken feature.

    *condition* describes the fault, *technology* is the knowledge that its repair needs; with *alert* the saturation alert
    fires, not the one on errors.
    """

    def make(place: FaultPlace) -> Broken | None:
        """Return the fault of the broken feature at *place*; None for a store or without callers."""
        name = place.target
        if name not in place.system.services or not place.callers:
            return None
        setting = f"SETTING_{key}"
        steps = restart(name)
        saturated: dict[str, Any] = {
            "edges": (),
            "symptom": f"{name} uses up what it may use",
            "alert": AlertRule(service=name, signal="saturation"),
        }
        return broken_of(
            place,
            condition,
            technologies=("Kubernetes", "feature flags", technology),
            layer="application",
            depth="D3",
            changes=(patched(name, template(name, env=[{"name": setting, "value": value}])),),
            until=rolled_out(place),
            looks=(kubectl("get", "deployment", name, "-o", "yaml"),),
            repair=(kubectl("set", "env", f"deployment/{name}", f"{setting}-"), ready(name)),
            wrong=WrongRepair(
                f"Restarts {name}, whose new pods do the same.", ("alerts_cleared",) if alert else UNANSWERED, steps
            ),
            **(saturated if alert else {}),
        )

    return make


def of_a_pod(fault: str, condition: str, technology: str, **parameters: Any) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe that injects the catalogue's *fault* into one pod; it ends when that pod is replaced.

    *condition* describes the fault, *technology* is the knowledge that its repair needs; *parameters* are the fault's.
    """

    def make(place: FaultPlace) -> Broken | None:
        """Return the catalogue fault in one pod at *place*; None for a target without pods."""
        name = place.target
        if name not in place.system.services:
            return None
        plan = FaultPlan(fault=fault_type(fault).name, target=Target(service=name), parameters=parameters)
        wrong = scaled_to_zero(name)  # of pods that were ready until then, but for the one
        outage: tuple[Predicate, ...] = ("v_temporal",) if place.left_without < TOLERATED else ()
        return broken_of(
            place,
            condition,
            symptom=f"part of the requests to {place.entry} fails",
            technologies=("Kubernetes", technology),
            layer="pod" if fault == "PodFailure" else "network" if fault.startswith("Network") else "service",
            depth="D1" if fault == "PodFailure" else "D3",
            faults=(plan,),
            looks=(kubectl("get", "pods", "-l", f"app={name}"),),
            repair=restart(name),
            wrong=replace(wrong, fails=(*wrong.fails, *outage)),
        )

    return make


def _of_every_pod(*arguments: Any, **parameters: Any) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe as `of_a_pod`, with its arguments, that hits all pods of a service; None without callers.

    With a single pod cut off, callers drop the failed connection and stay with a pod that answers.
    """
    made = of_a_pod(*arguments, **parameters)

    def make(place: FaultPlace) -> Broken | None:
        """Return the catalogue fault in all pods at *place*; None for a store or without callers."""
        if (broken := made(place) if place.callers else None) is None:
            return None
        (plan,) = broken.faults
        (part,), targets = plan.parts, (Target(service=place.target, replica=n) for n in range(place.replicas))
        each = FaultPlan(faults=tuple(part.model_copy(update={"target": target}) for target in targets))
        return replace(broken, symptom=f"requests to {place.entry} fail", faults=(each,))

    return make


def _pod_unavailable(place: FaultPlace) -> Broken | None:
    """Return the fault that a pod cannot start its container; None for a target without pods."""
    broken = of_a_pod("PodFailure", "one of its pods cannot start its container", "pods")(place)
    if broken is None:
        return None
    fewer = place.replicas - 1
    return replace(
        broken,
        edges=(),
        symptom=f"a pod of {place.target} does not get ready",
        alert=AlertRule(service=place.target, signal="pod_not_ready"),
        until=(state(place.target, "status.readyReplicas", fewer),),
        wrong=WrongRepair(
            "Asks for one pod less, so that none is missing.",
            ("v_outcome", "v_depth", "v_no_regression"),
            (kubectl("scale", f"deployment/{place.target}", f"--replicas={fewer}", wait_s=10),),
        ),
    )


def _wrong_port(place: FaultPlace) -> Broken | None:
    """Return the fault that a Service has a wrong targetPort; None for a store or a service without callers."""
    name = place.target
    if name not in place.system.services or not (place.callers or place.system.system == STAND_INS):
        return None
    right = json.dumps({"spec": {"ports": [{"port": 8080, "targetPort": 8080}]}})
    return broken_of(
        place,
        "its Service leads to a closed port",
        technologies=("Kubernetes", "Services", "HTTP"),
        layer="service",
        depth="D3",
        changes=(
            ObjectChange(kind="Service", name=name, patch={"spec": {"ports": [{"port": 8080, "targetPort": 9999}]}}),
            patched(name, {"template": {"metadata": {"annotations": ROLLED}}}),
        ),
        until=rolled_out(place),
        looks=(kubectl("get", "service", name, "-o", "yaml"),),
        repair=(kubectl("patch", "service", name, "-p", right, wait_s=8),),
        wrong=WrongRepair(f"Restarts {name}, and sees ready pods.", UNANSWERED, restart(name)),
    )


def _add_network_policy(place: FaultPlace) -> Broken | None:
    """Return the fault that a network policy blocks all requests to the target; None if nothing calls it."""
    name = place.target
    if name not in place.system.services or not (place.callers or place.system.system == STAND_INS):
        return None
    policy = f"{name}-hardening"
    spec = {"podSelector": {"matchLabels": {"app": name}}, "policyTypes": ["Ingress"], "ingress": []}
    edges = () if place.system.system == STAND_INS else place.reach.edges
    return broken_of(
        place,
        "it lets no request in",
        root=policy,
        entities=(name,),
        edges=((policy, name), *edges),
        technologies=("Kubernetes", "NetworkPolicy", "HTTP"),
        layer="policy",
        depth="D3",
        changes=(
            ObjectChange(kind="NetworkPolicy", name=policy, create={"spec": spec}),
            patched(name, {"template": {"metadata": {"annotations": ROLLED}}}),
        ),
        until=rolled_out(place),
        looks=(kubectl("get", "networkpolicies", "-o", "wide"),),
        repair=(kubectl("delete", "networkpolicy", policy, wait_s=8),),
        wrong=WrongRepair(f"Restarts {name}, and sees ready pods.", UNANSWERED, restart(name)),
    )


def _scaled_away(place: FaultPlace) -> Broken | None:
    """Return the fault that a deployment is scaled to zero; None for a target that no service calls."""
    name = place.target
    if name not in place.system.services or not place.callers:
        return None
    return broken_of(
        place,
        "no replica of it is asked for",
        alert=AlertRule(service=name, signal="replicas_missing"),
        technologies=("Kubernetes", "scaling"),
        layer="scheduling",
        changes=(patched(name, {"replicas": 0}),),
        until=(state(name, "status.replicas", None),),
        looks=(kubectl("get", "deployments"),),
        repair=(kubectl("scale", f"deployment/{name}", f"--replicas={place.replicas}"), ready(name)),
        wrong=WrongRepair(f"Restarts {name}, of which there is nothing to restart.", TAKEN_AWAY, (restart(name)[0],)),
    )


def credentials(value: str, condition: str) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe that sets a service's database password to the wrong *value*, which *condition* describes."""

    def make(place: FaultPlace) -> Broken | None:
        """Return the fault of the wrong password at *place*; None for a service without one."""
        service = place.system.services.get(place.target)
        key = next((key for key in sorted(service.config) if key.endswith("_PASSWORD")), None) if service else None
        if key is None:
            return None
        setting = f"SETTING_{key}"
        broken = broken_pods(
            condition, "PostgreSQL", lambda name: template(name, env=[{"name": setting, "value": value}])
        )(place)
        assert broken is not None
        name = place.target
        return replace(
            broken,
            until=broken.until[:1],
            technologies=("Kubernetes", "PostgreSQL", "credentials"),
            repair=(kubectl("set", "env", f"deployment/{name}", f"{setting}-"), ready(name)),
        )

    return make


REAL, BOTH = ("kiosk",), ("kiosk", STAND_INS)
GONE_IMAGE = "registry.invalid/{name}:v2"
RECIPES = (
    Recipe(
        "CorruptImage",
        broken_pods(
            "its image cannot be pulled", "images", lambda n: template(n, image=GONE_IMAGE.format(name=n)), program=True
        ),
        BOTH,
    ),
    Recipe(
        "NonExistentImage",
        broken_pods("its image does not exist", "images", lambda n: template(n, image="{image}-gone"), program=True),
        BOTH,
    ),
    Recipe(
        "BinaryIncorrect",
        broken_pods(
            "its command ends at once", "processes", lambda n: template(n, command=["sh", "-c", "exit 3"]), program=True
        ),
        BOTH,
    ),
    Recipe(
        "NodeAssign",
        broken_pods(
            "it is assigned to a node that does not exist",
            "scheduling",
            lambda _: {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "worker-retired"}}}},
        ),
        BOTH,
    ),
    Recipe(
        "MemoryResourceLimit",
        broken_pods(
            "its memory limit is under what it needs",
            "memory",
            lambda n: template(n, resources={"limits": {"memory": "24Mi"}, "requests": {"memory": "24Mi"}}),
        ),
        REAL,
    ),
    Recipe(
        "CrashingInitContainer",
        broken_pods("what runs before its container ends badly", "init containers", _with_init_container("exit 3")),
        BOTH,
    ),
    Recipe(
        "HangingInitContainer",
        broken_pods(
            "what runs before its container never ends", "init containers", _with_init_container("sleep 86400")
        ),
        BOTH,
    ),
    Recipe(
        "ReadinessProbe",
        broken_pods(
            "its readiness is not probed for an hour",
            "probes",
            lambda n: template(n, readinessProbe={"initialDelaySeconds": 3600}),
        ),
        BOTH,
    ),
    Recipe(
        "AntiAffinity",
        broken_pods("no node is far enough from every other pod", "scheduling", _with_impossible_affinity),
        BOTH,
    ),
    Recipe(
        "ImageArchitecture",
        broken_pods(
            "it is built for processors that no node has",
            "scheduling",
            lambda _: {"template": {"spec": {"nodeSelector": {"kubernetes.io/arch": "s390x"}}}},
        ),
        BOTH,
    ),
    Recipe(
        "DNSPolicy",
        broken_pods(
            "its pods ask a name server that is not there",
            "DNS",
            lambda _: {"template": {"spec": {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"]}}}},
        ),
        REAL,
    ),
    Recipe("PodUnavailable", _pod_unavailable, REAL),
    Recipe(
        "JVMCodeReturnFault", _of_every_pod("JVMReturn", "a method of its pods returns a wrong value", "methods"), REAL
    ),
    Recipe(
        "NetworkDelay",
        _of_every_pod("NetworkDelay", "packets of its pods take seconds", "networks", delay_ms=3000),
        REAL,
    ),
    Recipe("NetworkPartition", _of_every_pod("NetworkPartition", "packets of its pods are dropped", "networks"), REAL),
    Recipe(
        "ServiceFailure",
        feature("FEATURE_STRICT_INPUT", "1", "its code raises an exception for every request", "Python"),
        REAL,
    ),
    Recipe("HTTPRequestAbortFault", feature("FEATURE_ADMISSION", "503", "it refuses every request", "admission"), REAL),
    Recipe(
        "HTTPRequestBodyTamperFault",
        feature("FEATURE_COMPRESSION", "1", "the bodies that it sends cannot be read", "encoding"),
        REAL,
    ),
    Recipe(
        "HighCPU", feature("FEATURE_PREFETCH", "1", "a thread of it computes without a pause", "CPU", alert=True), REAL
    ),
    Recipe(
        "MemoryLeak",
        feature("FEATURE_LOCAL_CACHE", "512", "it keeps what it never reads again", "memory", alert=True),
        REAL,
    ),
    Recipe("PortMisconfigure", _wrong_port, BOTH),
    Recipe("NetworkPolicy", _add_network_policy, BOTH),
    Recipe("ReplicasetScale", _scaled_away, BOTH),
    Recipe("IncorrectAuthentication", credentials("copper-eight", "its database does not know its password"), REAL),
    Recipe("UnregisterCredentials", credentials("", "it has no password for its database"), REAL),
)
