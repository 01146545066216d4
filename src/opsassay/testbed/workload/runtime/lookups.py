"""Look-ups of a container that go wrong: a name server of this process gets what the container asks, while a fault acts.

It is in the container's network. Wrong answers are those of the system's name server; whatever else is asked goes on to the
container's own resolver. The rule that leads queries here goes with this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from opsassay.testbed.core.networks import LOOPBACK
from opsassay.testbed.kernel.namespaces import inside
from opsassay.testbed.workload.names import PORT_OF_NAMES, TTL_S
from opsassay.testbed.workload.runtime.clients import CallFailedError, Names

if TYPE_CHECKING:
    from opsassay.testbed.kernel.netfilter import Table

OWN_MARK = 0x4F41
"""The mark of queries that this process passes on."""
LOOKED_UP = "looked_up"
"""The parameter of a hook that names the services whose look-ups go wrong."""
ANSWER_S, LARGEST = 5.0, 65_535


class ContainerLookups(asyncio.DatagramProtocol):
    """Answers queries from the network *namespace* whose resolv.conf is *resolver_file*.

    *names* asks the system's name server; *services* maps each name by which a service is called to that service.
    """

    def __init__(self, namespace: str, resolver_file: Path, names: Names, services: Mapping[str, str]) -> None:
        self._namespace, self._names, self._services = namespace, names, services
        words = [line.split() for line in resolver_file.read_text(encoding="utf-8").splitlines()]
        self._resolvers = [line[1] for line in words if line[:1] == ["nameserver"] and ":" not in line[1]]
        self._domains = [domain for line in words if line[:1] in (["search"], ["domain"]) for domain in line[1:]]
        self._hosts: frozenset[str] = frozenset()
        self._transport: asyncio.DatagramTransport | None = None
        self._table: Table | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def misdirect(self, hosts: Sequence[str]) -> None:
        """Let look-ups of exactly the services *hosts* be answered by the system's name server; none when empty."""
        self._hosts = frozenset(hosts)
        if not hosts and self._table is not None:
            self._table.close()  # a client that keeps its socket still asks here, and is answered
            self._table = None
        if not hosts or self._table is not None:
            return
        if self._transport is None:
            listening = inside(self._namespace, _make_socket)
            listening.bind((LOOPBACK, 0))
            loop = asyncio.get_running_loop()
            self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=listening)
        port = self._transport.get_extra_info("sockname")[1]
        self._table = await asyncio.to_thread(inside, self._namespace, lambda: _divert(port))

    def datagram_received(self, data: bytes, address: Any) -> None:
        """Answer one query in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._answer(data, address))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, data: bytes, address: Any) -> None:
        """Send the answer to the query *data* to *address*; what is no query gets none, as from any name server."""
        with contextlib.suppress(dns.exception.DNSException, IndexError, OSError, TimeoutError):
            query = dns.message.from_wire(data)
            service = self._service_called(query.question[0].name.to_text(omit_final_dot=True).lower())
            answer = await (self._ask_resolver(data) if service is None else self._wrong_answer(query, service))
            assert self._transport is not None
            self._transport.sendto(answer, address)

    def _service_called(self, name: str) -> str | None:
        """Return the service that *name* calls, if a fault is about it."""
        called = next((name.removesuffix(f".{one}") for one in self._domains if name.endswith(f".{one}")), name)
        service = self._services.get(called)
        return service if service in self._hosts else None

    async def _wrong_answer(self, query: dns.message.Message, service: str) -> bytes:
        """Return the answer of the system's name server to a look-up of *service*: IPv4 addresses, or a failure."""
        response, question = dns.message.make_response(query), query.question[0]
        try:
            found = sorted({host for host, _ in await self._names.resolve(service)})
        except CallFailedError:
            response.set_rcode(dns.rcode.SERVFAIL)
        else:
            if found and question.rdtype == dns.rdatatype.A:
                response.answer.append(dns.rrset.from_text_list(question.name, TTL_S, "IN", "A", found))
        return response.to_wire()

    async def _ask_resolver(self, query: bytes) -> bytes:
        """Return what the container's resolver answers to *query*; raises OSError, TimeoutError, IndexError."""
        with inside(self._namespace, _make_socket) as asking:
            asking.connect((self._resolvers[0], PORT_OF_NAMES))
            asking.send(query)
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.get_running_loop().sock_recv(asking, LARGEST)


def _make_socket() -> socket.socket:
    """Return a socket whose queries are not led back here."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, OWN_MARK)
    return made


def _divert(port: int) -> Table:
    """Return a table that leads queries of this namespace to *port* while it is open."""
    from opsassay.testbed.kernel.netfilter import Table  # few systems need it, and all would import it

    table = Table("ip", "lookups")
    table.redirect_sent(PORT_OF_NAMES, port, OWN_MARK)
    return table
