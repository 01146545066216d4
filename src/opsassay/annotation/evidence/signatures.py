"""The fault kind's own signature at its root: one table from kind to what must be seen there, and what it sends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

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
from opsassay.annotation.evidence.signature_checks import (
    cpu_raised,
    gc_raised,
    host_cpu_raised,
    memory_raised,
    payload_changed,
    way_changed,
)
from opsassay.annotation.evidence.structure import calls_skipped
from opsassay.annotation.evidence.times import clock_shift, own_time, starved_time, store_time
from opsassay.core.schema.faults import FaultKind

Check = Callable[[EvidenceContext], SignatureCheck]


@dataclass(frozen=True)
class KindRule:
    """*shows*: any of these is the signature; *sends*: what of it may enter the traffic; *reason*: the root's state."""

    shows: tuple[Check, ...]
    sends: tuple[Check, ...]
    component: str
    reason: str


@dataclass(frozen=True, eq=False)
class Signature:
    """Whether the fault shows at its place, in which words, and where it enters the traffic.

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


def check_signature(kind: FaultKind, scene: EvidenceContext) -> Signature:
    """Return the signature of *kind* at the root of *scene*."""
    rule = SIGNATURES[kind]
    shown = {check: check(scene) for check in rule.shows}
    seen = any(e.passed for e in shown.values())
    words = [e.sentence for e in shown.values() if e.passed] or [e.sentence for e in shown.values()]
    sent = [shown[check] if check in shown else check(scene) for check in rule.sends] if seen else []
    sources = Sources.merged([e.sources for e in sent if e.passed])
    direction = next((e.direction for e in sent if e.passed and e.direction), None) if rule is _LINKS else None
    component = f"{rule.component}|{scene.root}"
    return Signature(seen, "; ".join(words), component, rule.reason, sources, direction=direction)


_HOST_METRICS: Mapping[FaultKind, Check] = MappingProxyType({FaultKind.CPU_STRESS: host_cpu_raised})
"""Kinds that a host shows in metrics of its own."""


def check_host(kind: FaultKind, whole: EvidenceContext, each: Sequence[EvidenceContext]) -> Signature:
    """Return the signature of *kind* at a host: *whole* is the scene with its services as one, *each* with one of them.

    On links the host is one end. Anything else shows at its services, or in a metric of the host itself; what enters the
    traffic enters it at them.
    """
    rule, root = SIGNATURES[kind], f"node|{whole.root}"
    parts = tuple(f"{rule.component}|{scene.root}" for scene in each)
    if rule is _LINKS:
        found = check_signature(kind, whole)
        return replace(found, component=root, parts=parts)
    checked = [check_signature(kind, scene) for scene in each]
    own = _HOST_METRICS[kind](whole) if kind in _HOST_METRICS else None
    if own is not None and own.passed:
        sent = [check(scene) for scene in each for check in rule.sends]
        sources = Sources.united(e.sources for e in sent if e.passed)
        return Signature(
            seen=True, sentence=own.sentence, component=root, reason=rule.reason, sources=sources, parts=parts
        )
    shown = [signature for signature in checked if signature.seen]
    parts = tuple(signature.component for signature in shown)
    words = (
        "; ".join(signature.sentence for signature in shown or checked) or f"nothing of {whole.root} is in the traces"
    )
    return Signature(bool(shown), words, root, rule.reason, Sources.united(s.sources for s in shown), parts)
