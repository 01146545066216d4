"""Failures that a root may show: its own, on its links, of its stores, and calls that it is not there for."""

from __future__ import annotations

import polars as pl

from opsassay.annotation.evidence.context import EvidenceContext, SignatureCheck, Sources, beyond, rose, with_outcome
from opsassay.annotation.evidence.directions import who_breaks
from opsassay.annotation.evidence.latency_delta import added_time
from opsassay.annotation.evidence.links import real_links
from opsassay.annotation.evidence.metrics import kept_running, raised
from opsassay.annotation.evidence.states import beyond_chance
from opsassay.annotation.reading.circuit_breaking import disturbed


def absence(scene: EvidenceContext) -> SignatureCheck:
    """Look for failed calls to the root with nothing under them; a restart in the metrics backs a single one."""
    restarted = raised(scene.metrics, scene.root, "restart", scene.thresholds.resources)
    unready = raised(scene.metrics, scene.root, "unready", scene.thresholds.resources)
    backed = restarted.passed or unready.passed
    exits = scene.inbound.with_columns(to=pl.lit(scene.root))
    broken = beyond(scene, exits, pl.col("failed") & pl.col("absent"), "to", minimum=1 if backed else 2)
    if not broken:
        words = f"{scene.root} restarted, but no call missed it" if backed else f"no call to {scene.root} goes unserved"
        return SignatureCheck(passed=backed, sentence=words)
    if not backed and scene.calls.status_known and not who_breaks(scene, "inbound")[0]:
        return SignatureCheck(
            passed=False, sentence=f"calls to {scene.root} go unserved from some of its callers alone"
        )
    words = f"{len(broken)} calls to {scene.root} fail unserved" + (", and it restarted" if backed else "")
    return SignatureCheck(passed=True, sentence=words, sources=Sources(exits=broken))


def killed(scene: EvidenceContext) -> SignatureCheck:
    """Look for what `absence` and `unconsumed` look for, unless restarts are counted and there was none."""
    if (
        kept_running(scene.metrics, scene.root)
        and not raised(scene.metrics, scene.root, "unready", scene.thresholds.resources).passed
    ):
        return SignatureCheck(
            passed=False, sentence=f"{scene.root} kept running: its restarts are counted, and there is none"
        )
    parts = [absence(scene), unconsumed(scene)]
    shown = [part for part in parts if part.passed] or parts
    return SignatureCheck(
        passed=any(part.passed for part in parts),
        sentence="; ".join(part.sentence for part in shown),
        sources=Sources.merged([part.sources for part in parts if part.passed]),
    )


def unconsumed(scene: EvidenceContext) -> SignatureCheck:
    """Look for messages to the root that nobody took, or that waited longer than before."""
    to_root = (pl.col("callee_service") == scene.root) & (pl.col("caller_service") != scene.root)
    messages = scene.calls.exits.filter(to_root & pl.col("asynchronous")).with_columns(to=pl.lit(scene.root))
    lost = beyond(scene, messages, pl.col("absent"), "to", minimum=3)
    lags = rose(added_time(messages, "lag_ms", ["callee_node"], ["name"]), scene.thresholds, backed=True)
    waits = dict(lags.select("callee_node", "added_ms").iter_rows())
    if not lost and not waits:
        return SignatureCheck(passed=False, sentence=f"no message to {scene.root} is left lying")
    words = f"{len(lost)} messages to {scene.root} are not taken" if lost else f"messages wait for {scene.root}"
    return SignatureCheck(passed=True, sentence=words, sources=Sources(own_ms=waits, exits=lost))


def own_errors(scene: EvidenceContext) -> SignatureCheck:
    """Look for failures that begin here: nothing below the root failed, or its good answers arrive as failures."""
    below = pl.Series(disturbed(scene.calls)[scene.own.get_column("entry").to_numpy()])
    own = scene.own.with_columns(hit=pl.col("own_error") & ~below)
    now, before = (own.filter(pl.col("period") == p) for p in ("abnormal", "normal"))
    nodes = sorted(beyond_chance(now, before, "hit", scene.thresholds)) if now.height else []
    entries = frozenset(now.filter(pl.col("hit") & pl.col("node").is_in(nodes)).get_column("entry"))
    spoilt = pl.col("failed") & pl.col("served_well") & ~pl.col("overrun")
    changed = beyond(scene, with_outcome(scene, scene.inbound), spoilt, "callee_service")
    if not entries and not changed:
        return SignatureCheck(passed=False, sentence=f"{scene.root} fails nothing of its own")
    count = len(entries) + len(changed)
    return SignatureCheck(
        passed=True,
        sentence=f"{scene.root} fails {count} calls of its own",
        sources=Sources(entries=entries, exits=changed),
    )


def turned_away(scene: EvidenceContext) -> SignatureCheck:
    """Look for calls that fail before the root's handler sees them: the client span has nothing under it."""
    broken = beyond(scene, scene.inbound, pl.col("failed") & pl.col("absent"), "callee_service")
    if broken and not who_breaks(scene, "inbound")[0]:
        words = f"calls to {scene.root} go unserved from some of its callers alone"
        return SignatureCheck(passed=False, sentence=words)
    words = f"{len(broken)} calls to {scene.root} fail before it serves them" if broken else "all calls are served"
    return SignatureCheck(passed=bool(broken), sentence=words, sources=Sources(exits=broken))


def store_errors(scene: EvidenceContext) -> SignatureCheck:
    """Look for failed calls of the root to its stores."""
    broken = beyond(scene, scene.outbound.filter("store"), pl.col("failed"), "name")
    words = f"{len(broken)} store calls of {scene.root} fail" if broken else f"the stores answer {scene.root} as before"
    return SignatureCheck(passed=bool(broken), sentence=words, sources=Sources(exits=broken))


def misdirected(scene: EvidenceContext) -> SignatureCheck:
    """Look for calls of the root that end at another service than the one that they always reached, and fail there."""
    real = scene.outbound.filter(~pl.col("asynchronous") & ~pl.col("virtual")).drop_nulls("usual_service")
    hostname = scene.fault.parameters.get("hostname")
    out = real.filter(pl.col("usual_service") == hostname) if hostname else real
    strayed = pl.col("callee_service") != pl.col("usual_service")
    wrong = beyond(scene, out, strayed.fill_null(value=False), "usual_service")
    broken = frozenset(out.filter(pl.col("exit").is_in(list(wrong)) & pl.col("failed")).get_column("exit"))
    words = f"{len(wrong)} calls of {scene.root} end at services that it does not call"
    return SignatureCheck(passed=bool(wrong), sentence=words, sources=Sources(exits=broken))


def lookup_failures(scene: EvidenceContext) -> SignatureCheck:
    """Look for places that the root calls and does not reach, most of them, while the root itself is reached."""
    links = real_links(scene)
    real = links.calls_of(pl.col("caller_service") == scene.root).join(links.kinds.select("kind", "peer"), on="kind")
    hostname = scene.fault.parameters.get("hostname")
    out = real.filter(pl.col("peer") == hostname) if hostname and hostname in set(real.get_column("peer")) else real
    broken = beyond(scene, out, pl.col("failed") & (pl.col("absent") | pl.col("store")), "peer")
    now = out.filter(pl.col("period") == "abnormal").drop_nulls("peer")
    used, bad = now["peer"].n_unique(), now.filter(pl.col("exit").is_in(list(broken)))["peer"].n_unique()
    words = f"{scene.root} does not reach {bad} of the {used} places that it calls"
    passed = bool(broken) and bad >= scene.thresholds.signature.link_share * used and not absence(scene).sources.exits
    if passed and not hostname:
        alone, rival = who_breaks(scene, "outbound")
        passed = alone and (rival is None or kept_running(scene.metrics, rival))
    return SignatureCheck(passed=passed, sentence=words, sources=Sources(exits=broken) if passed else Sources())
