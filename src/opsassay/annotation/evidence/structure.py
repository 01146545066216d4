"""The structure of calls at a root: requests that it answers without the calls that they always needed."""

from __future__ import annotations

import numpy as np
import polars as pl

from opsassay.annotation.evidence.context import EvidenceContext, SignatureCheck, Sources
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.spans import index_of
from opsassay.annotation.reading.tails import beta_binomial_at_least, binomial_at_most

_NORMAL = pl.col("period") == "normal"
MORE, AS_MANY, FEWER = 0.1, 0.75, 0.9
"""Share of requests by which those without a call grow at least; of the usual rate of requests, and of those that call."""
OTHER_TIME = 2.0
"""A request that skips its calls takes this many times as long or as short; one whose spans were lost does not."""


def calls_skipped(scene: EvidenceContext) -> SignatureCheck:
    """Look for an operation of the root that answers without any call, where its requests always needed some.

    No service below can be the cause, since it was not called. Of an operation k0 of n0 requests made no call before, and
    k of n do now. That is a sign when it is beyond a beta-binomial forecast drawn towards how often calls are missing at
    other services (spans that are lost or not sampled are missing everywhere), corrected for all operations; when such
    requests take another time than those that call; and when they came in place of those, not in addition to
    them, which would be another mix of requests. A service whose calls fail, or show at their callees alone, has none.
    """
    nodes = _nodes(scene.calls)
    limits = scene.thresholds.statements
    more = _share("k", "n") - _share("k0", "n0")
    others = nodes.filter(pl.col("service") != scene.root).group_by("service").agg(more=more).get_column("more")
    rate = max(float(np.median(others.to_list() or [0.0])), limits.least_rate)
    mine = nodes.filter(pl.col("service") == scene.root)
    n0, k0, n, k = (mine.get_column(name).to_numpy().astype(float) for name in ("n0", "k0", "n", "k"))
    chance = beta_binomial_at_least(k, n, k0 + limits.prior_spans * rate, n0 - k0 + limits.prior_spans * (1 - rate))
    longer = scene.calls.seconds("abnormal") / scene.calls.seconds("normal")
    fewer = binomial_at_most(n - k, n - k + n0 - k0, longer / (1 + longer)) < scene.thresholds.chance
    replaced = fewer & (n >= AS_MANY * n0 * longer) & (n - k < FEWER * (n0 - k0) * longer)
    ratio = pl.col("bare_ms") / pl.col("usual_ms")
    found = mine.filter(
        pl.Series((chance * nodes.height < limits.chance) & (k / n - k0 / n0 > MORE) & replaced, dtype=pl.Boolean)
        & ((ratio > OTHER_TIME) | (ratio * OTHER_TIME < 1))
    )
    if not found.height or _blames_others(scene):
        return SignatureCheck(passed=False, sentence=f"requests of {scene.root} make the calls that they did")
    skipped = found.join(_requests(scene.calls).filter(~_NORMAL & pl.col("bare")), on="node").get_column("entry")
    worst = found.sort(pl.col("k") / pl.col("n"), descending=True).row(0, named=True)
    words = f"{worst['k'] / worst['n']:.0%} of {worst['node']} make no call, before {worst['k0'] / worst['n0']:.0%}"
    return SignatureCheck(passed=True, sentence=words, sources=Sources(entries=frozenset(skipped)))


def _share(part: str, whole: str) -> pl.Expr:
    return pl.col(part).sum() / pl.col(whole).sum()


def _requests(calls: Calls) -> pl.DataFrame:
    """Return the entries, and whether each is *bare*: no call is in it, or no span at all, as most of its operation have.

    One is left out when a call of it is bare too, or failed: the deepest place explains those above it.
    """
    entries, callers = calls.entries, index_of(calls.exits.get_column("caller_entry"))
    ids, callees = entries.get_column("entry").to_numpy(), index_of(calls.exits.get_column("callee_entry"))
    size = int(max(ids.max(initial=-1), callers.max(initial=-1), callees.max(initial=-1))) + 1
    calling, bare, odd = (np.zeros(size, dtype=bool) for _ in range(3))
    calling[callers[callers >= 0]] = True
    table = entries.select(
        "period",
        "service",
        "node",
        "entry",
        "duration_ms",
        "failed",
        calls=pl.Series(calling[ids]),
        alone=pl.col("spans") == 1,
    )
    calls_often, alone_often = (pl.col(c).filter(_NORMAL).mean().over("node") > 0.5 for c in ("calls", "alone"))
    lacks = pl.when(calls_often).then(~pl.col("calls")).otherwise(pl.col("alone") & ~alone_often)
    table = table.with_columns(bare=lacks.fill_null(value=False))
    bare[ids] = (table.get_column("bare") | table.get_column("failed")).to_numpy()
    inner = (callers >= 0) & (callees >= 0)
    odd[callers[inner][bare[callees[inner]]]] = True
    return table.filter(~pl.Series(odd[ids]))


def _nodes(calls: Calls) -> pl.DataFrame:
    """Return the operations most of whose requests called before: counts n0, k0, n, k and median times."""
    bare, ms = pl.col("bare"), pl.col("duration_ms")
    return (
        _requests(calls)
        .group_by("service", "node")
        .agg(
            n0=_NORMAL.sum(),
            k0=(_NORMAL & bare).sum(),
            n=(~_NORMAL).sum(),
            k=(~_NORMAL & bare).sum(),
            usual_ms=ms.filter(_NORMAL & ~bare).median(),
            bare_ms=ms.filter(~_NORMAL & bare).median(),
        )
        .filter((pl.col("n") > 0) & (pl.col("k0") * 2 < pl.col("n0")))
        .sort("service", "node")
    )


def _blames_others(scene: EvidenceContext) -> bool:
    """Tell whether calls of the root fail more than before, or are seen at their callees alone."""
    failed = dict(scene.outbound.group_by("period").agg(pl.col("failed").mean()).iter_rows())
    virtual = scene.outbound.filter(_NORMAL).get_column("virtual").mean()
    worse = (failed.get("abnormal") or 0.0) - (failed.get("normal") or 0.0)
    return worse > scene.thresholds.error_share or float(virtual or 0.0) > 0.5  # type: ignore[arg-type]
