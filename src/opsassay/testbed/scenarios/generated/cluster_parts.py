"""The parts of recipes for a cluster: calls of kubectl, changes and states of a deployment, alert rules."""

from __future__ import annotations

from typing import Any

from opsassay.core.schema.cluster import ObjectChange, ObjectState
from opsassay.core.schema.scenario import AlertRule, AlertSignal, OracleStep
from opsassay.testbed.scenarios.generated.recipes import TAKEN_AWAY, Broken, FaultPlace, WrongRepair

STAND_INS = "grid"
"""The system whose services are stand-ins: they need no settings or database, and send no telemetry."""


def kubectl(*arguments: str, wait_s: float = 0.0, timeout_s: float = 60.0) -> OracleStep:
    """Return the step that runs kubectl with *arguments*, at most *timeout_s*, and waits *wait_s* afterwards."""
    return OracleStep(verb="kubectl", arguments={"args": list(arguments), "timeout_s": timeout_s}, wait_s=wait_s)


def ready(name: str) -> OracleStep:
    """Return the step that waits until the rollout of the deployment *name* is complete."""
    return kubectl("rollout", "status", f"deployment/{name}", "--timeout=170s", timeout_s=180.0, wait_s=8)


def restart(name: str) -> tuple[OracleStep, ...]:
    """Return the steps that restart the deployment *name* and wait until its rollout is complete."""
    return kubectl("rollout", "restart", f"deployment/{name}"), ready(name)


def scaled_to_zero(name: str) -> WrongRepair:
    """Return the wrong repair that scales *name* to zero: alerts on pods end, alerts on user requests do not."""
    steps = (kubectl("scale", f"deployment/{name}", "--replicas=0", wait_s=10),)
    return WrongRepair("Runs no replica of it, so that none is missing.", TAKEN_AWAY, steps)


def patched(name: str, spec: dict[str, Any]) -> ObjectChange:
    """Return the change that merges *spec* into the spec of the deployment *name*."""
    return ObjectChange(kind="Deployment", name=name, patch={"spec": spec})


def template(name: str, **container: Any) -> dict[str, Any]:
    """Return the patch of a deployment's spec that sets the fields *container* of the container *name*."""
    return {"template": {"spec": {"containers": [{"name": name, **container}]}}}


def state(name: str, path: str, equals: object) -> ObjectState:
    """Return the condition that the field *path* of the deployment *name* equals *equals* (None: is absent)."""
    return ObjectState(kind="Deployment", name=name, path=path, equals=equals)


def rolled_out(place: FaultPlace) -> tuple[ObjectState, ...]:
    """Return the conditions that the first change of the deployment at *place* has reached all its replicas."""
    name, count = place.target, place.replicas
    return (
        state(name, "status.observedGeneration", 2),
        state(name, "status.updatedReplicas", count),
        state(name, "status.unavailableReplicas", None),
        state(name, "status.replicas", count),
    )


def alert_of(place: FaultPlace, *, on_pods: bool) -> AlertRule:
    """Return the alert rule for *place*: errors at its entry; without callers missing pods (*on_pods*) or probes."""
    if place.system.system != STAND_INS and place.callers:
        return AlertRule(service=place.entry, signal="error_rate")
    signal: AlertSignal = "replicas_missing" if on_pods else "probe_failed"
    return AlertRule(service=place.target, signal=signal)


def broken_of(place: FaultPlace, condition: str, **fields: Any) -> Broken:
    """Return the fault at *place* that *condition* describes; *fields* of `Broken` replace the defaults of clusters."""
    alone = place.system.system == STAND_INS
    given = {
        "root": place.target,
        "edges": () if alone else place.reach.edges,
        "condition": condition,
        "symptom": f"requests to {place.target if alone else place.entry} fail",
        "alert": alert_of(place, on_pods=False),
        "technologies": ("Kubernetes", "HTTP"),
        "layer": "pod",
        "depth": "D1",
        "protected": place.target if alone else place.entry,
        "wrong": scaled_to_zero(place.target),
        **fields,
    }
    return Broken(**given)
