"""Faults through the agent of the pod that is hit: its process killed, its look-ups wrong, a companion that presses."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from opsassay.model.faults import FaultKind, fault_type
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.injection.under_test import Account
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest
from opsassay.testbed.substrates.kubernetes.endpoints.desired import Lookup, Pressure


class KillContainer:
    """SIGKILL to the process in the pod; the kubelet starts the container again."""

    def __init__(self, injection: Injection[ClusterUnderTest]) -> None:
        self._injection = injection
        self._account = Account(injection)

    async def apply(self) -> None:
        """Kill it."""
        system, pod = self._injection.system, self._injection.replica.pod
        await self._account.open()
        system.expected.add(pod)
        await asyncio.to_thread(system.pod_endpoints.request, pod, "POST", "kill", tries=1)

    async def undo(self) -> None:
        """Stop the callers' account: the kubelet restarts what died."""
        await self._account.close()


class PodLookups:
    """The pod's name server answers wrongly: it fails, or leads to another service."""

    how: ClassVar[Lookup] = "fail"

    def __init__(self, injection: Injection[ClusterUnderTest]) -> None:
        self._injection = injection
        hostname, service = injection.plan.parameters.get("hostname"), injection.replica.service
        asked = {callee for caller, callee in injection.system.system.calls() if caller == service}
        self._hosts = [hostname] if hostname else sorted(asked)
        self._account = Account(injection, own=self._hosts)
        self._former: dict[str, Lookup] | None = None

    async def apply(self) -> None:
        """Order it; the target enters the calls that fail for it into the ledger."""
        await self._account.open()
        system, replica = self._injection.system, self._injection.replica
        self._former = system.names.get(replica.id, {})
        system.names[replica.id] = {**self._former, **dict.fromkeys(self._hosts, self.how)}
        await system.push_hooks(replica)

    async def undo(self) -> None:
        """Take the order back; caches forget within a second."""
        if self._former is not None:
            system, replica = self._injection.system, self._injection.replica
            system.names[replica.id], self._former = self._former, None
            await push(system, self._injection)
        await self._account.close()


class StrayPodLookups(PodLookups):
    """The answers are addresses of other services."""

    how = "stray"


class PodPressure:
    """A companion in the pod's own container: burners, or one that fills the memory."""

    def __init__(self, injection: Injection[ClusterUnderTest]) -> None:
        self._injection = injection
        self._name, self._kind = f"pressure-{injection.id}", fault_type(injection.plan.fault).kind
        self._account = Account(injection)

    async def apply(self) -> None:
        """Order it; it has built up when this returns."""
        system, replica = self._injection.system, self._injection.replica
        await self._account.open()
        if self._kind is FaultKind.MEM_STRESS:
            system.expected.add(replica.pod)
        system.pressure.setdefault(replica.id, {})[self._name] = self._pressure()
        await system.push_hooks(replica)

    async def undo(self) -> None:
        """End it."""
        system, replica = self._injection.system, self._injection.replica
        if system.pressure.get(replica.id, {}).pop(self._name, None) is not None:
            await push(system, self._injection)
        await self._account.close()

    def _pressure(self) -> Pressure:
        parameters = self._injection.plan.parameters
        if self._kind is FaultKind.CPU_STRESS:
            return Pressure(id=self._name, role="burner", parameters=dict(parameters))
        limit_bytes = self._injection.replica.spec.memory_limit_mb * 2**20
        size_bytes = parameters["size_mb"] * 2**20
        return Pressure(
            id=self._name, role="allocator", parameters={"limit_bytes": limit_bytes, "size_bytes": size_bytes}
        )


async def push(system: ClusterUnderTest, injection: Injection[ClusterUnderTest]) -> None:
    """Send the pod its desired state; one that is gone or has no container needs none."""
    for replica in injection.replicas:
        try:
            await system.push_hooks(replica)
        except ConnectionError:
            continue
