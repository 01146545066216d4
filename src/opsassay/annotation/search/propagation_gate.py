"""The gate carried, beyond the gates of the paper (OpenRCA 2.0, section 2): whether a call passed on the root's failure.

Latency (`latency.py`): the share of a caller's added time that the root explains flows up the calls. Errors
(`failing.py`): a failed caller counts when one of its own calls, in its own trace, was failed by the root or by a
callee that counts. Silence (here): the calls that are missing at a callee are those that a failed or silenced caller
no longer makes.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from pydantic import Field

from opsassay.annotation.evidence.context import Sources
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.search.failing import Bypass, FailureCount, carry_errors
from opsassay.annotation.search.latency import LatencyDelta, NodePair, calls_per_entry, carry_latency
from opsassay.core.schema.base import Written


class PropagationLimits(Written):
    """Shares from which on a node's or an edge's deviation counts as caused by the root.

    That is so when the root explains most of it, or when its part alone would be a deviation.
    """

    node_share: float = Field(default=0.5, ge=0, le=1, description="share of what a node suffers that is the root's")
    edge_share: float = Field(default=0.1, ge=0, le=1, description="share of it that comes through one callee")
    sufficient_rise: float = Field(default=0.5, ge=0, description="or the root's part alone, over its usual time")
    sufficient_added_ms: float = Field(default=20.0, ge=0, description="and that much at least, ms")
    sufficient_failed: float = Field(default=0.2, ge=0, le=1, description="or failures of the root's, over its calls")
    sufficient_failures: int = Field(default=3, ge=1, description="and so many at least")
    starved_share: float = Field(
        default=0.5, gt=0, le=1, description="share of expected calls that starved callees lost"
    )
    least_added_ms: float = Field(default=5.0, ge=0, description="added time below which nothing is to explain, ms")
    bypass_chance: float = Field(
        default=1e-3, gt=0, lt=1, description="Fisher's p of failures just above a healthy node that was hit"
    )
    starved_calls: float = Field(default=8.0, gt=0, description="calls that they lost at least")


@dataclass(frozen=True)
class Carriage:
    """The deviations that the root explains, by node and by (callee, caller).

    *latency*: share (0 to 1) of the node's added time; *added*: that time itself; *latency_edges*: share of the
    caller's added time that came through this callee. *errors*: failures of the node; *error_edges*: calls that the
    callee (or the root) failed. *bypasses*: failures that passed through a healthy node. *changed*: nodes of the root
    whose answers look healthy and are not. *starved*: (caller, callee) -> share of the callee's missing calls.
    *at_links*: nodes at the faulted ends of links.
    """

    latency: dict[str, float]
    added: dict[str, LatencyDelta]
    latency_edges: dict[NodePair, float]
    errors: dict[str, FailureCount]
    error_edges: dict[NodePair, int]
    bypasses: tuple[Bypass, ...]
    changed: frozenset[str]
    starved: dict[NodePair, float]
    at_links: frozenset[str]
    limits: PropagationLimits

    def slow(self, node: str) -> bool:
        """Return whether the root explains most of the added latency of *node*, or `enough` of it."""
        return self.latency.get(node, 0.0) >= self.limits.node_share or self.enough(node)

    def enough(self, node: str) -> bool:
        """Return whether the part of *node*'s added latency that the root explains is by itself enough to be slow.

        share * added_ms >= max(sufficient_added_ms, sufficient_rise * before_ms).
        """
        added = self.added.get(node, LatencyDelta(0.0, 0.0))
        carried_ms = self.latency.get(node, 0.0) * added.added_ms
        return carried_ms >= max(self.limits.sufficient_added_ms, self.limits.sufficient_rise * added.before_ms)

    def failing(self, node: str) -> bool:
        """Return whether the root explains most failures of *node*, or enough to be failing by those alone.

        carried >= node_share * beyond_baseline, or carried >= max(sufficient_failures, sufficient_failed * calls).
        """
        count = self.errors.get(node, FailureCount(0, 0.0, 0))
        many = count.carried >= max(self.limits.sufficient_failures, self.limits.sufficient_failed * count.calls)
        return count.carried > 0 and (many or count.carried >= self.limits.node_share * count.beyond_baseline)


@dataclass(frozen=True, eq=False)
class Flows:
    """Changes along calls that do not depend on the suspected root.

    *per_call*: what one entry of a caller asks of each callee, as `calls_per_entry` returns it. *starved*: as in
    Carriage.
    """

    per_call: pl.DataFrame
    starved: dict[NodePair, float]


def find_flows(calls: Calls, limits: PropagationLimits) -> Flows:
    """Return call rates per request and each caller's share of missing calls, as `carry` needs them for any root."""
    return Flows(calls_per_entry(calls), _missing_call_shares(calls, limits))


def carry(
    calls: Calls, slower: pl.DataFrame, flows: Flows, sources: Sources, roots: frozenset[str], limits: PropagationLimits
) -> Carriage:
    """Return how much of each node's slowness, failures and missing calls a fault with *sources* at *roots* explains.

    *slower*: the added time of each node, with columns node, added_ms and before_ms; *flows*: from `find_flows`.
    """
    latency = carry_latency(calls, slower, flows.per_call, sources, roots, limits.least_added_ms)
    slow = frozenset(n for n, share in latency.shares.items() if share >= limits.node_share)
    errors = carry_errors(calls, sources, roots, slow, limits.bypass_chance)
    return Carriage(
        latency=latency.shares,
        added=latency.added,
        latency_edges=latency.edges,
        errors=errors.nodes,
        error_edges=errors.edges,
        bypasses=errors.bypasses,
        changed=errors.changed,
        starved=flows.starved,
        at_links=latency.at_links | errors.at_links,
        limits=limits,
    )


def _missing_call_shares(calls: Calls, limits: PropagationLimits) -> dict[NodePair, float]:
    """Return (caller, callee) to the caller's share of the missing calls, for callees that lost most of their calls.

    missing(p, c) = max(normal calls(p, c) * abnormal seconds / normal seconds - abnormal calls(p, c), 0); the share is
    missing(p, c) over the sum of all callers p. Callees count that lost more than starved_share of their expected calls
    and at least starved_calls. A call that was made and not served is not missing here: it is a failure, and travels
    the other way.
    """
    ratio = calls.seconds("abnormal") / calls.seconds("normal")
    pairs = (
        calls.exits.lazy()
        .filter(pl.col("caller_entry").is_not_null() & pl.col("callee_node").is_not_null())
        .group_by("caller_node", "callee_node")
        .agg(expected=(pl.col("period") == "normal").sum() * ratio, made=(pl.col("period") == "abnormal").sum())
        .with_columns(missing=(pl.col("expected") - pl.col("made")).clip(lower_bound=0.0))
        .collect()
    )
    of_callee = pl.col("missing").sum().over("callee_node")
    lost = (pl.col("made").sum() < (1 - limits.starved_share) * pl.col("expected").sum()).over("callee_node")
    table = pairs.with_columns(share=pl.col("missing") / of_callee, total=of_callee, lost=lost)
    table = table.filter(pl.col("lost") & (pl.col("total") >= limits.starved_calls)).sort("caller_node", "callee_node")
    return {(p, c): share for p, c, share in table.select("caller_node", "callee_node", "share").iter_rows()}
