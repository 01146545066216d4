"""Data that all signature checks read (`EvidenceContext`) and return (`SignatureCheck`), and helpers that they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from opsassay.annotation.evidence.states import beyond_chance
from opsassay.annotation.evidence.thresholds import Thresholds
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.log_templates import Statements
from opsassay.annotation.reading.spans import index_of, take_or_missing
from opsassay.core.schema.incident import Fault


@dataclass(frozen=True)
class Sources:
    """Where the fault enters the traffic: own time per call, time per call on a link, and calls that it failed itself.

    *own_ms*: node -> ms. *link_ms*: (caller node, peer) -> ms, a peer being a service or a store's operation.
    *entries* and *exits*: ids of those that the fault itself failed.
    """

    own_ms: dict[str, float] = field(default_factory=dict)
    link_ms: dict[tuple[str, str], float] = field(default_factory=dict)
    entries: frozenset[int] = frozenset()
    exits: frozenset[int] = frozenset()

    @staticmethod
    def merged(parts: Iterable[Sources]) -> Sources:
        """Return the sum of *parts*, of separate faults or effects: added times of one node or link are summed."""
        own: dict[str, float] = {}
        link: dict[tuple[str, str], float] = {}
        entries: frozenset[int] = frozenset()
        exits: frozenset[int] = frozenset()
        for part in parts:
            own |= {k: own.get(k, 0.0) + v for k, v in part.own_ms.items()}
            link |= {k: link.get(k, 0.0) + v for k, v in part.link_ms.items()}
            entries, exits = entries | part.entries, exits | part.exits
        return Sources(own, link, entries, exits)

    @staticmethod
    def united(parts: Iterable[Sources]) -> Sources:
        """Return the union of *parts*, one fault as each place saw it: of two times added to a node, the larger."""
        own: dict[str, float] = {}
        link: dict[tuple[str, str], float] = {}
        every = list(parts)
        for part in every:
            own |= {k: max(own.get(k, 0.0), v) for k, v in part.own_ms.items()}
            link |= {k: max(link.get(k, 0.0), v) for k, v in part.link_ms.items()}
        entries, exits = (
            frozenset[int]().union(*ids) for ids in ([p.entries for p in every], [p.exits for p in every])
        )
        return Sources(own, link, entries, exits)


@dataclass(frozen=True)
class SignatureCheck:
    """The outcome of one check: a *sentence* about the finding, and for a network fault the *direction* (else None)."""

    passed: bool
    sentence: str
    sources: Sources = field(default_factory=Sources)
    direction: str | None = None


@dataclass(frozen=True, eq=False)
class EvidenceContext:
    """The telemetry that a check of one suspected root reads: calls since the fault began, metrics, log statements.

    *root* is a service; or a host whose services are *members*, which together are one end of links.
    """

    calls: Calls
    metrics: pl.DataFrame
    histograms: pl.DataFrame
    root: str
    fault: Fault
    thresholds: Thresholds
    statements: Statements
    members: frozenset[str] = frozenset()

    @property
    def own(self) -> pl.DataFrame:
        """The requests that the root serves (rows of `Calls.entries`)."""
        return self.calls.entries.filter(pl.col("service") == self.root)

    @property
    def inbound(self) -> pl.DataFrame:
        """The synchronous calls of other services and load generators to the root (rows of `Calls.exits`)."""
        to_root = (pl.col("callee_service") == self.root) & (pl.col("caller_service") != self.root)
        return self.calls.exits.filter(to_root & ~pl.col("asynchronous"))

    @property
    def outbound(self) -> pl.DataFrame:
        """The calls of the root to other services and stores (rows of `Calls.exits`)."""
        return self.calls.exits.filter(pl.col("caller_service") == self.root)


def rose(table: pl.DataFrame, thresholds: Thresholds, *, backed: bool = False) -> pl.DataFrame:
    """Return the rows of *table*, from `added_time`, whose time rose significantly, by enough ms and by enough percent.

    With limits = thresholds.signature: z > limits.z (z_backed when *backed*: other evidence shows the fault already),
    added_ms > limits.added_ms, and added_ms > (limits.ratio - 1) * before_ms.
    """
    limits = thresholds.signature
    much = (pl.col("added_ms") > limits.added_ms) & (pl.col("added_ms") > (limits.ratio - 1) * pl.col("before_ms"))
    return table.filter((pl.col("z") > (limits.z_backed if backed else limits.z)) & much)


BROKEN = pl.col("failed") & (pl.col("absent") | pl.col("store") | pl.col("served_well"))


def with_outcome(context: EvidenceContext, exits: pl.DataFrame) -> pl.DataFrame:
    """Return *exits* (outgoing calls) with the column *served_well*: the callee served the call without failure."""
    entries, callee = context.calls.entries, index_of(exits.get_column("callee_entry"))
    ids = entries.get_column("entry").to_numpy()
    well = np.zeros(int(max(ids.max(initial=-1), callee.max(initial=-1))) + 1, dtype=bool)
    well[ids] = ~entries.get_column("failed").to_numpy()
    return exits.with_columns(served_well=pl.Series(take_or_missing(well, callee, 0)))


def beyond(context: EvidenceContext, exits: pl.DataFrame, hit: pl.Expr, group: str, minimum: int = 2) -> frozenset[int]:
    """Return the ids of the abnormal *exits* (calls) with *hit*, in groups where hits are more frequent than by chance.

    *hit* is an expression over *exits*, *group* a column of it, *minimum* the fewest hits of a group; the test is that
    of `beyond_chance`.
    """
    table = exits.with_columns(hit=hit)
    now, before = (table.filter(pl.col("period") == p) for p in ("abnormal", "normal"))
    thresholds = context.thresholds.model_copy(update={"minimum_errors": minimum})
    groups = sorted(beyond_chance(now, before, "hit", thresholds, group=group)) if now.height else []
    return frozenset(now.filter(pl.col("hit") & pl.col(group).is_in(groups)).get_column("exit"))
