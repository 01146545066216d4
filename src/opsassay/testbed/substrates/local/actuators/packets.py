"""Packet faults: one impairment of the streams that begin or end at the target."""

from __future__ import annotations

from typing import Any

from opsassay.errors import RefusedError
from opsassay.model.incident import PlannedFault
from opsassay.testbed.core.networks import Stream
from opsassay.testbed.injection.injection import Account, Injection
from opsassay.testbed.injection.links import touched


class Packets:
    """Impairs every stream that the fault's direction and peer select."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self._account = Account(injection, own=["*"])

    async def apply(self) -> None:
        """Impair the streams; both ends of the links note one-way times in the ledger from now on."""
        injection, impairment = self._injection, impairment_of(self._injection.plan)
        await self._account.open()
        for target, streams in self.streams().items():
            await injection.system.network.impair(injection.id, target, streams, impairment)

    async def undo(self) -> None:
        """Take it back."""
        self._injection.notes += await self._injection.system.network.heal(self._injection.id)
        await self._account.close()

    def streams(self) -> dict[str, list[Stream]]:
        """Return the streams that the fault touches, by the replica at whose end they are impaired."""
        injection, found = self._injection, dict[str, list[Stream]]()
        targets = {replica.id for replica in injection.replicas}
        for stream in touched(injection.system.fleet, targets, injection.plan.parameters):
            found.setdefault(stream.source if stream.source in targets else stream.destination, []).append(stream)
        return found


def impairment_of(plan: PlannedFault) -> dict[str, Any]:
    """Return the impairment that *plan* asks for, as networks read it: its kind and its numbers."""
    parameters = plan.parameters
    match plan.fault:
        case "NetworkDelay":
            jitter_ms = parameters.get("jitter_ms", 0.0)
            return {"kind": "delay", "delay_s": parameters["delay_ms"] / 1e3, "jitter_s": jitter_ms / 1e3}
        case "NetworkLoss":
            return {"kind": "loss", "share": parameters["loss_percent"] / 100}
        case "NetworkDuplicate":
            return {"kind": "duplicate", "share": parameters["duplicate_percent"] / 100}
        case "NetworkCorrupt":
            return {"kind": "corrupt", "share": parameters["corrupt_percent"] / 100}
        case "NetworkBandwidth":
            return {"kind": "bandwidth", "bytes_per_s": parameters["rate_bps"] / 8}
        case "NetworkPartition":
            return {"kind": "partition"}
        case other:
            raise RefusedError(f"No network has an impairment for {other}.")
