"""The five techniques of the paper, with prompts of our own; each is a function of a trace and a model."""

from __future__ import annotations

from opsassay.core.registry import Registry

TECHNIQUES = Registry(
    "attribution technique",
    "opsassay.techniques",
    {
        "all-at-once": "opsassay.analysis.blame.techniques.prompting:all_at_once",
        "binary-search": "opsassay.analysis.blame.techniques.prompting:binary_search",
        "step-by-step": "opsassay.analysis.blame.techniques.prompting:step_by_step",
        "static": "opsassay.analysis.blame.techniques.static_agentic:static_agentic",
        "dynamic": "opsassay.analysis.blame.techniques.dynamic_agentic:dynamic_agentic",
    },
)
"""Techniques that ask a model, by the names that the command line takes."""

AT_ONCE = frozenset({"all-at-once", "binary-search", "step-by-step"})
"""Techniques each of whose questions stands by itself, so that the trace may fill the context."""
