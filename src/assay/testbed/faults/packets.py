"""Packet faults at the relay: rules over the links that begin or end at the replica."""

from __future__ import annotations

from typing import Any

from assay.errors import RefusedError
from assay.testbed.faults.injection import Injection, watch


class Packets:
    """Installs one impairment on every stream that the fault's direction and peer select."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    def impairment(self) -> dict[str, Any]:
        """Return the impairment as the relay reads it: its kind and its numbers."""
        parameters = self._injection.plan.parameters
        match self._injection.plan.fault:
            case "NetworkDelay":
                return {
                    "kind": "delay",
                    "delay_s": parameters["delay_ms"] / 1e3,
                    "jitter_s": parameters.get("jitter_ms", 0.0) / 1e3,
                }
            case "NetworkLoss":
                return {"kind": "loss", "share": parameters["loss_percent"] / 100}
            case "NetworkCorrupt":  # the receiver's checksum discards what was changed on the way: a loss
                return {"kind": "loss", "share": parameters["corrupt_percent"] / 100}
            case "NetworkBandwidth":
                return {"kind": "bandwidth", "bytes_per_s": parameters["rate_bps"] / 8}
            case "NetworkPartition":
                return {"kind": "loss", "share": 1.0}
            case other:
                raise RefusedError(f"The relay has no impairment for {other}.")

    async def apply(self) -> None:
        """Install the rules; both ends of the links note one-way times in the ledger from now on."""
        supervisor, impairment = self._injection.supervisor, self.impairment()
        rules = [{"link": f"{a}>{b}", "direction": direction} for a, b, direction in self._links()]
        if not rules:
            peer = self._injection.plan.parameters.get("peer")
            raise RefusedError(
                f"{self._injection.replica.service} exchanges no packets with {peer!r}; leave `peer` out or name another."
            )
        await watch(self._injection, on=True, own=["*"])
        await supervisor.channels.request("relay", "rules", rules=rules, impairment=impairment)

    async def undo(self) -> None:
        """Remove all rules."""
        supervisor = self._injection.supervisor
        if "relay" in supervisor.channels.names():
            await supervisor.channels.request("relay", "rules", rules=[], impairment=None)
        await watch(self._injection, on=False)

    def _links(self) -> list[tuple[str, str, str]]:
        """Return the (source, destination, direction of the stream) triples whose packets the rule touches."""
        replica, parameters = self._injection.replica, self._injection.plan.parameters
        wanted, peer = parameters["direction"], parameters.get("peer")
        found = []
        for source, destination in self._injection.supervisor.fleet.links():
            other = destination if source == replica.id else source
            if replica.id not in (source, destination) or peer not in (None, other, other.rpartition("-")[0]):
                continue
            leaving = "forward" if source == replica.id else "backward"
            arriving = "backward" if source == replica.id else "forward"
            directions = {"from": [leaving], "to": [arriving], "both": [leaving, arriving]}[wanted]
            found += [(source, destination, direction) for direction in directions]
        return found
