"""The `namespaced` level: a network namespace per replica on a bridge per host, and real packets between them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, ClassVar

from opsassay.core.schema.system import IsolationLevel, System
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Fleet
from opsassay.testbed.core.networks import LOOPBACK, Endpoint, Site
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.kernel.namespaces import inside
from opsassay.testbed.kernel.network import DATA_INTERFACE, Fabric, Place
from opsassay.testbed.substrates.local.impairing import Impairing
from opsassay.testbed.workload.processes import Channels, Template

PROBE = "probe"
BESIDE = ("stores", "users", "probes")
"""Hosts of what is no replica: the stores, the load generator, the probe."""
SERVICE_PORT = 8080
STORE_PORTS = {"postgresql": 5432, "valkey": 6379, "nats": 4222}
"""Below the ports that the kernel gives to callers, so that a packet tells which end of a connection called."""
CHUNK_BYTES = 65_536


def open_entrances(system: System) -> dict[str, socket.socket]:
    """Return {entry service: a loopback socket that listens for its users}; called before namespaces are entered."""
    return {entry: socket.create_server((LOOPBACK, 0)) for entry in sorted(system.entries())}


class NamespacedNetwork(Impairing):
    """Every replica, store, load generator and probe in a namespace of its own, which outlives its processes.

    *entrances* are listening sockets from outside, by entry service: what connects there is passed on from the users' site.
    """

    level: ClassVar[IsolationLevel] = "namespaced"
    interface: ClassVar[str | None] = DATA_INTERFACE
    home = resolver = Fabric.management_address

    def __init__(
        self,
        state: SystemState,
        fleet: Fleet,
        template: Template,
        channels: Channels,
        entrances: Mapping[str, socket.socket],
        kernel_can: Collection[str],
        expect_exit: Callable[[int], None],
    ) -> None:
        super().__init__(state, template, channels, kernel_can, expect_exit)
        self._fleet = fleet
        self._outside: dict[str, Endpoint] = {entry: one.getsockname() for entry, one in entrances.items()}
        self._entrances = entrances
        self._fabric = Fabric([*fleet.system.hosts, *BESIDE])
        self._ports: dict[str, int | None] = {}
        self._servers: list[asyncio.Server] = []

    async def prepare(self) -> None:
        """Make bridges, and a network namespace for each replica, store, load generator and probe."""
        await asyncio.to_thread(self._build)  # the netlink library runs an event loop of its own

    def _build(self) -> None:
        """Make bridges and namespaces; blocks, so it runs in a thread."""
        self._fabric.start()
        stores, users, probes = BESIDE
        desired = {replica.id: replica.host for replica in self._fleet.replicas.values()}
        desired |= dict.fromkeys(self._fleet.system.stores, stores)
        desired |= {LOAD_GENERATOR: users, PROBE: probes}
        self._places = {name: self._fabric.attach(name, host) for name, host in desired.items()}

    async def open(self, stores: dict[str, int]) -> None:
        """Record the ports of *stores*, and accept connections of users at the entry sockets."""
        self._ports.update(stores)
        for entry, listening in self._entrances.items():
            self._servers.append(await asyncio.start_server(self._visitor(entry), sock=listening))

    async def admit(self, name: str, host: str) -> None:
        """Make a network namespace for the new replica *name*, on the bridge of *host*."""
        if name not in self._places:
            self._places[name] = await asyncio.to_thread(self._fabric.attach, name, host)

    def site(self, name: str) -> Site:
        """Return the network site of *name*."""
        place, store = self._places[name], self._fleet.system.stores.get(name)
        port = STORE_PORTS[store.engine] if store else SERVICE_PORT
        return Site(place.data_address, place.management_address, place.path, port)

    def place(self, name: str) -> Place:
        """Return the network namespace and addresses of *name*."""
        return self._places[name]

    async def listens(self, name: str, port: int | None) -> None:
        """Record that the process *name* listens on *port*."""
        self._ports[name] = port

    def endpoint(self, caller: str, callee: str) -> Endpoint | None:  # noqa: ARG002 - every packet finds its way
        """Return (address, port) of *callee*, the same for every caller; None when it does not listen."""
        port = self._ports.get(callee)
        return None if port is None else (self._places[callee].data_address, port)

    def entrances(self, entry: str) -> list[Endpoint]:
        """Return the loopback (address, port) at which users reach the service *entry*, as a list."""
        return [self._outside[entry]]

    def probe(self) -> dict[str, Any] | None:
        """Return pid and namespace in which probes run; None before the namespaces are made."""
        place = self._places.get(PROBE)
        return None if place is None else {"pid": os.getpid(), "namespace": place.path}

    async def close(self) -> None:
        """Close the entry sockets; each namespace ends with its last process."""
        for server in self._servers:
            server.close()
        await asyncio.to_thread(self._fabric.close)

    def _visitor(self, entry: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        """Return a connection handler that forwards each user in turn to a ready replica of *entry*."""
        turn = itertools.count()

        async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ready = [replica.id for replica in self._fleet.replicas_of(entry) if replica.ready]
            endpoint = self.endpoint(LOAD_GENERATOR, ready[next(turn) % len(ready)]) if ready else None
            if endpoint is not None:
                with contextlib.suppress(OSError):  # either side may hang up at any time
                    await self._pass_on(endpoint, reader, writer)
            writer.close()

        return visit

    async def _pass_on(self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy bytes both ways between a user's connection and *endpoint*, until both ends close."""
        calling = inside(self._places[LOAD_GENERATOR].path, socket.socket)
        calling.setblocking(False)  # noqa: FBT003 - the name of the flag is not part of its signature
        try:
            await asyncio.get_running_loop().sock_connect(calling, endpoint)
        except OSError:
            calling.close()
            raise
        upstream, downstream = await asyncio.open_connection(sock=calling)
        try:
            await asyncio.gather(_copy(reader, downstream), _copy(upstream, writer))
        finally:
            downstream.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy bytes from *source* to *sink* until *source* ends, then send the end to *sink*."""
    while chunk := await source.read(CHUNK_BYTES):
        sink.write(chunk)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
