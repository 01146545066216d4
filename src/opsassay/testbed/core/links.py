"""Which streams a packet fault touches: those that begin or end at its target, by direction and peer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opsassay.testbed.core.fleet import Fleet
from opsassay.testbed.core.networks import BACKWARD, FORWARD, Stream


def touched(fleet: Fleet, targets: Collection[str], parameters: dict[str, Any]) -> list[Stream]:
    """Return the streams whose packets a fault on the replicas *targets* touches, by ``direction`` and ``peer``.

    Traffic between two targets never leaves their host and is not touched.
    """
    wanted, peer = parameters["direction"], parameters.get("peer")
    found = []
    for source, destination in fleet.links():
        outgoing = source in targets
        other = destination if outgoing else source
        if outgoing == (destination in targets) or peer not in (None, other, other.rpartition("-")[0]):
            continue
        leaving, arriving = (FORWARD, BACKWARD) if outgoing else (BACKWARD, FORWARD)
        directions = {"from": (leaving,), "to": (arriving,), "both": (leaving, arriving)}[wanted]
        found += [Stream(source, destination, direction) for direction in directions]
    return found
