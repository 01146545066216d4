"""Faults inside a Java process, which the runtime of ours emulates: methods, database calls, heap, collector, threads."""

from __future__ import annotations

from collections.abc import Iterator

from opsassay.core.errors import RefusedError
from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer, Level
from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.catalogue.fault import (
    DELAY,
    INSIDE_A_PROCESS,
    SERVICE_POD,
    FamilyTraits,
    Objection,
    cannot_act,
    serves_http,
    service_of,
    text,
    whole,
)
from opsassay.testbed.catalogue.measures import (
    FULL_SHARE,
    MIN_GROWTH_SHARE,
    Reading,
    Times,
    activities,
    calls_fail,
    failure_share,
    handling_fails,
    handling_slow,
    memory_mb,
    or_zero,
    per_second,
    slowdown,
    windows,
)
from opsassay.testbed.core.fleet import Fleet
from opsassay.testbed.core.injection import Injection, Measured

MIN_PAUSE_SHARE = 0.15
MIN_BUSY_CORES = 0.25
_METHOD = text("operation", None, "the operation whose handler is hit; all of the service's when left out")
_EXCEPTION = text("exception", "IllegalStateException", "class name of the raised exception")

_FAMILY = FamilyTraits(
    Category.JVM,
    Layer.APPLICATION,
    (Level.SERVICE, Level.FUNCTION),
    Channel.HORIZONTAL,
    Actuator.RUNTIME_HOOK,
    INSIDE_A_PROCESS,
    emulated_on_local=True,
)


def collector_pauses(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold): the share of time that the target's process pauses to collect garbage."""
    before, after = (per_second(injection.replica, "gc_s", window) for window in windows(times))
    return before, after, or_zero(before) + MIN_PAUSE_SHARE


def threads_busy(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before the fault, since it, threshold): the CPU cores that the target's process uses."""
    before, after = (per_second(injection.replica, "cpu_s", window) for window in windows(times))
    return before, after, or_zero(before) + MIN_BUSY_CORES


def heap_grows(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before, since, threshold) of the target's memory in MiB; at most half of ``size_mb`` has to be added."""
    before, after = memory_mb(injection.replica, times)
    grown = before + MIN_GROWTH_SHARE * injection.plan.parameters["size_mb"]
    return before, after, min(grown, FULL_SHARE * injection.replica.spec.memory_limit_mb)


def statements_slow(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before the fault, since it, threshold): the mean time of the target's database calls in ms."""
    return slowdown(
        [injection.replica], times, activities(injection.replica, "sql:"), injection.plan.parameters["delay_ms"]
    )


def statements_fail(injection: Injection[Measured], times: Times) -> Reading:
    """Return (before the fault, since it, threshold): the failed share of the target's database calls."""
    return failure_share([injection.replica], times, activities(injection.replica, "sql:"))


def _has_methods(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:
    """Yield an objection (plan field, error) when the target service has no HTTP operation and consumes no messages."""
    service = service_of(fleet, fault)
    if not (service.operations or service.consumes):
        yield cannot_act(fault, "it has no method that requests or messages call")


def _uses_database(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:
    """Yield an objection when the target service, or the one operation that the fault names, uses no database."""
    system, service, operation = fleet.system, service_of(fleet, fault), fault.parameters.get("operation")
    steps = service.operations[operation].walk() if operation else service.steps()
    if not any(step.sql is not None for step in steps):
        where = f"its operation {operation}" if operation else "it"
        users = sorted({user for user, store in system.uses() if system.stores[store].engine == "postgresql"})
        others = f"; these services do: {', '.join(users)}" if users else ""
        yield cannot_act(fault, f"{where} uses no database{others}")


def _heap_only(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:  # noqa: ARG001
    """Yield an objection (plan field, error) when *fault* is to grow the stack, which the emulated Java lacks."""
    if fault.parameters.get("memory_type") == "stack":
        words = "the frames of this runtime live on its heap, a growing stack would be pretence; use memory_type heap."
        yield Objection("parameters.memory_type", RefusedError(f"{fault.fault}: {words}"))


FAMILY = (
    _FAMILY.fault(
        "JVMLatency",
        FaultKind.JVM_METHOD_LATENCY,
        DELAY,
        _METHOD,
        signature=handling_slow,
        objections=_has_methods,
        hook="delay_method",
    ),
    _FAMILY.fault(
        "JVMReturn",
        FaultKind.JVM_METHOD_MUTATED,
        text("value", "", "what the method returns instead"),
        text("value_type", "string", "type of the value", ("string", "int")),
        _METHOD,
        aliases=("JVMRuntimeMutator",),
        signature=calls_fail,
        objections=serves_http,
        hook="replace_result",
    ),
    _FAMILY.fault(
        "JVMException",
        FaultKind.JVM_METHOD_EXCEPTION,
        _EXCEPTION,
        _METHOD,
        signature=handling_fails,
        objections=_has_methods,
        hook="raise_in_method",
    ),
    _FAMILY.fault(
        "JVMGarbageCollector",
        FaultKind.JVM_GC_PRESSURE,
        levels=SERVICE_POD,
        channel=Channel.VERTICAL,
        signature=collector_pauses,
        hook="collect_garbage",
    ),
    _FAMILY.fault(
        "JVMCPUStress",
        FaultKind.JVM_THREAD_CPU_STRESS,
        whole("cpu_count", 1, "busy threads"),
        levels=SERVICE_POD,
        channel=Channel.VERTICAL,
        signature=threads_busy,
        hook="keep_busy",
    ),
    _FAMILY.fault(
        "JVMMemoryStress",
        FaultKind.JVM_HEAP_STRESS,
        text("memory_type", "heap", "where it grows", ("heap", "stack")),
        whole("size_mb", 256, "growth, MiB", 16),
        levels=SERVICE_POD,
        channel=Channel.VERTICAL,
        signature=heap_grows,
        objections=_heap_only,
        hook="grow_heap",
    ),
    _FAMILY.fault(
        "JVMMySQLLatency",
        FaultKind.JVM_JDBC_LATENCY,
        DELAY,
        _METHOD,
        signature=statements_slow,
        objections=_uses_database,
        hook="delay_statement",
    ),
    _FAMILY.fault(
        "JVMMySQLException",
        FaultKind.JVM_JDBC_EXCEPTION,
        text("exception", "SQLException", "class name of the raised exception"),
        _METHOD,
        signature=statements_fail,
        objections=_uses_database,
        hook="fail_statement",
    ),
)
