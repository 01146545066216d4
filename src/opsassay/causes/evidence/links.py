"""Directed links and what a network fault does to their calls: which calls it hit, and which links tell of it.

A call is hit when it waits between its client span and its server span (or for a store) far longer than its kind did in
the baseline, or breaks between its ends. How sure a link is to be affected is a likelihood ratio, so that one call may
tell and a thousand may not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from opsassay.causes.evidence.scene import BROKEN, Scene, real_links, with_outcome
from opsassay.causes.evidence.thresholds import LinkThresholds, SignatureThresholds
from opsassay.causes.reading.spans import SQL_NAME
from opsassay.causes.reading.tails import hypergeometric_at_least

CALL, SQL, COMMAND = "call", "sql", "command"
"""Protocols as links show them: between services, statements to a database, commands to any other store."""

_ENDS = ("caller_service", "peer")


@dataclass(frozen=True, eq=False)
class LinkCalls:
    """The calls over links, both periods: one row per exit of `real_links`.

    Beside its columns: protocol, broken, waited_ms, usual_ms (median of the baseline), before_ms (its mean).
    """

    frame: pl.DataFrame
    limits: SignatureThresholds
    links: LinkThresholds

    def hit(self, added_ms: float = 0.0) -> pl.DataFrame:
        """Return the calls that can tell with *hit*: broken, or waited for as much longer as the limits ask.

        *added_ms*: by how much at least, where that is more.
        """
        usual = pl.col("usual_ms")
        limit = pl.max_horizontal(self.limits.ratio * usual, usual + max(added_ms, self.limits.added_ms))
        return self.frame.with_columns(hit=pl.col("broken") | (pl.col("waited_ms") > limit)).drop_nulls("hit")


def link_calls(scene: Scene) -> LinkCalls:
    """Return the calls over all links of *scene*.

    What is usual is the median of the calls of one operation at one place in the baseline, of the link where that had
    none, of all links of that protocol where this had none. A call without a server span under it waited for all of its
    time.
    """
    links = with_outcome(scene, real_links(scene)).drop_nulls("peer")
    if scene.fault.end_ns > scene.fault.start_ns:
        links = links.filter((pl.col("period") == "normal") | (pl.col("time_ns") <= scene.fault.end_ns))
    links = links.with_columns(
        waited_ms=pl.when("absent").then("duration_ms").otherwise("wait_ms"),
        broken=BROKEN.fill_null(value=False),
        protocol=pl.when(~pl.col("store"))
        .then(pl.lit(CALL))
        .when(pl.col("name").cast(pl.String).str.contains(SQL_NAME))
        .then(pl.lit(SQL))
        .otherwise(pl.lit(COMMAND)),
    )
    normal = links.filter(pl.col("period") == "normal")
    levels = {"kind": [*_ENDS, "caller_node", "name"], "link": [*_ENDS], "protocol": ["protocol"]}
    for level, by in levels.items():
        waited = pl.col("waited_ms")
        usual = normal.group_by(by).agg(waited.median().alias(f"median_{level}"), waited.mean().alias(f"mean_{level}"))
        links = links.join(usual, on=by, how="left", maintain_order="left")
    links = links.with_columns(
        usual_ms=pl.coalesce([f"median_{level}" for level in levels]).clip(lower_bound=0.0),
        before_ms=pl.coalesce([f"mean_{level}" for level in levels]),
    )
    return LinkCalls(links, scene.thresholds.signature, scene.thresholds.links)


def counted(hits: pl.DataFrame, limits: LinkThresholds) -> pl.DataFrame:
    """Return one row per link: caller_service, peer, protocol, n, k (calls and hits now), n0, k0 (before), p.

    What was before is drawn towards all links of the protocol by a prior worth *prior_calls*, so that a link that was
    rarely called can tell. *p*: Fisher's exact test of more hits than before.
    """
    now = pl.col("period") == "abnormal"
    table = hits.group_by(_ENDS).agg(
        pl.col("protocol").first(),
        n=now.sum(),
        k=(now & pl.col("hit")).sum(),
        n0=(~now).sum(),
        k0=(~now & pl.col("hit")).sum(),
    )
    whole = (pl.col("k0").sum() / pl.col("n0").sum()).over("protocol")
    table = table.with_columns(
        n0=pl.col("n0") + pl.when(whole.is_finite()).then(limits.prior_calls).otherwise(0),
        k0=pl.col("k0") + pl.when(whole.is_finite()).then((limits.prior_calls * whole).round()).otherwise(0.0),
    )
    table = table.filter(pl.col("n") > 0).sort(_ENDS)
    n, k, n0, k0 = (table.get_column(c).to_numpy().astype(float) for c in ("n", "k", "n0", "k0"))
    return table.with_columns(p=pl.Series(hypergeometric_at_least(k, n + n0, k + k0, n), dtype=pl.Float64))


def with_support(table: pl.DataFrame, share: float, limits: LinkThresholds) -> pl.DataFrame:
    """Add *support* to the rows of `counted`, and *slow* and *spared* where that *tells*.

    It is the log likelihood of the calls now when the fault hits *share* of them, less that at the baseline's rate; 0
    without a baseline.
    """
    n, k, n0, k0 = (table.get_column(c).to_numpy().astype(float) for c in ("n", "k", "n0", "k0"))
    usual = (k0 + 0.5) / (n0 + 1.0)
    hit = np.clip(np.maximum(share, usual), 1e-6, 1 - 1e-6)
    support = k * np.log(hit / usual) + (n - k) * np.log((1 - hit) / (1 - usual))
    support[n0 == 0] = 0.0
    return table.with_columns(
        support=pl.Series(support), slow=pl.Series(support > limits.tells), spared=pl.Series(support < -limits.tells)
    )


def share_hit(table: pl.DataFrame, least: float, limits: LinkThresholds) -> float | None:
    """Return the share of calls that the fault hits, from the links of `counted` that suggest one.

    None when none does, or when that share is below *least*.
    """
    suspects = table.filter((pl.col("p") < limits.suspicious) & (pl.col("k") > 0))
    if not suspects.height:  # none by itself, but all may together
        suspects = table.filter(pl.col("k") * pl.col("n0") > pl.col("k0") * pl.col("n"))
        if not suspects.height or chance(suspects) >= limits.suspicious:
            return None
    share = float(suspects["k"].sum()) / float(suspects["n"].sum())
    return min(share, limits.most_hit) if share >= least else None


def chance(table: pl.DataFrame) -> float:
    """Return Fisher's exact p of as many hits on all links of `counted` together as there are now."""
    n, k, n0, k0 = (float(table[c].sum()) for c in ("n", "k", "n0", "k0"))
    one = [np.array([value]) for value in (k, n + n0, k + k0, n)]
    return float(hypergeometric_at_least(*one)[0]) if n else 1.0
