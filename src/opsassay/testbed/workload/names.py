"""The name server of a local system: answers DNS SRV queries for `<service>.<caller>.svc.local` with the ready backends.

It listens on a UDP port of the management address. The caller is part of the name because on the `plain` level every
(caller, backend) pair has a port of its own at the relay. The address of a record's target comes with it.
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

from opsassay.testbed.core.networks import Endpoint

TTL_S = 1

Answer = list[Endpoint] | dns.rcode.Rcode
"""Where to connect to, or the code of a failure."""


class NameServer(asyncio.DatagramProtocol):
    """Answers from *lookup*(service, caller) -> endpoints, None for a service that does not exist.

    *overrides* maps a caller to what answers in its stead: *override*(service) -> answer, None to leave it.
    """

    def __init__(self, lookup: Callable[[str, str], list[Endpoint] | None]) -> None:
        self._lookup = lookup
        self.overrides: dict[str, Callable[[str], Answer | None]] = {}

    async def start(self, address: str) -> int:
        """Listen on *address*; return the port."""
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, local_addr=(address, 0))
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
        answer = self._resolve_name(labels[0], labels[1]) if len(labels) > 3 else dns.rcode.NXDOMAIN
        if isinstance(answer, dns.rcode.Rcode):
            response.set_rcode(answer)
        elif answer:
            targets = {host: f"{host.replace('.', '-')}.pod.local." for host, _ in answer}
            records = [f"0 0 {port} {targets[host]}" for host, port in answer]
            response.answer.append(dns.rrset.from_text_list(question.name, TTL_S, "IN", "SRV", records))
            found = [dns.rrset.from_text(target, TTL_S, "IN", "A", host) for host, target in targets.items()]
            response.additional.extend(found)
        self._transport.sendto(response.to_wire(), address)

    def _resolve_name(self, service: str, caller: str) -> Answer:
        override = self.overrides.get(caller)
        if override is not None and (answer := override(service)) is not None:
            return answer
        endpoints = self._lookup(service, caller)
        return dns.rcode.NXDOMAIN if endpoints is None else endpoints
