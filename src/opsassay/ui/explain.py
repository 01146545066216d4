"""Why each path of the truth was accepted or rejected, for the report."""

from __future__ import annotations

from typing import Any

from opsassay.annotation.verdict.explain import GATES, explain
from opsassay.core.schema.causal_graph import Annotation
from opsassay.ui.plain import plain

MOST_PATHS = 60
"""Paths of each kind that a page lists; the rest is counted."""


def explain_view(annotation: Annotation | None) -> dict[str, Any] | None:
    """Return the JSON-ready explanation of *annotation*, None when the case was not annotated."""
    if annotation is None:
        return None
    explained = explain(annotation)
    return {
        "summary": [plain(line) for line in explained.summary],
        "accepted": [[plain(p.path), [plain(r) for r in p.reasons]] for p in explained.accepted[:MOST_PATHS]],
        "rejected": [
            [plain(p.path), p.gate or "", GATES.get(p.gate or "", ""), plain("; ".join(p.reasons))]
            for p in explained.rejected[:MOST_PATHS]
        ],
        "more": max(len(explained.accepted) - MOST_PATHS, 0) + max(len(explained.rejected) - MOST_PATHS, 0),
    }
