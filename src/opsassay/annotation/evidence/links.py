"""Calls by directed link, and the statistics that show which links a network fault affects.

A call is hit when it waits between its client span and its server span (or for a store) far longer than its kind did in
the baseline, or breaks between its ends. A likelihood ratio says how sure it is that a link is affected.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
import polars as pl

from opsassay.annotation.evidence.context import BROKEN, EvidenceContext, with_outcome
from opsassay.annotation.evidence.thresholds import LinkThresholds, SignatureThresholds
from opsassay.annotation.reading.spans import SQL_NAME
from opsassay.annotation.reading.tails import hypergeometric_at_least

CALL, SQL, COMMAND = "call", "sql", "command"
"""Protocols as links show them: between services, statements to a database, commands to any other store."""

ENDS = ("caller_service", "peer")
_KIND = ("caller_service", "callee_service", "caller_node", "name", "store")
_OF_CALL = (
    "exit",
    "period",
    "time_ns",
    "callee_entry",
    "failed",
    "absent",
    "store",
    "duration_ms",
    "gap_ms",
    "lead_ms",
)


@dataclass(frozen=True, eq=False)
class Links:
    """Calls over directed links, and the kinds of these calls: names are stored and compared once per kind.

    *calls*, one row per exit: exit, period, time_ns, callee_entry, failed, absent, store, duration_ms, gap_ms, lead_ms,
    kind. *kinds*, by their number: kind, caller_service and peer (the ends), link (the first kind with these), to (the
    peer by its own name), caller_node, name, store.
    """

    calls: pl.DataFrame
    kinds: pl.DataFrame

    def calls_of(self, kinds: pl.Expr) -> pl.DataFrame:
        """Return the calls whose kind (caller, callee, operation) satisfies the filter *kinds* over the table `kinds`."""
        flags = self.kinds.select(kinds.fill_null(value=False)).to_series()
        return self.calls.filter(flags.gather(self.calls.get_column("kind")))


def real_links(context: EvidenceContext, selection: pl.Expr | None = None) -> Links:
    """Return the context's synchronous calls by the network link that they use; *selection* is a filter on exits.

    The services of a host are one end, called like it, and calls between them are on no link of it.
    """
    real = ~pl.col("asynchronous") & ~pl.col("virtual")
    key = pl.fold(pl.lit(0, pl.UInt64), operator.xor, [pl.col(c).hash(i) for i, c in enumerate(_KIND)])
    exits = context.calls.exits.lazy().filter(real if selection is None else real & selection)
    calls = exits.select(*_OF_CALL, *_KIND[:-1], key=key).collect()
    caller, callee = (pl.col(c).cast(pl.String) for c in _KIND[:2])
    to = pl.when("store").then(pl.concat_str(pl.lit("store:"), "name")).otherwise(callee)
    kinds = calls.filter(pl.col("key").is_first_distinct())
    kinds = kinds.select("key", caller, *_KIND[2:], peer=to, to=to)
    if context.members:
        root, members = pl.lit(context.root), sorted(context.members)
        ends = [pl.when(pl.col(end).is_in(members)).then(root).otherwise(end).alias(end) for end in ENDS]
        kinds = kinds.with_columns(ends).filter(pl.col("caller_service").ne_missing(pl.col("peer")))
    kinds = kinds.with_row_index("kind").with_columns(link=pl.col("kind").first().over(ENDS))
    calls = calls.select(*_OF_CALL, "key").join(  # a left join takes a third of the time of an inner one
        kinds.select("key", "kind"), on="key", how="left", maintain_order="left"
    )
    return Links(calls.filter(pl.col("kind").is_not_null()).drop("key"), kinds.drop("key"))


@dataclass(frozen=True, eq=False)
class LinkCalls(Links):
    """The calls of `real_links` whose peers are known, with the baseline of their waiting times.

    *calls*: kind, exit, period, lead_ms, gap_ms, broken, waited_ms. *kinds* have protocol, usual_ms (median of the
    baseline) and before_ms (its mean) too.
    """

    limits: SignatureThresholds
    thresholds: LinkThresholds

    def hit(self, added_ms: float = 0.0, kinds: pl.Expr | None = None) -> pl.DataFrame:
        """Return calls (all, or of the filter *kinds*) with kind, period, waited_ms and *hit*: whether the fault hit them.

        A call is hit that is broken, or for which waited_ms > max(ratio * usual_ms, usual_ms + max(*added_ms*,
        limits.added_ms)), with the limits of SignatureThresholds. A call that is not broken and whose waiting is not
        known is left out.
        """
        usual, calls = pl.col("usual_ms"), self.calls if kinds is None else self.calls_of(kinds)
        limit = pl.max_horizontal(self.limits.ratio * usual, usual + max(added_ms, self.limits.added_ms))
        limits = self.kinds.select(limit).to_series().gather(calls.get_column("kind"))
        late = pl.col("waited_ms") > limits
        return calls.select("kind", "period", "waited_ms", hit=pl.col("broken") | late).drop_nulls("hit")

    def count_by_link(self, hits: pl.DataFrame) -> pl.DataFrame:
        """Return for each link n, k (calls and hits now), n0, k0 (in the baseline) and p, the chance of so many hits.

        *p* is Fisher's exact test of at least k hits among n, of k + k0 hits among n + n0 calls. So that a rarely
        called link can be significant, the baseline gets *prior_calls* more calls with the hit rate of all links of the
        protocol: n0 + prior_calls and k0 + round(prior_calls * rate); none if the protocol had no calls.
        """
        now, hit = pl.col("period") == "abnormal", pl.col("hit")
        cell = hits.select(pl.col("kind").cast(pl.Int64) * 4 + now.cast(pl.Int64) * 2 + hit.cast(pl.Int64)).to_series()
        spared_before, hit_before, spared_now, hit_now = (
            np.bincount(cell, minlength=4 * self.kinds.height).reshape(-1, 4).T
        )
        table = self.kinds.select(*ENDS, "link", "protocol").with_columns(
            n=pl.Series(spared_now + hit_now),
            k=pl.Series(hit_now),
            n0=pl.Series(spared_before + hit_before),
            k0=pl.Series(hit_before),
        )
        table = table.group_by(*ENDS, "link", "protocol").agg(pl.col("n", "k", "n0", "k0").sum())
        whole = (pl.col("k0").sum() / pl.col("n0").sum()).over("protocol")
        prior = self.thresholds.prior_calls
        table = table.with_columns(
            n0=pl.col("n0") + pl.when(whole.is_finite()).then(prior).otherwise(0),
            k0=pl.col("k0") + pl.when(whole.is_finite()).then((prior * whole).round()).otherwise(0.0),
        )
        table = table.filter(pl.col("n") > 0).sort(ENDS)
        n, k, n0, k0 = (table.get_column(c).to_numpy().astype(float) for c in ("n", "k", "n0", "k0"))
        return table.with_columns(p=pl.Series(hypergeometric_at_least(k, n + n0, k + k0, n), dtype=pl.Float64))


def link_calls(context: EvidenceContext) -> LinkCalls:
    """Return all calls over network links with their waiting time; an unserved or store call waits its whole time."""
    among = pl.col("store") | pl.col("callee_service").is_not_null()
    if context.fault.end_ns > context.fault.start_ns:
        among &= (pl.col("period") == "normal") | (pl.col("time_ns") <= context.fault.end_ns)
    links = real_links(context, among)
    waited = pl.when(pl.col("absent") | pl.col("store")).then("duration_ms").otherwise("gap_ms")
    calls = with_outcome(context, links.calls)
    calls = calls.select("kind", "exit", "period", "lead_ms", "gap_ms", waited_ms=waited, broken=BROKEN)
    statement = pl.col("name").cast(pl.String).str.contains(SQL_NAME)
    stores = pl.when(statement).then(pl.lit(SQL)).otherwise(pl.lit(COMMAND))
    kinds = links.kinds.with_columns(protocol=pl.when("store").then(stores).otherwise(pl.lit(CALL)))
    return LinkCalls(calls, _with_usual(kinds, calls), context.thresholds.signature, context.thresholds.links)


def _with_usual(kinds: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return *kinds* with usual_ms and before_ms: median and mean waiting time of *calls* in the baseline.

    They are those of the calls of one operation at one place, of the link where that had none, of all links of that
    protocol where this had none.
    """
    nothing, waited = pl.lit(None, pl.Float64), pl.col("waited_ms")
    normal = calls.filter(pl.col("period") == "normal").select("kind", "waited_ms")
    kinds = kinds.with_columns(usual_ms=nothing, before_ms=nothing)
    for by in ([*ENDS, "caller_node", "name"], ["link"], ["protocol"]):
        if not kinds.get_column("before_ms").null_count():
            break
        kinds = kinds.with_columns(group=pl.col("kind").first().over(by))
        group = kinds.get_column("group").gather(normal.get_column("kind"))
        usual = normal.group_by(group=group).agg(usual=waited.median().clip(lower_bound=0.0), before=waited.mean())
        kinds = (
            kinds.join(usual, on="group", how="left", maintain_order="left")
            .with_columns(usual_ms=pl.coalesce("usual_ms", "usual"), before_ms=pl.coalesce("before_ms", "before"))
            .drop("group", "usual", "before")
        )
    return kinds


def with_support(table: pl.DataFrame, share: float, limits: LinkThresholds) -> pl.DataFrame:
    """Return the rows of `count_by_link` with *support* (a log likelihood ratio), *slow* (hit) and *spared* (not hit).

    *support* compares the likelihood of the calls if the fault hits *share* of them with that at the baseline's rate: k
    ln(h / u) + (n - k) ln((1 - h) / (1 - u)) with u = (k0 + 0.5) / (n0 + 1) and h = max(*share*, u); 0 without a
    baseline. *slow* and *spared* are those above limits.tells and below its negative.
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
    """Return the share of calls that the fault hits, estimated from *table*, the rows of `count_by_link`.

    It is sum k / sum n, at most most_hit, of the links whose p is below *suspicious*; if there are none, of all links
    with a higher rate than before, if together they are significant. None when there are none, or when that share is
    below *least*.
    """
    suspects = table.filter((pl.col("p") < limits.suspicious) & (pl.col("k") > 0))
    if not suspects.height:  # none by itself, but all may together
        suspects = table.filter(pl.col("k") * pl.col("n0") > pl.col("k0") * pl.col("n"))
        if not suspects.height or chance(suspects) >= limits.suspicious:
            return None
    share = float(suspects["k"].sum()) / float(suspects["n"].sum())
    return min(share, limits.most_hit) if share >= least else None


def chance(table: pl.DataFrame) -> float:
    """Return the p-value of Fisher's exact test for all rows of `count_by_link` summed; 1 when they have no calls."""
    n, k, n0, k0 = (float(table[c].sum()) for c in ("n", "k", "n0", "k0"))
    one = [np.array([value]) for value in (k, n + n0, k + k0, n)]
    return float(hypergeometric_at_least(*one)[0]) if n else 1.0
