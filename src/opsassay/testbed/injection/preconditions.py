"""Checks, before anything is deployed, whether a plan can be injected into a system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from opsassay.core.errors import ConfigError, NotFoundError, RefusedError
from opsassay.core.schema.faults import NO_FAULT, Actuator, Category, fault_type
from opsassay.core.schema.files import where
from opsassay.core.schema.incident import FaultPlan, PlannedFault
from opsassay.core.schema.program import ENVOY, FAKETIME
from opsassay.core.schema.system import System
from opsassay.testbed.catalogue.fault import Objection, catalogued
from opsassay.testbed.core.fleet import Fleet, require_own_rate
from opsassay.testbed.core.injection import Refusal
from opsassay.testbed.core.links import affected

SCOPES = ("operation", "hostname", "peer", "protocol")
"""Parameters that limit a fault to a part of its target."""


def exhausts(name: str) -> bool:
    """Return whether the fault type *name* is resource stress, which uses up the limit of its target."""
    return name != NO_FAULT and fault_type(name).category is Category.STRESS


def require(
    system: System,
    plan: FaultPlan,
    refusal: Refusal,
    *,
    source: Path | None = None,
    within: str = "",
    fleet: Fleet | None = None,
) -> None:
    """Raise NotFoundError or RefusedError when *plan* cannot be injected into *system*; changes nothing.

    *refusal* returns why a fault type cannot be injected, or None. *fleet* says on which host each replica is;
    None: as the system defines. For a plan that is the field *within* of the file *source*, ConfigError that names
    file and line is raised instead.
    """
    objection = next(objections(system, plan, refusal, fleet), None)
    if objection is None:
        return
    if source is None:
        raise objection.error
    field = ".".join(part for part in (within, objection.field) if part)
    raise ConfigError(f"{where(source, field)}: {objection.error}") from objection.error


def objections(system: System, plan: FaultPlan, refusal: Refusal, fleet: Fleet | None = None) -> Iterator[Objection]:
    """Yield (plan field, error) of the first fault of *plan* that *system* cannot have, else of each pair that clashes.

    *refusal* returns why a fault type is impossible, or None; *fleet* knows the hosts, None: as the system defines.
    """
    fleet = fleet or Fleet(system, 0)  # only who is where: pod names do not matter
    for number, fault in enumerate(plan.parts):
        prefix = f"faults.{number}." if plan.faults else ""
        for field, error in _of_one(fleet, fault, refusal):
            yield Objection(prefix + field, error)
            return
    for (i, first), (j, second) in combinations(enumerate(plan.parts), 2):
        if reason := _clash(fleet, first, second):
            yield Objection(f"faults.{j}", RefusedError(f"faults {i + 1} and {j + 1} of the plan: {reason}"))


def _of_one(fleet: Fleet, fault: PlannedFault, refusal: Refusal) -> Iterator[Objection]:
    """Yield (plan field, error) for each reason why *fault*, regardless of others in its plan, cannot be injected."""
    if fault.fault != NO_FAULT and (reason := refusal(fault.fault)) is not None:
        yield Objection("fault", RefusedError(f"{fault.fault} cannot be injected here: {reason}"))
    target = fault.target
    if target is None:
        yield from _of_load(fleet.system, fault)
        return
    if target.host is not None:
        yield from _of_host(fleet, fault, target.host)
    else:
        yield from _of_service(fleet.system, fault, target.name, target.replica or 0)
    if fault.fault != NO_FAULT:
        yield from catalogued(fault.fault).objections(fleet, fault)


def _of_load(system: System, fault: PlannedFault) -> Iterator[Objection]:
    """Yield an objection (plan field, error) to a load surge when the load is a user's command with its own rate."""
    if fault.parameters.get("disturbance") == "load_surge":
        try:
            require_own_rate(system)
        except RefusedError as error:
            yield Objection("parameters.disturbance", error)


def _of_host(fleet: Fleet, fault: PlannedFault, host: str) -> Iterator[Objection]:
    """Yield the reasons why *fault* cannot be injected into all replicas on *host*."""
    if host not in fleet.system.hosts:
        yield Objection("target.host", NotFoundError("host", host, fleet.system.hosts))
    elif fleet.system.compose is not None:
        words = "The host of containers is this machine, which no fault may hit; name a service."
        yield Objection("target.host", RefusedError(words))
    elif not any(replica.host == host for replica in fleet.replicas.values()):
        yield Objection("target.host", RefusedError(f"Nothing runs on {host}; choose a host with replicas."))
    if fault.fault == NO_FAULT:
        yield Objection("target.host", RefusedError("A harmless restart replaces one replica; name a service."))
    elif why := catalogued(fault.fault).why_no_host:
        yield Objection("target.host", RefusedError(f"{fault.fault} has no meaning on a host: {why}."))


def _of_service(system: System, fault: PlannedFault, name: str, index: int) -> Iterator[Objection]:
    """Yield the reasons why *fault* cannot be injected into the replica *index* of the service *name*."""
    service = system.services.get(name)
    if service is None:
        yield Objection("target.service", NotFoundError("service", name, system.services))
        return
    if index >= service.replicas:
        words = f"{name} has no replica {index}; it has {service.replicas}, counted from 0."
        yield Objection("target.replica", RefusedError(words))
    if name in system.unlimited and exhausts(fault.fault):
        words = f"nothing limits the containers of {name}, so that it would exhaust their machine"
        yield Objection("fault", RefusedError(f"{fault.fault} cannot act on {name}: {words}; give them limits."))
        return
    operation = fault.parameters.get("operation")
    if service.program is not None and fault.fault != NO_FAULT and _inside_runtime(fault.fault):
        by_sidecar, by_clock = catalogued(fault.fault).by_sidecar, catalogued(fault.fault).by_clock
        if by_clock and service.program.clock is not None:
            return
        if by_sidecar and service.sidecar is not None:
            if operation is not None:
                words = f"{fault.fault} of a sidecar hits all requests to {name}; leave operation out."
                yield Objection("parameters.operation", RefusedError(words))
            return
        words = f"it acts inside OpsAssay's own runtime, and {name} runs a program of yours"
        names = "names " if system.namespace is None else ""
        way_out = f"faults of pods, resources, {names}and the network act on it"
        if system.namespace is None and by_sidecar and service.program.ports and not service.program.is_store:
            way_out = f"with `sidecar: {ENVOY}` it can be injected, and {way_out} as it is"
        if by_clock and service.program.container is None:
            way_out = f"with `clock: {FAKETIME}` in its program it can be injected, and {way_out} as it is"
        yield Objection("fault", RefusedError(f"{fault.fault} cannot act on {name}: {words}; {way_out}."))
        return
    if operation is not None and operation not in service.operations:
        yield Objection("parameters.operation", NotFoundError(f"operation of {name}", operation, service.operations))


def _inside_runtime(fault: str) -> bool:
    """Return whether the actuator of *fault* runs inside OpsAssay's own runtime of services."""
    return fault_type(fault).actuator is Actuator.RUNTIME_HOOK


def _clash(fleet: Fleet, first: PlannedFault, second: PlannedFault) -> str | None:
    """Return why *first* and *second*, faults of one plan, cannot act at the same time; None when they can."""
    shared = {r.id for r in affected(fleet, first)} & {r.id for r in affected(fleet, second)}
    if not shared:
        return None
    for one in (first, second):
        if one.fault != NO_FAULT and (reason := catalogued(one.fault).excludes_others):
            return f"{one.name} {reason.format(replica=min(shared))}."
    if first.fault == second.fault != NO_FAULT and (reason := catalogued(first.fault).excludes_itself):
        return f"{reason.format(replica=min(shared))}."
    same_part = all(_overlap(first.parameters.get(scope), second.parameters.get(scope)) for scope in SCOPES)
    if first.fault == second.fault and same_part:
        return f"both are {first.fault} on {min(shared)}; leave one out, or limit them to different parts of it."
    return None


def _overlap(first: object, second: object) -> bool:
    """Return whether *first* and *second*, values of a target's field, are equal or either is None, which means all."""
    return first is None or second is None or first == second


def names_of(plan: Sequence[PlannedFault]) -> str:
    """Return the names of the faults in *plan* joined by "and"."""
    return " and ".join(fault.name for fault in plan)
