"""From the signal that gave a service away to a claim: the fault kind that it stands for, its SQL, the cascade."""

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
"""The first part of a metric's name that fits decides (after Table 6)."""

KINDS = (FaultKind.POD_UNAVAILABLE, *dict.fromkeys(kind for _, kind in _KIND_OF_METRIC))
"""The kinds that `kind_of` can give; a method that uses it cannot name another."""

KIND_PROTOCOL = (
    "by the signal: failed spans or error logs http_aborted, durations http_slow, fewer spans pod_unavailable, "
    "metrics by their name; more spans none"
)
"""What a method that uses `kind_of` states in its protocol."""


def kind_of(signal: str, direction: float) -> FaultKind | None:
    """Return the fault kind that a rise or fall of *signal* indicates, None if it indicates none.

    *direction* is below 0 when the reading fell.
    """
    if signal.startswith(METRIC):
        return next((kind for part, kind in _KIND_OF_METRIC if part in signal.lower()), None)
    if signal == "spans_per_s":
        return FaultKind.POD_UNAVAILABLE if direction < 0 else None
    return FaultKind.HTTP_SLOW if signal.startswith("latency") else FaultKind.HTTP_ABORTED


def evidence_of(service: str, signal: str) -> Evidence:
    """Return the SQL that shows *signal* of *service* in both periods."""
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
    """Return a diagnosis that blames the top of *ranking* with *signal* as evidence; no root cause without *signal*.

    *direction* is below 0 when the signal fell; *protocol* is from `base.stated`.
    *note*, if not empty, becomes a note of the diagnosis.
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
