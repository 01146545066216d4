"""Time that a root may show: its own, in its stores, on its links, on its clock. Each check is one function."""

from __future__ import annotations

import math

import polars as pl

from opsassay.causes.evidence.added import added_time
from opsassay.causes.evidence.pace import at_usual_pace
from opsassay.causes.evidence.scene import (
    ADDED_MS,
    FAR_BEYOND,
    LINK_SHARE,
    MUCH_MORE,
    RATIO,
    Z_BACKED,
    Scene,
    SignatureCheck,
    Sources,
    real_links,
    rose,
    touching,
)

Z_SPARED = 2.0
"""How sure it must be that a link did not grow by RATIO, to speak against a network fault."""

LEAST_SLOW = 1 / 3
"""Links with too few calls to tell do not speak against a network fault; this share of all must be slow in any case."""


def _own(scene: Scene, value: pl.Expr, what: str) -> SignatureCheck:
    # A caller that sleeps between attempts adds time of its own because its callee fails: those calls are no witness.
    undisturbed = scene.own.filter(~pl.col("any_failed_exit")).with_columns(value=value)
    table = rose(added_time(undisturbed, "value", ["node"], ["shape"]))
    own = dict(table.select("node", "added_ms").iter_rows())
    if not own:
        return SignatureCheck(passed=False, sentence=f"{scene.root} spends no more {what} than before")
    worst = max(own, key=lambda n: (own[n], n))
    return SignatureCheck(
        passed=True, sentence=f"{worst} spends {own[worst]:.0f} ms more {what} per call", sources=Sources(own_ms=own)
    )


@at_usual_pace
def own_time(scene: Scene) -> SignatureCheck:
    """Look for added time in the root itself, not waiting for anyone."""
    return _own(scene, pl.col("own_ms"), "time of its own")


@at_usual_pace
def store_time(scene: Scene) -> SignatureCheck:
    """Look for added time in which the root waits for its stores."""
    return _own(scene, pl.col("store_ms"), "time in its stores")


def starved_time(scene: Scene) -> SignatureCheck:
    """Look for added time that no callee spent, at the root and on the way to it: a starved process is late everywhere.

    What callers wait for an answer, less what the root's own callees took of it, is tested as a whole and then
    separated into the root's own time and the time between the callers' spans and the root's.
    """
    unserved = pl.col("own_ms") + pl.col("store_ms") + pl.col("exit_gap_ms")
    entries = scene.own.filter(~pl.col("any_failed_exit")).with_columns(own_part=unserved)
    own = added_time(entries, "own_part", ["node"], ["shape"], whole=True)
    late = rose(own, Z_BACKED)
    parts = entries.select(callee_entry="entry", own_part="own_part")
    waits = scene.inbound.join(parts, on="callee_entry").with_columns(
        waited=pl.col("own_part") + pl.col("gap_ms").fill_null(0.0), gap_ms=pl.col("gap_ms").fill_null(0.0)
    )
    ends = ["caller_node", "callee_service", "callee_node"]
    slow = rose(added_time(waits, "waited", ends, ["name"], whole=True), Z_BACKED).select(ends)
    gaps = added_time(waits, "gap_ms", ends, ["name"], whole=True).join(slow, on=ends, how="semi")
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
        return SignatureCheck(passed=False, sentence=f"{scene.root} answers as fast as before")
    worst = max([*own_ms.values(), *link_ms.values()], default=0.0)
    return SignatureCheck(
        passed=True,
        sentence=f"answers of {scene.root} take {worst:.0f} ms more that no callee spends",
        sources=Sources(own_ms=own_ms, link_ms=link_ms),
    )


@at_usual_pace
def inbound_gap(scene: Scene) -> SignatureCheck:
    """Look for added time between the callers' client spans and the root's server spans."""
    gaps = rose(added_time(scene.inbound, "gap_ms", ["caller_node", "callee_service"], ["name", "callee_node"]))
    link = {(c, s): ms for c, s, ms in gaps.select("caller_node", "callee_service", "added_ms").iter_rows()}
    if not link:
        return SignatureCheck(passed=False, sentence=f"calls reach {scene.root} as fast as before")
    words = f"calls to {scene.root} wait {max(link.values()):.0f} ms more outside it"
    return SignatureCheck(passed=True, sentence=words, sources=Sources(link_ms=link))


def _link_table(scene: Scene) -> pl.DataFrame:
    """Return per link whether it became slower, or did not: caller_service, peer, added_ms, slow, spared.

    A link that waits longer on average, with calls too few to tell a growth by RATIO from none, is neither.
    """
    table = added_time(real_links(scene), "wait_ms", ["caller_service", "peer"], ["name", "caller_node"])
    slow = rose(table).select("caller_service", "peer", slow=pl.lit(value=True))
    highest = (pl.col("z") + Z_SPARED) * pl.col("error")  # of the logarithm's growth
    return table.join(slow, on=["caller_service", "peer"], how="left").with_columns(
        pl.col("slow").fill_null(value=False), spared=~MUCH_MORE | (highest < math.log(RATIO))
    )


def _share_slow(links: pl.DataFrame) -> float:
    """Return how many of the links that tell are slow."""
    slow, spared = links.filter("slow").height, links.filter("spared", ~pl.col("slow")).height
    return slow / (slow + spared) if slow else 0.0


def _left_to_explain(table: pl.DataFrame, slow: pl.DataFrame, root: str, other: str) -> bool:
    """Tell whether most slow links of *root* away from *other* wait far longer than links that touch neither."""
    touches = (pl.col("caller_service") == other) | (pl.col("peer") == other)
    elsewhere = table.filter(~touches & (pl.col("caller_service") != root) & (pl.col("peer") != root))
    usual = elsewhere.get_column("added_ms").median() if elsewhere.height else None
    away = slow.filter(~touches)
    beyond = away.filter(pl.col("added_ms") > FAR_BEYOND * max(float(usual or 0.0), ADDED_MS)).height  # type: ignore[arg-type]
    return beyond > 0 and beyond >= LINK_SHARE * away.height


@at_usual_pace
def link_gap(scene: Scene) -> SignatureCheck:
    """Look for added waiting on (nearly) all links of the root, unless a neighbour explains all of them.

    A neighbour with more slow links, all of them slow, is the better explanation only of what it touches: when links of
    the root that it does not touch wait well beyond what links elsewhere do, the root is needed to explain them.
    """
    table = _link_table(scene)
    peer = scene.fault.peer
    mine = touching(table, scene.root, peer)
    slow = mine.filter("slow")
    if slow.height < LEAST_SLOW * mine.height or _share_slow(mine) < LINK_SHARE:
        return SignatureCheck(
            passed=False, sentence=f"{slow.height} of {mine.height} links of {scene.root} are slower than before"
        )
    for other in sorted({*slow.get_column("caller_service"), *slow.get_column("peer")} - {scene.root}):
        theirs = touching(table, other, None)
        more = theirs.filter("slow").height > slow.height and _share_slow(theirs) >= LINK_SHARE
        if peer is None and more and not _left_to_explain(table, slow, scene.root, other):
            return SignatureCheck(
                passed=False, sentence=f"the slow links of {scene.root} are links of {other}, all slow"
            )
    real = touching(real_links(scene), scene.root, None)
    each = rose(added_time(real, "wait_ms", ["caller_node", "to"], ["name"]))
    link = {(c, p): ms for c, p, ms in each.select("caller_node", "to", "added_ms").iter_rows()}
    most = max(slow.get_column("added_ms").to_list())
    sentence = f"{slow.height} of {mine.height} links of {scene.root} are slower by up to {most:.0f} ms"
    return SignatureCheck(passed=True, sentence=sentence, sources=Sources(link_ms=link))


def clock_shift(scene: Scene) -> SignatureCheck:
    """Look for server spans that begin 100 ms or more nearer to or farther from their client spans than before."""
    lead = scene.inbound.drop_nulls("lead_ms").group_by("period").agg(pl.len(), pl.col("lead_ms").median())
    shift = {period: value for period, n, value in lead.iter_rows() if n >= 5}
    moved = shift["abnormal"] - shift["normal"] if len(shift) == 2 else 0.0
    words = f"the clock of {scene.root} moved by {moved:.0f} ms against its callers'"
    return SignatureCheck(passed=abs(moved) >= 100.0, sentence=words)
