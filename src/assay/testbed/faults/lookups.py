"""DNS faults: the name server's answers to one replica go wrong."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod

import dns.rcode

from assay.errors import RefusedError
from assay.testbed.faults.injection import Injection, watch
from assay.testbed.local.names import Answer


class Lookups(ABC):
    """Overrides the answers to the target's look-ups: of one name, or of all."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    async def apply(self) -> None:
        """Install the override; the target enters the calls that fail for it into the ledger."""
        replica, supervisor = self._injection.replica, self._injection.supervisor
        asked = {callee for caller, callee in supervisor.system.calls() if caller == replica.service}
        hostname = self._injection.plan.parameters.get("hostname")
        if not asked or hostname not in (None, *asked):
            known = f"it asks for {', '.join(sorted(asked))}" if asked else "stores are reached by address"
            raise RefusedError(f"{replica.service} never looks up {hostname or 'a name'}: {known}; choose another.")
        names = [hostname] if hostname else sorted(asked)
        for name in names:
            self.wrong_answer(name)  # raises when there is none
        await watch(self._injection, on=True, own=names)
        supervisor.names.overrides[replica.id] = self._override

    async def undo(self) -> None:
        """Remove the override; caches forget within a second."""
        self._injection.supervisor.names.overrides.pop(self._injection.replica.id, None)
        await watch(self._injection, on=False)

    def _override(self, name: str) -> Answer | None:
        if self._injection.plan.parameters.get("hostname") not in (None, name):
            return None
        self._injection.supervisor.ledger.write(
            "lookup", callee=name, service=self._injection.replica.service, error=True
        )
        return self.wrong_answer(name)

    @abstractmethod
    def wrong_answer(self, name: str) -> Answer:
        """Return what is answered to a query for *name*."""


class FailingLookups(Lookups):
    """The name server fails."""

    def wrong_answer(self, name: str) -> Answer:  # noqa: ARG002
        """Return SERVFAIL."""
        return dns.rcode.SERVFAIL


class StrayLookups(Lookups):
    """The answer is the address of another service, drawn anew for every query."""

    def wrong_answer(self, name: str) -> Answer:
        """Return where a replica of another service listens."""
        supervisor, own = self._injection.supervisor, self._injection.replica.service
        others = [
            (supervisor.network.site(replica.id).address, replica.port)
            for replica in supervisor.fleet.replicas.values()
            if replica.port is not None and replica.service not in (name, own)
        ]
        if not others:
            raise RefusedError(f"There is no third service whose address could be given for {name}; use DNSError.")
        return [random.choice(others)]  # noqa: S311
