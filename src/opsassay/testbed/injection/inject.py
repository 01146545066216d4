"""The course of an injection: precondition, apply, effect check, hold, undo, recovery check; of one or several faults."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from opsassay.core.errors import OperationError, OpsAssayError, RefusedError
from opsassay.core.logs import Log
from opsassay.core.schema.faults import NO_FAULT, Level, fault_type
from opsassay.core.schema.incident import EffectCheck, Fault, FaultPlan, PlannedFault, RootLabel
from opsassay.testbed.catalogue.fault import catalogued
from opsassay.testbed.catalogue.measures import or_zero
from opsassay.testbed.core.event import DoneEvent, InjectionEvent, Origin, as_event
from opsassay.testbed.core.fleet import sleep_until
from opsassay.testbed.core.injection import Injection, Intervention, Repertoire
from opsassay.testbed.core.links import affected
from opsassay.testbed.core.methods import method_name
from opsassay.testbed.injection.preconditions import names_of, require
from opsassay.testbed.injection.under_test import SystemUnderTest
from opsassay.testbed.injection.unexpected_exits import sentences

_log = Log(__name__)
BEFORE_S = 10.0
RECENT_S = 10.0
EFFECT_TIMEOUT_S = 12.0
RECOVERY_TIMEOUT_S = 30.0

Report = Callable[[InjectionEvent], Awaitable[None]]
S = TypeVar("S", bound=SystemUnderTest)


@dataclass
class Act:
    """One fault of a plan, with its times, effect check and undo error so far."""

    injection: Injection[SystemUnderTest]
    intervention: Intervention
    start_ns: int = 0
    end_ns: int = 0
    undo_error: Exception | None = None
    effect: EffectCheck | None = None

    def origin(self) -> Origin:
        """Return which fault an event is about: {fault: its type}, and its service or host if it has a target."""
        target = self.injection.plan.target
        if target is None:
            return {"fault": self.injection.plan.fault}
        if target.host:
            return {"fault": self.injection.plan.fault, "host": target.name}
        return {"fault": self.injection.plan.fault, "service": target.name}


async def inject(system: S, plan: FaultPlan, repertoire: Repertoire[S], lease: asyncio.Event, report: Report) -> None:
    """Inject *plan* into *system*: check, apply, wait for its duration, undo, check the recovery.

    *repertoire* is what the substrate can do. The injection ends early when *lease* is set, as when the client has
    gone; *report* is awaited with every event. Each fault of the plan is journalled, applied and undone by itself, in
    reverse order; a failed undo does not keep the others from theirs. The last event is ``done`` with each fault's
    times, root label and effect check, whether the system recovered, and notes. Raises NotFoundError or RefusedError,
    before anything is changed, for a plan that cannot be injected now.
    """
    require(system.system, plan, repertoire.refusal, fleet=system.fleet)
    _check_free(system)
    acts = [_prepare_act(system, part, repertoire) for part in plan.parts]
    system.injection, began_ns, notes = _activity(plan), time.time_ns(), list[str]()
    try:
        begun, lost = list[Act](), await system.lost_ledger_lines()
        try:
            started = await _apply(acts, begun, report)
            await _check_effects(acts, started, plan.duration_s, lease, report)
            await _wait_for_end(lease, plan.duration_s - (time.monotonic() - started))
        finally:
            notes += [note for act in reversed(begun) for note in await _undo(system, act)]
        undone = time.monotonic()
        for act in reversed(acts):
            await report({"event": "undone", **act.origin()})
        recovered = await asyncio.gather(*(_check_recovery(act, undone) for act in acts))
        notes += [
            f"{a.injection.plan.name}: not recovered in time" for a, ok in zip(acts, recovered, strict=True) if not ok
        ]
    finally:
        system.injection, system.quiet_since = None, time.monotonic()
    if (gap := await system.lost_ledger_lines() - lost) > 0:
        notes.append(f"{gap} lines of the ledger could not be written to {system.state.ledger_dir}; is the disk full?")
    notes += sentences(system.unexpected_exits.found, began_ns)
    await report(_done_event(acts, recovered=all(recovered), notes=notes))


def _activity(plan: FaultPlan) -> str:
    """Return the faults of *plan* as text, or the disturbance of a plan without a fault."""
    (first, *more) = plan.parts
    if first.fault == NO_FAULT:
        return f"{NO_FAULT} ({first.parameters['disturbance']})"
    return names_of((first, *more))


def _prepare_act(system: S, plan: PlannedFault, repertoire: Repertoire[S]) -> Act:
    """Return the act of *plan*: the fault with its replicas, and the intervention of *repertoire* that applies it."""
    replicas = affected(system.fleet, plan)
    injection = Injection(secrets.token_hex(4), plan, replicas, tuple(replica.pod for replica in replicas), system)
    if plan.fault == NO_FAULT:
        return Act(injection, repertoire.disturbances[plan.parameters["disturbance"]](system, plan))
    actuator = repertoire.actuator(plan.fault)
    assert actuator is not None, "a plan with it is refused"
    return Act(injection, actuator(injection))


def _check_free(system: SystemUnderTest) -> None:
    """Raise RefusedError while another injection, or a change by an operator, acts on *system*."""
    if system.injection is not None:
        raise RefusedError(f"{system.injection} is still active; wait for its end or run `opsassay system down` first.")
    if missing := system.fleet.not_ready():
        raise RefusedError(f"The system is not healthy: {', '.join(missing)} not ready; wait and retry.")


async def _apply(acts: list[Act], to_undo: list[Act], report: Report) -> float:
    """Journal and apply the faults of *acts* in turn, with events to *report*; return the monotonic time of the first.

    Each act is added to *to_undo* before it is applied.
    """
    started = list[float]()
    for act in acts:
        injection, fields = act.injection, {"replicas": [replica.id for replica in act.injection.replicas]}
        injection.system.journal.write("apply", injection.id, plan=injection.plan.model_dump(mode="json"), **fields)
        to_undo.append(act)
        act.start_ns, began_at = time.time_ns(), time.monotonic()
        await act.intervention.apply()
        if injection.began_at is not None:
            act.start_ns, began_at = act.start_ns + int((injection.began_at - began_at) * 1e9), injection.began_at
        started.append(began_at)
        _log.info("fault applied", **act.origin())
        await report({"event": "applied", **act.origin()})
    return min(started)


async def _undo(system: SystemUnderTest, act: Act) -> list[str]:
    """Undo the fault of *act* and return notes for the record; a failure does not raise, it ends the system."""
    name = act.injection.plan.name
    try:
        await asyncio.shield(act.intervention.undo())
    except (OSError, RuntimeError, TimeoutError, OpsAssayError) as error:
        act.undo_error = error
        _log.exception("fault not undone", error, **act.origin())
        system.give_up(OperationError(f"{name} could not be undone: {error}"))
        return [f"{name} could not be undone: {error}"]
    finally:
        act.end_ns = time.time_ns()
    _log.info("fault undone", **act.origin())
    try:
        system.journal.write("undone", act.injection.id)
    except OperationError as error:
        return [f"{name} was undone, but that could not be written to the journal: {error}"]
    return [f"{name}: {note}" for note in act.injection.notes]


async def _check_effects(
    acts: list[Act], started: float, duration_s: float, lease: asyncio.Event, report: Report
) -> None:
    """Wait until the measure of each fault of *acts* passes its threshold, and report an ``effect`` event for each.

    All are waited for at once, until *lease* is set or *duration_s* after *started* (monotonic).
    """

    async def check(act: Act) -> None:
        """Check the effect of one fault, store it in *act* and report it; nothing for no fault."""
        if act.injection.plan.fault != NO_FAULT:
            act.effect = await _check_effect(act.injection, started, duration_s, lease)
            await report(as_event({"event": "effect", **act.origin(), **act.effect.model_dump()}))

    await asyncio.gather(*(check(act) for act in acts))


async def _check_effect(
    injection: Injection[SystemUnderTest], started: float, duration_s: float, lease: asyncio.Event
) -> EffectCheck:
    """Wait until the measure that the fault changes (its signature) passes its threshold; return the last values.

    It waits EFFECT_TIMEOUT_S or *duration_s* after *started* (monotonic) at most, and ends when *lease* is set.
    """
    times = (max(started - BEFORE_S, injection.system.quiet_since), started)
    signature = catalogued(injection.plan.fault).signature
    last = (math.nan, math.nan, math.nan)

    def has_effect() -> bool:
        """Return whether the latest measure reaches its threshold, or the lease is over."""
        nonlocal last
        last = signature(injection, times)
        return lease.is_set() or last[1] >= last[2]

    await sleep_until(has_effect, min(EFFECT_TIMEOUT_S, duration_s), 0.1)
    before, after, threshold = last
    return EffectCheck(
        signature=(signature.__doc__ or signature.__name__).strip(),
        before=or_zero(before),
        after=or_zero(after),
        threshold=or_zero(threshold),
        passed=after >= threshold,
        seconds=time.monotonic() - started,
    )


async def _check_recovery(act: Act, undone_at: float) -> bool:
    """Wait until all replicas are ready and the fault's measure is below its threshold; return False when that is late.

    The measure counts only if the effect was seen; *undone_at* is of the monotonic clock.
    """
    if act.undo_error is not None:
        return False
    injection, effect = act.injection, act.effect

    def healthy() -> bool:
        """Return whether all replicas are ready and the fault's measure is below its threshold."""
        if injection.system.fleet.not_ready():
            return False
        if effect is None or not effect.passed or (fault := catalogued(injection.plan.fault)).recovered_when_ready:
            return True
        since = max(undone_at, time.monotonic() - RECENT_S)  # calls that began before the undo may take long to end
        return fault.signature(injection, (undone_at - BEFORE_S, since))[1] < effect.threshold

    return await sleep_until(healthy, RECOVERY_TIMEOUT_S, 0.2)


def _done_event(acts: list[Act], *, recovered: bool, notes: list[str]) -> DoneEvent:
    """Return the event ``done``: faults of *acts*, root labels, effect checks, whether it *recovered*, and *notes*."""
    roots = [_root(act.injection) for act in acts if act.injection.plan.fault != NO_FAULT]
    return {
        "event": "done",
        "faults": [_fault_as_injected(act).model_dump() for act in acts],
        "roots": [root.model_dump() for root in roots],
        "effects": [act.effect.model_dump() for act in acts if act.effect is not None],
        "recovered": recovered,
        "notes": notes,
    }


def _fault_as_injected(act: Act) -> Fault:
    """Return the fault for the ground truth: type, target, parameters, and when it began and ended."""
    plan, target = act.injection.plan, act.injection.plan.target
    broken = plan.fault != NO_FAULT and target is not None
    return Fault(
        type=plan.fault,
        service=target.service if target and broken else None,
        host=target.host if target and broken else None,
        pod=act.injection.pods[0] if target and target.service and broken else None,
        peer=plan.parameters.get("peer"),
        parameters=plan.parameters,
        start_ns=act.start_ns,
        end_ns=act.end_ns,
        emulated=broken and fault_type(plan.fault).emulated_on_local,
    )


def _root(injection: Injection[SystemUnderTest]) -> RootLabel:
    """Return the root cause label of a fault: service, pod, container, and its method or operation if it has one."""
    services = tuple(sorted({replica.service for replica in injection.replicas}))
    operation = injection.plan.parameters.get("operation")
    method_level = Level.FUNCTION in fault_type(injection.plan.fault).levels
    return RootLabel(
        service=services,
        pod=injection.pods,
        container=services,
        function=(method_name(services[0], operation),) if operation and method_level else (),
        span=(operation,) if operation and not method_level else (),
    )


async def _wait_for_end(lease: asyncio.Event, seconds: float) -> None:
    """Wait for *seconds*, less when the event *lease* is set meanwhile."""
    try:
        await asyncio.wait_for(lease.wait(), max(seconds, 0.0))
    except TimeoutError:
        return
