"""DNS faults: the name server's answers to one replica go wrong."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable

import dns.rcode

from opsassay.testbed.core.injection import Injection
from opsassay.testbed.injection.under_test import Account, hook
from opsassay.testbed.substrates.local.actuators.under_test import LocalUnderTest
from opsassay.testbed.workload.names import Answer
from opsassay.testbed.workload.runtime.lookups import LOOKED_UP


class Lookups(ABC):
    """Overrides the answers to the target's look-ups: of one name, or of all."""

    def __init__(self, injection: Injection[LocalUnderTest]) -> None:
        self._injection = injection
        hostname = injection.plan.parameters.get("hostname")
        self._hosts = [hostname] if hostname else injection.system.system.looked_up_by(injection.replica.service)
        self._account = Account(injection, own=self._hosts)
        self._former: Callable[[str], Answer | None] | None = None
        self._installed = False

    async def apply(self) -> None:
        """Make DNS look-ups of the target wrong from now on; failed calls are recorded in the ledger of effects."""
        await self._account.open()
        overrides = self._injection.system.names.overrides
        self._former, self._installed = overrides.get(self._injection.replica.id), True
        overrides[self._injection.replica.id] = self._answer_wrongly
        program = self._injection.replica.spec.program
        if program is not None and program.container is not None:
            await hook(self._injection, on=True, parameters={LOOKED_UP: self._hosts})
        if program is not None:
            self._injection.notes += await self._injection.system.directory.hang_up(
                self._injection.replica, self._hosts
            )

    async def undo(self) -> None:
        """Restore the DNS answers to the target; caches expire within a second."""
        if self._installed:
            self._installed = False
            await hook(self._injection, on=False)
            overrides = self._injection.system.names.overrides
            if self._former is None:
                overrides.pop(self._injection.replica.id, None)
            else:
                overrides[self._injection.replica.id] = self._former  # faults are taken back in reverse order
        await self._account.close()

    def _answer_wrongly(self, name: str) -> Answer | None:
        """Return the fault's answer for *name*, recorded in the ledger; for other names what was answered before."""
        if name not in self._hosts:
            return self._former(name) if self._former else None
        service = self._injection.replica.service
        self._injection.system.ledger.write("lookup", callee=name, service=service, error=True)
        return self.wrong_answer(name)

    @abstractmethod
    def wrong_answer(self, name: str) -> Answer:
        """Return the endpoints or the DNS error code to answer to a query for *name*."""


class FailingLookups(Lookups):
    """The name server fails."""

    def wrong_answer(self, name: str) -> Answer:  # noqa: ARG002
        """Return SERVFAIL as the answer to a query for *name*."""
        return dns.rcode.SERVFAIL


class StrayLookups(Lookups):
    """The answer is the address of another service, drawn anew for every query."""

    def wrong_answer(self, name: str) -> Answer:
        """Return the endpoint of a replica of another service than *name*; without one, SERVFAIL."""
        system, own = self._injection.system, self._injection.replica.service
        others = [
            (system.network.site(replica.id).address, replica.port)
            for replica in system.fleet.replicas.values()
            if replica.port is not None and replica.service not in (name, own)
        ]
        return [random.choice(others)] if others else dns.rcode.SERVFAIL  # noqa: S311
