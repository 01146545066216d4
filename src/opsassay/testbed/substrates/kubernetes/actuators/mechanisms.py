"""How a cluster carries out each fault type: one table, and why a mechanism that is named there cannot be gone.

=========== ======================================================================================================
object      a few changes of API objects, with an undo in the cluster (`changes.py`)
pod         an order to the pod agent of the pod that is hit, with an end (`agent/pod_agent.py`): the runtime's own faults,
            look-ups, and companions in the pod's container
node        a pod on the node, with an end of its own (`agent/node_agent.py`); only where nodes may be
            broken (`offers.py`)
chaos-mesh  an object of Chaos Mesh with a duration, beside our undo (`chaos_mesh.py`); where the cluster has its kinds
=========== ======================================================================================================

The first mechanism that can be gone is taken, unless another one is preferred. Every type's parameters are the catalogue's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from opsassay.core.errors import RefusedError
from opsassay.core.schema.faults import CATALOGUE, Category
from opsassay.core.schema.incident import FaultPlan, PlannedFault
from opsassay.testbed.catalogue.network import CALLS
from opsassay.testbed.core.injection import Injection, Intervention, Repertoire
from opsassay.testbed.injection.disturbances import Quiet
from opsassay.testbed.injection.hooks import ProcessStress, RuntimeHook
from opsassay.testbed.substrates.kubernetes.actuators.chaos_mesh import (
    ChaosMaker,
    bandwidth,
    cpu_chaos,
    delayed,
    dns_chaos,
    http_chaos,
    latency,
    memory_chaos,
    network_chaos,
    patched_body,
    pod_chaos,
    replaced_body,
    time_chaos,
)
from opsassay.testbed.substrates.kubernetes.actuators.disturbances import ClusterLoadSurge, RollingRestart
from opsassay.testbed.substrates.kubernetes.actuators.node_faults import NodeFault
from opsassay.testbed.substrates.kubernetes.actuators.object_faults import (
    CutOff,
    Objects,
    by_chaos_mesh,
    delete_pod,
    no_image,
)
from opsassay.testbed.substrates.kubernetes.actuators.offers import MechanismName, Offers, offers_of
from opsassay.testbed.substrates.kubernetes.actuators.pod_faults import (
    KillContainer,
    PodLookups,
    PodPressure,
    StrayPodLookups,
)
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest
from opsassay.testbed.substrates.kubernetes.api.client import Api

Maker = Callable[[Injection[ClusterUnderTest]], Intervention]


class Mechanism(NamedTuple):
    """One mechanism to carry a fault type out."""

    name: MechanismName
    make: Maker


HOOK, STRAIN = Mechanism("pod", RuntimeHook), Mechanism("pod", ProcessStress)
NODE, PRESSURE = Mechanism("node", NodeFault), Mechanism("pod", PodPressure)


def mesh(maker: ChaosMaker) -> Mechanism:
    """Return the mechanism by the object of Chaos Mesh that *maker* makes."""
    return Mechanism("chaos-mesh", partial(Objects, make=partial(by_chaos_mesh, maker=maker)))


MECHANISMS: Mapping[str, tuple[Mechanism, ...]] = {
    "PodKill": (Mechanism("object", partial(Objects, make=delete_pod)), mesh(pod_chaos("pod-kill"))),
    "PodFailure": (Mechanism("object", partial(Objects, make=no_image)), mesh(pod_chaos("pod-failure")), NODE),
    "ContainerKill": (Mechanism("pod", KillContainer), mesh(pod_chaos("container-kill"))),
    "CPUStress": (PRESSURE, mesh(cpu_chaos), NODE),
    "MemoryStress": (PRESSURE, mesh(memory_chaos)),
    "HTTPRequestAbort": (HOOK,),
    "HTTPResponseAbort": (HOOK,),
    "HTTPRequestDelay": (HOOK, mesh(http_chaos("Request", delayed))),
    "HTTPResponseDelay": (HOOK, mesh(http_chaos("Response", delayed))),
    "HTTPResponseReplaceBody": (HOOK, mesh(http_chaos("Response", replaced_body))),
    "HTTPResponsePatchBody": (HOOK, mesh(http_chaos("Response", patched_body))),
    "HTTPRequestReplacePath": (HOOK, mesh(http_chaos("Request", lambda p: {"replace": {"path": p["new_path"]}}))),
    "HTTPRequestReplaceMethod": (HOOK, mesh(http_chaos("Request", lambda p: {"replace": {"method": p["method"]}}))),
    "HTTPResponseReplaceCode": (HOOK, mesh(http_chaos("Response", lambda p: {"replace": {"code": p["code"]}}))),
    "DNSError": (Mechanism("pod", PodLookups), mesh(dns_chaos("error"))),
    "DNSRandom": (Mechanism("pod", StrayPodLookups), mesh(dns_chaos("random"))),
    "NetworkDelay": (mesh(network_chaos("delay", latency)), NODE),
    "NetworkLoss": (mesh(network_chaos("loss", lambda p: {"loss": {"loss": f"{p['loss_percent']:g}"}})), NODE),
    "NetworkDuplicate": (
        mesh(network_chaos("duplicate", lambda p: {"duplicate": {"duplicate": f"{p['duplicate_percent']:g}"}})),
        NODE,
    ),
    "NetworkCorrupt": (
        mesh(network_chaos("corrupt", lambda p: {"corrupt": {"corrupt": f"{p['corrupt_percent']:g}"}})),
        NODE,
    ),
    "NetworkBandwidth": (mesh(network_chaos("bandwidth", bandwidth)), NODE),
    "NetworkPartition": (mesh(network_chaos("partition", lambda _: {})), NODE, Mechanism("object", CutOff)),
    "TimeSkew": (HOOK, mesh(time_chaos)),
    "JVMLatency": (HOOK,),
    "JVMReturn": (HOOK,),
    "JVMException": (HOOK,),
    "JVMGarbageCollector": (STRAIN,),
    "JVMCPUStress": (STRAIN,),
    "JVMMemoryStress": (STRAIN,),
    "JVMMySQLLatency": (HOOK,),
    "JVMMySQLException": (HOOK,),
}


def obstacle(mechanism: Mechanism, fault: PlannedFault, offers: Offers) -> str | None:
    """Return why *fault* cannot go this *mechanism*, None when it can."""
    on_host = fault.target is not None and fault.target.host is not None
    if mechanism.name == "node":
        if not on_host and CATALOGUE[fault.fault].category is not Category.NETWORK:
            return "the mechanism by the node is for whole nodes"
        return offers.nodes
    if on_host:
        return f"the mechanism by {mechanism.name} hits one pod, not a node"
    if reason := _too_fine(mechanism, fault):
        return reason
    if mechanism.name == "chaos-mesh":
        kind = CATALOGUE[fault.fault].category.value
        if kind not in offers.chaos:
            return f"the cluster has no {kind} of Chaos Mesh; install it"
    return None


def _too_fine(mechanism: Mechanism, fault: PlannedFault) -> str | None:
    """Return what *fault* selects and this *mechanism*, which does not look into packets, cannot; None when nothing."""
    if fault.parameters.get("protocol"):
        return "it knows pods and no protocols; leave `protocol` out, or name a `peer`"
    if mechanism.name == "chaos-mesh" and fault.parameters.get("direction") in CALLS:
        return "it knows who sends a packet and not who called; use direction from, to or both"
    return None


def choose(fault: PlannedFault, offers: Offers) -> Mechanism:
    """Return the mechanism that *fault* goes; raises RefusedError with every reason when there is none."""
    mechanisms, reasons = MECHANISMS[fault.fault], list[str]()
    for mechanism in sorted(mechanisms, key=lambda mechanism: mechanism.name != offers.prefer):
        if (reason := obstacle(mechanism, fault, offers)) is None:
            return mechanism
        reasons.append(f"{mechanism.name}: {reason}")
    raise RefusedError(f"{fault.name} cannot be injected on this cluster ({'; '.join(reasons)}).")


def require_mechanisms(api: Api, plan: FaultPlan, prefer: MechanismName | None = None) -> None:
    """Raise RefusedError unless the cluster of *api* has a mechanism for every fault of *plan*."""
    offers = offers_of(api, prefer)
    for part in plan.parts:
        if part.fault in MECHANISMS:  # what a package brings is for its actuator to refuse
            choose(part, offers)


def _make(injection: Injection[ClusterUnderTest]) -> Intervention:
    return choose(injection.plan, injection.system.offers).make(injection)


CLUSTER: Repertoire[ClusterUnderTest] = Repertoire(
    "kubernetes",
    "Kubernetes",
    dict.fromkeys(MECHANISMS, _make),
    {"quiet": Quiet, "load_surge": ClusterLoadSurge, "harmless_restart": RollingRestart},
)
"""What can be done to a system on a cluster; by which mechanism depends on what the cluster offers."""
