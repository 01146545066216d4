"""Metrics of an agent's search from its trace: the services that it queried, its use of tools (ITBench, section 4.4)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable

from opsassay.core.schema.trajectory import ToolCall, Trace
from opsassay.scoring import metrics
from opsassay.scoring.metrics import Metrics, scored
from opsassay.scoring.profiles import Profile

_LITERAL = re.compile(r"'((?:[^']|'')*)'")
_SQL_ARGUMENTS = frozenset({"sql", "query", "statement"})
_SYNTAX = re.compile(r"(?i)parser error|syntax error|binder error|catalog error")
_INVALID = re.compile(
    r"(?i)unknown tool|no such tool|invalid arguments?|validation error|missing .*argument|unexpected argument"
    r"|there is no tool|needs the argument|has no argument"
)


def visited_services(calls: Iterable[ToolCall], services: Iterable[str], profile: Profile) -> frozenset[str]:
    """Return which of *services*, in normal form, the *calls* name in an argument or in a literal of an SQL query."""
    known = {profile.service(name) for name in services}
    words = {profile.service(word) for call in calls for word in _words_in_arguments(call)}
    return frozenset(known & words)


def trajectory_metrics(
    trace: Trace | None, services: Collection[str], cascade: Collection[str], profile: Profile
) -> Metrics:
    """Return detoured_services, covered_services, tool_calls, tool_errors, tool_invalid, tool_syntax and tool_repeats.

    Errors are all failed calls; invalid (no such tool, or its arguments) and syntax (of a query) are two kinds of them.
    Detoured are the visited services that are not on the true *cascade*, covered is the share of it that was visited
    (not applicable without one). All not applicable without a trace, as for a method that calls no tools.
    """
    if trace is None:
        return metrics.not_applicable(metrics.TRAJECTORY, "the run has no trace")
    calls = list(_list_tool_calls(trace))
    failures = tool_failures(calls)
    counts = {
        "tool_calls": scored(len(calls)),
        "tool_errors": scored(sum(failures.values()) - failures["repeated"]),
        "tool_invalid": scored(failures["invalid"]),
        "tool_syntax": scored(failures["syntax"]),
        "tool_repeats": scored(failures["repeated"]),
    }
    true = {profile.service(name) for name in cascade}
    if not true:
        return counts | metrics.not_applicable(
            ("detoured_services", "covered_services"), "the case has no verified cascade"
        )
    visited = visited_services(calls, services, profile)
    return counts | {
        "detoured_services": scored(len(visited - true)),
        "covered_services": scored(len(visited & true) / len(true)),
    }


def tool_failures(calls: Iterable[ToolCall]) -> Counter[str]:
    """Return how many *calls* failed ("invalid": unknown tool or arguments, "syntax", "other") or are "repeated".

    A repeated call equals an earlier one in tool and arguments.
    """
    found: Counter[str] = Counter()
    seen: set[str] = set()
    for call in calls:
        key = f"{call.tool}\0{json.dumps(call.arguments, sort_keys=True)}"
        if key in seen:
            found["repeated"] += 1
        seen.add(key)
        if call.status == "error":
            found[
                "invalid" if _INVALID.search(call.output) else "syntax" if _SYNTAX.search(call.output) else "other"
            ] += 1
    return found


def _list_tool_calls(trace: Trace) -> Iterable[ToolCall]:
    """Return all tool calls of *trace* in order."""
    return (call for step in trace.steps for call in step.tool_logs)


def _words_in_arguments(call: ToolCall) -> Iterable[str]:
    """Yield the words in the call's arguments; for SQL only those in string literals."""
    for name, value in call.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value)
        if name.lower() in _SQL_ARGUMENTS:
            yield from (literal.strip("%").replace("''", "'") for literal in _LITERAL.findall(text))
        else:
            yield from re.findall(r"[\w.:-]+", text)
