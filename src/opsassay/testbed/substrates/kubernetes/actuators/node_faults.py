"""Faults by a pod on the node: packets of pods there, the node's CPU, its kubelet; each ends on the node by itself."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from contextlib import suppress
from typing import Any

from opsassay.core.errors import OperationError, OpsAssayError
from opsassay.core.schema.faults import Category, fault_type
from opsassay.testbed.catalogue.network import CALLS, impairment_of
from opsassay.testbed.catalogue.stress import burner_count
from opsassay.testbed.core.fleet import Replica
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.core.links import touched
from opsassay.testbed.core.networks import FORWARD
from opsassay.testbed.injection.under_test import Account
from opsassay.testbed.substrates.kubernetes.actuators.offers import require_nodes
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest
from opsassay.testbed.substrates.kubernetes.api.client import Object
from opsassay.testbed.substrates.kubernetes.endpoints.pod_endpoint import PodEndpoints
from opsassay.testbed.substrates.kubernetes.manifests.system import KEY_SECRET, MANAGED

PORTS = range(39_000, 39_900)
READY_TIMEOUT_S = 60.0
LOOK_EVERY_S = 0.3
ALL = {"direction": "both"}


class NodeFault:
    """Starts an agent on the node, has it begin, and has it end."""

    def __init__(self, injection: Injection[ClusterUnderTest]) -> None:
        self._injection = injection
        self._account = Account(injection, own=["*"])
        self._name = f"node-{secrets.token_hex(4)}"
        self._port = secrets.choice(PORTS)
        self._made = self._begun = False

    async def apply(self) -> None:
        """Apply the fault by an agent pod on the node; raises RefusedError, before any change, if not allowed."""
        injection, system = self._injection, self._injection.system
        require_nodes(system.api.context, injection.plan.name)
        node = injection.host or injection.replica.host
        order = {"deadline": system.deadline, "port": self._port, "deeds": deeds(injection, system)}
        await self._account.open()
        self._made = True
        for item in agent_objects(self._name, system.watch_namespace, node, order, system.image):
            await asyncio.to_thread(system.api.create, item)
        await self._wait_for_agent(system, node)
        injection.began_at = time.monotonic()
        if fault_type(injection.plan.fault).category is Category.POD:
            if injection.host:
                system.suspects |= {replica.id for replica in injection.replicas}
            else:
                system.expected.add(injection.replica.pod)
        self._begun = True
        await asyncio.to_thread(self._request_agent, system, "POST", "begin")

    async def undo(self) -> None:
        """Undo the fault and delete the agent pod; an agent that cannot be reached undoes it at its own deadline."""
        system = self._injection.system
        try:
            if self._begun:
                await self._save_ledger(system)
                await asyncio.to_thread(self._request_agent, system, "POST", "end")
        except OpsAssayError as error:
            raise OperationError(f"{error} The node takes it back itself within {system.left_s():.0f} s.") from error
        finally:
            system.suspects -= {replica.id for replica in self._injection.replicas}
            await self._account.close()
        for kind in ("Pod", "ConfigMap") if self._made else ():
            with suppress(OpsAssayError):
                await asyncio.to_thread(system.api.delete, kind, self._name, system.watch_namespace)

    async def _save_ledger(self, system: ClusterUnderTest) -> None:
        """Fetch the agent's record of the fault's effects into the ledger; without an answer, add a note."""
        try:
            lines = await asyncio.to_thread(self._request_agent, system, "GET", "ledger")
        except OpsAssayError as error:
            self._injection.notes.append(f"what the packets cost is not in the ledger: {error}")
        else:
            (system.state.ledger_dir / f"{self._name}.jsonl").write_bytes(lines)

    def _request_agent(self, system: ClusterUnderTest, method: str, path: str) -> Any:
        """Send *method* *path* to the agent pod on the node; return the bytes of the response."""
        pod_endpoints = PodEndpoints.for_namespace(system.api, system.watch_namespace)
        return pod_endpoints.request(self._name, method, path, port=self._port, raw_answer=True)

    async def _wait_for_agent(self, system: ClusterUnderTest, node: str) -> None:
        """Wait until the agent on *node* answers; raises OperationError after READY_TIMEOUT_S."""
        pod_endpoints, deadline = (
            PodEndpoints.for_namespace(system.api, system.watch_namespace),
            time.monotonic() + READY_TIMEOUT_S,
        )
        while True:
            try:
                await asyncio.to_thread(pod_endpoints.request, self._name, "GET", "", port=self._port, tries=1)
            except OpsAssayError as error:
                if time.monotonic() > deadline:
                    why = f"no agent runs on {node} after {READY_TIMEOUT_S:g} s; nothing was broken"
                    raise OperationError(f"{why}: {error}") from error
                await asyncio.sleep(LOOK_EVERY_S)
            else:
                return


def deeds(injection: Injection[ClusterUnderTest], system: ClusterUnderTest) -> list[dict[str, Any]]:
    """Return the actions by which the node's agent makes the fault of *injection*: {kind, parameters} each."""
    plan = injection.plan
    if injection.host is None and fault_type(plan.fault).category is not Category.NETWORK:
        return [_container_deed(injection, system)]
    if fault_type(plan.fault).category is Category.STRESS:
        return [{"kind": "burners", **plan.parameters}]
    if fault_type(plan.fault).category is Category.NETWORK:
        impairment = impairment_of(plan)
        one_way = impairment["kind"] == "partition" and plan.parameters["direction"] not in CALLS
        parameters = {**plan.parameters, **ALL} if one_way else plan.parameters
        return _packets(injection, system, parameters, impairment)
    gone = [_packet_request(system, replica, [], {"kind": "isolation"}) for replica in injection.replicas]
    return [{"kind": "kubelet"}, *gone]


def _container_deed(injection: Injection[ClusterUnderTest], system: ClusterUnderTest) -> dict[str, Any]:
    """Return the action on the first container of the pod of *injection*: its end, or burners in its CPU group."""
    plan, replica = injection.plan, injection.replica
    container = system.container_of(replica.pod)
    if fault_type(plan.fault).category is Category.POD:
        return {"kind": "kill", "container": container}
    cores = burner_count(plan.parameters, replica.spec.cpu_limit)
    return {"kind": "burners", **plan.parameters, "cores": cores, "container": container}


def _packets(
    injection: Injection[ClusterUnderTest],
    system: ClusterUnderTest,
    parameters: dict[str, Any],
    impairment: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return an action per affected pod: its packet streams (by *parameters*) with IP addresses, and *impairment*."""
    targets = {replica.id: replica for replica in injection.replicas}
    streams: dict[str, list[dict[str, Any]]] = {name: [] for name in targets}
    for source, destination, direction in touched(system.fleet, targets, parameters):
        outward = source in targets
        target, other = (source, destination) if outward else (destination, source)
        for address in system.addresses_of(other, as_callee=outward):
            streams[target].append(
                {
                    "link": f"{source}>{destination}",
                    "direction": direction,
                    "leaving": outward == (direction == FORWARD),
                    "address": address,
                }
            )
    found = ((targets[name], rows) for name, rows in streams.items() if rows)
    return [_packet_request(system, replica, rows, impairment) for replica, rows in found]


def _packet_request(
    system: ClusterUnderTest, replica: Replica, streams: list[dict[str, Any]], impairment: dict[str, Any]
) -> dict[str, Any]:
    """Return the action for a node's agent that applies *impairment* to *streams* of the pod of *replica*."""
    return {
        "kind": "packets",
        "id": secrets.token_hex(3),
        "uid": system.uid_of(replica.pod),
        "pod": replica.pod,
        "streams": streams,
        "impairment": impairment,
    }


def agent_objects(name: str, namespace: str, node: str, order: dict[str, Any], image: str) -> list[Object]:
    """Return the ConfigMap *name* with *order* and the privileged pod that carries it out on *node*, by *image*."""
    metadata = {"name": name, "namespace": namespace, "labels": MANAGED}
    key = {"secretKeyRef": {"name": KEY_SECRET, "key": "key"}}
    container = {
        "name": "node",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["node"],
        "env": [{"name": "ENDPOINT_KEY", "valueFrom": key}],
        "securityContext": {"privileged": True, "runAsUser": 0, "runAsGroup": 0},
        "volumeMounts": [{"name": "order", "mountPath": "/etc/opsassay/node"}],
    }
    pod = {
        "nodeName": node,
        "hostNetwork": True,
        "hostPID": True,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "order", "configMap": {"name": name}}],
        "containers": [container],
    }
    payload = {"order.json": json.dumps(order)}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": payload},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
    ]
