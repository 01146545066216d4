"""Faults through the agent of the pod that is hit: its process killed, its look-ups wrong, a companion that presses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from opsassay.core.schema.faults import FaultKind, fault_type
from opsassay.testbed.catalogue.stress import allocated_bytes, burner_count
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.injection.under_test import Account
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest, PodOrder
from opsassay.testbed.substrates.kubernetes.endpoints.desired import Lookup, Pressure


class KillContainer:
    """SIGKILL to the process in the pod; the kubelet starts the container again."""

    def __init__(self, injection: Injection[ClusterUnderTest]) -> None:
        self._injection = injection
        self._account = Account(injection)

    async def apply(self) -> None:
        """Kill the main process of the pod's container, and record from now on what that costs callers."""
        system, pod = self._injection.system, self._injection.replica.pod
        await self._account.open()
        system.expected.add(pod)
        await asyncio.to_thread(system.pod_endpoints.request, pod, "POST", "kill", tries=1)

    async def undo(self) -> None:
        """Stop recording what the fault costs callers; the kubelet restarts the container itself."""
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

    async def apply(self) -> None:
        """Make DNS look-ups of the pod wrong; its agent records failed calls in the ledger of effects of faults."""
        await self._account.open()
        await give(self._injection, names=dict.fromkeys(self._hosts, self.how))

    async def undo(self) -> None:
        """Make DNS look-ups of the pod right again; caches expire within a second."""
        await take_back(self._injection)
        await self._account.close()


class StrayPodLookups(PodLookups):
    """The answers are addresses of other services."""

    how = "stray"


class PodPressure:
    """A companion in the pod's own container: burners, or one that fills the memory."""

    def __init__(self, injection: Injection[ClusterUnderTest]) -> None:
        self._injection = injection
        self._kind = fault_type(injection.plan.fault).kind
        self._account = Account(injection)

    async def apply(self) -> None:
        """Start the CPU or memory pressure in the pod and wait until it has built up."""
        await self._account.open()
        if self._kind is FaultKind.MEM_STRESS:
            self._injection.system.expected.add(self._injection.replica.pod)
        await give(self._injection, pressure=(self._make_pressure(),))

    async def undo(self) -> None:
        """End the pressure in the pod."""
        await take_back(self._injection)
        await self._account.close()

    def _make_pressure(self) -> Pressure:
        """Return the process that burns CPU or fills memory, with the parameters of the fault."""
        name, parameters = f"pressure-{self._injection.id}", self._injection.plan.parameters
        if self._kind is FaultKind.CPU_STRESS:
            cores = burner_count(parameters, self._injection.replica.spec.cpu_limit)
            return Pressure(id=name, role="burner", parameters={**parameters, "cores": cores})
        limit_mb = self._injection.replica.spec.memory_limit_mb
        sizes = {"limit_bytes": limit_mb * 2**20, "size_bytes": allocated_bytes(parameters, limit_mb)}
        return Pressure(id=name, role="allocator", parameters=sizes)


async def give(
    injection: Injection[ClusterUnderTest],
    names: Mapping[str, Lookup] = MappingProxyType({}),
    pressure: tuple[Pressure, ...] = (),
) -> None:
    """Make the target pod answer look-ups of *names* as mapped and run *pressure*, processes that use CPU or memory.

    If the faults of the plan end with the pod, its successor does not get them.
    """
    system, replica = injection.system, injection.replica
    pod = replica.pod if injection.plan.ends_with_pod else None
    system.orders[injection.id] = PodOrder(replica.id, pod, names, pressure)
    await system.push_hooks(replica)


async def take_back(injection: Injection[ClusterUnderTest]) -> None:
    """Make the target pod end what `give` started; a pod that cannot be reached is ignored."""
    if injection.system.orders.pop(injection.id, None) is not None:
        with contextlib.suppress(ConnectionError):
            await injection.system.push_hooks(injection.replica)
