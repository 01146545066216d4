"""The test beyond the paper: whether this root's failure travelled along this call.

Latency: the share of a caller's added time that the root explains flows up the calls: what a callee adds per call,
times the share of it that is the root's, over what the caller added. Errors: a failed caller counts when one of its
own calls, in its own trace, was failed by the root or by a callee that counts. Silence: the calls that are missing at
a callee are those that a failed or silenced caller no longer makes.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opsassay.causes.evidence.added import added_time
from opsassay.causes.evidence.scene import Sources
from opsassay.causes.reading.calls import Calls
from opsassay.causes.search.failing import Bypass, carry_errors

ROUNDS = 12
"""Deeper call chains than this are not followed; the hop limit of the search is far below."""

LEAST_ADDED_MS = 5.0


class CarriedLimits:
    """Shares from which on a node or an edge counts as carried.

    A node is carried when most of what it suffers is the root's, or when the root's part alone would have been enough:
    SUFFICIENT_RISE of the time that its calls took before, or failures of SUFFICIENT_FAILED of its calls.
    """

    NODE_SHARE = 0.5
    SUFFICIENT_RISE = 0.5
    SUFFICIENT_ADDED_MS = 20.0
    SUFFICIENT_FAILED = 0.2
    SUFFICIENT_FAILURES = 3
    EDGE_SHARE = 0.1
    STARVED_SHARE = 0.5
    STARVED_CALLS = 8.0


@dataclass(frozen=True)
class Carriage:
    """What the root explains.

    *latency*: node -> share of its added time; *added*: node -> (ms added per call, ms before); *latency_edges*:
    (callee, caller) -> share of the caller's added time. *errors*: node -> (failures carried, all failures beyond the
    baseline, calls); *error_edges*: (callee or root, caller) ->
    failed calls. *bypasses*: failures that passed through a healthy node. *changed*: nodes of the root whose answers
    look healthy and are not. *starved*: (caller, callee) -> share of the callee's missing calls. *at_links*: nodes at
    the faulted ends of links.
    """

    latency: dict[str, float]
    added: dict[str, tuple[float, float]]
    latency_edges: dict[tuple[str, str], float]
    errors: dict[str, tuple[int, float, int]]
    error_edges: dict[tuple[str, str], int]
    bypasses: tuple[Bypass, ...]
    changed: frozenset[str]
    starved: dict[tuple[str, str], float]
    at_links: frozenset[str]

    def slow(self, node: str) -> bool:
        """Whether most of the added time of *node* is the root's, or the root's part alone makes it slow."""
        return self.latency.get(node, 0.0) >= CarriedLimits.NODE_SHARE or self.enough(node)

    def enough(self, node: str) -> bool:
        """Whether the root's part of the added time of *node* alone makes it slow."""
        added, before = self.added.get(node, (0.0, 0.0))
        carried = self.latency.get(node, 0.0) * added
        return carried >= max(CarriedLimits.SUFFICIENT_ADDED_MS, CarriedLimits.SUFFICIENT_RISE * before)

    def failing(self, node: str) -> bool:
        """Whether most of the failures of *node* are the root's, or the root's alone are many."""
        carried, all_, served = self.errors.get(node, (0, 0.0, 0))
        many = carried >= max(CarriedLimits.SUFFICIENT_FAILURES, CarriedLimits.SUFFICIENT_FAILED * served)
        return carried > 0 and (many or carried >= CarriedLimits.NODE_SHARE * all_)


@dataclass(frozen=True, eq=False)
class Flows:
    """What changed along calls, whatever the root is.

    *per_call*: per caller and callee how often it calls and waits per entry, and the milliseconds added per call.
    *starved*: as in Carriage.
    """

    per_call: pl.DataFrame
    starved: dict[tuple[str, str], float]


def find_flows(calls: Calls) -> Flows:
    """Return what changed along *calls*."""
    return Flows(_per_call(calls), _starved(calls))


def carry(calls: Calls, slower: pl.DataFrame, flows: Flows, sources: Sources, roots: frozenset[str]) -> Carriage:
    """Return what the *sources* at *roots* explain of everything that happened; *slower*: the added time of each node."""
    latency, added, latency_edges, at_links = _latency(calls, slower, flows.per_call, sources, roots)
    slow = frozenset(n for n, share in latency.items() if share >= CarriedLimits.NODE_SHARE)
    errors = carry_errors(calls, sources, roots, slow)
    return Carriage(
        latency=latency,
        added=added,
        latency_edges=latency_edges,
        errors=errors.nodes,
        error_edges=errors.edges,
        bypasses=errors.bypasses,
        changed=errors.changed,
        starved=flows.starved,
        at_links=at_links | errors.at_links,
    )


Latency = tuple[dict[str, float], dict[str, tuple[float, float]], dict[tuple[str, str], float], frozenset[str]]


def _latency(
    calls: Calls, slower: pl.DataFrame, per_call: pl.DataFrame, sources: Sources, roots: frozenset[str]
) -> Latency:
    rose = slower.filter(pl.col("added_ms") >= LEAST_ADDED_MS).select("node", "added_ms", "before_ms")
    both = {n: (ms, before) for n, ms, before in rose.iter_rows()}
    added = {n: ms for n, (ms, _) in both.items()}
    own = {n: sources.own_ms.get(n, 0.0) / ms for n, ms in added.items()}
    edges: dict[tuple[str, str], float] = {}
    at_links: set[str] = set()
    for caller, callee, service, store, _, waited, ms in per_call.iter_rows():
        peer = f"store:{store}" if store else service
        on_link = sources.link_ms.get((caller, peer), 0.0) if roots & {service, caller.split("::")[0]} else 0.0
        if on_link and caller in added:
            own[caller] = own.get(caller, 0.0) + waited * on_link / added[caller]
            if service in roots:
                at_links.add(callee)
                edges[(callee, caller)] = edges.get((callee, caller), 0.0) + waited * on_link / added[caller]
        if callee and caller in added and ms:
            edges[(callee, caller)] = edges.get((callee, caller), 0.0)
    for callee, on_link in _from_outside(calls, sources).items():
        at_links.add(callee)
        if callee in added:
            own[callee] = own.get(callee, 0.0) + on_link / added[callee]
    calls_of = [
        (c, p, times * max(ms or 0.0, 0.0) / added[p])
        for p, c, _, _, times, _, ms in per_call.iter_rows()
        if p in added
    ]
    share = {n: min(v, 1.0) for n, v in own.items()}
    for _ in range(ROUNDS):
        flow = dict(own)
        for callee, caller, weight in calls_of:
            if callee:
                flow[caller] += weight * share.get(callee, 0.0)
        share = {n: min(v, 1.0) for n, v in flow.items()}
    for callee, caller, weight in calls_of:
        if callee:
            edges[(callee, caller)] = min(edges.get((callee, caller), 0.0) + weight * share.get(callee, 0.0), 1.0)
    return share, both, edges, frozenset(at_links)


def _per_call(calls: Calls) -> pl.DataFrame:
    """Return per caller and callee how often it calls and waits per entry, and the milliseconds added per call.

    Columns: caller_node, callee_node, callee_service, store_name, made_times, waited_times, added_ms. Only what is on
    the critical path counts: of parallel calls the caller waits for the last.
    """
    now = pl.col("period") == "abnormal"
    exits = (
        calls.exits.lazy()
        .filter(pl.col("caller_entry").is_not_null() & ~pl.col("asynchronous"))
        .select(
            "period",
            "caller_node",
            "callee_node",
            "callee_service",
            "name",
            "critical",
            store_name=pl.when("store").then("name"),
            waited_ms=pl.col("callee_ms") * pl.col("critical"),
        )
        .collect()
    )
    by = ["caller_node", "callee_node", "callee_service", "store_name"]
    way = pl.col("caller_node").hash(1) ^ pl.col("callee_node").hash(2) ^ pl.col("store_name").hash(3)
    way ^= pl.col("callee_service").hash(4)
    made = exits.lazy().filter(now).group_by(way=way)
    count = made.agg(pl.col(by).first(), made=pl.len(), waited=pl.col("critical").sum()).drop("way").collect()
    entries = calls.entries.lazy().filter(now).group_by(caller_node="node").len("served").collect()
    added = added_time(exits, "waited_ms", ["caller_node", "callee_node"], ["name"])
    return (
        count.join(entries, on="caller_node")
        .join(added.select("caller_node", "callee_node", "added_ms"), on=["caller_node", "callee_node"], how="left")
        .select(*by, (pl.col("made", "waited") / pl.col("served")).name.suffix("_times"), "added_ms")
        .sort(by)
    )


def _from_outside(calls: Calls, sources: Sources) -> dict[str, float]:
    """Return per entrance of the root the time that the load generator waited on the faulted link."""
    outside = calls.exits.lazy().filter(pl.col("from_generator") & pl.col("callee_node").is_not_null())
    pairs = outside.select("caller_node", "callee_service", "callee_node").unique().sort("callee_node").collect()
    return {n: sources.link_ms[(c, s)] for c, s, n in pairs.iter_rows() if (c, s) in sources.link_ms}


def _starved(calls: Calls) -> dict[tuple[str, str], float]:
    """Return, for callees that lost most of their calls, each caller's share of what is missing.

    A call that was made and not served is not missing here: it is a failure, and travels the other way.
    """
    ratio = calls.seconds("abnormal") / calls.seconds("normal")
    pairs = (
        calls.exits.lazy()
        .filter(pl.col("caller_entry").is_not_null() & pl.col("callee_node").is_not_null())
        .group_by("caller_node", "callee_node")
        .agg(
            expected=(pl.col("period") == "normal").sum() * ratio,
            made=(pl.col("period") == "abnormal").sum(),
        )
        .with_columns(missing=(pl.col("expected") - pl.col("made")).clip(lower_bound=0.0))
        .collect()
    )
    of_callee = pl.col("missing").sum().over("callee_node")
    lost = (pl.col("made").sum() < 0.5 * pl.col("expected").sum()).over("callee_node")
    table = pairs.with_columns(share=pl.col("missing") / of_callee, total=of_callee, lost=lost)
    table = table.filter(pl.col("lost") & (pl.col("total") >= CarriedLimits.STARVED_CALLS)).sort(
        "caller_node", "callee_node"
    )
    return {(p, c): share for p, c, share in table.select("caller_node", "callee_node", "share").iter_rows()}
