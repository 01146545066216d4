"""Three failure patterns of root-cause agents, found by rules from trace, answer, truth and telemetry.

Source: "openrca2-pave", section 3.3. Each finding names the step and quotes the evidence. Only answers that missed a
true root are tested.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import polars as pl

from opsassay.core.schema.causal_graph import CausalGraph
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.trajectory import Trace, TraceStep
from opsassay.solvers.methods.loudest import Loudest, complaints
from opsassay.solvers.methods.signals import failed_span, seconds
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.severity import ERROR_LEVELS

SILENT_RATIO = 0.1
"""A service is silent when its spans per second fall below this share of the normal rate."""
SLOW_RATIO = 2.0
"""As in the method ``loudest``: a span is slow above this many times the normal 99th percentile of its operation."""


@dataclass(frozen=True)
class PatternFinding:
    """A failure pattern (*name*), the *step* at which it shows, None when at no step, and the evidence in words."""

    name: str
    step: int | None
    evidence: str


def find_patterns(trace: Trace, answer: Diagnosis, truth: CausalGraph, view: Datapack) -> list[PatternFinding]:
    """Return why *answer* missed true roots: at most one finding per failure pattern and missed root service.

    The patterns are premature commitment, presence bias (the root fell silent) and the loudest signal or log line.
    """
    claimed = {claim.service for claim in answer.root_causes}
    missed = sorted(truth.root_services() - claimed)
    if not missed:
        return []
    premature = [premature_commitment(trace, root) for root in missed]
    silent = [presence_bias(trace, claimed, root, truth, view) for root in missed]
    loudest = loudest_signal(trace, claimed, truth, view) or loudest_text(trace, claimed, truth, view)
    return [finding for finding in (*premature, *silent, loudest) if finding]


def premature_commitment(trace: Trace, root: str) -> PatternFinding | None:
    """Return a finding if a tool result named the missed *root* service and no later call asked about it; else None.

    A call asks about it when its arguments name it.
    """
    seen = next(
        (step for step in trace.steps if any(_mentions_service(call.output, root) for call in step.tool_logs)), None
    )
    if seen is None:
        return None
    later = [step for step in trace.steps if step.step_id > seen.step_id]
    if any(_asks_for(step, root) for step in later):
        return None
    quoted = next(_quote_around(call.output, root) for call in seen.tool_logs if _mentions_service(call.output, root))
    further = sum(bool(step.tool_logs) for step in later)
    return PatternFinding(
        "premature commitment",
        seen.step_id,
        f"the true root {root} was in view ({quoted}) and none of the {further} later steps with tools asked about it",
    )


def presence_bias(
    trace: Trace, claimed: set[str], root: str, truth: CausalGraph, view: Datapack
) -> PatternFinding | None:
    """Return a finding if the missed *root* fell silent and a service that it affects was blamed (*claimed*); else None.

    Affected are the services downstream of the root in the true cascade. The step is the first whose tools counted or
    listed services of the abnormal window without the root among them.
    """
    normal, abnormal = (_rate_of_spans(view, period, root) for period in ("normal", "abnormal"))
    if normal == 0 or abnormal / normal > SILENT_RATIO or not claimed & _affected_services(truth, root):
        return None
    blind = next((step for step in trace.steps if _lists_without(step, root)), None)
    count = f"SELECT count(*) FROM {{}}_traces WHERE service_name = '{root}'"  # noqa: S608 - shown, not run
    query = f"SELECT ({count.format('normal')}) AS before, ({count.format('abnormal')}) AS now"
    return PatternFinding(
        "presence bias",
        blind.step_id if blind else None,
        f"the true root {root} fell silent, {normal:.1f} to {abnormal:.1f} spans/s, and {', '.join(sorted(claimed))} "
        f"was blamed, which only suffers from it; this query would have shown it: {query}",
    )


def loudest_signal(trace: Trace, claimed: set[str], truth: CausalGraph, view: Datapack) -> PatternFinding | None:
    """Return a finding if the service with most complaints was blamed (*claimed*) but is no true root; else None."""
    counted = complaints(view, SLOW_RATIO).sort(["excess", "service"], descending=[True, False])
    if counted.is_empty() or counted["excess"][0] < _noise_level(counted["expected"][0]):
        return None
    loudest, excess = str(counted["service"][0]), float(counted["excess"][0])
    if loudest not in claimed or loudest in truth.root_services():
        return None
    seen = next(
        (step for step in trace.steps if any(_mentions_service(call.output, loudest) for call in step.tool_logs)), None
    )
    loudness = {row["service"]: row["excess"] for row in counted.iter_rows(named=True)}
    if excess <= max((loudness.get(root, 0.0) for root in truth.root_services()), default=0.0):
        return None  # a root complains as much
    roots = ", ".join(f"{root} {loudness.get(root, 0.0):.0f}" for root in sorted(truth.root_services()))
    return PatternFinding(
        "loudest signal",
        seen.step_id if seen else None,
        f"{loudest} complains most ({excess:.0f} failed spans, error lines and slow spans above normal; {roots}) and was "
        "blamed, but the fault did not begin there",
    )


def _noise_level(expected: float) -> float:
    """Return the excess over *expected* complaints up to which the method ``loudest`` sees only noise."""
    usual = Loudest()
    return max(float(usual.claim_at_count), usual.claim_at_sigma * math.sqrt(expected + 1))


def loudest_text(trace: Trace, claimed: set[str], truth: CausalGraph, view: Datapack) -> PatternFinding | None:
    """Return a finding if a severe log line of a normal span may have misled the answer; else None.

    The line is of a blamed service that is no true root, or names one; the span in which it was written neither failed
    nor took longer than SLOW_RATIO times the normal 99th percentile of its operation.
    """
    innocent = sorted(claimed - truth.root_services())
    for line in _contradicted_lines(view).iter_rows(named=True):
        blamed = next((s for s in innocent if s == line["service_name"] or _mentions_service(line["message"], s)), None)
        seen = _step_that_saw(trace, line["message"]) if blamed else None
        if seen is not None:
            return PatternFinding(
                "loudest signal",
                seen,
                f"a {line['level']} line of {line['service_name']} ({_quote_around(line['message'], '', 160)}) spoke for "
                f"{blamed} being at fault, but the span that it was written in ({line['span_name']}) returned without "
                f"failure in {line['duration'] / 1e6:.0f} ms, normal p99 {line['p99'] / 1e6:.0f} ms",
            )
    return None


def _contradicted_lines(view: Datapack) -> pl.DataFrame:
    """Return the severe log lines of the abnormal period whose span neither failed nor was slow."""
    operation = ["service_name", "span_name"]
    usual = (
        view.scan("normal", "traces").group_by(operation).agg(p99=pl.col("duration").cast(pl.Float64).quantile(0.99))
    )
    spans = (
        view.scan("abnormal", "traces")
        .filter(~failed_span())
        .join(usual, on=operation)
        .filter(pl.col("duration") <= SLOW_RATIO * pl.col("p99"))
        .select("span_id", "service_name", "span_name", "duration", "p99")
    )
    severe = view.scan("abnormal", "logs").filter(pl.col("level").is_in(ERROR_LEVELS), pl.col("span_id") != "")
    lines = severe.select("time", "span_id", "service_name", "level", "message")
    found = lines.join(spans, on=["span_id", "service_name"]).sort("time", "span_id")
    return found.unique("message", keep="first", maintain_order=True).collect()


def _step_that_saw(trace: Trace, message: str) -> int | None:
    """Return the number of the first step whose tool output has *message*, None without one."""
    start = " ".join(message.split())[:120]
    shown = ((step.step_id, " ".join(call.output.split())) for step in trace.steps for call in step.tool_logs)
    return next((number for number, text in shown if start and start in text), None)


def _mentions_service(text: str, service: str) -> bool:
    """Whether *text* has the name *service* as a whole word; hyphens count as letters."""
    return re.search(rf"(?<![\w-]){re.escape(service)}(?![\w-])", text) is not None


def _asks_for(step: TraceStep, service: str) -> bool:
    """Whether the arguments of a tool call of *step* mention *service*."""
    return any(_mentions_service(json.dumps(call.arguments, ensure_ascii=False), service) for call in step.tool_logs)


def _quote_around(text: str, service: str, around: int = 40) -> str:
    """Return *text* within *around* characters of the name *service*, in quotes."""
    at = text.index(service)
    return f"“{' '.join(text[max(0, at - around) : at + len(service) + around].split())}”"


def _lists_without(step: TraceStep, root: str) -> bool:
    """Return whether a tool call of *step* queried spans of the abnormal window and its output lacks *root*."""
    return any(
        "abnormal_traces" in json.dumps(call.arguments)
        and call.status == "ok"
        and not _mentions_service(call.output, root)
        and not _asks_for(step, root)
        for call in step.tool_logs
    )


def _affected_services(truth: CausalGraph, root: str) -> set[str]:
    """Return the services downstream of *root* in the true causal graph."""
    edges, reached, frontier = truth.service_edges(), set[str](), {root}
    while frontier:
        frontier = {effect for cause, effect in edges if cause in frontier} - reached
        reached |= frontier
    return reached - {root}


def _rate_of_spans(view: Datapack, period: str, service: str) -> float:
    """Return the service's spans per second in *period*."""
    spans = view.scan(period, "traces").filter(pl.col("service_name") == service).select(pl.len()).collect().item()
    return float(spans) / seconds(view, period)
