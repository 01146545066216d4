"""Scenarios for a namespace with a team's own deployments: its system, and a draw of the faults that its objects allow."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from opsassay.core.schema.cluster import READABLE, AccessRule
from opsassay.core.schema.namespace import ExistingNamespace
from opsassay.core.schema.scenario import Predicate, Scenario
from opsassay.core.schema.system import Load, LoadMix, Service, System
from opsassay.testbed.scenarios.generated.assembling import ScenarioPhrases, scenario_of
from opsassay.testbed.scenarios.generated.cluster import OWNED
from opsassay.testbed.scenarios.generated.cluster_parts import kubectl
from opsassay.testbed.scenarios.generated.impact_closure import ImpactClosure
from opsassay.testbed.scenarios.generated.namespace_recipes import (
    RECIPES,
    WRITES,
    NamespacePlace,
    NamespaceRecipe,
    Object,
    There,
)
from opsassay.testbed.scenarios.generated.recipes import STILL_ENOUGH, TOLERATED, Broken, WrongRepair

MOST_REPLICAS = 20
CHANGEABLE = {
    "Pod": "pods", "Service": "services", "ConfigMap": "configmaps", "Deployment": "deployments",
    "ReplicaSet": "replicasets", "NetworkPolicy": "networkpolicies",
}  # fmt: skip
"""Kinds that an agent may change by default, since a trial restores them, to their plural."""
STATELESS = frozenset({"name", "configMap", "secret", "projected", "downwardAPI"})
KINDS_READ = ("Deployment", "StatefulSet", "Service", "ConfigMap", "ResourceQuota", "NetworkPolicy", "Ingress", "Node")
INGRESS = "nothing here sends requests through an ingress controller, so that no user would notice"


def probe_urls(name: str, objects: There) -> dict[str, list[str]]:
    """Return {deployment: URLs to probe it}: the path of its readiness probe, then "/"; without a Service none."""
    found = {}
    for deployment in objects["Deployment"]:
        service, container = service_of(deployment, objects), deployment["spec"]["template"]["spec"]["containers"][0]
        if service is not None:
            path = ((container.get("readinessProbe") or {}).get("httpGet") or {}).get("path", "/")
            base = f"http://{service['metadata']['name']}.{name}:{service['spec']['ports'][0]['port']}"
            found[deployment["metadata"]["name"]] = list(dict.fromkeys([base + path, f"{base}/"]))
    return found


def service_of(deployment: Object, objects: There) -> Object | None:
    """Return the first Service that has a port and selects the pods of *deployment*, None without one."""
    labels = (deployment["spec"]["template"].get("metadata") or {}).get("labels") or {}
    for one in objects["Service"]:
        selector = one["spec"].get("selector") or {}
        if selector and selector.items() <= labels.items() and one["spec"].get("ports"):
            return one
    return None


def system_of_namespace(name: str, objects: There, probes: Mapping[str, str]) -> System:
    """Return the deployments of the namespace *name* as a system; *probes* is deployment to a URL that answered."""
    counts = {one["metadata"]["name"]: int(one["spec"].get("replicas", 1)) for one in objects["Deployment"]}
    containers = {
        one["metadata"]["name"]: first["name"]
        for one in objects["Deployment"]
        if "readinessProbe" in (first := one["spec"]["template"]["spec"]["containers"][0])
    }
    return System(
        system=name,
        services={key: Service(replicas=n) for key, n in sorted(counts.items()) if 1 <= n <= MOST_REPLICAS},
        load=Load(mix=tuple(LoadMix(request=f"{key} GET /{url.split('/', 3)[3]}") for key, url in probes.items())),
        namespace=ExistingNamespace(name=name, probes=dict(probes), readiness=containers),
    )


def scenarios_of_namespace(
    system: System, objects: There, seed: int, per_class: int, system_file: str, refusal: Callable[[Scenario], str]
) -> tuple[list[Scenario], dict[str, str]]:
    """Draw scenarios of *system*, at most *per_class* a class; return them, and {class without one: reason}.

    *objects* are the namespace's by kind. *refusal* returns why a scenario cannot be made or undone, else ''.
    *system_file* is the system's file.
    """
    chance = random.Random(f"{seed} {system.system}")  # noqa: S311 - a repeatable draw, not a secret
    used: Counter[str] = Counter()
    found, left_out = [], {"Ingress": INGRESS} if objects.get("Ingress") else {}
    for recipe in RECIPES:
        places = list(_places(system, objects))
        chance.shuffle(places)
        made, reason = 0, f"there is not {recipe.needs}"
        for place in sorted(places, key=lambda one: used[one.target]):
            if made == per_class or not all(kind in objects for kind in recipe.kinds):
                break
            if (broken := recipe.make(place)) is None:
                continue
            words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in recipe.name)
            scenario = scenario_of(
                f"{system.system}{words}-{made + 1}",
                recipe.name,
                _make_phrases(place, broken, recipe, system_file),
                [(place, broken)],
            )
            if reason := refusal(scenario):
                continue
            made += 1
            used[place.target] += 1
            found.append(scenario)
        if not made:
            missing = [kind for kind in recipe.kinds if kind not in objects]
            left_out[recipe.name] = f"this user may not list {missing[0]} objects" if missing else reason
    return found, left_out


def _places(system: System, objects: There) -> Iterator[NamespacePlace]:
    """Yield a place (target and entry where users notice) for each running deployment.

    The entry is the target itself, or the first deployment with a probe.
    """
    assert system.namespace is not None
    asked = system.namespace.probes
    for deployment in objects["Deployment"]:
        name = deployment["metadata"]["name"]
        if name in system.services:
            service = service_of(deployment, objects) if name in asked else None
            reach = ImpactClosure((), name if name in asked else min(asked), 1.0)
            yield NamespacePlace(system, name, reach, deployment, service, objects)


def _make_phrases(place: NamespacePlace, fault: Broken, recipe: NamespaceRecipe, file: str) -> ScenarioPhrases:
    """Return the shared parts of scenarios of *fault* at *place*: access rights, harmful repair, and the system's *file*.

    The further rights of *recipe*, which made the fault, are added; cluster-wide ones make the trial exclusive.
    """
    writable = tuple(plural for kind, plural in CHANGEABLE.items() if kind not in KINDS_READ or kind in place.there)
    access = [
        AccessRule(resources=READABLE, verbs=("get", "list", "watch")),
        AccessRule(resources=(*writable, "deployments/scale"), verbs=WRITES),
        *([AccessRule(resources=("nodes",), verbs=("get", "list", "watch"))] if "Node" in place.there else []),
    ]
    alone = any(rule.cluster_wide for rule in recipe.more)
    block = {"existing": True, "exclusive": alone, "access": access, "more_access": recipe.more}
    return ScenarioPhrases("kubernetes", OWNED, _harm(place, fault), block, file)


def _harm(place: NamespacePlace, fault: Broken) -> WrongRepair:
    """Return the wrong repair that also scales another stateless deployment (without one, the target) to zero."""
    concerned = {fault.root, *fault.entities, place.entry}
    for other in place.there["Deployment"]:
        name, volumes = other["metadata"]["name"], other["spec"]["template"]["spec"].get("volumes") or ()
        if name in place.system.services and name not in concerned and all(one.keys() <= STATELESS for one in volumes):
            standing = place.left_without if fault.depth == "D1" else 1.0
            left, steps = place.left_by(name), (kubectl("scale", f"deployment/{name}", "--replicas=0", wait_s=10),)
            fails: list[Predicate] = ["v_no_regression", "v_blast_radius"]
            fails += ["v_outcome"] if left < STILL_ENOUGH else []
            fails += ["v_depth"] if left < STILL_ENOUGH and fault.depth == "D1" else []
            fails += ["v_temporal"] if left < min(TOLERATED, standing) else []
            return WrongRepair(f"Repairs it, and takes {name} away to make room.", tuple(fails), steps)
    return replace(place.to_zero(), description="Repairs it, and takes it away.")
