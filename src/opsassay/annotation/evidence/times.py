"""Checks of time at a root: its own, in its stores, without CPU, and its clock; each check is one function."""

from __future__ import annotations

import polars as pl

from opsassay.annotation.evidence.context import EvidenceContext, SignatureCheck, Sources, rose
from opsassay.annotation.evidence.latency_delta import added_time
from opsassay.annotation.evidence.load_normalisation import at_usual_pace


def _check_own_time(context: EvidenceContext, value: pl.Expr, activity: str) -> SignatureCheck:
    """Check whether the root spends more of *value* (an expression, ms per call) than in the baseline.

    Calls with a failed callee are left out. *activity* names that time in the sentence.
    """
    # A caller that sleeps between attempts adds time of its own because its callee fails: those calls are no witness.
    undisturbed = context.own.filter(~pl.col("any_failed_exit")).with_columns(value=value)
    table = rose(added_time(undisturbed, "value", ["node"], ["shape"]), context.thresholds)
    own = dict(table.select("node", "added_ms").iter_rows())
    if not own:
        return SignatureCheck(passed=False, sentence=f"{context.root} spends no more {activity} than before")
    worst = max(own, key=lambda n: (own[n], n))
    return SignatureCheck(
        passed=True,
        sentence=f"{worst} spends {own[worst]:.0f} ms more {activity} per call",
        sources=Sources(own_ms=own),
    )


@at_usual_pace
def own_time(context: EvidenceContext) -> SignatureCheck:
    """Check whether the root's own time per call, without waiting for others, is longer than in the baseline."""
    return _check_own_time(context, pl.col("own_ms"), "time of its own")


@at_usual_pace
def store_time(context: EvidenceContext) -> SignatureCheck:
    """Check whether the root waits longer for its stores than in the baseline."""
    return _check_own_time(context, pl.col("store_ms"), "time in its stores")


def starved_time(context: EvidenceContext) -> SignatureCheck:
    """Check whether time is added that no callee spent, in the root and before it, as in a process without CPU.

    The callers' wait minus the time of the root's own callees is tested as a whole, and then separated into the root's
    own time and the time between the callers' spans and the root's.
    """
    unserved = pl.col("own_ms") + pl.col("store_ms") + pl.col("exit_gap_ms")
    entries = context.own.filter(~pl.col("any_failed_exit")).with_columns(own_part=unserved)
    own = added_time(entries, "own_part", ["node"], ["shape"], unmatched_too=True)
    late = rose(own, context.thresholds, backed=True)
    parts = entries.select(callee_entry="entry", own_part="own_part")
    waits = context.inbound.join(parts, on="callee_entry").with_columns(
        waited=pl.col("own_part") + pl.col("gap_ms").fill_null(0.0), gap_ms=pl.col("gap_ms").fill_null(0.0)
    )
    ends = ["caller_node", "callee_service", "callee_node"]
    slow = rose(
        added_time(waits, "waited", ends, ["name"], unmatched_too=True), context.thresholds, backed=True
    ).select(ends)
    gaps = added_time(waits, "gap_ms", ends, ["name"], unmatched_too=True).join(slow, on=ends, how="semi")
    nodes = {*late.get_column("node"), *slow.get_column("callee_node")}
    own_ms = {n: ms for n, ms in own.select("node", "added_ms").iter_rows() if n in nodes and ms > 0}
    link_ms = {
        (c, s): ms
        for c, s, ms in gaps.group_by("caller_node", "callee_service")
        .agg(pl.col("added_ms").mean())
        .sort(ends[:2])
        .iter_rows()
        if ms > 0
    }
    if not nodes:
        return SignatureCheck(passed=False, sentence=f"{context.root} answers as fast as before")
    worst = max([*own_ms.values(), *link_ms.values()], default=0.0)
    return SignatureCheck(
        passed=True,
        sentence=f"answers of {context.root} take {worst:.0f} ms more that no callee spends",
        sources=Sources(own_ms=own_ms, link_ms=link_ms),
    )


def clock_shift(context: EvidenceContext) -> SignatureCheck:
    """Check whether the server spans of one of the root's pods moved by 100 ms or more relative to their client spans."""
    pods = context.own.select("pod", callee_entry="entry")
    leads = context.inbound.drop_nulls("lead_ms").join(pods, on="callee_entry").group_by("period", "pod")
    medians = leads.agg(pl.len(), pl.col("lead_ms").median()).filter(pl.col("len") >= 5)
    now, before = (medians.filter(pl.col("period") == period) for period in ("abnormal", "normal"))
    both = now.join(before, on="pod", suffix="_before", nulls_equal=True)
    moved = max((both["lead_ms"] - both["lead_ms_before"]).to_list(), key=abs, default=0.0)
    words = f"the clock of {context.root} moved by {moved:.0f} ms against its callers'"
    return SignatureCheck(passed=abs(moved) >= 100.0, sentence=words)
