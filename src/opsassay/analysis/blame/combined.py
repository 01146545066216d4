"""The combined rule-based method: a log-linear choice among the steps of a trace, with weights learned from labels.

For step i of a trace with the features x_i (one column per name in FEATURES)::

    p(i)  = exp(w . x_i) / sum over j of exp(w . x_j)

This is a conditional logit (McFadden 1974). The answer is the most probable step and its agent; no model is asked.
Features use only the trace: votes of the single rules, the step's position and its text.
`benchmarks/papers/blame/fitting.py` in a checkout learns the weights.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

import numpy as np

from opsassay.analysis.blame.rules import before_error_text, before_tool_error, busiest_agent
from opsassay.core.schema.trajectory import Attribution, Trace, TraceStep

_TYPES = (
    ("planner", re.compile(r"orchestrat|planner|planning|manager|captain|coordinat|lead", re.IGNORECASE)),
    ("verifier", re.compile(r"verif|validat|check|critic|review|judge", re.IGNORECASE)),
    ("web", re.compile(r"web|surf|brows|search|internet", re.IGNORECASE)),
    ("code and data", re.compile(r"terminal|execut|coder|coding|program|python|data|file|excel|sql", re.IGNORECASE)),
)

_HEDGE = re.compile(
    r"\b(assum|cannot|can't|unable|unfortunately|not found|no results|hypothetical|simulat|placeholder|approximat|guess"
    r"|example data|let's say)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Context:
    """A trace with values that several features use, each computed once; positions count from 0."""

    trace: Trace

    @cached_property
    def step_failed(self) -> list[bool]:
        """Whether each step has a failed tool call."""
        return [any(call.status == "error" for call in step.tool_logs) for step in self.trace.steps]

    @cached_property
    def first_failed_step(self) -> int | None:
        """The index of the first step with a failed call, None without one."""
        return self.step_failed.index(True) if any(self.step_failed) else None

    @cached_property
    def first_code_step(self) -> int | None:
        """The index of the first step with a code block, None without one."""
        return next((i for i, step in enumerate(self.trace.steps) if "```" in step.output_content), None)

    @cached_property
    def step_before_tool_error(self) -> int:
        """The index of the step that the rule `before_tool_error` blames."""
        return (before_tool_error(self.trace).step_id or 1) - 1

    @cached_property
    def step_before_error_text(self) -> int:
        """The index of the step that the rule `before_error_text` blames."""
        return (before_error_text(self.trace).step_id or 1) - 1

    @cached_property
    def most_active_agent(self) -> str | None:
        """The agent with the most steps, None without steps."""
        return busiest_agent(self.trace).agent_name

    @cached_property
    def tool_agents(self) -> frozenset[str]:
        """The names of agents that only execute tool calls of others, and "human"."""
        return frozenset({"human"} | {s.agent_name for s in self.trace.steps if s.kind == "tool" and not _decides(s)})

    @cached_property
    def first_step_of_agent(self) -> dict[str, int]:
        """The index of each agent's first step."""
        first: dict[str, int] = {}
        for i, step in enumerate(self.trace.steps):
            first.setdefault(step.agent_name, i)
        return first

    def step_at(self, i: int) -> TraceStep | None:
        """Return the step with index *i*, None beyond the end."""
        return self.trace.steps[i] if i < len(self.trace.steps) else None


_Feature = Callable[[_Context, int, TraceStep], float]

FEATURES: dict[str, _Feature] = {
    "first step": lambda _, i, __: i == 0,
    "second step": lambda _, i, __: i == 1,
    "last step": lambda c, i, _: i == len(c.trace.steps) - 1,
    "depth": lambda _, i, __: math.log1p(i),
    "before the first tool error": lambda c, i, _: c.first_failed_step is not None and i == c.step_before_tool_error,
    "before the first error text": lambda c, i, _: i == c.step_before_error_text,
    "second step without tool errors": lambda c, i, _: i == 1 and c.first_failed_step is None,
    "before a tool error": lambda c, i, _: i + 1 < len(c.step_failed) and c.step_failed[i + 1],
    "after the first tool error": lambda c, i, _: c.first_failed_step is not None and i > c.first_failed_step,
    "is a tool or a person": lambda c, _, s: s.agent_name in c.tool_agents,
    "first act of its agent": lambda c, i, s: c.first_step_of_agent[s.agent_name] == i,
    "first code": lambda c, i, _: c.first_code_step == i,
    "hedges": lambda _, __, s: bool(_HEDGE.search(s.output_content)),
    "agent has the last word": lambda c, _, s: s.agent_name == c.trace.steps[-1].agent_name,
    "agent is the busiest": lambda c, _, s: s.agent_name == c.most_active_agent,
    "agent of the loose rule": lambda c, _, s: s.agent_name == c.trace.steps[c.step_before_error_text].agent_name,
    "verifier": lambda _, __, s: agent_type(s.agent_name) == "verifier",
    "planner": lambda _, __, s: agent_type(s.agent_name) == "planner",
    "web": lambda _, __, s: agent_type(s.agent_name) == "web",
    "a tool acts next": lambda c, i, _: (following := c.step_at(i + 1)) is not None and following.kind == "tool",
}
"""The features by name, in the order of the weights."""


def features(trace: Trace) -> list[list[float]]:
    """Return the features of every step of *trace*, one row of values in the order of `FEATURES` per step."""
    return list(_feature_rows(_Context(trace)))


def _feature_rows(context: _Context) -> Iterator[list[float]]:
    """Yield the features of each step, in the order of FEATURES."""
    for i, step in enumerate(context.trace.steps):
        yield [float(feature(context, i, step)) for feature in FEATURES.values()]


def _decides(step: TraceStep) -> bool:
    """Return whether the agent of *step* chose the tool calls itself: a call has arguments."""
    return any(call.arguments for call in step.tool_logs)


def agent_type(name: str) -> str:
    """Return the role of an agent by its *name*: planner, verifier, web, code, data or other."""
    return next((kind for kind, pattern in _TYPES if pattern.search(name)), "other")


@dataclass(frozen=True)
class Combined:
    """The log-linear model with its weight for each of FEATURES."""

    weights: dict[str, float]

    def attribute(self, trace: Trace) -> Attribution:
        """Return the most probable step to blame and its agent; the reason names the strongest features."""
        if not trace.steps:
            return Attribution(reason="there are no steps")
        rows = np.array(features(trace))
        contributions = rows * np.array([self.weights[name] for name in FEATURES])
        totals = contributions.sum(axis=1)
        best = int(totals.argmax())
        share = float(np.exp(totals[best] - np.logaddexp.reduce(totals)))
        strongest = [list(FEATURES)[i] for i in contributions[best].argsort()[::-1][:3] if contributions[best][i] > 0]
        reason = f"{', '.join(strongest) or 'nothing stands out'} (probability {share:.0%} among the steps)"
        return Attribution(agent_name=trace.steps[best].agent_name, step_id=best + 1, reason=reason)


@cache
def shipped() -> Combined:
    """Return the model with the packaged weights, which were fitted to all Who&When traces; see docs/blame.md."""
    stored = json.loads(files("opsassay.analysis.blame").joinpath("combined_weights.json").read_text(encoding="utf-8"))
    return Combined({name: float(stored["weights"][name]) for name in FEATURES})
