"""Known delays grafted onto real traffic: `python benchmarks/causes_grafts.py DIR [--every-root]`.

DIR holds public datapacks of real systems. Their abnormal windows hold real noise and, mostly, a fault that users do not
feel; into them a delay is written at one service: on the calls that come in, on those that go out (to services and
stores), on both, or on those with one peer, as a network emulator with filters at its pod would cause it; a slow
method, whose own time grows; or one that ends early, by an exception or a return, without what it used to call (the
log lines of the pack stay away then). All callers wait along, so the true cascade is known. Printed per direction: how
often the true service shows and is attributed, with the direction that was found, and how often any other one is, with
the same type and with every other that may be there. Intervals are clustered by pack. The other end of one peer's link
is apart: who is called by one service alone cannot be told from that service's packets to it, and the field takes both
ends. The place of the pack's own fault is no wrong root.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from causes_quality import Rate, read_fault, told
from opsassay.annotation.verdict.annotate import annotate, open_pack
from opsassay.annotation.verdict.hypothetical_roots import pretend
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.schema.incident import Fault, Label
from opsassay.telemetry.datapack import Datapack

LEAST_CALLS = 3
"""Calls that the fault must act on in the abnormal window, and that must have been there in the normal one."""

VARIANTS = ("inbound", "outbound", "both", "peer", "slow method", "early end")
EARLY_SHARES = (0.3, 0.6, 1.0)
DELAYS_MS = (100.0, 200.0, 400.0, 2000.0)
STORE_VERBS = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "sql.")

Row = dict[str, Any]
Hits = Callable[[Row, Row | None, list[str]], bool]
"""Whether the fault acts on a span, given its parent and the services of its children."""


def hits(service: str, variant: str, peer: str | None) -> Hits:
    """Return which spans a fault at *service* makes longer."""

    def acts(row: Row, parent: Row | None, below: list[str]) -> bool:
        mine = row["service_name"] == service
        outward = [b for b in below if b != service] if mine else []
        into = not mine and service in below
        store = mine and not below and str(row["span_name"]).startswith(STORE_VERBS)
        if variant == "slow method":
            return mine and (parent is None or parent["service_name"] != service)
        if variant == "peer":
            return peer in outward or (into and row["service_name"] == peer)
        return (variant != "outbound" and into) or (variant != "inbound" and (bool(outward) or store))

    return acts


def delayed(spans: pl.DataFrame, acts: Hits, delay_ns: int, rng: random.Random) -> pl.DataFrame:
    """Return *spans* with *delay_ns* (and a tenth of it as jitter) wherever the fault acts, and everybody waiting.

    Half of it passes before the callee begins.
    """
    rows = spans.with_columns(ns=pl.col("time").dt.epoch("ns")).to_dicts()
    known = {(r["trace_id"], r["span_id"]): i for i, r in enumerate(rows)}
    above = [known.get((r["trace_id"], r["parent_span_id"])) for r in rows]
    children: dict[int, list[int]] = defaultdict(list)
    tops: list[int] = []
    for i, parent in enumerate(above):
        (tops if parent is None else children[parent]).append(i)
    for found in children.values():
        found.sort(key=lambda i: rows[i]["ns"])

    def walk(i: int, shift: int) -> int:
        """Shift a span, stretch it by what its children and its own delay add; return how much."""
        row, parent = rows[i], above[i]
        row["ns"] += shift
        hit = acts(row, None if parent is None else rows[parent], [rows[c]["service_name"] for c in children[i]])
        own = int(delay_ns * rng.uniform(0.9, 1.1)) if hit else 0
        added = own // 2
        for child in children[i]:
            added += walk(child, shift + added)
        added += own - own // 2
        row["duration"] += added
        return added

    sys.setrecursionlimit(10_000)
    for top in tops:
        walk(top, 0)
    changed = pl.DataFrame({"ns": [r["ns"] for r in rows], "duration": [r["duration"] for r in rows]})
    return spans.with_columns(
        time=changed.get_column("ns").cast(pl.Datetime("ns", "UTC")),
        duration=changed.get_column("duration").cast(spans.schema["duration"]),
    )


def ended_early(spans: pl.DataFrame, service: str, operation: str, share: float, rng: random.Random) -> pl.DataFrame:
    """Return *spans* where *share* of the spans *operation* of *service* end at once, without children.

    Half of the faults are exceptions: what the service would have done after it, up to its entry, is gone as well.
    """
    rows = spans.with_columns(ns=pl.col("time").dt.epoch("ns")).to_dicts()
    known = {(r["trace_id"], r["span_id"]): i for i, r in enumerate(rows)}
    above = [known.get((r["trace_id"], r["parent_span_id"])) for r in rows]
    children: dict[int, list[int]] = defaultdict(list)
    for i, parent in enumerate(above):
        if parent is not None:
            children[parent].append(i)
    gone: set[int] = set()
    throws = rng.random() < 0.5

    def remove(i: int) -> None:
        gone.add(i)
        for child in children[i]:
            remove(child)

    hit = [r["service_name"] == service and r["span_name"] == operation and rng.random() < share for r in rows]
    for i, row in enumerate(rows):
        if not hit[i] or i in gone:
            continue
        for child in children[i]:
            remove(child)
        saved, below = row["duration"] * 95 // 100, i
        row["duration"] -= saved
        while (parent := above[below]) is not None:
            if throws and rows[parent]["service_name"] == service:
                for later in (c for c in children[parent] if rows[c]["ns"] > row["ns"]):
                    remove(later)
                    saved += rows[later]["duration"]
            rows[parent]["duration"] = max(rows[parent]["duration"] - saved, rows[below]["duration"] + 1000)
            below = parent
    kept = [i for i in range(len(rows)) if i not in gone]
    durations = pl.Series([rows[i]["duration"] for i in kept], dtype=spans.schema["duration"])
    return spans[kept].with_columns(duration=durations)


def methods(folder: Path) -> list[tuple[str, str]]:
    """Return (service, operation) with 20 spans or more in both windows, nearly all with children of their service."""
    found = []
    for period in ("normal", "abnormal"):
        spans = pl.read_parquet(folder / f"{period}_traces.parquet")
        parents = spans.select("trace_id", "service_name", span_id="parent_span_id").unique()
        spans = spans.join(
            parents.with_columns(has=pl.lit(value=True)), on=["trace_id", "service_name", "span_id"], how="left"
        )
        has = pl.col("has").fill_null(value=False).mean()
        usual = spans.group_by("service_name", "span_name").agg(pl.len(), has)
        statement = pl.any_horizontal(pl.col("span_name").str.starts_with(verb) for verb in STORE_VERBS)
        usual = usual.filter((pl.col("len") >= 20) & (pl.col("has") > 0.9) & ~statement)
        found.append(set(usual.select("service_name", "span_name").iter_rows()))
    return sorted(found[0] & found[1])


def links(spans: pl.DataFrame) -> Counter[tuple[str, str]]:
    """Return how many calls each pair of services makes, by their spans."""
    ends = spans.select("trace_id", parent_span_id="span_id", caller="service_name")
    pairs = spans.join(ends, on=["trace_id", "parent_span_id"], how="inner").select("caller", "service_name")
    return Counter((a, b) for a, b in pairs.iter_rows() if a != b)


def places(folder: Path, variant: str) -> list[tuple[str, str | None]]:
    """Return the services, with a peer where *variant* asks for one, with calls for the fault to act on in both windows."""
    if variant == "early end":
        return list(methods(folder))
    before, now = (links(pl.read_parquet(folder / f"{period}_traces.parquet")) for period in ("normal", "abnormal"))
    made = {pair: min(before[pair], now[pair]) for pair in now}
    if variant == "peer":
        return sorted(pair for pair, n in made.items() if n >= LEAST_CALLS)
    calls: Counter[str] = Counter()
    for (caller, callee), n in made.items():
        calls.update({callee: n} if variant != "outbound" else {caller: n})
    return sorted((s, None) for s, n in calls.items() if n >= LEAST_CALLS and "gateway" not in s and s != "frontend")


def graft(
    source: Path, target: Path, service: str, peer: str | None, variant: str, delay_ms: float, seed: int
) -> Fault:
    """Write a copy of *source* with a delay at *service* into *target* and return the fault that it now holds."""
    target.mkdir()
    early = variant == "early end"
    for file in source.glob("*.parquet"):
        if file.name != "abnormal_traces.parquet" and not (early and file.name.endswith("_logs.parquet")):
            shutil.copy(file, target)
    shutil.copy(source / "env.json", target / "env.json")
    spans = pl.read_parquet(source / "abnormal_traces.parquet")
    given, rng = read_fault(source), random.Random(seed)
    if early:
        changed = ended_early(spans, service, peer or "", rng.choice(EARLY_SHARES), rng)
        changed.write_parquet(target / "abnormal_traces.parquet")
        return Fault(type="JVMException", service=service, start_ns=given.start_ns, end_ns=given.end_ns)
    late = delayed(spans, hits(service, variant, peer), int(delay_ms * 1e6), rng)
    late.write_parquet(target / "abnormal_traces.parquet")
    kind = "JVMLatency" if variant == "slow method" else "NetworkDelay"
    return Fault(type=kind, service=service, peer=peer, start_ns=given.start_ns, end_ns=given.end_ns)


@dataclass
class OfVariant:
    """What came out for one variant."""

    labels: Counter[str] = field(default_factory=Counter)
    directions: Counter[str] = field(default_factory=Counter)
    shown: int = 0
    own_type: list[Rate] = field(default_factory=list)
    any_type: list[Rate] = field(default_factory=list)
    other_end: list[Rate] = field(default_factory=list)


def judge(folder: Path, fault: Fault, result: OfVariant, others: list[str]) -> str:
    """Annotate the grafted pack in *folder*, try *others* as roots, and return what came out in words."""
    pack = Datapack.open(folder)
    found = annotate(pack, [fault])
    (verdict,) = found.faults
    result.labels[found.label.value] += 1
    result.shown += verdict.shown
    result.directions[(verdict.direction or "-").partition(":")[0]] += 1
    tried = list(pretend(open_pack(pack), fault, AnnotateSettings(), others))
    bad = [one for one in tried if one.label is Label.ATTRIBUTED]
    for rates, among in (
        (result.own_type, [one for one in tried if one.type == fault.type and one.service != fault.peer]),
        (result.any_type, [one for one in tried if one.service != fault.peer]),
        (result.other_end, [one for one in tried if one.service == fault.peer]),
    ):
        rates.append((sum(one in bad for one in among), len(among)))
    wrong = ", ".join(f"{one.type} at {one.service}" for one in bad)
    return f"{found.label.value} {verdict.direction or ''}; wrong: {wrong or '-'}; {found.reason}"


def main() -> None:
    """Graft delays onto every pack and print what was attributed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("OPSASSAY_DATA", Path(__file__).parents[2] / "shared" / "data")) / "nezha-datapacks"
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    parser.add_argument("--each", type=int, default=2, help="services per pack and variant")
    parser.add_argument("--every-root", action="store_true", help="try every other service as a root (slow)")
    parser.add_argument("--all", action="store_true", help="also into packs with a fault that users feel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--show", action="store_true", help="print every case")
    given = parser.parse_args()
    sources = sorted(p.parent for p in given.folder.glob("*/injection.json"))
    sources = [s for s in sources if given.all or ("cpu" not in s.name and "network" not in s.name)]
    if not sources:
        print(f"SKIPPED: no public datapacks in {given.folder}; set OPSASSAY_DATA or give a folder")
        return
    results = {variant: OfVariant() for variant in given.variants}
    with tempfile.TemporaryDirectory() as scratch:
        for number, source in enumerate(sources):
            rng = random.Random(1000 * given.seed + number)
            for variant in given.variants:
                possible = places(source, variant)
                for service, peer in rng.sample(possible, min(given.each, len(possible))):
                    folder = Path(scratch) / f"{number}-{variant}-{service}-{peer}".replace(" ", "-").replace("/", "-")
                    delay = rng.choice(DELAYS_MS)
                    fault = graft(source, folder, service, peer, variant, delay, number)
                    others = [
                        s for s in Datapack.open(folder).services() if s not in (service, read_fault(source).service)
                    ]
                    others = (
                        others
                        if given.every_root
                        else sorted({*rng.sample(others, min(6, len(others))), *(s for s in others if s == peer)})
                    )
                    words = judge(folder, fault, results[variant], others)
                    if given.show:
                        at = f"{service} to {peer}" if peer else service
                        print(f"{source.name} {variant} {delay:.0f} ms at {at}: {words}", flush=True)
                    shutil.rmtree(folder)
    for variant, of in results.items():
        n = sum(of.labels.values())
        print(f"{variant}: true attributed {of.labels['attributed']} of {n}, shown {of.shown} ({dict(of.labels)})")
        print(f"{variant}: directions found {dict(of.directions)}")
        print(f"{variant}: wrong attributed {told(of.own_type)}, of any type {told(of.any_type)}")
        if variant == "peer":
            print(f"{variant}: its other end attributed {told(of.other_end)} of any type")


if __name__ == "__main__":
    main()
