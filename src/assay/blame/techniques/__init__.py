"""The five techniques of the paper, with prompts of our own; each is a function of a trace and a model."""

from __future__ import annotations

from assay.registry import Registry

TECHNIQUES = Registry(
    "attribution technique",
    "assay.techniques",
    {
        "all-at-once": "assay.blame.techniques.prompting:all_at_once",
        "binary-search": "assay.blame.techniques.prompting:binary_search",
        "step-by-step": "assay.blame.techniques.prompting:step_by_step",
        "static": "assay.blame.techniques.static_agentic:static_agentic",
        "dynamic": "assay.blame.techniques.dynamic_agentic:dynamic_agentic",
    },
)
"""Techniques that ask a model, by the names that the command line takes."""
