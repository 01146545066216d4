"""The fault kind's own signature at its root: one table from kind to what must be seen there, and what it sends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from assay.causes.evidence import Evidence, Scene, Sources
from assay.causes.evidence_failures import (
    absence,
    killed,
    link_errors,
    lookup_failures,
    own_errors,
    store_errors,
    turned_away,
    unconsumed,
)
from assay.causes.evidence_signs import cpu_raised, gc_raised, memory_raised, payload_changed, way_changed
from assay.causes.evidence_time import clock_shift, inbound_gap, link_gap, own_time, starved_time, store_time
from assay.model.faults import FaultKind

Check = Callable[[Scene], Evidence]


@dataclass(frozen=True)
class KindRule:
    """*shows*: any of these is the signature; *sends*: what of it may enter the traffic; *reason*: the root's state."""

    shows: tuple[Check, ...]
    sends: tuple[Check, ...]
    component: str
    reason: str


@dataclass(frozen=True, eq=False)
class Signature:
    """Whether the fault shows at its place, in which words, and where it enters the traffic."""

    seen: bool
    sentence: str
    component: str
    reason: str
    sources: Sources


_LINKS = KindRule((link_gap, link_errors), (link_gap, link_errors), "service", "inj_affected")
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
        FaultKind.HTTP_SLOW: KindRule((own_time, inbound_gap), (own_time, inbound_gap), "service", "lat"),
        FaultKind.HTTP_PAYLOAD_MODIFIED: _PAYLOAD,
        FaultKind.HTTP_RESPONSE_STATUS_MODIFIED: KindRule((own_errors,), (own_errors,), "service", "err"),
        FaultKind.CPU_STRESS: _CPU,
        FaultKind.MEM_STRESS: _MEMORY,
        FaultKind.JVM_THREAD_CPU_STRESS: _CPU,
        FaultKind.JVM_HEAP_STRESS: _MEMORY,
        FaultKind.JVM_GC_PRESSURE: KindRule((gc_raised,), _STARVED, "container", "cpu"),
        FaultKind.JVM_METHOD_EXCEPTION: KindRule((own_errors, way_changed), (own_errors,), "service", "err"),
        FaultKind.JVM_JDBC_EXCEPTION: KindRule((store_errors,), (store_errors,), "service", "err"),
        FaultKind.JVM_METHOD_LATENCY: KindRule((own_time,), (own_time,), "service", "lat"),
        FaultKind.JVM_JDBC_LATENCY: KindRule((store_time,), (store_time,), "service", "lat"),
        FaultKind.JVM_METHOD_MUTATED: KindRule(
            (payload_changed, own_errors, way_changed), (payload_changed, own_errors), "service", "err"
        ),
        FaultKind.DNS_RESOLUTION_FAILED: KindRule((lookup_failures,), (lookup_failures,), "service", "err"),
        FaultKind.DNS_RESOLUTION_WRONG: KindRule((lookup_failures,), (lookup_failures,), "service", "err"),
        FaultKind.CLOCK_SKEW: KindRule((clock_shift,), (own_errors, own_time), "service", "inj_affected"),
    }
)
"""Every kind of Table 6; a kind without a row here could never be attributed, and a test says so."""


def check_signature(kind: FaultKind, scene: Scene) -> Signature:
    """Return the signature of *kind* at the root of *scene*."""
    rule = SIGNATURES[kind]
    shown = [check(scene) for check in rule.shows]
    seen = any(e.passed for e in shown)
    sentence = "; ".join(e.sentence for e in shown if e.passed) or "; ".join(e.sentence for e in shown)
    sent = {check: check(scene) for check in rule.sends} if seen else {}
    sources = Sources.merged([e.sources for e in sent.values() if e.passed])
    return Signature(seen, sentence, f"{rule.component}|{scene.root}", rule.reason, sources)
