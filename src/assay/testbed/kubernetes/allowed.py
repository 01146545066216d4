"""Whose nodes may be broken: the contexts that the user has listed, and no others.

A fault of a node hits whoever else runs there. ``ASSAY_NODE_CONTEXTS`` names the contexts of clusters that are there to be
broken, separated by commas; it is empty unless somebody sets it.
"""

from __future__ import annotations

import os

from assay.errors import RefusedError

SETTING = "ASSAY_NODE_CONTEXTS"


def allowed_contexts() -> frozenset[str]:
    """Return the contexts whose nodes may be broken."""
    return frozenset(name for part in os.environ.get(SETTING, "").split(",") if (name := part.strip()))


def node_refusal(context: str) -> str | None:
    """Return why nodes of *context* may not be touched, None when they may."""
    if context in allowed_contexts():
        return None
    return (
        f"it touches a node, and {context} is not among the contexts of {SETTING}; add it if that cluster may be broken"
    )


def require_nodes(context: str, what: str) -> None:
    """Raise RefusedError unless the nodes of *context* may be touched for *what*."""
    if reason := node_refusal(context):
        raise RefusedError(f"{what} cannot be done on this cluster: {reason}.")
