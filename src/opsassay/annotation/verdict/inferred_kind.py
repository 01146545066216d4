"""The kind of a fault whose place is stated and whose kind is not: inferred from the signs at that place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsassay.annotation.evidence.signatures import SIGNATURES
from opsassay.annotation.verdict.annotate import Opened, annotate_seen
from opsassay.annotation.verdict.hypothesis_test import ObservedPack
from opsassay.annotation.verdict.hypothetical_roots import possible_types
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.schema.faults import fault_type
from opsassay.core.schema.incident import Fault, Label

_CARRIED, _SHOWN, _UNSEEN = "carried", "shown", "unseen"
_IF_TRUE = {_CARRIED: 0.7, _SHOWN: 0.2, _UNSEEN: 0.1}
"""How often a fault of a kind that there was is carried to the surface, shown at its place alone, or neither."""
_NAMED = 3
"""How many other kinds are named."""


@dataclass(frozen=True)
class InferredKind:
    """What a root shows: the most likely *fault*, None when no kind shows, and *sentence*, which says how likely."""

    fault: Fault | None
    sentence: str


def infer_kind(opened: Opened, seen: ObservedPack, service: str, settings: AnnotateSettings) -> InferredKind:
    """Return the kind of fault at *service* that explains best what is *seen*.

    The likelihood of a kind is how often such a fault is carried, shown or unseen where it was, over how often its
    signature is at the other services of the same recording (with half a case more), as a share of that of all kinds
    that may be there. Kinds of one signature count as one.
    """
    window = opened.pack.incident.abnormal
    others = [name for name in opened.pack.services() if name != service]

    def outcome(type_: str, place: str) -> str:
        fault = Fault(type=type_, service=place, start_ns=window.start_ns, end_ns=window.end_ns)
        found = annotate_seen(opened, seen, [fault], settings=settings)
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
    shares = [f"{_names(types)} {value / sum(odds.values()):.0%}" for types, value in ranked[: 1 + _NAMED]]
    type_ = max(best, key=lambda each: each[0])[1]
    fault = Fault(type=type_, service=service, start_ns=window.start_ns, end_ns=window.end_ns)
    sentence = f"The kind of fault of {service} is not stated; it is inferred, by likelihood: {', '.join(shares)}."
    return InferredKind(fault, sentence)


def _names(types: Sequence[str]) -> str:
    return " or ".join(fault_type(type_).kind.value for type_ in types)
