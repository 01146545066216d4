"""Faults of the name server."""

from __future__ import annotations

from collections.abc import Iterator

from opsassay.core.errors import RefusedError
from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer
from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.catalogue.fault import SERVICE_POD, FamilyTraits, Objection, text
from opsassay.testbed.catalogue.measures import Reading, Times, activities, failure_share
from opsassay.testbed.core.fleet import Fleet
from opsassay.testbed.core.injection import Injection, Measured

_HOSTNAME = text("hostname", None, "the name whose look-ups by the target go wrong; all when left out")

_FAMILY = FamilyTraits(
    Category.DNS,
    Layer.INFRASTRUCTURE,
    SERVICE_POD,
    Channel.VERTICAL,
    Actuator.NAME_SERVICE,
    "each process looks names up for itself; name a service",
)


def lookups_fail(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold) of the failed share of the target's calls by name, by *times* of the fault."""
    name = injection.plan.parameters.get("hostname")
    return failure_share(
        [injection.replica], times, [f"call:{name}"] if name else activities(injection.replica, "call:")
    )


def _looks_up(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:
    """Yield an objection (plan field, error) when the target never looks up the name that the fault falsifies."""
    assert fault.target is not None
    name, hostname, asked = fault.target.name, fault.parameters.get("hostname"), _callee_names(fleet, fault)
    if not asked or hostname not in (None, *asked):
        known = f"it asks for {', '.join(asked)}" if asked else "stores are reached by address"
        error = RefusedError(f"{name} never looks up {hostname or 'a name'}: {known}; choose another.")
        yield Objection("parameters.hostname" if hostname else "target.service", error)


def _looks_up_others(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:
    """Yield the objections of `_looks_up`, and one when no third service exists whose wrong address could be given."""
    assert fault.target is not None
    yield from _looks_up(fleet, fault)
    hostname = fault.parameters.get("hostname")
    for host in [hostname] if hostname else _callee_names(fleet, fault):
        if not set(fleet.system.services) - {host, fault.target.name}:
            words = f"There is no third service whose address could be given for {host}; use DNSError."
            yield Objection("target.service", RefusedError(words))


def _callee_names(fleet: Fleet, fault: PlannedFault) -> list[str]:
    """Return the services that the target of *fault* looks up by name."""
    assert fault.target is not None
    return fleet.system.looked_up_by(fault.target.name)


FAMILY = (
    _FAMILY.fault(
        "DNSError",
        FaultKind.DNS_RESOLUTION_FAILED,
        _HOSTNAME,
        aliases=("DNSChaos",),
        signature=lookups_fail,
        objections=_looks_up,
    ),
    _FAMILY.fault(
        "DNSRandom", FaultKind.DNS_RESOLUTION_WRONG, _HOSTNAME, signature=lookups_fail, objections=_looks_up_others
    ),
)
