"""Packet faults: what happens to the packets between a target and its peers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from opsassay.core.errors import NotFoundError, RefusedError
from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer
from opsassay.core.schema.incident import PlannedFault
from opsassay.core.schema.system import System
from opsassay.testbed.catalogue.fault import (
    DELAY,
    SERVICE_POD,
    FamilyTraits,
    Objection,
    catalogued,
    number,
    text,
    whole,
)
from opsassay.testbed.catalogue.measures import (
    NOTHING,
    Reading,
    Times,
    failure_share,
    or_zero,
    per_second,
    slowdown,
    windows,
)
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Counted, Fleet
from opsassay.testbed.core.injection import Injection, Measured
from opsassay.testbed.core.links import HTTP, affected, touched

MIN_RESEND_MS = 100.0
MIN_DUPLICATES_PER_S = 0.5
FIRST_RESEND_MS = 200.0
CALLS = ("inbound", "outbound")
"""Directions of calls; the others are of packets."""
ENGINE_ACTIVITY = {"postgresql": "sql:", "valkey": "cache:", "nats": "queue:"}
"""What commands to a store of each engine are counted under; what is published is not counted."""
_DIRECTION = text(
    "direction",
    "from",
    "packets that the target sends, those sent to it, or both; or both of the calls to it, or of those that it makes",
    ("from", "to", "both", *CALLS),
)
_PEER = text("peer", None, "only traffic with this service or store; all when left out")
_PROTOCOL = text("protocol", None, "only traffic of this protocol; all when left out", (HTTP, *ENGINE_ACTIVITY))
_LINKS = (_DIRECTION, _PEER, _PROTOCOL)


def links_slow(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold): mean ms of calls over the affected link that slowed most; for a delay."""
    return _slowest_link(injection, times, injection.plan.parameters["delay_ms"])


def links_resend(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold): mean ms of calls over the link that slowed most; for loss and corruption."""
    parameters = injection.plan.parameters
    share = parameters.get("loss_percent", parameters.get("corrupt_percent", 0.0)) / 100
    return _slowest_link(injection, times, share * FIRST_RESEND_MS)


def links_narrow(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold): mean ms of calls over the link that slowed most; for limited bandwidth."""
    return _slowest_link(injection, times, MIN_RESEND_MS)


def links_fail(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold): the failed share of calls over the affected link that fails most."""
    readings = [failure_share(who, times, activities) for who, activities in _over_links(injection)]
    return max((r for r in readings if not math.isnan(r[1])), key=lambda r: r[1] - r[2], default=NOTHING)


def segments_twice(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold): TCP segments per second that receivers saw twice at the targets."""
    before, after = (
        sum(or_zero(per_second(replica, "duplicate_segments", window)) for replica in injection.replicas)
        for window in windows(times)
    )
    return before, after, before + MIN_DUPLICATES_PER_S


def _over_links(injection: Injection[Measured]) -> list[tuple[list[Counted], list[str]]]:
    """Return (callers, counter names of their calls) of the affected links, one entry per caller service and callee."""
    fleet, targets = injection.system.fleet, {replica.id for replica in injection.replicas}
    users: dict[tuple[str, str], list[Counted]] = {}
    for source, destination, _ in sorted(set(touched(fleet, targets, injection.plan.parameters))):
        called = fleet.replicas.get(destination)
        activity = f"call:{called.service}" if called else _store_activity(fleet.system, destination)
        caller = fleet.replicas.get(source)
        who = users.setdefault((caller.service if caller else LOAD_GENERATOR, activity), [])
        if (counted := caller or fleet.load) not in who:
            who.append(counted)
        if called and caller is None and fleet.system.namespace is not None:  # it is asked by itself, past its Service
            users[destination, "server"] = [called]
    return [(who, [activity]) for (_, activity), who in users.items()]


def _store_activity(system: System, store: str) -> str:
    """Return the counter of calls to *store*."""
    return ENGINE_ACTIVITY[system.stores[store].engine] + store


def _slowest_link(injection: Injection[Measured], times: Times, delay_ms: float) -> Reading:
    """Return (before, since, threshold) in ms of the affected link that slowed most, for a fault of *delay_ms*."""
    readings = [slowdown(who, times, activities, delay_ms) for who, activities in _over_links(injection)]
    payload = (
        r for r in readings if not (math.isnan(r[0]) or math.isnan(r[1]))
    )  # without a before nothing can be slower
    return max(payload, key=lambda r: r[1] - r[2], default=NOTHING)


def _exchanges_packets(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:
    """Yield an objection when the direction, peer and protocol of the fault select no packets of the target."""
    given, known = fault.parameters, [*fleet.system.services, *fleet.system.stores]
    peer, targets = given.get("peer"), {replica.id for replica in affected(fleet, fault)}
    if peer is not None and peer not in known:
        yield Objection("parameters.peer", NotFoundError("peer", peer, known))
        return
    assert fault.target is not None
    if not touched(fleet, targets, given):
        field, way_out = _way_out(given)
        yield Objection(f"parameters.{field}", RefusedError(f"{fault.target.name} exchanges no packets {way_out}"))
    elif given["direction"] in CALLS and (mutual := _calls_back(fleet, targets, given)):
        words = f"{fault.target.name} and {mutual} call each other, and packets do not tell whose call they belong to"
        yield Objection("parameters.direction", RefusedError(f"{words}; use direction from, to or both."))
    elif fleet.system.load.command and all(one[0] == LOAD_GENERATOR for one in touched(fleet, targets, given)):
        words = f"Only users exchange such packets with {fault.target.name}, and what they feel is not known"
        way_out = "choose another target or direction."
        yield Objection("target", RefusedError(f"{words}: the load is {fleet.system.load.command_line}; {way_out}"))


def _way_out(parameters: Mapping[str, Any]) -> tuple[str, str]:
    """Return (the one of *parameters* by which no packets are selected, how to go on) for an error message."""
    if protocol := parameters.get("protocol"):
        return "protocol", f"of {protocol} that way; leave `protocol` out or name another."
    if peer := parameters.get("peer"):
        return "peer", f"with {peer!r}; leave `peer` out or name another."
    return "direction", "with others that way; choose another target or direction."


def _calls_back(fleet: Fleet, targets: Collection[str], parameters: Mapping[str, Any]) -> str | None:
    """Return a peer that both calls *targets* and is called by them, None without one; *parameters* select links."""
    this, other = CALLS if parameters["direction"] == CALLS[0] else CALLS[::-1]
    ends = [
        {end for stream in touched(fleet, targets, {**parameters, "direction": way}) for end in (stream[0], stream[1])}
        for way in (this, other)
    ]
    return min((ends[0] & ends[1]) - set(targets), default=None)


def _delay(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the impairment that delays packets, from the fault's *parameters* in ms: kind, delay_s and jitter_s."""
    jitter_ms = parameters.get("jitter_ms", 0.0)
    return {"kind": "delay", "delay_s": parameters["delay_ms"] / 1e3, "jitter_s": jitter_ms / 1e3}


def _loss(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the impairment that drops packets, from the fault's *parameters*: kind, and share from 0 to 1."""
    return {"kind": "loss", "share": parameters["loss_percent"] / 100}


def _duplicate(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the impairment that duplicates packets, from the fault's *parameters*: kind, and share from 0 to 1."""
    return {"kind": "duplicate", "share": parameters["duplicate_percent"] / 100}


def _corrupt(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the impairment that corrupts packets, from the fault's *parameters*: kind, and share from 0 to 1."""
    return {"kind": "corrupt", "share": parameters["corrupt_percent"] / 100}


def _bandwidth(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the impairment that limits the bandwidth, from the fault's *parameters*: kind and bytes_per_s."""
    return {"kind": "bandwidth", "bytes_per_s": parameters["rate_bps"] / 8}


def _partition(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return the impairment that drops all packets: its kind only."""
    return {"kind": "partition"}


def impairment_of(plan: PlannedFault) -> dict[str, Any]:
    """Return the impairment by the packet fault *plan*: kind and numbers for `Network.impair`; raises RefusedError."""
    impairment = catalogued(plan.fault).impairment
    if impairment is None:
        raise RefusedError(f"No network has an impairment for {plan.fault}.")
    return impairment(plan.parameters)


_FAMILY = FamilyTraits(
    Category.NETWORK,
    Layer.INFRASTRUCTURE,
    SERVICE_POD,
    Channel.BOTH,
    Actuator.PACKET,
    parameters=_LINKS,
    objections=_exchanges_packets,
)

FAMILY = (
    _FAMILY.fault(
        "NetworkDelay",
        FaultKind.NETWORK_DELAY,
        DELAY,
        number("jitter_ms", 0.0, "half-width of a uniform jitter, milliseconds"),
        signature=links_slow,
        impairment=_delay,
    ),
    _FAMILY.fault(
        "NetworkLoss",
        FaultKind.NETWORK_LOSS,
        number("loss_percent", 10.0, "packets lost", 1, 100),
        signature=links_resend,
        impairment=_loss,
    ),
    _FAMILY.fault(
        "NetworkDuplicate",
        FaultKind.NETWORK_DUPLICATE,
        number("duplicate_percent", 10.0, "packets sent twice", 1, 100),
        signature=segments_twice,
        impairment=_duplicate,
        excludes_itself="both send copies to {replica}, which tells one copy from another only once; leave one out",
    ),
    _FAMILY.fault(
        "NetworkCorrupt",
        FaultKind.NETWORK_CORRUPT,
        number("corrupt_percent", 10.0, "packets with a flipped bit", 1, 100),
        signature=links_resend,
        impairment=_corrupt,
    ),
    _FAMILY.fault(
        "NetworkBandwidth",
        FaultKind.NETWORK_BANDWIDTH_LIMIT,
        whole("rate_bps", 64_000, "bits per second"),
        signature=links_narrow,
        impairment=_bandwidth,
    ),
    _FAMILY.fault(
        "NetworkPartition",
        FaultKind.NETWORK_PARTITION,
        signature=links_fail,
        impairment=_partition,
        hook="short_connections",
    ),
)
