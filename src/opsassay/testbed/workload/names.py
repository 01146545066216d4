"""The name server of a local system: DNS SRV queries for `<service>.<caller>.svc.local` return the ready backends.

It listens on a UDP port of the management address. The caller is part of the name because on the `plain` level every
(caller, backend) pair has its own port at the relay. The target's address is in the additional section.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from opsassay.testbed.core.networks import Endpoint

TTL_S = 1
PORT_OF_NAMES = 53
"""The DNS port for users' own programs, as resolv.conf allows no other."""

Answer = list[Endpoint] | dns.rcode.Rcode
"""Endpoints to connect to, or a DNS error code."""


class AnsweringServer(asyncio.DatagramProtocol, ABC):
    """Reads DNS queries and sends the responses that `fill_response` makes."""

    def connection_made(self, transport: Any) -> None:
        """Store *transport*, by which answers are sent; called by asyncio."""
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Answer the DNS query *data* from *address*; anything else is ignored; called by asyncio."""
        try:
            query = dns.message.from_wire(data)
            question = query.question[0]
        except (dns.exception.DNSException, IndexError):
            return
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA
        self.fill_response(response, question, address[0])
        self._transport.sendto(response.to_wire(), address)

    @abstractmethod
    def fill_response(self, response: dns.message.Message, question: dns.rrset.RRset, caller: str) -> None:
        """Add the records for *question* or an error code to *response*; *caller* is the client's IP address."""


class NameServer(AnsweringServer):
    """Answers from *lookup*(service, caller) -> endpoints, None for an unknown service.

    *overrides* maps a caller to a function from a service to the answer to give instead, None for the usual one.
    """

    def __init__(self, lookup: Callable[[str, str], list[Endpoint] | None]) -> None:
        self._lookup = lookup
        self.overrides: dict[str, Callable[[str], Answer | None]] = {}

    async def start(self, address: str) -> int:
        """Listen on a free UDP port of *address*; return the port."""
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, local_addr=(address, 0))
        port: int = transport.get_extra_info("sockname")[1]
        return port

    def fill_response(self, response: dns.message.Message, question: dns.rrset.RRset, caller: str) -> None:  # noqa: ARG002
        """Add to *response* SRV and A records of SERVICE in the question SERVICE.CALLER.svc.local, or an error code."""
        labels = question.name.to_text().split(".")
        answer = self.resolve(labels[0], labels[1]) if len(labels) > 3 else dns.rcode.NXDOMAIN
        if isinstance(answer, dns.rcode.Rcode):
            response.set_rcode(answer)
        elif answer:
            targets = {host: f"{host.replace('.', '-')}.pod.local." for host, _ in answer}
            records = [f"0 0 {port} {targets[host]}" for host, port in answer]
            response.answer.append(dns.rrset.from_text_list(question.name, TTL_S, "IN", "SRV", records))
            found = [dns.rrset.from_text(target, TTL_S, "IN", "A", host) for host, target in targets.items()]
            response.additional.extend(found)

    def resolve(self, service: str, caller: str) -> Answer:
        """Return the endpoints of *service* for *caller*, or the DNS error code that a fault or look-up gives."""
        override = self.overrides.get(caller)
        if override is not None and (answer := override(service)) is not None:
            return answer
        endpoints = self._lookup(service, caller)
        return dns.rcode.NXDOMAIN if endpoints is None else endpoints


class ProgramNames(AnsweringServer):
    """Answers the resolvers of programs: A and SRV records of services and stores, ``orders`` or ``orders.shop``.

    *addresses* returns the addresses of a name, None for an unknown one; *caller_at* returns the caller at an IP address,
    so that faults in answers of *names* apply here too.
    """

    def __init__(
        self, names: NameServer, addresses: Callable[[str], list[str] | None], caller_at: Callable[[str], str]
    ) -> None:
        self._names, self._addresses, self._caller_at = names, addresses, caller_at

    async def start(self, address: str) -> None:
        """Listen on the DNS port (53) of *address*."""
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=(address, PORT_OF_NAMES))

    def fill_response(self, response: dns.message.Message, question: dns.rrset.RRset, caller: str) -> None:
        """Add A or SRV records for the first label of *question* to *response*, or an error code."""
        response.flags |= dns.flags.RA
        labels = [label for label in question.name.to_text(omit_final_dot=True).split(".") if label[:1] != "_"]
        found = self._find_endpoints(labels[0] if labels else "", self._caller_at(caller))
        if isinstance(found, dns.rcode.Rcode):
            response.set_rcode(found)
            return
        kind, records = "A", [host for host, _ in found]
        if question.rdtype == dns.rdatatype.SRV:
            kind, records = "SRV", [f"0 0 {port} {labels[0]}." for port in {port for _, port in found if port}]
        if records and question.rdtype in (dns.rdatatype.A, dns.rdatatype.SRV):
            response.answer.append(dns.rrset.from_text_list(question.name, TTL_S, "IN", kind, records))

    def _find_endpoints(self, name: str, caller: str) -> Answer:
        """Return the endpoints of *name* for *caller* (port 0 if unknown), or the DNS error code of a fault."""
        override = self._names.overrides.get(caller)
        if override is not None and (answer := override(name)) is not None:
            return answer
        addresses = self._addresses(name)
        if addresses is None:
            return dns.rcode.NXDOMAIN
        endpoints = self._names.resolve(name, caller)
        ports = {} if isinstance(endpoints, dns.rcode.Rcode) else dict(endpoints)
        return [(address, ports.get(address, 0)) for address in addresses]
