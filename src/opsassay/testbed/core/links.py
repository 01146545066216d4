"""Which replicas a fault hits, and which streams a packet fault touches."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opsassay.model.incident import PlannedFault
from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.core.networks import BACKWARD, FORWARD, Stream


def touched(fleet: Fleet, targets: Collection[str], parameters: dict[str, Any]) -> list[Stream]:
    """Return the streams whose packets a fault on the replicas *targets* touches, by ``direction`` and ``peer``.

    Traffic between two targets never leaves their host and is not touched.
    """
    asked, peer = parameters["direction"], parameters.get("peer")
    found = []
    for source, destination in fleet.links():
        outgoing = source in targets
        other = destination if outgoing else source
        if outgoing == (destination in targets) or peer not in (None, other, other.rpartition("-")[0]):
            continue
        leaving, arriving = (FORWARD, BACKWARD) if outgoing else (BACKWARD, FORWARD)
        directions = {"from": (leaving,), "to": (arriving,), "both": (leaving, arriving)}[asked]
        found += [Stream(source, destination, direction) for direction in directions]
    return found


def affected(fleet: Fleet, fault: PlannedFault) -> tuple[Replica, ...]:
    """Return the replicas that *fault* hits: one of a service, all of a host, none without a target."""
    if fault.target is None:
        return ()
    if fault.target.host is not None:
        return tuple(r for r in fleet.replicas.values() if r.host == fault.target.host)
    return (fleet.of(fault.target.name)[fault.target.replica or 0],)
