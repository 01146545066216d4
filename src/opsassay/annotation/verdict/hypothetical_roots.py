"""Tests of wrong roots: every possible fault at a place where none was, and placebo faults where nothing was broken.

Also infers the kind of a fault whose place is known, from the telemetry of that place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from opsassay.annotation.evidence.signatures import SIGNATURES
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.verdict.annotate import Opened, annotate_seen
from opsassay.annotation.verdict.hypothesis_test import ObservedPack
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.errors import UserError
from opsassay.core.schema.faults import CATALOGUE, NO_FAULT, Category, FaultKind, fault_type
from opsassay.core.schema.incident import Fault, Label, Truth, Window
from opsassay.telemetry.datapack import Datapack

_NEEDS_STORES = frozenset({FaultKind.JVM_JDBC_EXCEPTION, FaultKind.JVM_JDBC_LATENCY})


@dataclass(frozen=True)
class HypotheticalRoot:
    """The result of annotating a fault of *type* at *service*: its label, and whether its signature showed there."""

    service: str
    type: str
    label: Label
    shown: bool


def possible_types(calls: Calls, service: str) -> tuple[str, ...]:
    """Return one fault type per observable kind that *service* can have (DNS faults need calls, JDBC faults stores)."""
    out = calls.exits.filter(pl.col("caller_service") == service)
    stores, calls_out = bool(out.get_column("store").any()), out.height > 0
    first: dict[FaultKind, str] = {}
    for row in CATALOGUE.values():
        if (row.kind in _NEEDS_STORES and not stores) or (row.category is Category.DNS and not calls_out):
            continue
        first.setdefault(row.kind, row.name)
    return tuple(first.values())


def pretend(
    opened: Opened, true: Fault, settings: AnnotateSettings, roots: Iterable[str]
) -> Iterator[HypotheticalRoot]:
    """Yield the result of annotating as if the fault *true* were at each of *roots*, with its own and each possible type.

    Only the times of *true* are used, and for its own type its parameters: neither peer, pod nor host.
    """
    seen = opened.since(true.start_ns, settings)
    for root in roots:
        for type_ in dict.fromkeys([true.type, *possible_types(opened.calls, root)]):
            own = true.parameters if type_ == true.type else {}
            moved = {"type": type_, "service": root, "parameters": own, "peer": None, "pod": None, "host": None}
            found = annotate_seen(opened, seen, [true.model_copy(update=moved)], settings=settings)
            yield HypotheticalRoot(root, type_, found.label, any(verdict.shown for verdict in found.faults))


@dataclass(frozen=True, eq=False)
class Halves(Datapack):
    """The normal window of a datapack as an incident: its first half as normal, its second as abnormal."""

    def scan(self, period: str, modality: str) -> pl.LazyFrame:
        """Return the first half of the normal table for *period* normal, the second half for abnormal."""
        at = pl.col("time").dt.epoch("ns")
        early = at < self.incident.normal.end_ns
        return super().scan("normal", modality).filter(early if period == "normal" else ~early)


def halves(pack: Datapack) -> Halves:
    """Return the normal window of *pack* as an incident of two halves; UserError when it is shorter than 4 seconds."""
    whole = pack.incident.normal
    if whole.seconds < 4:
        raise UserError(f"{pack.path}: the normal window of {whole.seconds:.1f} s is too short to be halved.")
    middle = (whole.start_ns + whole.end_ns) // 2
    windows = {
        "normal": Window(start_ns=whole.start_ns, end_ns=middle),
        "abnormal": Window(start_ns=middle, end_ns=whole.end_ns),
    }
    incident = pack.incident.model_copy(update={**windows, "alerts": ()})
    return Halves(path=pack.path, incident=incident, env=pack.env)


def sham(pack: Datapack, truth: Truth | None, type_: str, service: str) -> tuple[Datapack, Fault]:
    """Return (a fault-free recording, a placebo fault of *type_* at *service*) to annotate as if it had been injected.

    A no-fault incident is taken as it is; of any other the normal window is halved, and the pretended fault begins with
    the second half. Raises NotFoundError for an unknown type, UserError for a normal window that is too short to be
    halved.
    """
    nothing = truth is not None and all(f.type == NO_FAULT for f in truth.faults)
    calm = pack if nothing else halves(pack)
    window = calm.incident.abnormal
    return calm, Fault(type=fault_type(type_).name, service=service, start_ns=window.start_ns, end_ns=window.end_ns)


_CARRIED, _SHOWN, _UNSEEN = "carried", "shown", "unseen"
_IF_TRUE = {_CARRIED: 0.7, _SHOWN: 0.2, _UNSEEN: 0.1}
"""How often a fault that did happen is carried to the surface, shows only at its place, or neither."""
_NAMED = 3
"""How many alternative kinds the sentence names."""


@dataclass(frozen=True)
class InferredKind:
    """The most likely *fault* at a root, None when no kind shows, and a *sentence* that says how likely it is."""

    fault: Fault | None
    sentence: str


def infer_kind(opened: Opened, observed: ObservedPack, service: str, settings: AnnotateSettings) -> InferredKind:
    """Return the kind of fault at *service* that best explains *observed*, the data since the fault began.

    The score of a kind is how often its outcome at *service* (explains alarms, shows, or neither) comes with such a
    fault, over how often it comes at the other services of this recording (with half a case more), as a share of the
    sum over all possible kinds. Kinds with the same signature count as one.
    """
    window = opened.pack.incident.abnormal
    others = [name for name in opened.pack.services() if name != service]

    def outcome(type_: str, place: str) -> str:
        """Annotate as if *type_* had been injected at *place*; return if it explains alarms, shows, or neither."""
        fault = Fault(type=type_, service=place, start_ns=window.start_ns, end_ns=window.end_ns)
        found = annotate_seen(opened, observed, [fault], settings=settings)
        shown = any(verdict.shown for verdict in found.faults)
        return _CARRIED if found.label is Label.ATTRIBUTED else _SHOWN if shown else _UNSEEN

    by_signature: dict[int, list[str]] = {}
    for type_ in possible_types(opened.calls, service):
        by_signature.setdefault(id(SIGNATURES[fault_type(type_).kind]), []).append(type_)
    odds: dict[tuple[str, ...], float] = {}
    best: list[tuple[float, str]] = []
    for types in by_signature.values():
        here = outcome(types[0], service)
        elsewhere = [outcome(types[0], place) for place in others] if here != _UNSEEN else [_UNSEEN] * len(others)
        odds[tuple(types)] = _IF_TRUE[here] * (len(others) + 1) / (elsewhere.count(here) + 0.5)
        best += [(odds[tuple(types)], types[0])] if here != _UNSEEN else []
    if not best:
        return InferredKind(None, f"no kind of fault shows at {service}")
    ranked = sorted(odds.items(), key=lambda each: -each[1])
    shares = [f"{_join_kinds(types)} {value / sum(odds.values()):.0%}" for types, value in ranked[: 1 + _NAMED]]
    type_ = max(best, key=lambda each: each[0])[1]
    fault = Fault(type=type_, service=service, start_ns=window.start_ns, end_ns=window.end_ns)
    sentence = f"The kind of fault of {service} is not stated; it is inferred, by likelihood: {', '.join(shares)}."
    return InferredKind(fault, sentence)


def _join_kinds(types: Sequence[str]) -> str:
    """Return the kinds of the fault *types* as text, joined by "or"."""
    return " or ".join(fault_type(type_).kind.value for type_ in types)
