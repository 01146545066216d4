"""The mechanism: which types it carries out, what stands in its way on a cluster, and the object that does it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from opsassay.core.errors import RefusedError
from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.catalogue.network import CALLS
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.substrates.kubernetes.actuators.changes import Change
from opsassay.testbed.substrates.kubernetes.actuators.object_faults import Objects
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay_chaos_mesh.objects import (
    ChaosMaker,
    Where,
    bandwidth,
    cpu_chaos,
    delayed,
    dns_chaos,
    http_chaos,
    kinds,
    latency,
    manifest,
    memory_chaos,
    network_chaos,
    patched_body,
    pod_chaos,
    replaced_body,
    time_chaos,
)  # fmt: skip

MAKERS: Mapping[str, ChaosMaker] = {
    "PodKill": pod_chaos("pod-kill"),
    "PodFailure": pod_chaos("pod-failure"),
    "ContainerKill": pod_chaos("container-kill"),
    "CPUStress": cpu_chaos,
    "MemoryStress": memory_chaos,
    "HTTPRequestDelay": http_chaos("Request", delayed),
    "HTTPResponseDelay": http_chaos("Response", delayed),
    "HTTPResponseReplaceBody": http_chaos("Response", replaced_body),
    "HTTPResponsePatchBody": http_chaos("Response", patched_body),
    "HTTPRequestReplacePath": http_chaos("Request", lambda p: {"replace": {"path": p["new_path"]}}),
    "HTTPRequestReplaceMethod": http_chaos("Request", lambda p: {"replace": {"method": p["method"]}}),
    "HTTPResponseReplaceCode": http_chaos("Response", lambda p: {"replace": {"code": p["code"]}}),
    "DNSError": dns_chaos("error"),
    "DNSRandom": dns_chaos("random"),
    "NetworkDelay": network_chaos("delay", latency),
    "NetworkLoss": network_chaos("loss", lambda p: {"loss": {"loss": f"{p['loss_percent']:g}"}}),
    "NetworkDuplicate": network_chaos(
        "duplicate", lambda p: {"duplicate": {"duplicate": f"{p['duplicate_percent']:g}"}}
    ),
    "NetworkCorrupt": network_chaos("corrupt", lambda p: {"corrupt": {"corrupt": f"{p['corrupt_percent']:g}"}}),
    "NetworkBandwidth": network_chaos("bandwidth", bandwidth),
    "NetworkPartition": network_chaos("partition", lambda _: {}),
    "TimeSkew": time_chaos,
}
"""Fault type to what makes its object; no service of ours is a Java process, and an abort has no status there."""


class ChaosMesh:
    """Carries fault types out by objects of Chaos Mesh, each with a duration, and our undo in the cluster beside it."""

    def obstacles(self, api: Api) -> Callable[[PlannedFault], str | None]:
        """Ask the cluster of *api* for the kinds that it has; return what tells why a fault cannot go this way there."""
        return partial(obstacle, kinds(api))

    def make(self, injection: Injection[ClusterUnderTest]) -> Objects:
        """Return what makes the object and takes it back."""
        return Objects(injection, changes)


def obstacle(known: frozenset[str], fault: PlannedFault) -> str | None:
    """Return why *fault* cannot be an object of one of the *known* kinds, None when it can."""
    if fault.fault not in MAKERS:
        return "Chaos Mesh has no object that says it"
    if fault.parameters.get("direction") in CALLS:
        return "it knows who sends a packet and not who called; use direction from, to or both"
    kind = CATALOGUE[fault.fault].category.value
    return None if kind in known else f"the cluster has no {kind} of Chaos Mesh; install it"


def changes(injection: Injection[ClusterUnderTest]) -> list[Change]:
    """Return the object that does it, tried on the server; raises RefusedError with the server's reason."""
    system, replica = injection.system, injection.replica
    callees = tuple(sorted({callee for caller, callee in system.system.calls() if caller == replica.service}))
    where = Where(system.name, replica.service, replica.pod, callees)
    name = f"task-{secrets.token_hex(3)}"
    made = manifest(MAKERS[injection.plan.fault], injection.plan, where, name, system.left_s())
    if reason := system.api.try_out(made):
        raise RefusedError(f"{injection.plan.fault} cannot be injected by Chaos Mesh here: {reason}.")
    metadata: dict[str, Any] = made["metadata"]
    return [Change(made["kind"], metadata["name"], metadata["namespace"], create=made)]
