"""What a plan must be to be carried out on a system: told from the two alone, before anything is deployed or recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from opsassay.errors import ConfigError, NotFoundError, RefusedError, UserError
from opsassay.model.faults import NO_FAULT, Category, fault_type
from opsassay.model.files import where
from opsassay.model.incident import FaultPlan, PlannedFault
from opsassay.model.system import Service, System
from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.core.injection import Refusal
from opsassay.testbed.core.links import touched

ON_HOSTS = ("CPUStress", "MemoryStress", "PodFailure")
"""The types beside those of the network that a whole host can take."""
SCOPES = ("operation", "hostname", "peer")
"""Parameters that limit a fault to a part of its target."""


class Objection(NamedTuple):
    """What is wrong with a plan, and in which of its fields."""

    field: str
    error: UserError


def require(
    system: System,
    plan: FaultPlan,
    refusal: Refusal,
    *,
    source: Path | None = None,
    within: str = "",
    fleet: Fleet | None = None,
) -> None:
    """Raise when *plan* cannot be carried out on *system*, where *refusal* says what cannot be injected; pure.

    Where replicas are is told by *fleet*, by the system's own rule without one. Raises NotFoundError or RefusedError. For a
    plan that was read from the file *source* (of which it is the field *within*) it raises ConfigError naming file, line
    and field.
    """
    objection = next(objections(system, plan, refusal, fleet), None)
    if objection is None:
        return
    if source is None:
        raise objection.error
    field = ".".join(part for part in (within, objection.field) if part)
    raise ConfigError(f"{where(source, field)}: {objection.error}") from objection.error


def objections(system: System, plan: FaultPlan, refusal: Refusal, fleet: Fleet | None = None) -> Iterator[Objection]:
    """Yield what stands against carrying out *plan* on *system*, each fault first, then what they do to each other."""
    fleet = fleet or Fleet(system, 0)  # only who is where: pod names do not matter
    for number, fault in enumerate(plan.parts):
        prefix = f"faults.{number}." if plan.faults else ""
        for field, error in _of_one(fleet, fault, refusal):
            yield Objection(prefix + field, error)
            return
    for (i, first), (j, second) in combinations(enumerate(plan.parts), 2):
        if reason := _clash(fleet, first, second):
            yield Objection(f"faults.{j}", RefusedError(f"faults {i + 1} and {j + 1} of the plan: {reason}"))


def affected(fleet: Fleet, fault: PlannedFault) -> tuple[Replica, ...]:
    """Return the replicas that *fault* hits: one of a service, all of a host, none without a target."""
    if fault.target is None:
        return ()
    if fault.target.host is not None:
        return tuple(r for r in fleet.replicas.values() if r.host == fault.target.host)
    return (fleet.of(fault.target.name)[fault.target.replica or 0],)


def _of_one(fleet: Fleet, fault: PlannedFault, refusal: Refusal) -> Iterator[Objection]:
    if fault.fault != NO_FAULT and (reason := refusal(fault.fault)) is not None:
        yield Objection("fault", RefusedError(f"{fault.fault} cannot be injected here: {reason}"))
    target = fault.target
    if target is None:
        return
    if target.host is not None:
        yield from _of_host(fleet, fault, target.host)
    else:
        yield from _of_service(fleet.system, fault, target.name, target.replica or 0)
    if fault.fault != NO_FAULT and fault_type(fault.fault).category is Category.NETWORK:
        yield from _of_links(fleet, fault)


def _of_host(fleet: Fleet, fault: PlannedFault, host: str) -> Iterator[Objection]:
    if host not in fleet.system.hosts:
        yield Objection("target.host", NotFoundError("host", host, fleet.system.hosts))
    elif not any(replica.host == host for replica in fleet.replicas.values()):
        yield Objection("target.host", RefusedError(f"Nothing runs on {host}; choose a host with replicas."))
    if fault.fault == NO_FAULT:
        yield Objection("target.host", RefusedError("A harmless restart replaces one replica; name a service."))
    elif fault.fault not in ON_HOSTS and fault_type(fault.fault).category is not Category.NETWORK:
        yield Objection("target.host", RefusedError(f"{fault.fault} has no meaning on a host: {_why_no_host(fault)}."))


def _why_no_host(fault: PlannedFault) -> str:
    match fault_type(fault.fault).category:
        case Category.POD:
            return "it kills one pod; use PodFailure for a host that is down, or name a service"
        case Category.DNS:
            return "each process looks names up for itself; name a service"
        case _:
            return "it acts inside the process of one service; name a service"


def _of_service(system: System, fault: PlannedFault, name: str, index: int) -> Iterator[Objection]:
    service = system.services.get(name)
    if service is None:
        yield Objection("target.service", NotFoundError("service", name, system.services))
        return
    if index >= service.replicas:
        words = f"{name} has no replica {index}; it has {service.replicas}, counted from 0."
        yield Objection("target.replica", RefusedError(words))
    operation = fault.parameters.get("operation")
    if operation is not None and operation not in service.operations:
        yield Objection("parameters.operation", NotFoundError(f"operation of {name}", operation, service.operations))
    elif reason := _nothing_to_act_on(system, fault, service):
        yield Objection("target.service", RefusedError(f"{fault.fault} cannot act on {name}: {reason}."))
    if fault.fault in ("DNSError", "DNSRandom"):
        yield from _of_names(system, fault, name)
    if fault.parameters.get("memory_type") == "stack":
        words = "the frames of this runtime live on its heap, a growing stack would be pretence; use memory_type heap."
        yield Objection("parameters.memory_type", RefusedError(f"{fault.fault}: {words}"))


def _nothing_to_act_on(system: System, fault: PlannedFault, service: Service) -> str | None:
    """Return why *fault* would pass by the *service* whatever the load, None when it can act."""
    if fault.fault == NO_FAULT:
        return None
    operation = fault.parameters.get("operation")
    category = fault_type(fault.fault).category
    if (category is Category.HTTP or fault.fault == "JVMReturn") and not service.operations:
        return "it serves no HTTP operation"
    if fault.fault in ("JVMLatency", "JVMException") and not (service.operations or service.consumes):
        return "it has no method that requests or messages call"
    if fault.fault.startswith("JVMMySQL"):
        steps = service.operations[operation].walk() if operation else service.steps()
        if not any(step.sql is not None for step in steps):
            where_ = f"its operation {operation}" if operation else "it"
            users = sorted({user for user, store in system.uses() if system.stores[store].engine == "postgresql"})
            return f"{where_} uses no database" + (f"; these services do: {', '.join(users)}" if users else "")
    return None


def _of_names(system: System, fault: PlannedFault, name: str) -> Iterator[Objection]:
    asked = sorted({callee for caller, callee in system.calls() if caller == name})
    hostname = fault.parameters.get("hostname")
    if not asked or hostname not in (None, *asked):
        known = f"it asks for {', '.join(asked)}" if asked else "stores are reached by address"
        error = RefusedError(f"{name} never looks up {hostname or 'a name'}: {known}; choose another.")
        yield Objection("parameters.hostname" if hostname else "target.service", error)
    elif fault.fault == "DNSRandom":
        for host in [hostname] if hostname else asked:
            if not set(system.services) - {host, name}:
                words = f"There is no third service whose address could be given for {host}; use DNSError."
                yield Objection("target.service", RefusedError(words))


def _of_links(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:
    peer, known = fault.parameters.get("peer"), [*fleet.system.services, *fleet.system.stores]
    if peer is not None and peer not in known:
        yield Objection("parameters.peer", NotFoundError("peer", peer, known))
    elif not touched(fleet, {replica.id for replica in affected(fleet, fault)}, fault.parameters):
        assert fault.target is not None
        way_out = f"with {peer!r}; leave `peer` out or name another." if peer else "with others; choose another target."
        yield Objection("parameters.peer", RefusedError(f"{fault.target.name} exchanges no packets {way_out}"))


def _clash(fleet: Fleet, first: PlannedFault, second: PlannedFault) -> str | None:
    """Return why two faults cannot act at once, None when they can."""
    shared = {r.id for r in affected(fleet, first)} & {r.id for r in affected(fleet, second)}
    if not shared:
        return None
    for one in (first, second):
        if one.fault == "PodFailure":
            return f"{one.name} keeps {min(shared)} down, where nothing else can be seen; choose another target."
    if first.fault == second.fault == "NetworkDuplicate":
        return f"both send copies to {min(shared)}, which tells one copy from another only once; leave one out."
    same_part = all(_overlap(first.parameters.get(scope), second.parameters.get(scope)) for scope in SCOPES)
    if first.fault == second.fault and same_part:
        return f"both are {first.fault} on {min(shared)}; leave one out, or limit them to different parts of it."
    return None


def _overlap(a: object, b: object) -> bool:
    return a is None or b is None or a == b


def names_of(plan: Sequence[PlannedFault]) -> str:
    """Return what *plan* does, for people."""
    return " and ".join(fault.name for fault in plan)
