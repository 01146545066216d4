"""What carries faults out on a cluster: through objects of the API, and through the door of the pod that is hit."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, cast

from assay.errors import RefusedError
from assay.model.faults import Category, fault_type
from assay.model.incident import PlannedFault
from assay.testbed.faults.injection import Account, Injection
from assay.testbed.kubernetes import chaos_mesh
from assay.testbed.kubernetes.injection import Change, injected
from assay.testbed.kubernetes.policy import isolation
from assay.testbed.kubernetes.under_test import ClusterUnderTest
from assay.testbed.kubernetes.wanted import Lookup, Pressure

NO_IMAGE = "unavailable"
"""The tag of an image that nobody has: a pod whose container shall run it has none that runs."""
SEGMENT = "segment"
"""The label by which a policy finds the one pod that it is for."""
ESTABLISHED = "a policy stops new connections; those that stood went on until they were closed"


def cluster_of(injection: Injection) -> ClusterUnderTest:
    """Return the cluster's system that *injection* acts on."""
    return cast("ClusterUnderTest", injection.system)


def _own(injection: Injection) -> Sequence[str]:
    return ["*"] if fault_type(injection.plan.fault).category is Category.NETWORK else ()


class Objects:
    """A few changes of objects, which the cluster takes back when nobody else does."""

    def __init__(self, injection: Injection, make: Callable[[Injection], Sequence[Change]]) -> None:
        self._injection, self._make = injection, make
        self._account = Account(injection, own=_own(injection))
        self._stack = ExitStack()

    async def apply(self) -> None:
        """Have the undo wait in the cluster, then make the changes."""
        system = cluster_of(self._injection)
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
        """Take them back."""
        await asyncio.to_thread(self._stack.close)
        await self._account.close()


def delete_pod(injection: Injection) -> list[Change]:
    """Return the change that kills the pod: its controller makes another one."""
    return [Change("Pod", injection.replica.pod, cluster_of(injection).name, delete=True)]


def no_image(injection: Injection) -> list[Change]:
    """Return the change that leaves the pod without a container that runs, as Chaos Mesh's pod-failure does."""
    system, pod = cluster_of(injection), injection.replica.pod
    standing = system.api.get("Pod", pod, system.name)
    if standing is None:
        raise RefusedError(f"The pod {pod} is gone; wait until its successor is ready.")
    images = {c["image"] for c in standing["spec"]["containers"]}
    wrong = [{**c, "image": f"{c['image'].rpartition(':')[0]}:{NO_IMAGE}"} for c in standing["spec"]["containers"]]
    if any(image.endswith(f":{NO_IMAGE}") for image in images):
        raise RefusedError(f"The pod {pod} has no image already.")
    return [Change("Pod", pod, system.name, patch={"spec": {"containers": wrong}})]


def cut_off(injection: Injection) -> list[Change]:
    """Return the changes that part the pod from its peers by a network policy."""
    system, label = cluster_of(injection), (SEGMENT, secrets.token_hex(3))
    policy = isolation(f"{SEGMENT}-{label[1]}", system.name, label, injection.plan.parameters.get("peer"))
    injection.notes.append(ESTABLISHED)
    return [
        Change("Pod", injection.replica.pod, system.name, patch={"metadata": {"labels": dict([label])}}),
        Change("NetworkPolicy", policy["metadata"]["name"], system.name, create=policy),
    ]


def by_chaos_mesh(injection: Injection) -> list[Change]:
    """Return the object of Chaos Mesh that does it, tried on the server; raises RefusedError with the server's reason."""
    system, replica = cluster_of(injection), injection.replica
    made = chaos_manifest(system, injection.plan, replica.service, replica.pod)
    if reason := system.api.try_out(made):
        raise RefusedError(f"{injection.plan.fault} cannot be injected by Chaos Mesh here: {reason}.")
    metadata = made["metadata"]
    return [Change(made["kind"], metadata["name"], metadata["namespace"], create=made)]


def chaos_manifest(system: ClusterUnderTest, plan: PlannedFault, service: str, pod: str) -> dict[str, Any]:
    """Return the object of Chaos Mesh for *plan* on *pod*."""
    callees = tuple(sorted({callee for caller, callee in system.system.calls() if caller == service}))
    where = chaos_mesh.Where(system.name, service, pod, callees)
    return chaos_mesh.manifest(plan, where, f"task-{secrets.token_hex(3)}", system.left_s())


class KillContainer:
    """SIGKILL to the process in the pod; the kubelet starts the container again."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self._account = Account(injection)

    async def apply(self) -> None:
        """Kill it."""
        system, pod = cluster_of(self._injection), self._injection.replica.pod
        await self._account.open()
        system.expected.add(pod)
        await asyncio.to_thread(system.doors.request, pod, "POST", "kill", tries=1)

    async def undo(self) -> None:
        """Stop the callers' account: the kubelet restarts what died."""
        await self._account.close()


class Lookups:
    """The pod's name server answers wrongly: it fails, or leads to another service."""

    how: ClassVar[Lookup] = "fail"

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        hostname, service = injection.plan.parameters.get("hostname"), injection.replica.service
        asked = {callee for caller, callee in injection.system.system.calls() if caller == service}
        self._hosts = [hostname] if hostname else sorted(asked)
        self._account = Account(injection, own=self._hosts)
        self._former: dict[str, Lookup] | None = None

    async def apply(self) -> None:
        """Order it; the target enters the calls that fail for it into the ledger."""
        await self._account.open()
        system, replica = cluster_of(self._injection), self._injection.replica
        self._former = system.names.get(replica.id, {})
        system.names[replica.id] = {**self._former, **dict.fromkeys(self._hosts, self.how)}
        await system.push_hooks(replica)

    async def undo(self) -> None:
        """Take the order back; caches forget within a second."""
        if self._former is not None:
            system, replica = cluster_of(self._injection), self._injection.replica
            system.names[replica.id], self._former = self._former, None
            await push(system, self._injection)
        await self._account.close()


class StrayLookups(Lookups):
    """The answers are addresses of other services."""

    how = "stray"


class PodPressure:
    """A companion in the pod's own container: burners, or one that fills the memory."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self._name = f"pressure-{injection.id}"
        self._account = Account(injection)

    async def apply(self) -> None:
        """Order it; it has built up when this returns."""
        system, replica = cluster_of(self._injection), self._injection.replica
        await self._account.open()
        if self._injection.plan.fault == "MemoryStress":
            system.expected.add(replica.pod)
        system.pressure.setdefault(replica.id, {})[self._name] = self._pressure()
        await system.push_hooks(replica)

    async def undo(self) -> None:
        """End it."""
        system, replica = cluster_of(self._injection), self._injection.replica
        if system.pressure.get(replica.id, {}).pop(self._name, None) is not None:
            await push(system, self._injection)
        await self._account.close()

    def _pressure(self) -> Pressure:
        parameters = self._injection.plan.parameters
        if self._injection.plan.fault == "CPUStress":
            return Pressure(id=self._name, role="burner", parameters=dict(parameters))
        limit_bytes = self._injection.replica.spec.memory_limit_mb * 2**20
        size_bytes = parameters["size_mb"] * 2**20
        return Pressure(
            id=self._name, role="allocator", parameters={"limit_bytes": limit_bytes, "size_bytes": size_bytes}
        )


async def push(system: ClusterUnderTest, injection: Injection) -> None:
    """Tell the pod what is still wanted; one that is gone or has no container now wants nothing anyway."""
    for replica in injection.replicas:
        try:
            await system.push_hooks(replica)
        except ConnectionError:
            continue
