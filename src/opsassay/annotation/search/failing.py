"""How failures spread up the calls: which failed requests failed because one of their own calls did, in the same trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.annotation.evidence.context import Sources
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.circuit_breaking import refused_requests
from opsassay.annotation.reading.parents import Index
from opsassay.annotation.reading.spans import Flags, take_or_missing
from opsassay.annotation.reading.tails import hypergeometric_at_least

ROUNDS = 12
"""Deeper call chains than this are not followed; the hop limit of the search is far below."""


@dataclass(frozen=True)
class Bypass:
    """Failures of *source* that made *target* fail through *healthy*, which looks healthy itself (None: directly)."""

    source: str
    healthy: str | None
    target: str
    failures: int


class FailureCount(NamedTuple):
    """Failures of a node: *carried* from the root; *beyond_baseline* (failed - calls * usual rate); and its calls."""

    carried: int
    beyond_baseline: float
    calls: int


@dataclass(frozen=True)
class PropagatedErrors:
    """Failures that the root explains: *nodes* by name, *edges*: failed calls by (cause, node).

    *changed*: nodes whose answers look healthy and are not; *at_links*: nodes at the faulted ends of links.
    """

    nodes: dict[str, FailureCount]
    edges: dict[tuple[str, str], int]
    bypasses: tuple[Bypass, ...]
    changed: frozenset[str]
    at_links: frozenset[str]


@dataclass(frozen=True, eq=False)
class _Traffic:
    """The calls of the abnormal window as arrays: per entry (dense id) and per exit."""

    exits: pl.DataFrame
    node: pl.Series
    now: Flags
    failed: Flags
    blameless: Flags
    undisturbed: Flags
    caller: Index
    callee: Index
    exit_failed: Flags
    synchronous: Flags


def carry_errors(
    calls: Calls, sources: Sources, roots: frozenset[str], slow: frozenset[str], bypass_chance: float
) -> PropagatedErrors:
    """Return the failed requests that the fault at the services *roots* explains; callers may time out on *slow* nodes.

    A failed caller counts when one of its own calls, in its own trace, was failed by the root or by a callee that
    counts. Failures may pass through one node that looks healthy when callers of it fail just where it was hit, more
    often than by *bypass_chance*.
    """
    if not (sources.entries or sources.exits) and not calls.entries.get_column("felt_failed").any():
        return PropagatedErrors({}, {}, (), frozenset(), frozenset())
    traffic = _collect_traffic(calls)
    exits = traffic.exits
    carried = np.zeros(traffic.failed.size, dtype=bool)
    of_root = np.array([e for e in sorted(sources.entries) if e < carried.size], dtype=np.int64)
    carried[of_root] = True
    touched = np.zeros(carried.size, dtype=bool)
    touched[of_root[~traffic.failed[of_root]]] = True
    gave_up = pl.col("failed") & pl.col("overrun") & pl.col("callee_node").is_in(sorted(slow))
    by_root = exits.select(pl.col("exit").is_in(sorted(sources.exits)) | gave_up).to_series().fill_null(value=False)
    bad = _propagate_failures(traffic, carried, by_root.to_numpy())
    bypasses = _find_bypasses(traffic, carried, bad, touched, bypass_chance)
    if bypasses:
        bad = _propagate_failures(traffic, carried, by_root.to_numpy())
    hit = exits.filter(pl.Series(_failed_callers(traffic, bad)))
    cause = pl.when("store").then(pl.lit("")).otherwise(pl.col("callee_node").cast(pl.String).fill_null(""))
    pairs = hit.group_by(cause.alias("cause"), "caller_node").len().sort("cause", "caller_node")
    at_links = exits.filter(pl.col("exit").is_in(sorted(sources.exits)) & pl.col("callee_service").is_in(sorted(roots)))
    return PropagatedErrors(
        nodes=_count_failures(calls, carried),
        edges={(c, p): n for c, p, n in pairs.iter_rows()},
        bypasses=bypasses,
        changed=frozenset(traffic.node.gather(pl.Series(np.flatnonzero(touched)))),
        at_links=frozenset(at_links.get_column("callee_node").drop_nulls()),
    )


def _collect_traffic(calls: Calls) -> _Traffic:
    """Return the calls of the fault window, with arrays about their requests that are indexed by entry id."""
    entries, exits = calls.entries, calls.exits.filter(pl.col("period") == "abnormal")
    # Who gave a callee up failed because of the last call to it, as if it had made that one.
    given_up = refused_requests(calls).join(exits.drop("caller_entry"), on="exit", how="inner", maintain_order="left")
    exits = pl.concat([exits, given_up.select(exits.columns).cast(exits.schema)])
    ids = entries.get_column("entry").to_numpy()
    size = int(ids.max(initial=-1)) + 1

    def spread(values: NDArray[np.bool_], fill: bool) -> Flags:
        """Return *values* at the numbers of their requests, and *fill* at numbers that no request has."""
        whole = np.full(size, fill)
        whole[ids] = values
        return whole

    # A request that failed in words that blame another service failed because of that one.
    blameless = entries.select(pl.lit(calls.status_known) | pl.col("own_error") | ~pl.col("failed")).to_series()
    names = pl.DataFrame({"entry": np.arange(size)}).join(entries.select("entry", "node"), on="entry", how="left")
    # Where spans carry no status an exit cannot say that it failed: its callee has to.
    exit_failed = exits.get_column("failed").to_numpy() if calls.status_known else np.ones(exits.height, dtype=bool)
    return _Traffic(
        exits=exits,
        node=names.sort("entry").get_column("node"),
        now=spread((entries.get_column("period") == "abnormal").to_numpy(), fill=False),
        failed=spread(entries.get_column("felt_failed").to_numpy(), fill=False),
        blameless=spread(blameless.to_numpy(), fill=True),
        undisturbed=~spread(entries.get_column("any_failed_exit").to_numpy(), fill=False),
        caller=exits.get_column("caller_entry").fill_null(-1).to_numpy(),
        callee=exits.get_column("callee_entry").fill_null(-1).to_numpy(),
        exit_failed=exit_failed,
        synchronous=~exits.get_column("asynchronous").to_numpy(),
    )


def _failed_callers(traffic: _Traffic, bad: Flags) -> Flags:
    """Return the subset of the exits flagged in *bad* whose caller failed for no other stated reason."""
    return bad & take_or_missing(traffic.failed & traffic.blameless, traffic.caller, 0)


def _propagate_failures(traffic: _Traffic, failed: Flags, hit_by_root: Flags) -> Flags:
    """Set in *failed* each request that a bad exit made fail, call by call upwards; return flags of bad exits.

    *hit_by_root* flags the exits that the root itself made fail.
    """
    bad = hit_by_root
    for _ in range(ROUNDS):
        below = take_or_missing(failed, traffic.callee, 0) & (
            traffic.exit_failed | take_or_missing(traffic.failed, traffic.callee, 0)
        )
        bad = hit_by_root | (below & traffic.synchronous)
        before = int(failed.sum())
        failed[traffic.caller[_failed_callers(traffic, bad)]] = True
        if int(failed.sum()) == before:
            break
    return bad


def _find_bypasses(
    traffic: _Traffic, failed: Flags, bad: Flags, changed: Flags, most_chance: float
) -> tuple[Bypass, ...]:
    """Return failures that passed through a healthy-looking node, and set their requests in *failed*.

    A healthy request may pass them on when its answer was changed (*changed*), or one of its own calls was bad. Failed
    requests of its callers are explained by that only if they fail above such requests and hardly elsewhere (chance
    below *most_chance*).
    """
    through = changed.copy()
    lower = bad | (take_or_missing(changed, traffic.callee, 0) & traffic.synchronous)
    through[traffic.caller[lower & ~take_or_missing(traffic.failed, traffic.caller, 1)]] = True
    above = traffic.synchronous & take_or_missing(through, traffic.callee, 0) & (traffic.caller >= 0)
    suspect = np.zeros(failed.size, dtype=bool)
    suspect[traffic.caller[above]] = True
    if not suspect.any():
        return ()
    alone = traffic.failed & traffic.undisturbed & traffic.blameless & ~failed
    table = (
        pl.DataFrame({"node": traffic.node, "suspect": suspect, "alone": alone, "now": traffic.now})
        .filter("now")
        .group_by("node")
        .agg(
            both=(pl.col("suspect") & pl.col("alone")).sum(),
            suspect=pl.col("suspect").sum(),
            alone=pl.col("alone").sum(),
            all=pl.len(),
        )
        .filter(pl.col("both") > 0)
        .sort("node")
    )
    both, marked, failing, every = (
        table.get_column(c).to_numpy().astype(float) for c in ("both", "suspect", "alone", "all")
    )
    chance = hypergeometric_at_least(both, every, marked, failing)
    clear = (chance < most_chance) & (both >= 0.5 * marked)
    nodes = table.get_column("node").filter(pl.Series(clear))
    if not nodes.len():
        return ()
    made = suspect & alone & traffic.node.is_in(nodes.implode()).fill_null(value=False).to_numpy()
    failed[made] = True
    upper = traffic.exits.with_columns(hit=pl.Series(above & take_or_missing(made, traffic.caller, 0))).filter("hit")
    return _bypasses_by_names(traffic, upper, lower, changed)


def _bypasses_by_names(traffic: _Traffic, upper: pl.DataFrame, lower: Flags, changed: Flags) -> tuple[Bypass, ...]:
    """Return bypasses by node name. *upper*: failed requests' calls to healthy ones; *lower*: flags of bad calls."""
    direct = upper.filter(
        pl.Series(take_or_missing(changed, upper.get_column("callee_entry").fill_null(-1).to_numpy(), 0))
    )
    below = traffic.exits.filter(pl.Series(lower)).select(
        callee_entry=pl.col("caller_entry"), source=pl.col("callee_node")
    )
    chained = upper.join(below.drop_nulls(), on="callee_entry", how="inner")
    one = direct.group_by(source="callee_node", target="caller_node").len().sort("source", "target")
    two = (
        chained.group_by("source", target="caller_node", healthy="callee_node")
        .len()
        .sort("source", "healthy", "target")
    )
    return (
        *(Bypass(s, None, t, n) for s, t, n in one.select("source", "target", "len").iter_rows()),
        *(Bypass(s, h, t, n) for s, h, t, n in two.select("source", "healthy", "target", "len").iter_rows()),
    )


def _count_failures(calls: Calls, failed_requests: Flags) -> dict[str, FailureCount]:
    """Return node to its FailureCount; *failed_requests* flags explained entries; unserved ones count at their callee."""
    entries = calls.entries.with_columns(
        carried=pl.Series(failed_requests[calls.entries.get_column("entry").to_numpy()])
    )
    now, normal = pl.col("period") == "abnormal", pl.col("period") == "normal"
    unserved = calls.exits.filter(pl.col("from_generator") & pl.col("absent") & now & pl.col("failed"))
    table = entries.group_by("node").agg(
        carried=(pl.col("carried") & pl.col("felt_failed") & now).sum(),
        failed=(pl.col("felt_failed") & now).sum(),
        served=now.sum(),
        before=pl.col("felt_failed").filter(normal).mean().fill_null(0.0),
    )
    outside = dict(unserved.group_by("callee_node").len().iter_rows())
    return {
        node: FailureCount(failed_requests + extra, failed - served * rate + extra, served + extra)
        for node, failed_requests, failed, served, rate in table.sort("node").iter_rows()
        if (extra := outside.get(node, 0)) or failed_requests
    }
