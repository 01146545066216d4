"""A scripted model that plays the FinOps agent on a live system: it reads the costs, names a cause and acts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Message, Reply, ToolRequest

Step = tuple[str, dict[str, Any]]


def respond(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
    """Return the next step of whichever of the two agents is asked: the one that diagnoses, or the one that repairs."""
    done = [message.content for message in messages if message.role == "tool"]
    names = {tool.name for tool in tools}
    steps = _diagnosis if "report_diagnosis" in names else _repair
    tool, arguments = steps(done, names)
    return Reply(tool_requests=(ToolRequest(id=f"call_{len(done)}", tool=tool, arguments=arguments),))


def _diagnosis(done: Sequence[str], names: set[str]) -> Step:
    del names
    if len(done) < 2:
        return ("costs", "autoscalers")[len(done)], {}
    service, cause = _found(done)
    if len(done) == 2:
        return "report_cost_cause", {"service": service, "cause": cause}
    return "report_diagnosis", {"propagation": [service], "root_causes": [service], "condition": cause}


def _repair(done: Sequence[str], names: set[str]) -> Step:
    if len(done) < 2:
        return ("costs", "autoscalers")[len(done)], {}
    changes = _changes(done, names)
    step = len(done) - 2
    if step < len(changes):
        return changes[step]
    if step < len(changes) + 2:
        return (("wait", {"seconds": 20.0}), ("costs", {}))[step - len(changes)]
    return "report_mitigation", {
        "plan": "take the cause away",
        "steps": [name for name, _ in changes],
        "verified": done[-1],
    }


def _found(done: Sequence[str]) -> tuple[str, str]:
    """Return the service that makes the cost rise, and why, from the answers of `costs` and `autoscalers`."""
    services: Mapping[str, Mapping[str, float]] = json.loads(done[0])["now"]["services"]
    scalers = json.loads(done[1])["autoscalers"]
    tests: tuple[tuple[str, Callable[[str, Mapping[str, float]], bool]], ...] = (
        ("over_requested_memory", lambda _, cost: cost["memory_request_gb"] > 8 * cost["memory_gb"] > 0),
        (
            "autoscaler_threshold",
            lambda name, _: any(s["service"] == name and s["target_utilization"] < 0.5 for s in scalers),
        ),
        ("idle_deployment", lambda _, cost: cost["replicas"] > 1 and cost["handled_rps"] == 0),
    )
    for cause, holds in tests:
        for name, cost in services.items():
            if holds(name, cost):
                return name, cause
    return max(services, key=lambda name: services[name]["cpu"]), "legitimate_growth"


def _changes(done: Sequence[str], names: set[str]) -> list[Step]:
    service, cause = _found(done)
    budget = json.loads(done[0])["budget"]
    others = [one for name, one in json.loads(done[1])["requests_per_replica"].items() if name != service]
    used = json.loads(done[0])["now"]["services"][service]["cpu"]
    if cause == "over_requested_memory":
        return [("requests_set", {"service": service, **min(others, key=lambda one: one["memory_mb"])})]
    if cause == "autoscaler_threshold":
        bounds = {"min_replicas": 1, "max_replicas": 8, "target_utilization": 0.75}
        count = -int(-used // (0.77 * others[0]["cpu"]))
        return [("autoscaler_set", {"service": service, **bounds}), _scale(service, count, names)]
    if cause == "idle_deployment":
        return [_scale(service, 0, names)]
    return [("budget_set", {"hourly_usd": budget["hourly_usd"] + budget["flexible_usd"]})]


def _scale(service: str, replicas: int, names: set[str]) -> Step:
    if "scale" in names:
        return "scale", {"service": service, "replicas": replicas}
    return "kubectl", {"args": ["scale", f"deployment/{service}", f"--replicas={replicas}"]}
