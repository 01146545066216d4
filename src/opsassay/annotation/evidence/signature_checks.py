"""Other signs of a fault at its place: log lines, answers, processor, memory, garbage collection."""

from __future__ import annotations

import polars as pl

from opsassay.annotation.evidence.context import EvidenceContext, SignatureCheck, Sources
from opsassay.annotation.evidence.metrics import host_raised, raised
from opsassay.annotation.evidence.times import starved_time


def way_changed(scene: EvidenceContext) -> SignatureCheck:
    """Look for a statement of the root after which its code no longer goes on as it always did.

    This shows a changed method, and nothing of it enters the traffic: only what its callers suffer could.
    """
    broken = scene.statements.broken(scene.root)
    if broken is None:
        return SignatureCheck(passed=False, sentence=f"{scene.root} logs as before")
    words = (
        f"after {_quoted(broken.statement)} {scene.root} logs {_quoted(broken.usual)} in {broken.now:.0%} of its spans"
    )
    return SignatureCheck(passed=True, sentence=f"{words}, before in {broken.before:.0%}")


def _quoted(text: str) -> str:
    return text if text.startswith("(") else repr(text.strip()[:60])


def payload_changed(scene: EvidenceContext) -> SignatureCheck:
    """Look for answers of a size that the baseline never had: most of an operation's that did not fail."""
    sized = scene.own.filter(pl.col("response_bytes").is_not_null() & ~pl.col("failed"))
    before = sized.filter(pl.col("period") == "normal").group_by("node")
    known = before.agg(n=pl.len(), low=pl.col("response_bytes").min(), high=pl.col("response_bytes").max())
    now = sized.filter(pl.col("period") == "abnormal").join(known.filter(pl.col("n") >= 5), on="node", how="inner")
    odd = now.filter((pl.col("response_bytes") < pl.col("low")) | (pl.col("response_bytes") > pl.col("high")))
    share = odd.group_by("node").len("odd").join(now.group_by("node").len("all"), on="node")
    nodes = sorted(share.filter((pl.col("odd") >= 5) & (pl.col("odd") * 2 > pl.col("all"))).get_column("node"))
    entries = frozenset(odd.filter(pl.col("node").is_in(nodes)).get_column("entry"))
    words = f"answers of {', '.join(nodes)} changed size" if nodes else f"answers of {scene.root} look as before"
    return SignatureCheck(passed=bool(nodes), sentence=words, sources=Sources(entries=entries))


def _growth(scene: EvidenceContext) -> float:
    """Return how many times as many calls as before the root serves, at least 1: work that came is no stress."""
    served = dict(scene.own.group_by("period").len().iter_rows())
    rates = [served.get(period, 0) / scene.calls.seconds(period) for period in ("abnormal", "normal")]
    return max(rates[0] / rates[1], 1.0) if rates[1] else 1.0


def cpu_raised(scene: EvidenceContext) -> SignatureCheck:
    """Look for a rise in processor use, among the largest of the system.

    Few readings leave it uncertain; a processor at its limit whose service answers late is a sign as well.
    """
    found = raised(scene.metrics, scene.root, "cpu", scene.thresholds.resources, _growth(scene))
    late = starved_time(scene) if found.used_up and not found.passed else None
    if late is not None and late.passed:
        words = f"{found.sentence}, all that it may use, and {late.sentence}"
        return SignatureCheck(passed=True, sentence=words)
    return SignatureCheck(passed=found.passed, sentence=found.sentence)


def host_cpu_raised(scene: EvidenceContext) -> SignatureCheck:
    """Look for a rise in the processor use of the host itself."""
    found = host_raised(scene.metrics, scene.root, scene.thresholds.resources)
    return SignatureCheck(passed=found.passed, sentence=found.sentence)


def memory_raised(scene: EvidenceContext) -> SignatureCheck:
    """Look for a rise in memory, among the largest of the system."""
    found = raised(scene.metrics, scene.root, "memory", scene.thresholds.resources)
    return SignatureCheck(passed=found.passed, sentence=found.sentence)


def gc_raised(scene: EvidenceContext) -> SignatureCheck:
    """Look for a garbage collector that works more than twice as long per second.

    And by more than 0.01 s per second, by the sums of histograms (s) whose name has "gc" in it.
    """
    rows = scene.histograms.filter(
        pl.col("metric").str.contains("gc", literal=True)
        & (pl.col("service_name") == scene.root)
        & pl.col("sum").is_finite()
    )
    total = dict(rows.group_by("period").agg(pl.col("sum").max() - pl.col("sum").min()).iter_rows())
    now = (total.get("abnormal") or 0.0) / scene.calls.seconds("abnormal")
    before = (total.get("normal") or 0.0) / scene.calls.seconds("normal")
    words = f"garbage collection of {scene.root} takes {now:.3f} s per second, {before:.3f} before"
    return SignatureCheck(passed=now > 2 * before and now - before > 0.01, sentence=words)
