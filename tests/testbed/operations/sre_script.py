"""A scripted model for the SRE agent: finds the wrong record of the name server and sets it right."""

from __future__ import annotations

from opsassay.solvers.agents.models.base import Reply, ToolRequest

DIAGNOSING = [
    ("alerts", {}),
    ("config_get", {"target": "nmes"}),  # the linter tells
    ("config_get", {"target": "names"}),
    (
        "report_diagnosis",
        {
            "propagation": ["names", "catalog", "web", "proxy"],
            "root_causes": ["names"],
            "condition": "wrong record",
            "edges": [
                {"source": "names", "target": "catalog", "condition": "wrong record", "effect": "nobody gets there"},
                {"source": "catalog", "target": "web", "condition": "not reached", "effect": "no page"},
                {"source": "web", "target": "proxy", "condition": "no page", "effect": "502"},
            ],
        },
    ),
]
MITIGATING = [
    ("config_set", {"target": "names", "key": "catalog", "value": "catalog"}),
    ("exec_curl", {"source": "export", "url": "http://proxy:8080/"}),
    ("wait", {"seconds": 2.0}),
    ("alerts", {}),
    ("report_mitigation", {"plan": "set the record", "steps": ["config_set"], "verified": "a page is answered"}),
]


def respond(messages, tools):
    """Return the next call of whichever of the two agents asks."""
    script = MITIGATING if any(tool.name == "report_mitigation" for tool in tools) else DIAGNOSING
    tool, arguments = script[sum(message.role == "assistant" for message in messages)]
    return Reply(tool_requests=(ToolRequest(id="1", tool=tool, arguments=arguments),))
