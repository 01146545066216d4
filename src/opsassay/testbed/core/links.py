"""The replicas that a fault affects, and the packet streams that a packet fault affects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from opsassay.core.schema.incident import PlannedFault
from opsassay.core.schema.system import System
from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.core.networks import BACKWARD, FORWARD, Stream

HTTP = "http"
"""The protocol between services; that of a store is its engine's."""


def touched(fleet: Fleet, targets: Collection[str], parameters: Mapping[str, Any]) -> list[Stream]:
    """Return the packet streams that a fault with *parameters* on *targets* (replica ids) affects.

    The parameters ``peer`` and ``protocol`` select the links. ``direction`` selects packets ("from", "to" or "both"
    of the target) or calls, with the packets of both ways ("inbound", "outbound"). Traffic between two targets is
    never affected.
    """
    asked, peer, protocol = parameters["direction"], parameters.get("peer"), parameters.get("protocol")
    found = []
    for source, destination in fleet.links():
        outgoing = source in targets
        other = destination if outgoing else source
        if outgoing == (destination in targets) or peer not in (None, other, other.rpartition("-")[0]):
            continue
        if protocol not in (None, protocol_of(fleet.system, destination)):
            continue
        both = (FORWARD, BACKWARD)
        leaving, arriving = both if outgoing else both[::-1]
        directions = {
            "from": (leaving,),
            "to": (arriving,),
            "both": both,
            "inbound": () if outgoing else both,
            "outbound": both if outgoing else (),
        }[asked]
        found += [Stream(source, destination, direction) for direction in directions]
    return found


def protocol_of(system: System, destination: str) -> str:
    """Return the protocol of *destination*: a store's engine (postgresql, valkey, nats), or http for a service."""
    store = system.stores.get(destination)
    return store.engine if store else HTTP


def affected(fleet: Fleet, fault: PlannedFault) -> tuple[Replica, ...]:
    """Return the replicas that *fault* hits: one of the target service, all of the target host, () without a target."""
    if fault.target is None:
        return ()
    if fault.target.host is not None:
        return tuple(r for r in fleet.replicas.values() if r.host == fault.target.host)
    return (fleet.replicas_of(fault.target.name)[fault.target.replica or 0],)
