"""The page of a trace: one HTML file that sends no requests and shows ten thousand steps at once.

Index and script precede the contents of the steps, so that a browser paints the page while it reads the rest. With an
*annotator*, a form takes labels of each trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from opsassay.analysis.blame.definition import DEFINITION
from opsassay.analysis.blame.joined import ClockLane
from opsassay.analysis.blame.patterns import PatternFinding
from opsassay.core.schema.trajectory import Attribution, Trace, TraceStep
from opsassay.telemetry.content import whole_file
from opsassay.ui.page import inert_json, render
from opsassay.ui.plain import plain, utc
from opsassay.ui.sql_text import arguments_text

STEPS_A_CHUNK = 100
LONGEST_INPUT = 60_000
LONGEST_LINE = 110


@dataclass(frozen=True)
class TracePage:
    """A trace with its suggested step to blame, findings of failure patterns, and the lanes of its timeline."""

    name: str
    trace: Trace
    suggestion: Attribution | None = None
    findings: tuple[PatternFinding, ...] = ()
    lanes: tuple[ClockLane, ...] = field(default=())


def index_of(page: TracePage) -> dict[str, Any]:
    """Return the data that a trace page loads first: facts, agents, transitions, findings, one short row per step."""
    agents = page.trace.agents()
    number = {agent: i for i, agent in enumerate(agents)}
    return {
        "name": visible_text(page.name, 200),
        "facts": _list_facts(page.trace),
        "agents": [visible_text(agent, 80) for agent in agents],
        "steps": [_step_row(step, number) for step in page.trace.steps],
        "flow": _agent_transitions(page.trace, number),
        "suggestion": _suggestion_item(page.suggestion),
        "findings": [
            {"name": visible_text(f.name, 80), "step": f.step, "evidence": visible_text(f.evidence)}
            for f in page.findings
        ],
        "clock": _clock_item(page.lanes),
    }


def chunks_of(page: TracePage) -> list[list[dict[str, Any]]]:
    """Return the full contents of the steps of *page*, in lists of STEPS_A_CHUNK steps."""
    steps = page.trace.steps
    return [
        [_step_content(step) for step in steps[at : at + STEPS_A_CHUNK]] for at in range(0, len(steps), STEPS_A_CHUNK)
    ]


def visible_text(text: str, longest: int = LONGEST_INPUT) -> str:
    """Return *text*, cut to *longest* characters, with control characters written out."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        over = len(text) - longest
        return text if over <= 0 else f"{text[:longest]} … ({over:,} more characters)"
    return plain(text, longest)


def _list_facts(trace: Trace) -> list[tuple[str, str]]:
    """Return (name, text) of the trace's metadata, empty ones left out."""
    fields = {
        "Task": trace.task_instruction,
        "Task id": trace.task_id,
        "System": trace.system_name,
        "Outcome": trace.outcome,
        "Reference answer": trace.reference_answer,
        "Architecture": trace.system_architecture,
        "Agents": "\n".join(
            f"{name}: {_configuration_text(value)}" for name, value in trace.agent_configuration.items()
        ),
    }
    return [(name, visible_text(str(value), 4000)) for name, value in fields.items() if value]


def _configuration_text(configuration: Any) -> str:
    """Return an agent's prompt, or its whole configuration when it has no prompt."""
    prompt = configuration.get("system_prompt") if isinstance(configuration, dict) else None
    if prompt or not isinstance(configuration, dict):
        return str(prompt or configuration)
    given = ((name.replace("_", " "), value) for name, value in configuration.items() if value not in (None, "", {}))
    return "; ".join(f"{name} {_configuration_text(value)}" for name, value in given)


def _step_row(step: TraceStep, number: dict[str, int]) -> list[Any]:
    """Return [step_id, agent index, flags, first line]; flags: t called a tool, f a tool failed, e error."""
    failed = any(call.status == "error" for call in step.tool_logs)
    flags = ("t" if step.kind == "tool" else "") + ("f" if failed else "") + ("e" if step.error else "")
    head = step.error or step.output_content or ", ".join(f"calls {call.tool}" for call in step.tool_logs)
    return [
        step.step_id,
        number[step.agent_name],
        flags,
        visible_text(" ".join(head[: 4 * LONGEST_LINE].split())[:LONGEST_LINE]),
    ]


def _step_content(step: TraceStep) -> dict[str, Any]:
    """Return the texts of a step, control characters made visible."""
    return {
        "input": visible_text(step.input_context),
        "output": visible_text(step.output_content),
        "error": visible_text(step.error or ""),
        "tools": [
            [visible_text(c.tool, 80), _arguments_text(c.arguments), visible_text(c.output), c.status]
            for c in step.tool_logs
        ],
        "about": _describe_step(step),
    }


def _arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON; with SQL among them, one argument a line, the SQL formatted."""
    laid_out = arguments_text(arguments)
    return (
        plain(arguments) if laid_out is None else visible_text("\n".join(f"{name}:\n{text}" for name, text in laid_out))
    )


def _describe_step(step: TraceStep) -> str:
    """Return time, duration, model, tokens and request id of *step* on one line."""
    took = (step.ended_at - step.started_at) / 1e9 if step.started_at and step.ended_at else None
    parts = [
        utc(step.started_at) if step.started_at else "",
        f"{took:.2f} s" if took is not None else "",
        visible_text(step.model or "", 80),
        ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in step.usage.items()),
        f"stopped: {visible_text(step.finish_reason, 80)}" if step.finish_reason else "",
        visible_text(step.request_id or "", 80),
    ]
    return " · ".join(part for part in parts if part)


def _agent_transitions(trace: Trace, number: dict[str, int]) -> list[list[int]]:
    """Return [from, to, count] for agents that act directly after each other, as indices in *number*."""
    counted = Counter((number[a.agent_name], number[b.agent_name]) for a, b in pairwise(trace.steps))
    return [[a, b, times] for (a, b), times in sorted(counted.items())]


def _suggestion_item(suggestion: Attribution | None) -> dict[str, Any] | None:
    """Return the suggested step to blame as page data, None without one."""
    if suggestion is None or suggestion.step_id is None:
        return None
    return {
        "step": suggestion.step_id,
        "agent": visible_text(suggestion.agent_name or "", 80),
        "reason": visible_text(suggestion.reason, 2000),
    }


def _clock_item(lanes: Sequence[ClockLane]) -> dict[str, Any] | None:
    """Return the timeline's rows with times in seconds since the first mark, None without marks."""
    marks = [mark for lane in lanes for mark in lane.marks]
    if not marks:
        return None
    first, last = min(mark.start_ns for mark in marks), max(mark.end_ns for mark in marks)
    rows = [
        {
            "name": lane.name,
            "marks": [
                [(m.start_ns - first) / 1e9, (m.end_ns - first) / 1e9, m.kind, visible_text(m.text, 300), m.step]
                for m in lane.marks
            ],
        }
        for lane in lanes
    ]
    return {"begun": utc(first), "seconds": (last - first) / 1e9, "lanes": rows}


def write_trace_page(pages: Sequence[TracePage], out: Path, *, title: str, annotator: str | None = None) -> Path:
    """Write the page of *pages* to *out* and return that path, with a form for labels by *annotator* if given."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out) as partial:
        partial.write_text(render_trace_page(pages, title=title, annotator=annotator), encoding="utf-8", newline="\n")
    return out


def render_trace_page(
    pages: Sequence[TracePage], *, title: str, annotator: str | None = None, back: Mapping[str, str] | None = None
) -> str:
    """Return the page of *pages* as HTML, with a form for labels by *annotator* if given; *back*: link text to URL."""
    form = {"annotator": plain(annotator, 80), "definition": DEFINITION} if annotator else None
    index = {"traces": [index_of(page) for page in pages], "size": STEPS_A_CHUNK, "form": form}
    chunks = [
        {"id": f"chunk-{i}-{k}", "text": inert_json(chunk)}
        for i, page in enumerate(pages)
        for k, chunk in enumerate(chunks_of(page))
    ]
    scripts, later = ("trace",), ("flow",)  # the drawing of the flow is 480 kB of script, and nothing else waits for it
    return render("trace.html", title, scripts, later=later, index=inert_json(index), chunks=chunks,
                  back=back or {}, home=next(iter((back or {}).values()), ""))  # fmt: skip
