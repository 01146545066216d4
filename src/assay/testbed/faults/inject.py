"""The life of an injection: precondition, apply, effect check, hold, undo, recovery check."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from assay.errors import NotFoundError, RefusedError
from assay.model.faults import NO_FAULT, fault_type
from assay.model.incident import EffectCheck, Fault, FaultPlan
from assay.testbed.capabilities import refusal
from assay.testbed.faults.actuators import LOCAL_ACTUATORS
from assay.testbed.faults.disturbances import Disturbance, disturbance
from assay.testbed.faults.effects import SIGNATURES
from assay.testbed.faults.injection import Actuator, Injection
from assay.testbed.local.fleet import sleep_until

if TYPE_CHECKING:
    from assay.testbed.local.supervisor import Supervisor

BEFORE_S = 10.0
EFFECT_TIMEOUT_S = 12.0
RECOVERY_TIMEOUT_S = 30.0

Report = Callable[[dict[str, Any]], Awaitable[None]]


async def inject(supervisor: Supervisor, plan: FaultPlan, lease: asyncio.Event, report: Report) -> None:
    """Carry *plan* out on the running system until its duration or the *lease* ends; tell every stage to *report*.

    The last event is ``done`` with the Fault as it happened, the EffectCheck and whether the system recovered.
    """
    if plan.fault == NO_FAULT:
        await _disturb(supervisor, plan, lease, report)
        return
    injection = _precondition(supervisor, plan.completed())
    actuator = LOCAL_ACTUATORS[injection.plan.fault](injection)
    supervisor.injection = f"{plan.fault} on {injection.replica.service}"
    try:
        start_ns, effect, undo_error = await _apply_and_hold(injection, actuator, lease, report)
        end_ns, undone = time.time_ns(), time.monotonic()
        await report({"event": "undone"})
        recovered = undo_error is None and await _check_recovery(injection, effect, undone)
    finally:
        supervisor.injection, supervisor.quiet_since = None, time.monotonic()
    fault = Fault(
        type=injection.plan.fault,
        service=injection.replica.service,
        pod=injection.pod,
        peer=injection.plan.parameters.get("peer"),
        parameters=injection.plan.parameters,
        start_ns=start_ns,
        end_ns=end_ns,
        emulated=fault_type(injection.plan.fault).emulated_on_local,
    )
    await report({"event": "done", "fault": fault.model_dump(), "effect": effect.model_dump(), "recovered": recovered})


async def _disturb(supervisor: Supervisor, plan: FaultPlan, lease: asyncio.Event, report: Report) -> None:
    """Break nothing for the duration: nothing happens, or what happens harms nobody."""
    disturbing, id_ = disturbance(supervisor, plan), secrets.token_hex(4)
    _check_free(supervisor)
    supervisor.injection = f"{NO_FAULT} ({plan.parameters.get('disturbance', 'quiet')})"
    start_ns, undo_error = time.time_ns(), None
    try:
        supervisor.journal.write("apply", id_, plan=plan.model_dump(mode="json"))
        try:
            await report({"event": "applied", "fault": NO_FAULT})
            started = time.monotonic()
            await disturbing.apply()
            await _wait(lease, plan.duration_s - (time.monotonic() - started))
        finally:
            undo_error = await _undo(supervisor, id_, plan.fault, disturbing)
        end_ns = time.time_ns()
        await report({"event": "undone"})
    finally:
        supervisor.injection, supervisor.quiet_since = None, time.monotonic()
    fault = Fault(type=NO_FAULT, service=None, parameters=plan.parameters, start_ns=start_ns, end_ns=end_ns)
    await report({"event": "done", "fault": fault.model_dump(), "effect": None, "recovered": undo_error is None})


def _precondition(supervisor: Supervisor, plan: FaultPlan) -> Injection:
    """Check that target and system are fit for the fault; raises NotFoundError or RefusedError."""
    if (reason := refusal(plan.fault, "plain")) is not None:
        raise RefusedError(f"{plan.fault} cannot be injected here: {reason}")
    assert plan.target is not None
    service = plan.target.service
    if service not in supervisor.system.services:
        raise NotFoundError("service", service, supervisor.system.services)
    operation = plan.parameters.get("operation")
    if operation is not None and operation not in supervisor.system.services[service].operations:
        raise NotFoundError(f"operation of {service}", str(operation), supervisor.system.services[service].operations)
    peer = plan.parameters.get("peer")
    known_peers = [*supervisor.system.services, *supervisor.system.stores]
    if peer is not None and peer not in known_peers:
        raise NotFoundError("peer", str(peer), known_peers)
    replicas = supervisor.fleet.of(service)
    index = plan.target.replica or 0
    if index >= len(replicas):
        raise RefusedError(f"{service} has no replica {index}; it has {len(replicas)}, counted from 0.")
    _check_free(supervisor)
    return Injection(secrets.token_hex(4), plan, replicas[index], replicas[index].pod, supervisor)


def _check_free(supervisor: Supervisor) -> None:
    """Raise RefusedError while something else is going on in the system."""
    if supervisor.injection is not None:
        raise RefusedError(f"{supervisor.injection} is still active; wait for its end or run `assay down` first.")
    if missing := supervisor.fleet.not_ready():
        raise RefusedError(f"The system is not healthy: {', '.join(missing)} not ready; wait and retry.")


async def _apply_and_hold(
    injection: Injection, actuator: Actuator, lease: asyncio.Event, report: Report
) -> tuple[int, EffectCheck, Exception | None]:
    journal, plan = injection.supervisor.journal, injection.plan
    journal.write("apply", injection.id, plan=plan.model_dump(mode="json"), replica=injection.replica.id)
    start_ns, started = time.time_ns(), time.monotonic()
    undo_error: Exception | None = None
    try:
        await actuator.apply()
        await report({"event": "applied", "fault": plan.fault, "service": injection.replica.service})
        effect = await _check_effect(injection, started, lease)
        await report({"event": "effect", **effect.model_dump()})
        await _wait(lease, plan.duration_s - (time.monotonic() - started))
    finally:
        undo_error = await _undo(injection.supervisor, injection.id, plan.fault, actuator)
    return start_ns, effect, undo_error


async def _undo(supervisor: Supervisor, id_: str, fault: str, acting: Actuator | Disturbance) -> Exception | None:
    """Take the fault back, whatever happens; a fault that cannot be taken back ends the system."""
    try:
        await asyncio.shield(acting.undo())
    except (OSError, RuntimeError, TimeoutError) as error:
        supervisor.give_up(RefusedError(f"{fault} could not be undone ({error}); the system was ended."))
        return error
    supervisor.journal.write("undone", id_)
    return None


async def _check_effect(injection: Injection, started: float, lease: asyncio.Event) -> EffectCheck:
    """Wait until the fault's signature shows, at most EFFECT_TIMEOUT_S or the fault's own duration."""
    times = (max(started - BEFORE_S, injection.supervisor.quiet_since), started)
    signature = SIGNATURES[injection.plan.fault]
    last = (math.nan, math.nan, math.nan)

    def bites() -> bool:
        nonlocal last
        last = signature(injection, times)
        return lease.is_set() or last[1] >= last[2]

    await sleep_until(bites, min(EFFECT_TIMEOUT_S, injection.plan.duration_s), 0.1)
    before, after, threshold = last
    return EffectCheck(
        signature=(signature.__doc__ or signature.__name__).strip(),
        before=_finite(before),
        after=_finite(after),
        threshold=_finite(threshold),
        passed=after >= threshold,
        seconds=time.monotonic() - started,
    )


async def _check_recovery(injection: Injection, effect: EffectCheck, undone: float) -> bool:
    """Wait until every replica is ready and the fault's signature, seen since it was undone, is below its threshold.

    A signature that never showed cannot be gone; readiness is all that there is to see then.
    """
    signature = SIGNATURES[injection.plan.fault]

    def healthy() -> bool:
        if injection.supervisor.fleet.not_ready():
            return False
        return not effect.passed or signature(injection, (undone - BEFORE_S, undone))[1] < effect.threshold

    return await sleep_until(healthy, RECOVERY_TIMEOUT_S, 0.2)


def _finite(value: float) -> float:
    return 0.0 if math.isnan(value) else value


async def _wait(lease: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(lease.wait(), max(seconds, 0.0))
    except TimeoutError:
        return
