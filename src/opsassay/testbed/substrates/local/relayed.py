"""The `plain` level: loopback addresses, and a relay on every link, so that packet faults need no privileges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from opsassay.core.errors import StartError
from opsassay.core.schema.system import IsolationLevel
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Fleet, sleep_until
from opsassay.testbed.core.networks import LOOPBACK, Endpoint, Site, Stream
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.workload.processes import Channels, Template, log_tail

BUSY_TIMEOUT_S = 30.0
"""How long the relay may take to answer: on a busy machine a second is nothing, and a system must not end for it."""


class RelayedNetwork:
    """Streams pass a relay, which impairs them."""

    level: ClassVar[IsolationLevel] = "plain"
    interface: ClassVar[str | None] = None
    home = resolver = LOOPBACK

    def __init__(self, state: SystemState, fleet: Fleet, template: Template, channels: Channels) -> None:
        self._state, self._fleet, self._template, self._channels = state, fleet, template, channels
        self._ports: dict[str, int] = {}
        self._listening: dict[str, int | None] = {}
        self._impaired: dict[str, list[str]] = {}

    async def prepare(self) -> None:
        """Do nothing: the loopback interface exists."""

    async def open(self, stores: dict[str, int]) -> None:
        """Start the relay process with a listener per link, and lead it to the *stores*' ports; raises StartError."""
        config = {
            "management": str(self._state.management_socket),
            "ledger": str(self._state.ledger_dir / "relay.jsonl"),
        }
        await self._template.spawn("relay", "relay", config)
        if not await sleep_until(lambda: "relay" in self._channels.names(), 10.0):
            raise StartError("The relay did not start.", log_tail(self._state.log("relay")))
        self._ports = await self._channels.request("relay", "open", links=self._fleet.links())
        for name, port in stores.items():
            await self.listens(name, port)

    async def admit(self, name: str, host: str) -> None:  # noqa: ARG002 - all are on loopback
        """Open relay listeners for the links of the new replica *name*."""
        missing = [(a, b) for a, b in self._fleet.links() if name in (a, b) and f"{a}>{b}" not in self._ports]
        self._ports |= await self._channels.request("relay", "open", BUSY_TIMEOUT_S, links=missing)
        for destination in sorted({b for _, b in missing}):
            await self.listens(destination, self._listening.get(destination))

    def site(self, name: str) -> Site:  # noqa: ARG002 - all have the same
        """Return the loopback address, at which every process listens."""
        return Site(LOOPBACK, LOOPBACK)

    async def listens(self, name: str, port: int | None) -> None:
        """Make the relay forward connections for *name* to *port*; None: to nowhere."""
        self._listening[name] = port
        address = None if port is None else (LOOPBACK, port)
        await self._channels.request("relay", "upstream", BUSY_TIMEOUT_S, destination=name, address=address)

    def endpoint(self, caller: str, callee: str) -> Endpoint | None:
        """Return the relay's (address, port) for calls from *caller* to *callee*; None without such a link."""
        port = self._ports.get(f"{caller}>{callee}")
        return None if port is None else (LOOPBACK, port)

    def entrances(self, entry: str) -> list[Endpoint]:
        """Return the relay's (address, port) pairs for user requests to the service *entry*."""
        found = (
            self.endpoint(LOAD_GENERATOR, replica.id) for replica in self._fleet.replicas_of(entry) if replica.ready
        )
        return [endpoint for endpoint in found if endpoint is not None]

    async def impair(self, fault: str, target: str, streams: Sequence[Stream], impairment: Mapping[str, Any]) -> None:
        """Make the relay apply *impairment* to *streams* for the injection *fault*; *target* does not matter."""
        name, chosen = f"{fault} {target}", [(stream.link, stream.direction) for stream in streams]
        await self._channels.request("relay", "impair", fault=name, streams=chosen, impairment=impairment)
        self._impaired.setdefault(fault, []).append(name)

    async def heal(self, fault: str) -> list[str]:
        """Make the relay end the impairments of *fault*; return [], since a relay has no notes."""
        if "relay" in self._channels.names():
            for name in self._impaired.pop(fault, ()):
                await self._channels.request("relay", "heal", fault=name)
        return []

    def probe(self) -> None:
        """Return None: a probe reaches loopback from anywhere."""

    async def close(self) -> None:
        """Do nothing: the relay process ends with its parent, the process that forks all of the system."""
