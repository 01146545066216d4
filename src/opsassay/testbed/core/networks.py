"""The network of a system: its protocol, and the sites and streams in it.

A *site* is where a process listens. Callers get a backend's address from the name server, one per (caller, backend) pair,
because on the `plain` level every pair has its own port at the relay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from opsassay.core.schema.system import IsolationLevel

LOOPBACK = "127.0.0.1"
PORTS = 100
FORWARD, BACKWARD = "forward", "backward"

Endpoint = tuple[str, int]
"""Address and TCP port."""


@dataclass(frozen=True)
class Site:
    """Where one process listens: its data *address*, its *management* address, its *namespace* (None: the system's own)."""

    address: str
    management: str
    namespace: str | None = None
    port: int = 0
    """The port of its first process, following processes use the next ones; 0 for any free port."""

    def parameters(self, process_number: int = 0) -> dict[str, Any]:
        """Return {address, port, inside: namespace} for process *process_number* of this site, added to the port."""
        port = self.port and self.port + process_number % PORTS
        return {"address": self.address, "port": port, "inside": self.namespace}

    def listening(self) -> list[str]:
        """Return the distinct addresses at which a store at this site listens: for data and for management."""
        return sorted({self.address, self.management})


class Stream(NamedTuple):
    """Packets in one direction of a link: *direction* is "forward" from the calling *source*, or "backward" to it."""

    source: str
    destination: str
    direction: str

    @property
    def link(self) -> str:
        """The link as "SOURCE>DESTINATION", its name in the ledger."""
        return f"{self.source}>{self.destination}"


class Network(Protocol):
    """The network by which the processes of one system reach each other."""

    level: ClassVar[IsolationLevel]
    interface: ClassVar[str | None]
    """The interface by which a replica exchanges data, None if it has no own one."""
    home: str
    """The address at which the receiver and the name server listen."""
    resolver: str
    """The address of the name server for users' own programs."""

    async def prepare(self) -> None:
        """Create what the network needs, such as namespaces, before any process of the system starts."""

    async def open(self, stores: dict[str, int]) -> None:
        """Make *stores* (name to port) and entry services reachable; called once the process that forks others runs."""

    async def admit(self, name: str, host: str) -> None:
        """Create the site of the new replica *name* on *host*; a replica of a name that existed gets its site again."""

    def site(self, name: str) -> Site:
        """Return the site of the replica, store or load generator *name*."""

    async def listens(self, name: str, port: int | None) -> None:
        """Record that the process *name* listens on *port* of its site; None: it does not listen."""

    def endpoint(self, caller: str, callee: str) -> Endpoint | None:
        """Return the (address, port) at which *caller* reaches *callee* now, None when there is none."""

    def entrances(self, entry: str) -> list[Endpoint]:
        """Return the (address, port) pairs at which a user of this machine reaches the service *entry*."""

    async def impair(self, fault: str, target: str, streams: Sequence[Stream], impairment: Mapping[str, Any]) -> None:
        """Apply *impairment* {kind, numbers} to packets of *streams* at the replica *target* until `heal(fault)`."""

    async def heal(self, fault: str) -> list[str]:
        """Remove the impairments of *fault*, an id, if any; return a sentence for each that did not work as asked."""

    def probe(self) -> dict[str, Any] | None:
        """Return {pid, namespace} of where a probe must run to reach services; None: it may run anywhere."""

    async def close(self) -> None:
        """Close the network's sockets and end its helper processes."""
