"""The prompts of the SRE agent's two agents and of the summariser of long outputs."""

from __future__ import annotations

import json
from typing import Any

from opsassay.core.schema.files import packaged_yaml
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import ToolCall

_TEXTS = packaged_yaml(__package__, "sre_prompts.yaml")
DIAGNOSE: str = _TEXTS["diagnose"]
MITIGATE: str = _TEXTS["mitigate"]
SUMMARISE: str = _TEXTS["summarise"]
DIAGNOSIS_REPORT, MITIGATION_REPORT = (ToolSpec(**_TEXTS[name]) for name in ("diagnosis_report", "mitigation_report"))


def begin_mitigation(alert: str, diagnosis: dict[str, Any] | None) -> str:
    """Return the first message to the mitigation agent: *alert* and, unless None, *diagnosis*."""
    found = json.dumps(diagnosis, indent=1) if diagnosis else "none was handed in; look for yourself"
    return f"{alert}\n\nDiagnosis:\n{found}"


def reflect(call: ToolCall) -> str:
    """Return the output of a failed *call* with a request to reconsider it."""
    called = json.dumps(call.arguments, ensure_ascii=False)[:1000]
    advice = "Reflect on what was wrong with it, and try again or go another way."
    return f"{call.output}\nThe call was {call.tool} {called}. {advice}"
