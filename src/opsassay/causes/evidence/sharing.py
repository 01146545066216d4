"""Services in one pod: pressure on one is pressure on all of them (rule X-01)."""

from __future__ import annotations

import polars as pl

from opsassay.causes.evidence.added import added_time
from opsassay.causes.evidence.scene import Sources
from opsassay.causes.reading.calls import Calls
from opsassay.causes.reading.graph import SystemGraph

ADDED_MS, Z = 10.0, 4.0


def shared_spans(graph: SystemGraph, root: str, calls: Calls) -> dict[str, tuple[str, ...]]:
    """Return the spans of other services in a pod of *root*'s, by span of the root; empty when it has its pods alone."""
    pods = set(graph.pods_of(root))
    others = sorted(s for s in calls.services if s != root and pods & set(graph.pods_of(s)))
    if not others:
        return {}
    nodes = calls.entries.select("service", "node").unique()
    beside = tuple(sorted(nodes.filter(pl.col("service").is_in(others)).get_column("node")))
    return dict.fromkeys(sorted(nodes.filter(pl.col("service") == root).get_column("node")), beside)


def with_siblings(sources: Sources, calls: Calls, shared: dict[str, tuple[str, ...]]) -> Sources:
    """Return *sources* with the own time that the pressure adds to the services that share the pod."""
    beside = {node for nodes in shared.values() for node in nodes}
    if not beside:
        return sources
    entries = calls.entries.filter(pl.col("node").is_in(sorted(beside)) & ~pl.col("any_failed_exit"))
    rose = added_time(entries, "own_ms", ["node"], ["shape"]).filter(
        (pl.col("z") > Z) & (pl.col("added_ms") > ADDED_MS)
    )
    return Sources.merged([sources, Sources(own_ms=dict(rose.select("node", "added_ms").iter_rows()))])
