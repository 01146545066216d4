"""How far annotate agrees with the testbed's ledger: `python benchmarks/causes_campaign.py DIR...`, folders of campaigns.

The ledger says per call what the fault itself cost and who waited for it; annotate never reads it. Printed are, per fault
type: labels, precision and recall of edges between services against the ledger, how often a wrong root is attributed
(every other service of every incident, as the incident's own type and, where it has one fault on a service, as every
type that may be there), and how often a sham is (every service and several types on incidents without a fault, and on
the halves of the normal windows of the others). Intervals are bootstraps over whole incidents.

An edge (a, b) is right when the ledger holds calls of b that waited for a, or failed because of it, on the fault's
account. Edges along which calls are missing have no calls to be in a ledger: they are counted apart. The ledger's own
edges, for recall, are those on a way from the root to an alarm with at least LEAST_LINES lines of LEAST_MS on average,
or of failures.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from causes_quality import Rate, interval
from opsassay.annotation.job import annotate_case
from opsassay.annotation.reading.split_windows import parted_at_fault
from opsassay.annotation.search.paths import SearchLimits
from opsassay.annotation.verdict.annotate import annotate_opened, open_pack
from opsassay.annotation.verdict.hypothetical_roots import pretend, sham
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.causal_graph import CausalGraph, is_host
from opsassay.core.schema.incident import Label
from opsassay.telemetry.tree import Case, Tree, resolve

LEAST_LINES, LEAST_MS = 5, 10.0
FORWARD = ("A-F1",)
SHAM_TYPES = ("NetworkDelay", "HTTPResponseDelay", "JVMException", "PodKill", "CPUStress")

Edge = tuple[str, str]


@dataclass
class OfType:
    """What came out for one fault type."""

    labels: Counter[str] = field(default_factory=Counter)
    right: list[Rate] = field(default_factory=list)
    found: list[Rate] = field(default_factory=list)
    unchecked: int = 0
    wrong: list[Rate] = field(default_factory=list)
    any_type: list[Rate] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def ledger_edges(ledger: pl.DataFrame, services: set[str]) -> tuple[set[Edge], set[Edge]]:
    """Return all (cause, effect) pairs that the ledger of one incident holds, and those that weigh."""
    pairs = (
        ledger.filter((pl.col("kind") == "wait") & pl.col("callee").is_in(sorted(services)))
        .group_by("callee", "service")
        .agg(lines=pl.len(), failed=pl.col("error").fill_null(value=False).sum(), ms=pl.col("ns").mean() / 1e6)
    )
    heavy = pairs.filter(
        (pl.col("failed") >= LEAST_LINES) | ((pl.col("lines") >= LEAST_LINES) & (pl.col("ms") >= LEAST_MS))
    )

    def named(frame: pl.DataFrame) -> set[Edge]:
        return {(a, b) for a, b in frame.select("callee", "service").iter_rows() if a != b}

    return named(pairs), named(heavy)


def between(edges: set[Edge], roots: set[str], ends: set[str]) -> set[Edge]:
    """Return the *edges* on a way from one of *roots* to one of *ends*."""

    def reach(starts: set[str], pairs: set[Edge]) -> set[str]:
        seen, new = set(starts), set(starts)
        while new:
            new = {b for a, b in pairs if a in new} - seen
            seen |= new
        return seen

    after, before = reach(roots, edges), reach(ends, {(b, a) for a, b in edges})
    return {(a, b) for a, b in edges if a in after and b in before}


def checkable(graph: CausalGraph) -> tuple[set[Edge], int]:
    """Return the edges between services that a ledger can hold, and how many others there are."""
    kinds: dict[Edge, set[str]] = defaultdict(set)
    for edge in graph.edges:
        if is_host(edge.source):  # what runs on a host is no call
            continue
        pair = (graph.service_of(edge.source), graph.service_of(edge.target))
        if pair[0] != pair[1]:
            kinds[pair].add(edge.rule or "")
    forward = {pair for pair, rules in kinds.items() if rules <= {*FORWARD, "X-01"}}
    return set(kinds) - forward, len(forward)


def judge(case: Case, ledger: pl.DataFrame | None, result: OfType, settings: AnnotateSettings) -> str:
    """Annotate *case*, compare it with its *ledger*, try every wrong root; return one line about it."""
    assert case.truth is not None
    began = time.perf_counter()
    found = annotate_case(case, settings=settings)
    result.seconds.append(time.perf_counter() - began)
    result.labels[found.label.value] += 1
    told = ""
    roots = {service for one in case.truth.affected() for service in one.services}
    if found.label is Label.ATTRIBUTED and ledger is not None:
        every, heavy = ledger_edges(ledger, set(case.datapack.services()))
        ours, others = checkable(found.graph)
        theirs = between(heavy, roots, found.graph.alarm_services())
        result.right.append((len(ours & every), len(ours)))
        result.found.append((len(theirs & ours), len(theirs)))
        result.unchecked += others
        told = f"; extra {sorted(ours - every)}" * bool(ours - every) + f"; missed {sorted(theirs - ours)}" * bool(
            theirs - ours
        )
    others_ = [s for s in case.datapack.services() if s not in roots]
    faults = [
        fault.model_copy(update={"service": fault.service or sorted(roots)[0]}) for fault, _, _ in case.truth.affected()
    ]
    opened = open_pack(parted_at_fault(case.datapack, faults), settings)
    bad = [s for s in others_ if annotate_opened(opened, faults, root=s, settings=settings).label is Label.ATTRIBUTED]
    result.wrong.append((len(bad), len(others_)))
    if len(faults) == 1 and faults[0].host is None:
        tried = list(pretend(opened, faults[0], settings, others_))
        worse = [f"{one.type} at {one.service}" for one in tried if one.label is Label.ATTRIBUTED]
        result.any_type.append((len(worse), len(tried)))
        bad += worse
    return f"{found.label.value}{told}" + f"; wrong roots {bad}" * bool(bad) + f" ({found.reason})"


def shams(case: Case, settings: AnnotateSettings) -> tuple[Rate, int, list[str]]:
    """Return how many shams were attributed of how many on *case*, how many were drifted, and which."""
    hits: list[str] = []
    tried = drifted = 0
    opened = None
    for service in case.datapack.services():
        for type_ in SHAM_TYPES:
            calm, fault = sham(case.datapack, case.truth, type_, service)
            opened = opened or open_pack(calm, settings)
            label = annotate_opened(opened, [fault], settings=settings).label
            tried += 1
            drifted += label is Label.DRIFTED
            if label is Label.ATTRIBUTED:
                hits.append(f"{type_} at {service}")
    return (len(hits), tried), drifted, hits


def rate(pairs: list[Rate]) -> str:
    """Return hits over tries with the interval over incidents."""
    hit, tried = sum(h for h, _ in pairs), sum(n for _, n in pairs)
    if not tried:
        return "-"
    low, high = interval(pairs)
    return f"{hit}/{tried} {hit / tried:.1%} ({low:.1%} to {high:.1%})"


def main() -> None:
    """Judge every incident and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="campaign folders, or any trees of recorded incidents")
    parser.add_argument("--show", action="store_true", help="a line per incident")
    parser.add_argument("--no-shams", action="store_true")
    parser.add_argument("--hops", type=int, default=7, help="rules in a row; train needs 7")
    given = parser.parse_args()
    settings = AnnotateSettings(limits=SearchLimits(hops=given.hops))
    console = Console(width=200, highlight=False)
    types: dict[str, OfType] = defaultdict(OfType)
    calm: list[Rate] = []
    halved: list[Rate] = []
    drifted = 0
    for folder in given.folders:
        tree = Tree(folder)
        for case in resolve(folder, lambda where, error: console.print(f"{where.name} is left out: {error}")):
            if case.truth is None:
                continue
            affected = case.truth.affected()
            kind = " + ".join(sorted({one.fault.type for one in affected})) or "NoFault"
            try:
                told = judge(case, tree.ledger(case.name), types[kind], settings) if affected else "no fault"
                if not given.no_shams:
                    counted, lost, which = shams(case, settings)
                    (halved if affected else calm).append(counted)
                    drifted += lost
                    told += f"; shams {which}" * bool(which)
            except OpsAssayError as error:
                console.print(f"{case.name} is left out: {error}")
                continue
            if given.show:
                console.print(f"{case.name} {case.datapack.incident.system} {kind}: {told}")
    _print(console, types, calm, halved, drifted)


def _print(console: Console, types: dict[str, OfType], calm: list[Rate], halved: list[Rate], drifted: int) -> None:
    columns = ("fault", "n", "labels", "edge precision", "edge recall", "not in a ledger", "wrong roots", "of any type")
    table = Table(*columns, title="Annotations against the ledger")
    total = OfType()
    for kind, of in sorted(types.items()):
        for name in ("right", "found", "wrong", "any_type", "seconds"):
            getattr(total, name).extend(getattr(of, name))
        total.labels.update(of.labels)
        total.unchecked += of.unchecked
        table.add_row(*_row(kind, of))
    table.add_section()
    table.add_row(*_row("all", total))
    console.print(table)
    console.print(f"shams on incidents without a fault, attributed: {rate(calm)} in {len(calm)}")
    console.print(f"shams on halves of normal windows, attributed: {rate(halved)} in {len(halved)}; {drifted} drifted")
    if total.seconds:
        console.print(
            f"annotate: {sorted(total.seconds)[len(total.seconds) // 2]:.2f} s (median of {len(total.seconds)})"
        )


def _row(kind: str, of: OfType) -> tuple[str, ...]:
    labels = ", ".join(f"{n} {label}" for label, n in of.labels.most_common())
    return (
        kind,
        str(sum(of.labels.values())),
        labels,
        rate(of.right),
        rate(of.found),
        str(of.unchecked),
        rate(of.wrong),
        rate(of.any_type),
    )


if __name__ == "__main__":
    main()
