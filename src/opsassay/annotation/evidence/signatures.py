"""The signature of each kind of fault: the checks that must pass at its root, and those that measure its effect on traffic.

Also the checks of log lines, answers, CPU, memory and garbage collection, and of requests that end without their usual
calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import polars as pl

from opsassay.annotation.evidence.context import EvidenceContext, SignatureCheck, Sources
from opsassay.annotation.evidence.directions import inbound_wait, link_fault
from opsassay.annotation.evidence.failures import (
    absence,
    killed,
    lookup_failures,
    misdirected,
    own_errors,
    store_errors,
    turned_away,
    unconsumed,
)
from opsassay.annotation.evidence.metrics import host_raised, raised
from opsassay.annotation.evidence.times import clock_shift, own_time, starved_time, store_time
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.tails import beta_binomial_at_least, binomial_at_most
from opsassay.core.schema.faults import FaultKind

_NORMAL = pl.col("period") == "normal"
MORE, AS_MANY, FEWER = 0.1, 0.75, 0.9
"""Limits of `calls_skipped`: least growth of the bare share; least rate of all spans, and most of the others, to usual."""
OTHER_TIME = 2.0
"""A span that skips its calls takes this many times as long or as short; one whose child spans were lost does not."""


def calls_skipped(context: EvidenceContext) -> SignatureCheck:
    """Check whether spans of the root end without the calls, or inner spans, that their operation always had.

    No service below can be the cause, since it was not called. Of an operation k0 of n0 spans were bare before (see
    `find_bare`), and k of n are now. The check passes when k is beyond a beta-binomial forecast, corrected for the
    number of operations, whose prior is how often spans are bare at other services (lost or unsampled spans are missing
    everywhere); when bare spans take another time than others; and when there were none before, or they replaced others
    and were not added to them, as another mix of requests would. It fails for a service whose calls fail, or show at
    their callees alone.
    """
    nodes = _lacking_operations(context.calls)
    limits = context.thresholds.statements
    more = _sum_share("k", "n") - _sum_share("k0", "n0")
    elsewhere = dict(nodes.group_by("service").agg(more=more).iter_rows())
    others = [elsewhere.get(service, 0.0) for service in context.calls.services if service != context.root]
    rate = max(float(np.median(others or [0.0])), limits.least_rate)
    tried = max(nodes.height, context.calls.entries.get_column("node").n_unique())
    mine = nodes.filter(pl.col("service") == context.root)
    n0, k0, n, k = (mine.get_column(name).to_numpy().astype(float) for name in ("n0", "k0", "n", "k"))
    chance = beta_binomial_at_least(k, n, k0 + limits.prior_spans * rate, n0 - k0 + limits.prior_spans * (1 - rate))
    longer = _traffic_ratio(context.calls)
    fewer = binomial_at_most(n - k, n - k + n0 - k0, longer / (1 + longer)) < context.thresholds.chance
    replaced = (k0 == 0) | (fewer & (n >= AS_MANY * n0 * longer) & (n - k < FEWER * (n0 - k0) * longer))
    ratio = pl.col("bare_ms") / pl.col("usual_ms")
    found = mine.filter(
        pl.Series((chance * tried < limits.chance) & (k / n - k0 / n0 > MORE) & replaced, dtype=pl.Boolean)
        & ((ratio > OTHER_TIME) | (ratio * OTHER_TIME < 1))
    )
    if not found.height or _blames_others(context):
        return SignatureCheck(passed=False, sentence=f"requests of {context.root} make the calls that they did")
    now = context.calls.bare.filter(~_NORMAL & pl.col("bare"))
    skipped = now.join(found, on=["service", "operation"], how="semi").get_column("entry")
    worst = found.sort(pl.col("k") / pl.col("n"), descending=True).row(0, named=True)
    what = f"{context.root}::{worst['operation']}"
    words = f"{worst['k'] / worst['n']:.0%} of {what} lack what they usually do, before {worst['k0'] / worst['n0']:.0%}"
    return SignatureCheck(passed=True, sentence=words, sources=Sources(entries=frozenset(skipped)))


def _traffic_ratio(calls: Calls) -> float:
    """Return how many calls to expect in the abnormal window for each one in the normal window.

    It is the lower of the ratios of the windows' lengths and of users' requests: users may have stopped, and quick
    requests of another kind may have come in addition.
    """
    surface = dict(calls.entries.filter("surface").group_by("period").len().iter_rows())
    now, before = (surface.get(period, 0) for period in ("abnormal", "normal"))
    longer = calls.seconds("abnormal") / calls.seconds("normal")
    return min(now / before, longer) if min(now, before) >= 20 else longer


def _sum_share(part: str, total: str) -> pl.Expr:
    """Return the expression: the sum of column *part* divided by the sum of column *total*."""
    return pl.col(part).sum() / pl.col(total).sum()


def _lacking_operations(calls: Calls) -> pl.DataFrame:
    """Return operations that rarely lacked calls before: n0, k0 (spans, lacking ones), n, k now, usual_ms, bare_ms."""
    bare, ms = pl.col("bare"), (pl.col("end_ns") - pl.col("time_ns")) / 1e6
    return (
        calls.bare.group_by("service", "operation")
        .agg(
            n0=_NORMAL.sum(),
            k0=(_NORMAL & bare).sum(),
            n=(~_NORMAL).sum(),
            k=(~_NORMAL & bare).sum(),
            usual_ms=ms.filter(_NORMAL & ~bare).median(),
            bare_ms=ms.filter(~_NORMAL & bare).median(),
        )
        .filter((pl.col("n") > 0) & (pl.col("k0") * 2 < pl.col("n0")))
        .sort("service", "operation")
    )


def _blames_others(context: EvidenceContext) -> bool:
    """Return whether the root's calls fail more than in the baseline, or most of its calls lacked client spans before."""
    failed = dict(context.outbound.group_by("period").agg(pl.col("failed").mean()).iter_rows())
    virtual = context.outbound.filter(_NORMAL).get_column("virtual").mean()
    worse = (failed.get("abnormal") or 0.0) - (failed.get("normal") or 0.0)
    return worse > context.thresholds.error_share or float(virtual or 0.0) > 0.5  # type: ignore[arg-type]


def way_changed(context: EvidenceContext) -> SignatureCheck:
    """Check whether the root no longer writes the log line that usually follows one of its log lines."""
    broken = context.statements.broken(context.root)
    if broken is None:
        return SignatureCheck(passed=False, sentence=f"{context.root} logs as before")
    words = f"after {_quote_statement(broken.statement)} {context.root} logs {_quote_statement(broken.usual)}"
    shares = f"in {broken.now:.0%} of its spans, before in {broken.before:.0%}"
    return SignatureCheck(passed=True, sentence=f"{words} {shares}")


def _quote_statement(text: str) -> str:
    """Return the first 60 characters of *text*, a log statement, in quotes; text that begins with "(" as it is."""
    return text if text.startswith("(") else repr(text.strip()[:60])


def payload_changed(context: EvidenceContext) -> SignatureCheck:
    """Check whether most successful answers of an operation have sizes outside those of the baseline."""
    sized = context.own.filter(pl.col("response_bytes").is_not_null() & ~pl.col("failed"))
    before = sized.filter(pl.col("period") == "normal").group_by("node")
    known = before.agg(n=pl.len(), low=pl.col("response_bytes").min(), high=pl.col("response_bytes").max())
    now = sized.filter(pl.col("period") == "abnormal").join(known.filter(pl.col("n") >= 5), on="node", how="inner")
    odd = now.filter((pl.col("response_bytes") < pl.col("low")) | (pl.col("response_bytes") > pl.col("high")))
    share = odd.group_by("node").len("odd").join(now.group_by("node").len("all"), on="node")
    nodes = sorted(share.filter((pl.col("odd") >= 5) & (pl.col("odd") * 2 > pl.col("all"))).get_column("node"))
    entries = frozenset(odd.filter(pl.col("node").is_in(nodes)).get_column("entry"))
    words = f"answers of {', '.join(nodes)} changed size" if nodes else f"answers of {context.root} look as before"
    return SignatureCheck(passed=bool(nodes), sentence=words, sources=Sources(entries=entries))


def _call_growth(context: EvidenceContext) -> float:
    """Return how many times as many calls the root serves now as in the baseline, at least 1."""
    served = dict(context.own.group_by("period").len().iter_rows())
    rates = [served.get(period, 0) / context.calls.seconds(period) for period in ("abnormal", "normal")]
    return max(rates[0] / rates[1], 1.0) if rates[1] else 1.0


def cpu_raised(context: EvidenceContext) -> SignatureCheck:
    """Check whether the root's CPU use rose by about the most in the system, or is at its limit while calls starve."""
    found = raised(context.metrics, context.root, "cpu", context.thresholds.resources, _call_growth(context))
    late = starved_time(context) if found.used_up and not found.passed else None
    if late is not None and late.passed:
        words = f"{found.sentence}, all that it may use, and {late.sentence}"
        return SignatureCheck(passed=True, sentence=words)
    return SignatureCheck(passed=found.passed, sentence=found.sentence)


def host_cpu_raised(context: EvidenceContext) -> SignatureCheck:
    """Check whether the CPU use of the root, a host, rose by its own metrics."""
    found = host_raised(context.metrics, context.root, context.thresholds.resources)
    return SignatureCheck(passed=found.passed, sentence=found.sentence)


def memory_raised(context: EvidenceContext) -> SignatureCheck:
    """Check whether the root's memory use rose by about the most in the system."""
    found = raised(context.metrics, context.root, "memory", context.thresholds.resources)
    return SignatureCheck(passed=found.passed, sentence=found.sentence)


def gc_raised(context: EvidenceContext) -> SignatureCheck:
    """Check whether garbage collection takes more than twice as long per second, and 0.01 s per second more.

    By the sums of histograms (s) whose name has "gc" in it.
    """
    rows = context.histograms.filter(
        pl.col("metric").str.contains("gc", literal=True)
        & (pl.col("service_name") == context.root)
        & pl.col("sum").is_finite()
    )
    total = dict(rows.group_by("period").agg(pl.col("sum").max() - pl.col("sum").min()).iter_rows())
    now = (total.get("abnormal") or 0.0) / context.calls.seconds("abnormal")
    before = (total.get("normal") or 0.0) / context.calls.seconds("normal")
    words = f"garbage collection of {context.root} takes {now:.3f} s per second, {before:.3f} before"
    return SignatureCheck(passed=now > 2 * before and now - before > 0.01, sentence=words)


Check = Callable[[EvidenceContext], SignatureCheck]


@dataclass(frozen=True)
class KindRule:
    """For one kind of fault: checks that prove it (*shows*, any), checks of its effect on traffic (*sends*), root state."""

    shows: tuple[Check, ...]
    sends: tuple[Check, ...]
    component: str
    reason: str


@dataclass(frozen=True, eq=False)
class Signature:
    """Whether the fault was *seen* at its place, a sentence about that, and where it enters the traffic (*sources*).

    *component* is the root; when that is a host, *parts* are what it runs and the fault affected. *direction*: of a
    network fault, which calls of its place it touches.
    """

    seen: bool
    sentence: str
    component: str
    reason: str
    sources: Sources
    parts: tuple[str, ...] = ()
    direction: str | None = None


_LINKS = KindRule((link_fault,), (link_fault,), "service", "inj_affected")
_GONE = KindRule((killed,), (killed,), "container", "restart")
_STARVED = (starved_time, absence, own_errors)
_CPU = KindRule((cpu_raised,), _STARVED, "container", "cpu")
_MEMORY = KindRule((memory_raised,), _STARVED, "container", "mem")
_PAYLOAD = KindRule((payload_changed, own_errors), (payload_changed, own_errors), "service", "err")

SIGNATURES: Mapping[FaultKind, KindRule] = MappingProxyType(
    {
        FaultKind.POD_FAILURE: _GONE,
        FaultKind.POD_UNAVAILABLE: KindRule((absence, unconsumed), (absence, unconsumed), "service", "unavail"),
        FaultKind.NETWORK_DELAY: _LINKS,
        FaultKind.NETWORK_LOSS: _LINKS,
        FaultKind.NETWORK_PARTITION: _LINKS,
        FaultKind.NETWORK_CORRUPT: _LINKS,
        FaultKind.NETWORK_DUPLICATE: _LINKS,
        FaultKind.NETWORK_BANDWIDTH_LIMIT: _LINKS,
        FaultKind.HTTP_ABORTED: KindRule((own_errors, turned_away), (own_errors, turned_away), "service", "err"),
        FaultKind.HTTP_SLOW: KindRule((own_time, inbound_wait), (own_time, inbound_wait), "service", "lat"),
        FaultKind.HTTP_PAYLOAD_MODIFIED: _PAYLOAD,
        FaultKind.HTTP_RESPONSE_STATUS_MODIFIED: KindRule((own_errors,), (own_errors,), "service", "err"),
        FaultKind.CPU_STRESS: _CPU,
        FaultKind.MEM_STRESS: _MEMORY,
        FaultKind.JVM_THREAD_CPU_STRESS: _CPU,
        FaultKind.JVM_HEAP_STRESS: _MEMORY,
        FaultKind.JVM_GC_PRESSURE: KindRule((gc_raised,), _STARVED, "container", "cpu"),
        FaultKind.JVM_METHOD_EXCEPTION: KindRule(
            (own_errors, way_changed, calls_skipped), (own_errors, calls_skipped), "service", "err"
        ),
        FaultKind.JVM_JDBC_EXCEPTION: KindRule((store_errors,), (store_errors,), "service", "err"),
        FaultKind.JVM_METHOD_LATENCY: KindRule((own_time,), (own_time,), "service", "lat"),
        FaultKind.JVM_JDBC_LATENCY: KindRule((store_time,), (store_time,), "service", "lat"),
        FaultKind.JVM_METHOD_MUTATED: KindRule(
            (payload_changed, own_errors, way_changed, calls_skipped),
            (payload_changed, own_errors, calls_skipped),
            "service",
            "err",
        ),
        FaultKind.DNS_RESOLUTION_FAILED: KindRule((lookup_failures,), (lookup_failures,), "service", "err"),
        FaultKind.DNS_RESOLUTION_WRONG: KindRule(
            (misdirected, lookup_failures), (misdirected, lookup_failures), "service", "err"
        ),
        FaultKind.CLOCK_SKEW: KindRule((clock_shift,), (own_errors, own_time), "service", "inj_affected"),
    }
)
"""Every kind of Table 6; a kind without a row here could never be attributed, and a test says so."""


def check_signature(kind: FaultKind, context: EvidenceContext) -> Signature:
    """Return whether the telemetry shows a fault of *kind* at the root of *context*, with sentence and traffic sources."""
    rule = SIGNATURES[kind]
    shown = {check: check(context) for check in rule.shows}
    seen = any(e.passed for e in shown.values())
    words = [e.sentence for e in shown.values() if e.passed] or [e.sentence for e in shown.values()]
    sent = [shown[check] if check in shown else check(context) for check in rule.sends] if seen else []
    sources = Sources.merged([e.sources for e in sent if e.passed])
    direction = next((e.direction for e in sent if e.passed and e.direction), None) if rule is _LINKS else None
    component = f"{rule.component}|{context.root}"
    return Signature(seen, "; ".join(words), component, rule.reason, sources, direction=direction)


_HOST_METRICS: Mapping[FaultKind, Check] = MappingProxyType({FaultKind.CPU_STRESS: host_cpu_raised})
"""Kinds of faults that a host's own metrics show, with the check."""


def check_host(
    kind: FaultKind, host_context: EvidenceContext, service_contexts: Sequence[EvidenceContext]
) -> Signature:
    """Return the signature of a fault of *kind* at a host: seen when the host or any of its services shows it.

    A fault of links is checked with the host as one end of them. Any other is checked in the host's own metrics and at
    each of *service_contexts*, where its effect on the traffic is measured too.
    """
    rule, root = SIGNATURES[kind], f"node|{host_context.root}"
    parts = tuple(f"{rule.component}|{scene.root}" for scene in service_contexts)
    if rule is _LINKS:
        found = check_signature(kind, host_context)
        return replace(found, component=root, parts=parts)
    checked = [check_signature(kind, scene) for scene in service_contexts]
    own = _HOST_METRICS[kind](host_context) if kind in _HOST_METRICS else None
    if own is not None and own.passed:
        sent = [check(scene) for scene in service_contexts for check in rule.sends]
        sources = Sources.united(e.sources for e in sent if e.passed)
        return Signature(
            seen=True, sentence=own.sentence, component=root, reason=rule.reason, sources=sources, parts=parts
        )
    shown = [signature for signature in checked if signature.seen]
    parts = tuple(signature.component for signature in shown)
    words = (
        "; ".join(signature.sentence for signature in shown or checked)
        or f"nothing of {host_context.root} is in the traces"
    )
    return Signature(bool(shown), words, root, rule.reason, Sources.united(s.sources for s in shown), parts)
