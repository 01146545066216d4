"""Checks for failures at a root: its own errors, broken links, failing stores, and calls that it does not serve."""

from __future__ import annotations

import polars as pl

from opsassay.annotation.evidence.context import EvidenceContext, SignatureCheck, Sources, beyond, rose, with_outcome
from opsassay.annotation.evidence.directions import who_breaks
from opsassay.annotation.evidence.latency_delta import added_time
from opsassay.annotation.evidence.links import real_links
from opsassay.annotation.evidence.metrics import kept_running, raised
from opsassay.annotation.evidence.states import beyond_chance
from opsassay.annotation.reading.circuit_breaking import disturbed


def absence(context: EvidenceContext) -> SignatureCheck:
    """Check whether calls to the root fail unserved, or metrics show that it restarted or was not ready."""
    restarted = raised(context.metrics, context.root, "restart", context.thresholds.resources)
    unready = raised(context.metrics, context.root, "unready", context.thresholds.resources)
    backed = restarted.passed or unready.passed
    exits = context.inbound.with_columns(to=pl.lit(context.root))
    broken = beyond(context, exits, pl.col("failed") & pl.col("absent"), "to", minimum=1 if backed else 2)
    if not broken:
        words = (
            f"{context.root} restarted, but no call missed it" if backed else f"no call to {context.root} goes unserved"
        )
        return SignatureCheck(passed=backed, sentence=words)
    if not backed and context.calls.status_known and not who_breaks(context, "inbound")[0]:
        return SignatureCheck(
            passed=False, sentence=f"calls to {context.root} go unserved from some of its callers alone"
        )
    words = f"{len(broken)} calls to {context.root} fail unserved" + (", and it restarted" if backed else "")
    return SignatureCheck(passed=True, sentence=words, sources=Sources(exits=broken))


def killed(context: EvidenceContext) -> SignatureCheck:
    """Check whether the root was down, by `absence` or `unconsumed`; fails if metrics show that it kept running."""
    if (
        kept_running(context.metrics, context.root)
        and not raised(context.metrics, context.root, "unready", context.thresholds.resources).passed
    ):
        return SignatureCheck(
            passed=False, sentence=f"{context.root} kept running: its restarts are counted, and there is none"
        )
    parts = [absence(context), unconsumed(context)]
    shown = [part for part in parts if part.passed] or parts
    return SignatureCheck(
        passed=any(part.passed for part in parts),
        sentence="; ".join(part.sentence for part in shown),
        sources=Sources.merged([part.sources for part in parts if part.passed]),
    )


def unconsumed(context: EvidenceContext) -> SignatureCheck:
    """Check whether messages to the root are never consumed, or are consumed later than in the baseline."""
    to_root = (pl.col("callee_service") == context.root) & (pl.col("caller_service") != context.root)
    messages = context.calls.exits.filter(to_root & pl.col("asynchronous")).with_columns(to=pl.lit(context.root))
    lost = beyond(context, messages, pl.col("absent"), "to", minimum=3)
    lags = rose(added_time(messages, "lag_ms", ["callee_node"], ["name"]), context.thresholds, backed=True)
    waits = dict(lags.select("callee_node", "added_ms").iter_rows())
    if not lost and not waits:
        return SignatureCheck(passed=False, sentence=f"no message to {context.root} is left lying")
    words = f"{len(lost)} messages to {context.root} are not taken" if lost else f"messages wait for {context.root}"
    return SignatureCheck(passed=True, sentence=words, sources=Sources(own_ms=waits, exits=lost))


def own_errors(context: EvidenceContext) -> SignatureCheck:
    """Check whether failures start at the root: no failed call below them, or callers fail though it served well."""
    below = pl.Series(disturbed(context.calls)[context.own.get_column("entry").to_numpy()])
    own = context.own.with_columns(hit=pl.col("own_error") & ~below)
    now, before = (own.filter(pl.col("period") == p) for p in ("abnormal", "normal"))
    nodes = sorted(beyond_chance(now, before, "hit", context.thresholds)) if now.height else []
    entries = frozenset(now.filter(pl.col("hit") & pl.col("node").is_in(nodes)).get_column("entry"))
    spoilt = pl.col("failed") & pl.col("served_well") & ~pl.col("overrun")
    changed = beyond(context, with_outcome(context, context.inbound), spoilt, "callee_service")
    if not entries and not changed:
        return SignatureCheck(passed=False, sentence=f"{context.root} fails nothing of its own")
    count = len(entries) + len(changed)
    return SignatureCheck(
        passed=True,
        sentence=f"{context.root} fails {count} calls of its own",
        sources=Sources(entries=entries, exits=changed),
    )


def turned_away(context: EvidenceContext) -> SignatureCheck:
    """Check whether calls to the root fail before its handler starts: no server span below the client span."""
    broken = beyond(context, context.inbound, pl.col("failed") & pl.col("absent"), "callee_service")
    if broken and not who_breaks(context, "inbound")[0]:
        words = f"calls to {context.root} go unserved from some of its callers alone"
        return SignatureCheck(passed=False, sentence=words)
    words = f"{len(broken)} calls to {context.root} fail before it serves them" if broken else "all calls are served"
    return SignatureCheck(passed=bool(broken), sentence=words, sources=Sources(exits=broken))


def store_errors(context: EvidenceContext) -> SignatureCheck:
    """Check whether the root's calls to its stores fail more often than in the baseline."""
    broken = beyond(context, context.outbound.filter("store"), pl.col("failed"), "name")
    words = (
        f"{len(broken)} store calls of {context.root} fail" if broken else f"the stores answer {context.root} as before"
    )
    return SignatureCheck(passed=bool(broken), sentence=words, sources=Sources(exits=broken))


def misdirected(context: EvidenceContext) -> SignatureCheck:
    """Check whether calls of the root reach another service than they always did in the baseline."""
    real = context.outbound.filter(~pl.col("asynchronous") & ~pl.col("virtual")).drop_nulls("usual_service")
    hostname = context.fault.parameters.get("hostname")
    out = real.filter(pl.col("usual_service") == hostname) if hostname else real
    strayed = pl.col("callee_service") != pl.col("usual_service")
    wrong = beyond(context, out, strayed.fill_null(value=False), "usual_service")
    broken = frozenset(out.filter(pl.col("exit").is_in(list(wrong)) & pl.col("failed")).get_column("exit"))
    words = f"{len(wrong)} calls of {context.root} end at services that it does not call"
    return SignatureCheck(passed=bool(wrong), sentence=words, sources=Sources(exits=broken))


def lookup_failures(context: EvidenceContext) -> SignatureCheck:
    """Check whether the root cannot reach most of its callees, or the fault's hostname, while callers reach it."""
    links = real_links(context)
    real = links.calls_of(pl.col("caller_service") == context.root).join(links.kinds.select("kind", "peer"), on="kind")
    hostname = context.fault.parameters.get("hostname")
    out = real.filter(pl.col("peer") == hostname) if hostname and hostname in set(real.get_column("peer")) else real
    broken = beyond(context, out, pl.col("failed") & (pl.col("absent") | pl.col("store")), "peer")
    now = out.filter(pl.col("period") == "abnormal").drop_nulls("peer")
    used, bad = now["peer"].n_unique(), now.filter(pl.col("exit").is_in(list(broken)))["peer"].n_unique()
    words = f"{context.root} does not reach {bad} of the {used} places that it calls"
    passed = (
        bool(broken) and bad >= context.thresholds.signature.link_share * used and not absence(context).sources.exits
    )
    if passed and not hostname:
        alone, rival = who_breaks(context, "outbound")
        passed = alone and (rival is None or kept_running(context.metrics, rival))
    return SignatureCheck(passed=passed, sentence=words, sources=Sources(exits=broken) if passed else Sources())
