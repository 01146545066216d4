"""Packet faults: one impairment of the streams that begin or end at the target."""

from __future__ import annotations

from opsassay.testbed.catalogue.network import impairment_of
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.core.links import touched
from opsassay.testbed.core.networks import Stream
from opsassay.testbed.injection.under_test import Account
from opsassay.testbed.substrates.local.actuators.under_test import LocalUnderTest


class Packets:
    """Impairs every stream that the fault's direction and peer select."""

    def __init__(self, injection: Injection[LocalUnderTest]) -> None:
        self._injection = injection
        self._account = Account(injection, own=["*"])

    async def apply(self) -> None:
        """Impair the packet streams of the targets; both ends record one-way times in the ledger meanwhile."""
        injection, impairment = self._injection, impairment_of(self._injection.plan)
        await self._account.open()
        for target, streams in self.streams().items():
            await injection.system.network.impair(injection.id, target, streams, impairment)

    async def undo(self) -> None:
        """End the impairment of the packet streams."""
        self._injection.notes += await self._injection.system.network.heal(self._injection.id)
        await self._account.close()

    def streams(self) -> dict[str, list[Stream]]:
        """Return {replica id of a target: the streams to impair at it}."""
        injection, found = self._injection, dict[str, list[Stream]]()
        targets = {replica.id for replica in injection.replicas}
        for stream in touched(injection.system.fleet, targets, injection.plan.parameters):
            found.setdefault(stream.source if stream.source in targets else stream.destination, []).append(stream)
        return found
