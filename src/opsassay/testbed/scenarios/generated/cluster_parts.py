"""What the recipes of a cluster are made of: calls of kubectl, changes and states of a deployment, what fires."""

from __future__ import annotations

from typing import Any

from opsassay.core.schema.cluster import ObjectChange, ObjectState
from opsassay.core.schema.scenario import AlertRule, AlertSignal, OracleStep
from opsassay.testbed.scenarios.generated.recipes import TAKEN_AWAY, Broken, FaultPlace, WrongRepair

STAND_INS = "grid"
"""The system whose services are stand-ins: they need no settings, no memory and no database, and send no telemetry."""


def kubectl(*words: str, wait_s: float = 0.0, timeout_s: float = 60.0) -> OracleStep:
    """Return a call of kubectl as a step of an oracle."""
    return OracleStep(verb="kubectl", arguments={"args": list(words), "timeout_s": timeout_s}, wait_s=wait_s)


def ready(name: str) -> OracleStep:
    """Return the wait until a rollout of *name* is over."""
    return kubectl("rollout", "status", f"deployment/{name}", "--timeout=170s", timeout_s=180.0, wait_s=8)


def restart(name: str) -> tuple[OracleStep, ...]:
    """Return what makes new pods of *name*, and waits for them."""
    return kubectl("rollout", "restart", f"deployment/{name}"), ready(name)


def scaled_to_zero(name: str) -> WrongRepair:
    """Return the repair that takes the workload away; alerts over pods are quiet then, those of users are not."""
    steps = (kubectl("scale", f"deployment/{name}", "--replicas=0", wait_s=10),)
    return WrongRepair("Runs no replica of it, so that none is missing.", TAKEN_AWAY, steps)


def patched(name: str, spec: dict[str, Any]) -> ObjectChange:
    """Return a change of the spec of the deployment *name*."""
    return ObjectChange(kind="Deployment", name=name, patch={"spec": spec})


def template(name: str, **container: Any) -> dict[str, Any]:
    """Return the part of a spec that changes the container of every pod."""
    return {"template": {"spec": {"containers": [{"name": name, **container}]}}}


def state(name: str, path: str, equals: object) -> ObjectState:
    """Return what holds when the deployment *name* has *equals* at *path*."""
    return ObjectState(kind="Deployment", name=name, path=path, equals=equals)


def rolled_out(place: FaultPlace) -> tuple[ObjectState, ...]:
    """Return the states of a rollout that is over."""
    name, count = place.target, place.replicas
    return (
        state(name, "status.observedGeneration", 2),
        state(name, "status.updatedReplicas", count),
        state(name, "status.unavailableReplicas", None),
        state(name, "status.replicas", count),
    )


def alert_of(place: FaultPlace, *, pods: bool) -> AlertRule:
    """Return what fires: users of a service that still answers, else its pods or a request from outside."""
    if place.system.system != STAND_INS and place.callers:
        return AlertRule(service=place.entry, signal="error_rate")
    signal: AlertSignal = "replicas_missing" if pods else "probe_failed"
    return AlertRule(service=place.target, signal=signal)


def broken_of(place: FaultPlace, condition: str, **fields: Any) -> Broken:
    """Return what all have in common; where services are stand-ins a failure spreads to nobody."""
    alone = place.system.system == STAND_INS
    given = {
        "root": place.target,
        "edges": () if alone else place.reach.edges,
        "condition": condition,
        "symptom": f"requests to {place.target if alone else place.entry} fail",
        "alert": alert_of(place, pods=False),
        "technologies": ("Kubernetes", "HTTP"),
        "layer": "pod",
        "depth": "D1",
        "protected": place.target if alone else place.entry,
        "wrong": scaled_to_zero(place.target),
        **fields,
    }
    return Broken(**given)
