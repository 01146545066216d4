"""A scripted model for the SRE agent that recommends: it tries to act, hands in a wrong plan, then one of three calls."""

from __future__ import annotations

from opsassay.solvers.agents.models.base import Reply, ToolRequest

FOUND = {"propagation": ["catalog", "web"], "root_causes": ["catalog"], "condition": "a bad release"}
PLAN = [
    {"tool": "release", "arguments": {"service": "catalog", "version": "v1"}},
    {"tool": "scale", "arguments": {"service": "nowhere", "replicas": 1}},
    {"tool": "wait", "arguments": {"seconds": 0.1}},
]
DIAGNOSING = [("ps", {}), ("report_diagnosis", FOUND)]
RECOMMENDING = [
    ("restart", {"target": "catalog"}),
    ("submit_plan", {"steps": [{"tool": "restart"}]}),
    ("submit_plan", {"steps": PLAN}),
    ("report_mitigation", {"plan": "roll back", "steps": ["release"], "verified": "not yet"}),
]


def respond(messages, tools):
    """Return the next call of whichever of the two agents asks."""
    script = RECOMMENDING if any(tool.name == "report_mitigation" for tool in tools) else DIAGNOSING
    tool, arguments = script[sum(message.role == "assistant" for message in messages)]
    return Reply(tool_requests=(ToolRequest(id="1", tool=tool, arguments=arguments),))
