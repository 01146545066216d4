"""How a cluster carries out each fault type: one table, and why a mechanism that is named there cannot be gone.

=========== ======================================================================================================
object      a few changes of API objects, with an undo in the cluster (`changes.py`)
pod         an order to the pod agent of the pod that is hit, with an end (`agent/pod_agent.py`): the runtime's own faults,
            look-ups, and companions in the pod's container
node        a pod on the node, with an end of its own (`agent/node_agent.py`); only where nodes may be
            broken (`offers.py`)
=========== ======================================================================================================

Packages bring further ones (`FURTHER`), which come last. The first mechanism that can be gone is taken, unless another one
is preferred. Every type's parameters are the catalogue's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from opsassay.core.errors import RefusedError
from opsassay.core.schema.faults import CATALOGUE, Category
from opsassay.core.schema.incident import FaultPlan, PlannedFault
from opsassay.testbed.core.injection import Injection, Intervention, Repertoire
from opsassay.testbed.injection.disturbances import Quiet
from opsassay.testbed.injection.hooks import ProcessStress, RuntimeHook
from opsassay.testbed.substrates.kubernetes.actuators.disturbances import ClusterLoadSurge, RollingRestart
from opsassay.testbed.substrates.kubernetes.actuators.node_faults import NodeFault
from opsassay.testbed.substrates.kubernetes.actuators.object_faults import CutOff, Objects, delete_pod, no_image
from opsassay.testbed.substrates.kubernetes.actuators.offers import FURTHER, Offers, offers_of
from opsassay.testbed.substrates.kubernetes.actuators.pod_faults import (
    KillContainer,
    PodLookups,
    PodPressure,
    StrayPodLookups,
)
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS

Maker = Callable[[Injection[ClusterUnderTest]], Intervention]


class Mechanism(NamedTuple):
    """One mechanism to carry a fault type out."""

    name: str
    make: Maker


HOOK, STRAIN = Mechanism("pod", RuntimeHook), Mechanism("pod", ProcessStress)
NODE, PRESSURE = Mechanism("node", NodeFault), Mechanism("pod", PodPressure)


MECHANISMS: Mapping[str, tuple[Mechanism, ...]] = {
    "PodKill": (Mechanism("object", partial(Objects, make=delete_pod)),),
    "PodFailure": (Mechanism("object", partial(Objects, make=no_image)), NODE),
    "ContainerKill": (Mechanism("pod", KillContainer),),
    "CPUStress": (PRESSURE, NODE),
    "MemoryStress": (PRESSURE,),
    "HTTPRequestAbort": (HOOK,),
    "HTTPResponseAbort": (HOOK,),
    "HTTPRequestDelay": (HOOK,),
    "HTTPResponseDelay": (HOOK,),
    "HTTPResponseReplaceBody": (HOOK,),
    "HTTPResponsePatchBody": (HOOK,),
    "HTTPRequestReplacePath": (HOOK,),
    "HTTPRequestReplaceMethod": (HOOK,),
    "HTTPResponseReplaceCode": (HOOK,),
    "DNSError": (Mechanism("pod", PodLookups),),
    "DNSRandom": (Mechanism("pod", StrayPodLookups),),
    "NetworkDelay": (NODE,),
    "NetworkLoss": (NODE,),
    "NetworkDuplicate": (NODE,),
    "NetworkCorrupt": (NODE,),
    "NetworkBandwidth": (NODE,),
    "NetworkPartition": (NODE, Mechanism("object", CutOff)),
    "TimeSkew": (HOOK,),
    "JVMLatency": (HOOK,),
    "JVMReturn": (HOOK,),
    "JVMException": (HOOK,),
    "JVMGarbageCollector": (STRAIN,),
    "JVMCPUStress": (STRAIN,),
    "JVMMemoryStress": (STRAIN,),
    "JVMMySQLLatency": (HOOK,),
    "JVMMySQLException": (HOOK,),
}


_UNDO = (("create", "Role"), ("create", "RoleBinding"))
RIGHTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "PodKill": (("delete", "Pod"),),
    "PodFailure": (("patch", "Pod"), *_UNDO),
    "NetworkPartition": (("patch", "Pod"), ("create", "NetworkPolicy"), ("delete", "NetworkPolicy"), *_UNDO),
}
"""What changing objects to break a pod takes: (verb, kind) in its namespace."""
BY_NODE = ("ContainerKill", "CPUStress")
"""What an agent on the node can do to a pod that OpsAssay did not make, besides its packets."""


def obstacle(mechanism: Mechanism, fault: PlannedFault, offers: Offers) -> str | None:
    """Return why *mechanism* cannot carry out *fault* on a cluster with *offers*, None when it can."""
    on_host = fault.target is not None and fault.target.host is not None
    if mechanism.name == "node":
        if on_host or CATALOGUE[fault.fault].category is Category.NETWORK:
            return offers.nodes
        by_node = offers.existing and fault.fault in BY_NODE
        return offers.nodes if by_node else "the mechanism by the node is for whole nodes"
    if on_host:
        return f"the mechanism by {mechanism.name} hits one pod, not a node"
    if fault.parameters.get("protocol"):
        return "it knows pods and no protocols; leave `protocol` out, or name a `peer`"
    if offers.existing and (reason := _not_existing(mechanism, fault, offers)):
        return reason
    return offers.further[mechanism.name](fault) if mechanism.name in offers.further else None


def _not_existing(mechanism: Mechanism, fault: PlannedFault, offers: Offers) -> str | None:
    """Return why *mechanism* cannot carry out *fault* on a pod that OpsAssay did not make, None when it can."""
    if mechanism.name == "pod":
        return "it takes OpsAssay's own runtime in the pod"
    if mechanism.name == "object" and fault.parameters.get("peer"):
        return "a policy cannot name one peer of a namespace alone; leave `peer` out"
    return _denied(fault.fault, offers) if mechanism.name == "object" else None


def _denied(fault: str, offers: Offers) -> str | None:
    """Return which rights that the type *fault* needs this user lacks, as a sentence; None when it has all."""
    lacking = [f"{verb} {KINDS[kind][1]}" for verb, kind in RIGHTS.get(fault, ()) if not offers.allows(verb, kind)]
    return f"this user may not {', '.join(lacking)} in {offers.existing}" if lacking else None


def choose(fault: PlannedFault, offers: Offers) -> Mechanism:
    """Return the first mechanism that can carry out *fault*, by *offers* and their preference; raises RefusedError."""
    further = (Mechanism(name, FURTHER.load(name)().make) for name in offers.further)
    own = [*MECHANISMS[fault.fault], *([NODE] if offers.existing and fault.fault in BY_NODE else [])]
    mechanisms, reasons = [*dict.fromkeys(own), *further], list[str]()
    for mechanism in sorted(mechanisms, key=lambda mechanism: mechanism.name != offers.prefer):
        if (reason := obstacle(mechanism, fault, offers)) is None:
            return mechanism
        reasons.append(f"{mechanism.name}: {reason}")
    raise RefusedError(f"{fault.name} cannot be injected on this cluster ({'; '.join(reasons)}).")


def require_mechanisms(api: Api, plan: FaultPlan, prefer: str | None = None, existing: str = "") -> None:
    """Raise RefusedError unless the cluster can carry out every fault of *plan*; mechanism *prefer* is tried first.

    *existing* is the namespace of pods that OpsAssay did not make, '' without.
    """
    offers = offers_of(api, prefer, existing)
    for part in plan.parts:
        if part.fault in MECHANISMS:  # what a package brings is for its actuator to refuse
            choose(part, offers)


def refusals(api: Api, existing: str) -> dict[str, list[str]]:
    """Return {reason: fault types} of what cannot be done to a pod of the namespace *existing*, which we did not make."""
    offers, found = offers_of(api, existing=existing), dict[str, list[str]]()
    for name in MECHANISMS:
        try:
            choose(PlannedFault.model_validate({"fault": name, "target": {"service": "any"}}), offers)
        except RefusedError as error:
            found.setdefault(str(error).partition("(")[2].removesuffix(")."), []).append(name)
    return found


def _make_intervention(injection: Injection[ClusterUnderTest]) -> Intervention:
    """Return the intervention for *injection* by the best mechanism that its cluster offers."""
    return choose(injection.plan, injection.system.offers).make(injection)


CLUSTER: Repertoire[ClusterUnderTest] = Repertoire(
    "kubernetes",
    "Kubernetes",
    dict.fromkeys(MECHANISMS, _make_intervention),
    {"quiet": Quiet, "load_surge": ClusterLoadSurge, "harmless_restart": RollingRestart},
)
"""What can be done to a system on a cluster; by which mechanism depends on what the cluster offers."""
