"""Names in a pod: the SRV records that the runtime asks for, from the cluster's DNS; and look-ups gone wrong."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import dns.rcode

from opsassay.testbed.core.networks import Endpoint
from opsassay.testbed.substrates.kubernetes.endpoints.desired import Lookup
from opsassay.testbed.workload.names import Answer, NameServer
from opsassay.testbed.workload.runtime.ledger import LedgerWriter
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT

START_TIMEOUT_S = 5.0


class PodNames:
    """Answers the process called *name*, of *service*; *wrong* says which names fail or lead to another of *services*."""

    def __init__(
        self, name: str, service: str, services: Sequence[str], ledger: LedgerWriter, urls: Mapping[str, str]
    ) -> None:
        """*urls* is where services are that do not have a Kubernetes Service of their own name."""
        self._name, self._service, self._services, self._ledger = name, service, services, ledger
        self._urls = urls
        self.wrong: Mapping[str, Lookup] = {}

    def serve(self) -> int:
        """Start the DNS server in a thread and return its UDP port."""
        ready, ports = threading.Event(), list[int]()

        async def run() -> None:
            """Serve DNS on a free UDP port of 127.0.0.1 until the process ends."""
            server = NameServer(lambda service, _caller: look_up(service, self._urls.get(service)))
            server.overrides[self._name] = self._answer_wrongly
            ports.append(await server.start("127.0.0.1"))
            ready.set()
            await asyncio.Event().wait()

        threading.Thread(target=lambda: asyncio.run(run()), name="names", daemon=True).start()
        ready.wait(START_TIMEOUT_S)
        return ports[0]

    def _answer_wrongly(self, name: str) -> Answer | None:
        """Return the fault's wrong answer for *name* and record it in the ledger; None when the fault spares it."""
        how = self.wrong.get(name)
        if how is None:
            return None
        self._ledger.write("lookup", callee=name, service=self._service, error=True)
        others = [other for other in self._services if other not in (name, self._service)]
        if how == "stray" and others:
            return look_up(random.choice(others)) or dns.rcode.SERVFAIL  # noqa: S311
        return dns.rcode.SERVFAIL


def look_up(service: str, url: str | None = None) -> list[Endpoint] | None:
    """Return the endpoints of *service*, which may be at *url*, in the cluster's DNS; None for an unknown name."""
    parts = urlsplit(url or f"http://{service}:{SERVICE_PORT}")
    try:
        return [(socket.gethostbyname(parts.hostname or ""), parts.port or 80)]
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            return None
        raise
