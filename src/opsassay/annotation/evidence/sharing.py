"""Services that share a pod, or an overloaded host: resource pressure of one slows all of them (rules X-01, A-X1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from opsassay.annotation.evidence.context import Sources
from opsassay.annotation.evidence.latency_delta import added_time
from opsassay.annotation.evidence.states import NodeState
from opsassay.annotation.evidence.thresholds import SignatureThresholds
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.graph import SystemGraph


def shared_spans(graph: SystemGraph, root: str, calls: Calls) -> dict[str, tuple[str, ...]]:
    """Return span of *root* to spans of other services in the same pods, the same for each; {} if no pod is shared."""
    pods = set(graph.pods_of(root))
    others = sorted(s for s in calls.services if s != root and pods & set(graph.pods_of(s)))
    if not others:
        return {}
    nodes = calls.entries.select("service", "node").unique()
    beside = tuple(sorted(nodes.filter(pl.col("service").is_in(others)).get_column("node")))
    return dict.fromkeys(sorted(nodes.filter(pl.col("service") == root).get_column("node")), beside)


def crowded_spans(
    graph: SystemGraph, root: str, calls: Calls, states: Mapping[str, NodeState]
) -> dict[str, tuple[str, ...]]:
    """Return host to the spans of other services there, for each host of *root* whose CPU is overloaded in *states*."""
    strained = [h for h in graph.hosts_of(root) if "cpu" in states.get(f"node|{h}", NodeState()).reasons]
    nodes = calls.entries.select("service", "node").unique()

    def on(host: str) -> tuple[str, ...]:
        """Return the spans of the other services that run on *host*, sorted."""
        others = sorted({*graph.services_on(host)} - {root})
        return tuple(sorted(nodes.filter(pl.col("service").is_in(others)).get_column("node")))

    return {host: on(host) for host in strained}


def with_siblings(sources: Sources, calls: Calls, neighbours: Collection[str], limits: SignatureThresholds) -> Sources:
    """Return *sources* plus the rise in own time of *neighbours* (spans that share the pod or host), where significant."""
    if not neighbours:
        return sources
    entries = calls.entries.filter(pl.col("node").is_in(sorted(neighbours)) & ~pl.col("any_failed_exit"))
    rose = added_time(entries, "own_ms", ["node"], ["shape"]).filter(
        (pl.col("z") > limits.z) & (pl.col("added_ms") > limits.added_ms)
    )
    return Sources.merged([sources, Sources(own_ms=dict(rose.select("node", "added_ms").iter_rows()))])
