"""Where the processes of a local system find one another: by the name server's answers, and by those for programs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsassay.testbed.core.fleet import Replica
from opsassay.testbed.core.networks import Endpoint
from opsassay.testbed.kernel.namespaces import close_connections

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor


class Directory:
    """The names of the *running* system."""

    def __init__(self, running: Supervisor) -> None:
        self._running = running

    def lookup(self, service: str, caller: str) -> list[Endpoint] | None:
        """Return the endpoints at which *caller* reaches the ready replicas of *service*; None for an unknown name."""
        network, replicas = self._running.network, self._find_replicas(service)
        if replicas is None:
            return None
        ready = [replica for replica in replicas if replica.ready]
        linked = [at for at in (network.endpoint(caller, replica.id) for replica in ready) if at is not None]
        return linked or [(network.site(r.id).address, r.port) for r in ready if r.port is not None]

    def addresses(self, name: str) -> list[str] | None:
        """Return the IP addresses of the store or service *name*, of ready replicas if any; None if it is unknown."""
        if (store := self._running.stores.get(name)) is not None:
            return [store.site.address]
        replicas = self._find_replicas(name)
        if replicas is None:
            return None
        return [self._running.network.site(r.id).address for r in [r for r in replicas if r.ready] or replicas]

    def caller_at(self, address: str) -> str:
        """Return the id of the replica with the management *address*, '' without one."""
        network = self._running.network
        return next((name for name in self._running.fleet.replicas if network.site(name).management == address), "")

    async def hang_up(self, replica: Replica, names: Sequence[str]) -> list[str]:
        """Close the connections of *replica* to *names*, so that it looks them up again; return notes on problems."""
        addresses = [address for name in names for address in self.addresses(name) or ()]
        namespace = self._running.network.site(replica.id).namespace
        return await asyncio.to_thread(close_connections, namespace, addresses)

    def _find_replicas(self, service: str) -> list[Replica] | None:
        """Return the replicas that *service* resolves to, also by a changed name record; None for an unknown name."""
        target = self._running.operations.records.get(service, service)
        return self._running.fleet.replicas_of(target) if target in self._running.system.services else None
