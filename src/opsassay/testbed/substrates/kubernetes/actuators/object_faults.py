"""Faults through objects of the API: a pod that is removed or loses its image, a policy."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from opsassay.core.errors import RefusedError
from opsassay.core.schema.faults import Category, fault_type
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.injection.under_test import Account, hook
from opsassay.testbed.substrates.kubernetes.actuators.changes import Change, injected
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest
from opsassay.testbed.substrates.kubernetes.api.client import Object
from opsassay.testbed.substrates.kubernetes.api.selecting import by_labels, selector_of
from opsassay.testbed.substrates.kubernetes.endpoints.desired import AGENT_PORT
from opsassay.testbed.substrates.kubernetes.manifests.system import PURPOSE_LABEL, RECEIVER_PORT

NO_IMAGE = "unavailable"
"""The tag of an image that nobody has: a pod whose container shall run it has none that runs."""
SEGMENT = "segment"
"""The label by which a policy finds the one pod that it is for."""
ESTABLISHED = "a policy stops new connections: those that stood ended with their next request, one to a queue did not"
STANDING = "a policy stops new connections: those that stood went on"
DNS_PORT = 53


ChangesOf = Callable[[Injection[ClusterUnderTest]], Sequence[Change]]


class Objects:
    """A few changes of objects, which the cluster takes back when nobody else does."""

    def __init__(self, injection: Injection[ClusterUnderTest], make: ChangesOf) -> None:
        self._injection, self._make = injection, make
        network = fault_type(injection.plan.fault).category is Category.NETWORK
        self._account = Account(injection, own=["*"] if network else ())
        self._stack = ExitStack()

    async def apply(self) -> None:
        """Start the undo job in the cluster, then make the changes of objects."""
        system = self._injection.system
        changes = await asyncio.to_thread(self._make, self._injection)
        await self._account.open()
        if any(change.kind == "Pod" for change in changes):
            system.expected.add(self._injection.replica.pod)
        if any(change.delete for change in changes):
            await system.save_ledger(self._injection.replica.pod)

        def begin() -> None:
            self._injection.began_at = time.monotonic()

        held = injected(
            system.api, changes, system.watch_namespace, system.left_s(), image=system.image, on_ready=begin
        )  # fmt: skip
        await asyncio.to_thread(self._stack.enter_context, held)

    async def undo(self) -> None:
        """Undo the changes of objects."""
        await asyncio.to_thread(self._stack.close)
        await self._account.close()


class CutOff(Objects):
    """A policy parts the pod from its peers; it stops new connections alone, so the pod lets none of its own last."""

    def __init__(self, injection: Injection[ClusterUnderTest]) -> None:
        super().__init__(injection, parting)

    async def apply(self) -> None:
        """Create the network policy that cuts off the pod, then close its open connections."""
        await super().apply()
        await hook(self._injection, on=True)

    async def undo(self) -> None:
        """Delete the network policy and let connections persist again."""
        try:
            await hook(self._injection, on=False)
        finally:
            await super().undo()


def delete_pod(injection: Injection[ClusterUnderTest]) -> list[Change]:
    """Return the change that deletes the target pod; its controller makes a new one."""
    return [Change("Pod", injection.replica.pod, injection.system.name, delete=True)]


def no_image(injection: Injection[ClusterUnderTest]) -> list[Change]:
    """Return the change that sets an image that does not exist on the pod; raises RefusedError if it is gone or set."""
    system, pod = injection.system, injection.replica.pod
    standing = system.api.get("Pod", pod, system.name)
    if standing is None:
        raise RefusedError(f"The pod {pod} is gone; wait until its successor is ready.")
    images = {c["image"] for c in standing["spec"]["containers"]}
    wrong = [{**c, "image": f"{c['image'].rpartition(':')[0]}:{NO_IMAGE}"} for c in standing["spec"]["containers"]]
    if any(image.endswith(f":{NO_IMAGE}") for image in images):
        raise RefusedError(f"The pod {pod} has no image already.")
    return [Change("Pod", pod, system.name, patch={"spec": {"containers": wrong}})]


def parting(injection: Injection[ClusterUnderTest]) -> list[Change]:
    """Return the changes, a label and a network policy, that cut the target pod off from its peers."""
    system, label = injection.system, (SEGMENT, secrets.token_hex(3))
    given, existing = injection.plan.parameters, injection.system.system.namespace is not None
    policy = isolation(f"{SEGMENT}-{label[1]}", system.name, label, given.get("peer"), given["direction"])
    if existing:
        _require_alone(injection)
    injection.notes.append(STANDING if existing else ESTABLISHED)
    return [
        Change("Pod", injection.replica.pod, system.name, patch={"metadata": {"labels": dict([label])}}),
        Change("NetworkPolicy", policy["metadata"]["name"], system.name, create=policy),
    ]


def _require_alone(injection: Injection[ClusterUnderTest]) -> None:
    """Raise RefusedError when a policy selects the target pod: what it lets through no other policy can stop."""
    system, pod = injection.system, injection.replica.pod
    standing = system.api.get("Pod", pod, system.name) or {"metadata": {}}
    for policy in system.api.list("NetworkPolicy", system.name):
        if by_labels(selector_of(policy["spec"].get("podSelector") or {}))(standing):
            words = f"the policy {policy['metadata']['name']} selects {pod}, and what it allows no other policy stops"
            raise RefusedError(f"{injection.plan.name} cannot be injected by a policy: {words}; choose another target.")


def isolation(name: str, namespace: str, label: tuple[str, str], peer: str | None, direction: str = "both") -> Object:
    """Return the network policy *name* that cuts pods with *label* off from the service *peer*, None: from all pods.

    *direction* selects calls to the pod (inbound), by the pod (outbound), or both. Telemetry, DNS and the agent's
    port pass.
    """
    types = {"inbound": ["Ingress"], "outbound": ["Egress"]}.get(direction, ["Ingress", "Egress"])
    outward = {"ports": [*_list_ports("UDP", DNS_PORT), *_list_ports("TCP", DNS_PORT, RECEIVER_PORT)]}
    inward = {"ports": _list_ports("TCP", AGENT_PORT)}
    others = [] if peer is None else [_peers_except(peer)]
    rules: dict[str, Object] = {
        "Ingress": {"ingress": [inward, *({"from": peers} for peers in others)]},
        "Egress": {"egress": [outward, *({"to": peers} for peers in others)]},
    }
    spec: Object = {"podSelector": {"matchLabels": dict([label])}, "policyTypes": types}
    for type_ in types:
        spec |= rules[type_]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _peers_except(peer: str) -> list[Any]:
    """Return the peers of a network policy rule that allows all pods but those of the service *peer*."""
    elsewhere = {"matchExpressions": [{"key": PURPOSE_LABEL, "operator": "NotIn", "values": ["system"]}]}
    here = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [peer]}]}
    return [{"podSelector": here}, {"namespaceSelector": elsewhere}]


def _list_ports(protocol: str, *numbers: int) -> list[Object]:
    """Return the ports of a network policy rule for *numbers* of *protocol* (TCP, UDP)."""
    return [{"protocol": protocol, "port": number} for number in numbers]
