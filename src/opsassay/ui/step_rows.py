"""Steps of an agent as table rows: time, agent, tools, text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.run_folder import TRACE
from opsassay.core.schema.trajectory import Attribution
from opsassay.ui.clock import Span
from opsassay.ui.glossary import in_words
from opsassay.ui.plain import plain

MOST_WORDS = 600
View = dict[str, Any]


def step_row(step: Mapping[str, Any], span: Span | None) -> View:
    """Return *step*, a line of a trace, as a table row; times are relative to the axis *span*."""
    calls = [call for call in _as_list(step.get("tool_logs")) if isinstance(call, Mapping)]
    number, began = step.get("step_id"), step.get("started_at")
    began = began if isinstance(began, int) else None
    failed = any(call.get("status", "ok") != "ok" for call in calls)
    return {
        "number": number if isinstance(number, int) else 0,
        "when": span.when(began) if span else "",
        "at_s": span.seconds_of(began) if span else None,
        "agent": plain(step.get("agent_name") or "", 80),
        "tools": [_format_tool_call(call) for call in calls],
        "said": plain(step.get("output_content") or step.get("error") or "", MOST_WORDS),
        "wrong": step.get("error") is not None or failed,
    }


def culprit_view(culprit: Attribution | None) -> View | None:
    """Return the blamed step, its agent and the reason as page data; None without a step."""
    if culprit is None or culprit.step_id is None:
        return None
    agent, reason = plain(culprit.agent_name or "nobody known", 80), in_words(plain(culprit.reason, MOST_WORDS))
    return {"step": culprit.step_id, "agent": agent, "reason": reason}


def _format_tool_call(call: Mapping[str, Any]) -> str:
    """Return *call* on one line, with its status unless that is "ok"."""
    given, status = call.get("arguments"), call.get("status", "ok")
    arguments = " ".join(f"{key}={value}" for key, value in given.items()) if isinstance(given, Mapping) else ""
    return plain(f"{call.get('tool')} {arguments}".strip(), 200) + ("" if status == "ok" else f" ({plain(status, 40)})")


def _as_list(value: Any) -> list[Any]:
    """Return a list or tuple as a list, anything else as an empty list."""
    return list(value) if isinstance(value, list | tuple) else []


LARGEST_TRACE = 16 * 2**20
"""Most bytes of a trace that a page reads whole."""


def culprit_of(run_dir: Path) -> Attribution | None:
    """Return the agent and step to blame for the failure of the run in *run_dir*, None when unknown.

    It is the step whose action lowered availability if the timeline shows one, else that of the technique "combined".
    """
    from opsassay.analysis.blame.attribute import JOINED, attribute
    from opsassay.analysis.blame.operations import join, read_run
    from opsassay.solvers.proxy.formats import read_one

    with suppress(OpsAssayError, OSError):
        if not 0 < (run_dir / TRACE).stat().st_size <= LARGEST_TRACE:
            return None
        trace = read_one(run_dir / TRACE)
        joined = join(trace, read_run(run_dir))
        found = attribute(trace, JOINED if joined.findings else "combined", joined=joined).attribution
        return found if found.step_id is not None else None
    return None
