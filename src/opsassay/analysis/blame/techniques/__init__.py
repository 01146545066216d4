"""The five techniques of the paper, with our own prompts; each is a function of a trace and a model."""

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
"""Techniques that use a model, by their names on the command line."""

AT_ONCE = frozenset({"all-at-once", "binary-search", "step-by-step"})
"""Techniques whose questions are independent of each other, so that the trace may fill the context."""
