"""The relay: on the `plain` isolation level every call crosses it, so that packet faults need no privileges.

One listener per *link*, a (source, destination) pair of processes; bytes are copied to wherever the destination listens
now. A packet fault is a rule over links. Delays keep the order of bytes within a direction, as TCP does.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import socket
from collections import deque
from typing import Any, NamedTuple, cast

from opsassay.testbed.workload.runtime import management
from opsassay.testbed.workload.runtime.impairments import Impairment, impairment, next_resend_s
from opsassay.testbed.workload.runtime.ledger import LedgerWriter

FORWARD, BACKWARD = "forward", "backward"


class Link:
    """One (source, destination) pair with its listener, its present upstream and what impairs it, by direction."""

    def __init__(self, source: str, destination: str) -> None:
        self.source, self.destination = source, destination
        self.upstream: tuple[str, int] | None = None
        self.impaired: dict[str, list[Impairment]] = {}
        self.changed = asyncio.Event()
        self.connections: set[Pipe] = set()

    @property
    def name(self) -> str:
        """The link as "SOURCE>DESTINATION"."""
        return f"{self.source}>{self.destination}"

    async def connected(self) -> None:
        """Sleep for the time that impairments add to a new connection; while its packet is lost, until that changes."""
        now = asyncio.get_running_loop().time()
        while (lag := self._connect_lag_s(now)) == math.inf:
            await self.changed.wait()
        if lag:
            await asyncio.sleep(lag)

    def _connect_lag_s(self, now: float) -> float:
        """Return the seconds that all impairments add to a connection opened at *now*; infinity if it is lost."""
        return sum(one.connect_lag_s(now) for impaired in self.impaired.values() for one in impaired)

    def impair(self, impaired: dict[str, list[Impairment]]) -> None:
        """Replace the impairments by *impaired* {direction: list}; data that ended ones held back is released."""
        healed = [
            way for way, former in self.impaired.items() if any(one not in impaired.get(way, ()) for one in former)
        ]
        self.impaired = impaired
        self.changed.set()
        self.changed = asyncio.Event()
        for pipe in self.connections:
            if pipe.direction in healed:
                pipe.release()


class Chunk(NamedTuple):
    """Bytes on their way: when they are due at the other end, when they were sent."""

    due: float
    sent: float
    data: bytes


class Pipe(asyncio.Protocol):
    """One end of a relayed connection; bytes that arrive here leave through *peer*."""

    def __init__(self, link: Link, direction: str, ledger: LedgerWriter) -> None:
        self.link, self.direction, self.ledger = link, direction, ledger
        self.transport: asyncio.Transport | None = None
        self.peer: Pipe | None = None
        self.waiting: list[bytes] = []
        self.free_at = 0.0
        self.in_flight: deque[Chunk] = deque()
        self.timer: asyncio.TimerHandle | None = None
        self.closing = self.broken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store *transport*; if it is the caller's end, connect to the destination; called by asyncio."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses of asyncio's
        self.link.connections.add(self)
        if self.direction == FORWARD:
            self.dialling = asyncio.get_running_loop().create_task(self.dial())

    async def dial(self) -> None:
        """Connect to the destination and forward what has arrived; reset the caller's connection if that fails."""
        loop = asyncio.get_running_loop()
        await self.link.connected()  # the handshake crosses the wire too
        try:
            if self.link.upstream is None:
                raise ConnectionRefusedError
            _, other = await loop.create_connection(lambda: Pipe(self.link, BACKWARD, self.ledger), *self.link.upstream)
        except OSError:
            self.abort()
            return
        self.peer, other.peer = other, self
        for end in (self, other):
            for chunk in end.waiting:
                end.forward(chunk)
            end.waiting.clear()
        if self.closing:
            other.close()

    def data_received(self, data: bytes) -> None:
        """Forward *data* to the other end, or keep it until there is one; called by asyncio."""
        if self.peer is None:
            self.waiting.append(data)
        else:
            self.forward(data)

    def forward(self, data: bytes) -> None:
        """Send *data* to the other end after the delay of the link's impairments, in order."""
        now = asyncio.get_running_loop().time()
        lag = 0.0
        for impaired in self.link.impaired.get(self.direction, ()):
            if more := impaired.lag_s(len(data), now):
                ns = int(more * 1e9) if more < math.inf else 0
                self.ledger.write(impaired.ledger_kind, link=self.link.name, direction=self.direction, ns=ns)
                lag += more
        due = max(now + lag, self.free_at)
        if due <= now and not self.in_flight:
            self.deliver(data)
            return
        self.free_at = due
        self.in_flight.append(Chunk(due, now, data))
        if len(self.in_flight) == 1:
            self.schedule()

    def schedule(self) -> None:
        """Set the timer for the first held chunk; none for a lost chunk, which waits for `release`."""
        if self.timer is not None:
            self.timer.cancel()
        due = self.in_flight[0].due
        self.timer = asyncio.get_running_loop().call_at(due, self.land) if due < math.inf else None

    def land(self) -> None:
        """Send all held chunks that are due, in order, to the other end."""
        loop = asyncio.get_running_loop()
        while self.in_flight and self.in_flight[0].due <= loop.time():
            self.deliver(self.in_flight.popleft().data)
        if self.in_flight:
            self.schedule()
        elif self.closing:
            self.end_peer()

    def release(self) -> None:
        """Reschedule all held chunks after the end of an impairment: at once, lost ones when TCP would resend them."""
        now = asyncio.get_running_loop().time()
        self.free_at = now
        for _ in range(len(self.in_flight)):
            chunk = self.in_flight.popleft()
            if chunk.due == math.inf:
                self.free_at = max(self.free_at, now + next_resend_s(now - chunk.sent))
            self.in_flight.append(chunk._replace(due=self.free_at))
        if self.in_flight:
            self.schedule()

    def deliver(self, data: bytes) -> None:
        """Write *data* to the other end's socket, if that is open."""
        if self.peer and self.peer.transport and not self.peer.transport.is_closing():
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        """Stop reading from the other end, since this end's send buffer is full; called by asyncio."""
        if self.peer and self.peer.transport:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other end again, since this end's send buffer has room; called by asyncio."""
        if self.peer and self.peer.transport:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end once held chunks are sent; *exc* means a reset; called by asyncio."""
        self.link.connections.discard(self)
        self.closing, self.broken = True, exc is not None
        if not self.in_flight:
            self.end_peer()

    def end_peer(self) -> None:
        """Close the other end, or reset it if this end was reset."""
        if self.peer:
            self.peer.abort() if self.broken else self.peer.close()

    def close(self) -> None:
        """Close this end once its send buffer is empty."""
        if self.transport:
            self.transport.close()

    def abort(self) -> None:
        """Reset the connection of this end."""
        if self.transport is None or self.transport.is_closing():
            return
        raw = self.transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.transport.abort()


class Relay:
    """All links of a system."""

    def __init__(self, ledger: LedgerWriter) -> None:
        self.links: dict[str, Link] = {}
        self.ledger = ledger
        self.servers: list[asyncio.Server] = []
        self.faults: dict[str, list[tuple[str, str, Impairment]]] = {}

    async def open(self, request: dict[str, Any]) -> dict[str, int]:
        """Open a listener for each of ``links`` [[source, destination], ...]; return {link name: port}."""
        loop = asyncio.get_running_loop()
        ports = {}
        for source, destination in request["links"]:
            link = Link(source, destination)
            server = await loop.create_server(lambda link=link: Pipe(link, FORWARD, self.ledger), "127.0.0.1", 0)  # type: ignore[misc]
            self.servers.append(server)
            self.links[link.name] = link
            ports[link.name] = server.sockets[0].getsockname()[1]
        return ports

    async def upstream(self, request: dict[str, Any]) -> int:
        """Direct all links to ``destination`` to ``address`` [host, port], None: refuse; return how many there are."""
        address = request["address"]
        changed = [link for link in self.links.values() if link.destination == request["destination"]]
        for link in changed:
            link.upstream = (address[0], address[1]) if address else None
            if address is None:
                for pipe in list(link.connections):
                    pipe.abort()
        return len(changed)

    async def impair(self, request: dict[str, Any]) -> int:
        """Impair ``streams`` [[link, direction], ...] for ``fault``; return how many links are impaired in total.

        All streams share one ``impairment`` and its state.
        """
        shared = impairment(request["impairment"])
        self.faults[request["fault"]] = [(link, direction, shared) for link, direction in request["streams"]]
        return self._reconsider()

    async def heal(self, request: dict[str, Any]) -> int:
        """End the impairments of ``fault``; return how many links are still impaired by others."""
        self.faults.pop(request["fault"], None)
        return self._reconsider()

    def _reconsider(self) -> int:
        """Set the impairments of every link by the active faults; return how many links are impaired."""
        desired: dict[str, dict[str, list[Impairment]]] = {}
        for link, direction, impaired in itertools.chain.from_iterable(self.faults.values()):
            desired.setdefault(link, {}).setdefault(direction, []).append(impaired)
        for name, one in self.links.items():
            one.impair(desired.get(name, {}))
        return len(desired)

    async def ping(self, _: dict[str, Any]) -> dict[str, Any]:
        """Return the numbers of links, open connections and lost ledger lines, for the supervisor."""
        connections = sum(len(link.connections) for link in self.links.values())
        return {"links": len(self.links), "connections": connections, "ledger_lost": self.ledger.lost}


async def main(config: dict[str, Any]) -> None:
    """Relay connections as the supervisor requests until it closes the channel."""
    relay = Relay(LedgerWriter(config["ledger"], "relay"))
    handlers = {
        "open": relay.open,
        "upstream": relay.upstream,
        "impair": relay.impair,
        "heal": relay.heal,
        "ping": relay.ping,
    }
    await management.serve(config["management"], {"id": "relay"}, handlers)
