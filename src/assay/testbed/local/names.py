"""The name server of a local system: answers DNS SRV queries for `<service>.<caller>.svc.local` with the ready backends.

It listens on a loopback UDP port. The caller is part of the name because on the `plain` level every (caller, backend) pair
has a port of its own at the relay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rrset

TTL_S = 1


class NameServer(asyncio.DatagramProtocol):
    """Answers from *lookup*(service, caller) -> ports, None for a service that does not exist."""

    def __init__(self, lookup: Callable[[str, str], list[int] | None]) -> None:
        self._lookup = lookup
        self.answered = 0

    async def start(self) -> int:
        """Listen; return the port."""
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        port: int = transport.get_extra_info("sockname")[1]
        return port

    def connection_made(self, transport: Any) -> None:
        """Remember the socket."""
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Answer one query; what is no query is ignored, as a name server does."""
        try:
            query = dns.message.from_wire(data)
            question = query.question[0]
        except (dns.exception.DNSException, IndexError):
            return
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA
        labels = question.name.to_text().split(".")
        ports = self._lookup(labels[0], labels[1]) if len(labels) > 3 else None
        if ports is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif ports:
            records = [f"0 0 {port} localhost." for port in ports]
            response.answer.append(dns.rrset.from_text_list(question.name, TTL_S, "IN", "SRV", records))
        self.answered += 1
        self._transport.sendto(response.to_wire(), address)
