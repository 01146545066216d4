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

    def parameters(self, start: int = 0) -> dict[str, Any]:
        """Return what the process that is the *start*-th one here is given: two may overlap."""
        port = self.port and self.port + start % PORTS
        return {"address": self.address, "port": port, "inside": self.namespace}

    def listening(self) -> list[str]:
        """Return the addresses at which a store listens."""
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
        """Make the sites; nothing of the system runs yet."""

    async def open(self, stores: dict[str, int]) -> None:
        """Make *stores* (name to port) reachable; the template runs now."""

    async def admit(self, name: str, host: str) -> None:
        """Make a site on *host* for a replica that the fleet has now; one that was here before gets its old one."""

    def site(self, name: str) -> Site:
        """Return the site of a replica, a store or the load generator."""

    async def listens(self, name: str, port: int | None) -> None:
        """Take note that the process *name* listens on *port* of its site now, or nowhere."""

    def endpoint(self, caller: str, callee: str) -> Endpoint | None:
        """Return where *caller* reaches *callee* now, None when it has no way to it."""

    def entrances(self, entry: str) -> list[Endpoint]:
        """Return where a user of this machine reaches the service *entry*."""

    async def impair(self, fault: str, target: str, streams: Sequence[Stream], impairment: Mapping[str, Any]) -> None:
        """Impair *streams* at the end of the replica *target* until *fault* is healed; a fault may have several targets.

        An impairment has a ``kind``: delay (delay_s, jitter_s), loss, duplicate or corrupt (share), bandwidth
        (bytes_per_s), partition. Raises OperationError.
        """

    async def heal(self, fault: str) -> list[str]:
        """Take back what *fault* impairs; return a sentence for each thing that was not as asked. Nothing to do is fine."""

    def probe(self) -> dict[str, Any] | None:
        """Return where a probe has to be to reach backends: pid of the supervisor and namespace; None for anywhere."""

    async def close(self) -> None:
        """Let go of what the network holds."""
