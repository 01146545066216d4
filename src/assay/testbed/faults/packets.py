"""Packet faults: one impairment of streams over the links that begin or end at the replica."""

from __future__ import annotations

from typing import Any

from assay.errors import RefusedError
from assay.testbed.faults.injection import Injection, watch
from assay.testbed.local.networks import BACKWARD, FORWARD, Stream


class Packets:
    """Impairs every stream that the fault's direction and peer select."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    def impairment(self) -> dict[str, Any]:
        """Return the impairment as networks read it: its kind and its numbers."""
        parameters = self._injection.plan.parameters
        match self._injection.plan.fault:
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

    async def apply(self) -> None:
        """Impair the streams; both ends of the links note one-way times in the ledger from now on."""
        injection, streams = self._injection, self.streams()
        if not streams:
            peer = injection.plan.parameters.get("peer")
            raise RefusedError(
                f"{injection.replica.service} exchanges no packets with {peer!r}; leave `peer` out or name another."
            )
        await watch(injection, on=True, own=["*"])
        await injection.supervisor.network.impair(injection.id, injection.replica.id, streams, self.impairment())

    async def undo(self) -> None:
        """Take it back."""
        await self._injection.supervisor.network.heal(self._injection.id)
        await watch(self._injection, on=False)

    def streams(self) -> list[Stream]:
        """Return the streams of the target's links that the fault's direction and peer select."""
        replica, parameters = self._injection.replica, self._injection.plan.parameters
        wanted, peer = parameters["direction"], parameters.get("peer")
        found = []
        for source, destination in self._injection.supervisor.fleet.links():
            other = destination if source == replica.id else source
            if replica.id not in (source, destination) or peer not in (None, other, other.rpartition("-")[0]):
                continue
            leaving, arriving = (FORWARD, BACKWARD) if source == replica.id else (BACKWARD, FORWARD)
            directions = {"from": [leaving], "to": [arriving], "both": [leaving, arriving]}[wanted]
            found += [Stream(source, destination, direction) for direction in directions]
        return found
