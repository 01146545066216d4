"""What the SRE agent's two agents and their summariser read."""

from __future__ import annotations

import json
from typing import Any

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import ToolCall

DIAGNOSE = """\
You are the diagnosis agent of a team that operates a system of services. An alert has fired.
Look at the alerts first, then at traces, logs and metrics of the services that they name and of their neighbours, and
at the system itself. You can look and change nothing. Follow the failure from where it shows to where it comes from.
When you have enough evidence, call report_diagnosis with the path of the failure, its steps with the condition and the
effect of each, and its causes, or without any when nothing is wrong. It is graded, and so is how soon it comes."""

MITIGATE = """\
You are the mitigation agent of a team that operates a system of services; users depend on it while you work.
You are given a diagnosis. Plan the least invasive repair, say the plan in words, then carry it out with the tools, step
by step. Afterwards verify that the system works from end to end and that the alerts have cleared, wait, and look again:
alerts can seem cleared for a moment. If they have not, think again. When the system works, or when nothing is wrong
with it, call report_mitigation with what you did."""

SUMMARISE = """\
Summarise this output of a tool for an operator who looks for the cause of a failure: which services fail or are slow,
the exact words of errors, names and numbers. Leave out what is healthy. At most 20 lines."""

DIAGNOSIS_REPORT = ToolSpec(
    name="report_diagnosis",
    description="Hand in the diagnosis; this ends your part.",
    parameters={
        "type": "object",
        "properties": {
            "propagation": {
                "type": "array",
                "description": "services from the cause to where it was noticed, in order",
            },
            "root_causes": {
                "type": "array",
                "description": "the services, stores or hosts that are the cause, by name; [] when nothing is wrong",
            },
            "condition": {"type": "string", "description": "what is wrong with them"},
            "edges": {
                "type": "array",
                "description": "the same way step by step: objects with source (the cause), target (whom it makes fail), "
                "condition (what is wrong at the source) and effect (what shows at the target)",
            },
        },
        "required": ["propagation", "root_causes", "condition"],
    },
)

MITIGATION_REPORT = ToolSpec(
    name="report_mitigation",
    description="Hand in what was done; this ends your part.",
    parameters={
        "type": "object",
        "properties": {
            "plan": {"type": "string", "description": "the plan in words"},
            "steps": {"type": "array", "description": "what was changed, in order"},
            "verified": {"type": "string", "description": "how you know that it works"},
        },
        "required": ["plan", "steps", "verified"],
    },
)


def begin_mitigation(alert: str, diagnosis: dict[str, Any] | None) -> str:
    """Return the task of the mitigation agent."""
    found = json.dumps(diagnosis, indent=1) if diagnosis else "none was handed in; look for yourself"
    return f"{alert}\n\nDiagnosis:\n{found}"


def reflect(call: ToolCall) -> str:
    """Return what the model reads of a call that failed, with the call itself."""
    called = json.dumps(call.arguments, ensure_ascii=False)[:1000]
    advice = "Reflect on what was wrong with it, and try again or go another way."
    return f"{call.output}\nThe call was {call.tool} {called}. {advice}"
