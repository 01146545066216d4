"""The claim that follows from a service's outlying signal: fault kind, SQL evidence, propagation."""

from __future__ import annotations

from typing import Any

from opsassay.core.schema.diagnosis import Diagnosis, Evidence, RankedService, RootCauseClaim
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.methods import evidence
from opsassay.solvers.methods.propagation import propagation
from opsassay.solvers.methods.signals import METRIC
from opsassay.telemetry.datapack import Datapack

_KIND_OF_METRIC: tuple[tuple[str, FaultKind], ...] = (
    ("jvm.gc", FaultKind.JVM_GC_PRESSURE),
    ("jvm.mem", FaultKind.JVM_HEAP_STRESS),
    ("jvm.cpu", FaultKind.JVM_THREAD_CPU_STRESS),
    ("cpu", FaultKind.CPU_STRESS),
    ("memory", FaultKind.MEM_STRESS),
    ("network", FaultKind.NETWORK_LOSS),
    ("latency", FaultKind.HTTP_SLOW),
    ("error", FaultKind.HTTP_ABORTED),
    ("fault", FaultKind.HTTP_ABORTED),
)
"""The first entry whose text is part of a metric's name gives the fault kind (after Table 6)."""

KINDS = (FaultKind.POD_UNAVAILABLE, *dict.fromkeys(kind for _, kind in _KIND_OF_METRIC))
"""The fault kinds that `kind_of` can return."""

KIND_PROTOCOL = (
    "by the signal: failed spans or error logs http_aborted, durations http_slow, fewer spans pod_unavailable, "
    "metrics by their name; more spans none"
)
"""The entry ``fault_kind`` in the protocol of a method that uses `kind_of`."""


def kind_of(signal: str, direction: float) -> FaultKind | None:
    """Return the fault kind that a change of *signal* indicates, None for none; *direction* is below 0 for a fall."""
    if signal.startswith(METRIC):
        return next((kind for part, kind in _KIND_OF_METRIC if part in signal.lower()), None)
    if signal == "spans_per_s":
        return FaultKind.POD_UNAVAILABLE if direction < 0 else None
    return FaultKind.HTTP_SLOW if signal.startswith("latency") else FaultKind.HTTP_ABORTED


def evidence_of(service: str, signal: str) -> Evidence:
    """Return evidence: the SQL that compares *signal* of *service* between both periods."""
    if signal.startswith(METRIC):
        return evidence.gauge(service, signal.removeprefix(METRIC))
    backing = {
        "spans_per_s": evidence.span_count,
        "failed_spans_per_s": evidence.error_spans,
        "error_logs_per_s": evidence.error_logs,
    }
    return backing.get(signal, evidence.latency)(service)


def claim_of_signal(
    view: Datapack,
    ranking: tuple[RankedService, ...],
    signal: str | None,
    direction: float,
    protocol: dict[str, Any],
    note: str = "",
) -> Diagnosis:
    """Return a diagnosis that blames the top of *ranking* with *signal* as evidence; without root cause if it is None.

    *direction* is below 0 when the signal fell; *protocol* is from `base.stated`; *note*, unless empty, becomes its note.
    """
    if signal is None or not ranking:
        return Diagnosis(ranking=ranking, protocol=protocol)
    service = ranking[0].service
    claim = RootCauseClaim(
        service=service, fault_kind=kind_of(signal, direction), evidence=(evidence_of(service, signal),)
    )
    return Diagnosis(
        root_causes=(claim,),
        propagation=propagation(view, service),
        ranking=ranking,
        protocol=protocol,
        notes=(note,) if note else (),
    )
