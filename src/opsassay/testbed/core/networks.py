"""What the processes of a system reach one another by: a protocol of networks, and the sites and streams in them.

A *site* is where a process listens. Callers get a backend's address from the name server, one per (caller, backend) pair,
because on the `plain` level every pair has a port of its own at the relay.
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
    """Where its first process listens, the next ones above it; 0 for any free port."""

    def parameters(self, process_number: int = 0) -> dict[str, Any]:
        """Return the network settings for the *process_number*-th process here; two may run at once."""
        port = self.port and self.port + process_number % PORTS
        return {"address": self.address, "port": port, "inside": self.namespace}

    def listening(self) -> list[str]:
        """Return the addresses at which a store here listens."""
        return sorted({self.address, self.management})


class Stream(NamedTuple):
    """What flows one way over a link: *direction* is forward from the *source*, which calls, or backward to it."""

    source: str
    destination: str
    direction: str

    @property
    def link(self) -> str:
        """Source and destination, as the ledger names them."""
        return f"{self.source}>{self.destination}"


class Network(Protocol):
    """How the processes of one system reach one another."""

    level: ClassVar[IsolationLevel]
    interface: ClassVar[str | None]
    """What a replica exchanges data over, where it has an interface of its own."""
    home: str
    """The address at which the receiver and the name server listen."""
    resolver: str
    """The address at which programs of a user's own ask for names."""

    async def prepare(self) -> None:
        """Create the sites before any process of the system starts."""

    async def open(self, stores: dict[str, int]) -> None:
        """Make *stores* (name to port) reachable, once the template process runs."""

    async def admit(self, name: str, host: str) -> None:
        """Create a site on *host* for the new replica *name*; a former replica of the name gets its old site."""

    def site(self, name: str) -> Site:
        """Return the site of the replica, store or load generator *name*."""

    async def listens(self, name: str, port: int | None) -> None:
        """Record that the process *name* listens on *port* of its site, None for nowhere."""

    def endpoint(self, caller: str, callee: str) -> Endpoint | None:
        """Return the address at which *caller* reaches *callee* now, None when there is none."""

    def entrances(self, entry: str) -> list[Endpoint]:
        """Return the addresses at which a user of this machine reaches the service *entry*."""

    async def impair(self, fault: str, target: str, streams: Sequence[Stream], impairment: Mapping[str, Any]) -> None:
        """Impair *streams* at the end of the replica *target* until *fault* is healed; a fault may have several targets.

        An impairment has a ``kind``: delay (delay_s, jitter_s), loss, duplicate or corrupt (share), bandwidth
        (bytes_per_s), partition. Raises OperationError.
        """

    async def heal(self, fault: str) -> list[str]:
        """Remove the impairments of *fault*, if any; return a sentence for each that was not in place."""

    def probe(self) -> dict[str, Any] | None:
        """Return where a probe must run to reach services: pid of the supervisor and namespace; None for anywhere."""

    async def close(self) -> None:
        """Release what the network uses."""
