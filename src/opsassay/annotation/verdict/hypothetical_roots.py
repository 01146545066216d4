"""Wrong roots: every fault that could be at a place, said of a place where it was not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.verdict.annotate import Opened, annotate_seen
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.schema.faults import CATALOGUE, Category, FaultKind
from opsassay.core.schema.incident import Fault, Label

_NEEDS_STORES = frozenset({FaultKind.JVM_JDBC_EXCEPTION, FaultKind.JVM_JDBC_LATENCY})


@dataclass(frozen=True)
class HypotheticalRoot:
    """What annotate says of a fault of *type* at *service*: its label, and whether its signature was seen there."""

    service: str
    type: str
    label: Label
    shown: bool


def possible_types(calls: Calls, service: str) -> tuple[str, ...]:
    """Return one fault type of the catalogue per observable kind that may be at *service*, as its calls show it.

    Faults of stores need calls to stores, faults of name look-ups any calls. Types of one kind have one signature.
    """
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
    """Yield what annotate says of *true* at each of *roots*, as its own type and as every other that may be there.

    Nothing of the record of *true* goes along but its times and parameters: neither peer, pod nor host.
    """
    seen = opened.since(true.start_ns, settings)
    for root in roots:
        for type_ in dict.fromkeys([true.type, *possible_types(opened.calls, root)]):
            own = true.parameters if type_ == true.type else {}
            moved = {"type": type_, "service": root, "parameters": own, "peer": None, "pod": None, "host": None}
            found = annotate_seen(opened, seen, [true.model_copy(update=moved)], settings=settings)
            yield HypotheticalRoot(root, type_, found.label, any(verdict.shown for verdict in found.faults))
