"""Added time on its way up the calls: the share of each node's added time that the root explains.

For a node p with callees c, all per entry of p and in milliseconds (OpsAssay's own test; the paper has none)::

    own(p)     = (own_ms(p) + sum over links to c of waited(p, c) * link_ms(p, c) + outside_ms(p)) / added_ms(p)
    w(p, c)    = made(p, c) * max(added_ms(p, c), 0) / added_ms(p)
    share(p)   = min(1, own(p) + sum over c of w(p, c) * share(c))

*own_ms* and *link_ms* are the root's sources, *made* and *waited* how often p calls c and waits for it per entry,
*added_ms(p)* what an entry of p takes longer than in the baseline and *added_ms(p, c)* what a call adds. The fixed point
is reached from share = min(1, own) in at most ROUNDS rounds, as calls go no deeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from opsassay.annotation.evidence.context import Sources
from opsassay.annotation.evidence.latency_delta import added_time
from opsassay.annotation.reading.calls import Calls

ROUNDS = 12
"""Deeper call chains than this are not followed; the hop limit of the search is far below."""

NodePair = tuple[str, str]
"""(callee, caller), or (caller, callee) where it says so."""


class LatencyDelta(NamedTuple):
    """The milliseconds that a call of a node takes more than *before_ms*, its mean in the baseline."""

    added_ms: float
    before_ms: float


class CallRate(NamedTuple):
    """Calls per entry of a caller to one callee: how many it makes and waits for, and the milliseconds added per call.

    *callee_node* is None where nobody served the calls in the baseline either; *store_name* is the operation of a store;
    *added_ms* is None where there is nothing to compare.
    """

    caller_node: str
    callee_node: str | None
    callee_service: str
    store_name: str | None
    made_times: float
    waited_times: float
    added_ms: float | None


class CallWeight(NamedTuple):
    """The weight w(p, c): the share of the caller's added time that is spent in this callee."""

    callee: str
    caller: str
    weight: float


@dataclass(frozen=True)
class PropagatedLatency:
    """The added time that the root explains: *shares* (0 to 1) and *added* by node, *edges* (shares) by (callee, caller).

    *at_links*: nodes at the faulted ends of links.
    """

    shares: dict[str, float]
    added: dict[str, LatencyDelta]
    edges: dict[NodePair, float]
    at_links: frozenset[str]


def carry_latency(
    calls: Calls,
    slower: pl.DataFrame,
    per_call: pl.DataFrame,
    sources: Sources,
    roots: frozenset[str],
    least_added_ms: float,
) -> PropagatedLatency:
    """Return the share of each node's added latency that the fault at the services *roots* explains.

    *slower* has the columns node, added_ms and before_ms; *per_call* is what `calls_per_entry` returns. Nodes that
    became slower by less than *least_added_ms* have nothing to explain.
    """
    rates = [CallRate._make(row) for row in per_call.iter_rows()]
    rose = slower.filter(pl.col("added_ms") >= least_added_ms).select("node", "added_ms", "before_ms")
    added = {node: LatencyDelta(added_ms, before_ms) for node, added_ms, before_ms in rose.iter_rows()}
    own = {node: sources.own_ms.get(node, 0.0) / time.added_ms for node, time in added.items()}
    edges: dict[NodePair, float] = {}
    at_links: set[str] = set()
    for rate, link_ms in _calls_on_slow_links(rates, sources, roots):
        if (time := added.get(rate.caller_node)) is None:
            continue
        share = rate.waited_times * link_ms / time.added_ms
        own[rate.caller_node] += share
        if rate.callee_node and rate.callee_service in roots:
            callee = rate.callee_node
            at_links.add(callee)
            edges[callee, rate.caller_node] = edges.get((callee, rate.caller_node), 0.0) + share
    for callee, link_ms in _waiting_outside(calls, sources).items():
        at_links.add(callee)
        if callee in added:
            own[callee] += link_ms / added[callee].added_ms
    weights = _weigh_calls(rates, added)
    shares = _solve_shares(own, weights)
    for callee, caller, weight in weights:
        edges[callee, caller] = min(edges.get((callee, caller), 0.0) + weight * shares.get(callee, 0.0), 1.0)
    return PropagatedLatency(shares, added, edges, frozenset(at_links))


def _calls_on_slow_links(
    rates: Iterable[CallRate], sources: Sources, roots: frozenset[str]
) -> Iterator[tuple[CallRate, float]]:
    """Yield (rate, added ms per call) for each of *rates* whose link the fault slowed, with a root at one end."""
    for rate in rates:
        peer = f"store:{rate.store_name}" if rate.store_name else rate.callee_service
        link_ms = sources.link_ms.get((rate.caller_node, peer), 0.0)
        if link_ms and roots & {rate.callee_service, rate.caller_node.split("::")[0]}:
            yield rate, link_ms


def _weigh_calls(rates: Iterable[CallRate], delta_by_node: Mapping[str, LatencyDelta]) -> list[CallWeight]:
    """Return w(p, c) for each (callee, caller) in *rates*: the share of the caller's added latency in these calls."""
    return [
        CallWeight(
            r.callee_node,
            r.caller_node,
            r.made_times * max(r.added_ms or 0.0, 0.0) / delta_by_node[r.caller_node].added_ms,
        )
        for r in rates
        if r.callee_node and r.caller_node in delta_by_node
    ]


def _solve_shares(own_shares: Mapping[str, float], weights: Sequence[CallWeight]) -> dict[str, float]:
    """Return node to its explained share of added time: fixed point of share(p) = min(1, own(p) + sum w(p, c) share(c))."""
    shares = {node: min(share, 1.0) for node, share in own_shares.items()}
    for _ in range(ROUNDS):
        flow = dict(own_shares)
        for callee, caller, weight in weights:
            flow[caller] += weight * shares.get(callee, 0.0)
        shares = {node: min(share, 1.0) for node, share in flow.items()}
    return shares


def calls_per_entry(calls: Calls) -> pl.DataFrame:
    """Return per caller and callee the calls and waiting (ms) per request of the caller, and the added ms per call.

    Columns as in `CallRate`, one row per (caller_node, callee_node, callee_service, store_name); `added_ms` compares
    calls of the same operation with `added_time`. Only what is on the critical path counts: of parallel calls the
    caller waits for the last. Requests that ended early are left out.
    """
    now = pl.col("period") == "abnormal"
    early = calls.entries.lazy().filter("ended_early").select(caller_entry="entry")
    exits = (
        calls.exits.lazy()
        .filter(pl.col("caller_entry").is_not_null() & ~pl.col("asynchronous"))
        .join(early, on="caller_entry", how="anti")
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
    pair = pl.col("caller_node").hash(1) ^ pl.col("callee_node").hash(2) ^ pl.col("store_name").hash(3)
    pair ^= pl.col("callee_service").hash(4)
    made = exits.lazy().filter(now).group_by(pair=pair)
    count = made.agg(pl.col(by).first(), made=pl.len(), waited=pl.col("critical").sum()).drop("pair").collect()
    served = calls.entries.lazy().filter(now & ~pl.col("ended_early"))
    entries = served.group_by(caller_node="node").len("served").collect()
    added = added_time(exits, "waited_ms", ["caller_node", "callee_node"], ["name"])
    return (
        count.join(entries, on="caller_node")
        .join(added.select("caller_node", "callee_node", "added_ms"), on=["caller_node", "callee_node"], how="left")
        .select(*by, (pl.col("made", "waited") / pl.col("served")).name.suffix("_times"), "added_ms")
        .sort(by)
    )


def _waiting_outside(calls: Calls, sources: Sources) -> dict[str, float]:
    """Return node to the added wait (ms per call) of the load generator's calls to it over a faulted link."""
    outside = calls.exits.lazy().filter(pl.col("from_generator") & pl.col("callee_node").is_not_null())
    pairs = outside.select("caller_node", "callee_service", "callee_node").unique().sort("callee_node").collect()
    return {n: sources.link_ms[(c, s)] for c, s, n in pairs.iter_rows() if (c, s) in sources.link_ms}
