"""Known delays grafted onto real traffic: `python benchmarks/causes_grafts.py DIR [--every-root]`.

DIR holds public datapacks of real systems. Their abnormal windows hold real noise and, mostly, a fault that users do not
feel; into them a delay is written at one service, as a network emulator at its pod would cause it (every answer that it
sends and every call that it makes, to services and stores, waits), or as a slow method would (its own time grows). All
callers wait along, so the true cascade is known. Printed: how often the true service is attributed, and how often any
other one is, with intervals clustered by pack.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import polars as pl

from causes_quality import interval, read_fault
from opsassay.causes.verdict.annotate import annotate
from opsassay.model.incident import Fault, Label
from opsassay.telemetry.datapack import Datapack

LEAST_CALLS = 12
"""A service that is called more rarely says nothing."""


def delayed(spans: pl.DataFrame, service: str, delay_ns: int, *, network: bool, rng: random.Random) -> pl.DataFrame:
    """Return *spans* with *delay_ns* (and a tenth of it as jitter) wherever the fault acts, and everybody waiting."""
    rows = spans.with_columns(ns=pl.col("time").dt.epoch("ns")).to_dicts()
    known = {(r["trace_id"], r["span_id"]): i for i, r in enumerate(rows)}
    children: dict[int, list[int]] = defaultdict(list)
    tops: list[int] = []
    for i, row in enumerate(rows):
        parent = known.get((row["trace_id"], row["parent_span_id"]))
        (tops if parent is None else children[parent]).append(i)
    for found in children.values():
        found.sort(key=lambda i: rows[i]["ns"])

    def local(i: int) -> int:
        mine = rows[i]["service_name"] == service
        below = [rows[c]["service_name"] for c in children[i]]
        if network:
            hit = (service in below and not mine) or (
                mine and (any(b != service for b in below) or _store(rows[i], below))
            )
        else:
            parent = known.get((rows[i]["trace_id"], rows[i]["parent_span_id"]))
            hit = mine and (parent is None or rows[parent]["service_name"] != service)
        return int(delay_ns * rng.uniform(0.9, 1.1)) if hit else 0

    def walk(i: int, shift: int) -> int:
        """Shift a span, stretch it by what its children and its own delay add; return how much."""
        row = rows[i]
        row["ns"] += shift
        added = 0
        for child in children[i]:
            added += walk(child, shift + added)
        added += local(i)
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


def _store(row: dict[str, object], below: list[str]) -> bool:
    return not below and str(row["span_name"]).startswith(("SELECT ts.", "INSERT ts.", "UPDATE ts.", "DELETE ts."))


def graft(source: Path, target: Path, service: str, delay_ms: float, *, network: bool, seed: int) -> Fault:
    """Write a copy of *source* with a delay at *service* into *target* and return the fault that it now holds."""
    target.mkdir()
    for file in source.glob("*.parquet"):
        if file.name != "abnormal_traces.parquet":
            (target / file.name).symlink_to(file.resolve())
    shutil.copy(source / "env.json", target / "env.json")
    spans = pl.read_parquet(source / "abnormal_traces.parquet")
    rng = random.Random(seed)
    delayed(spans, service, int(delay_ms * 1e6), network=network, rng=rng).write_parquet(
        target / "abnormal_traces.parquet"
    )
    told = read_fault(source)
    kind = "NetworkDelay" if network else "JVMLatency"
    return Fault(type=kind, service=service, start_ns=told.start_ns, end_ns=told.end_ns)


def main() -> None:
    """Graft delays onto every pack and print what was attributed."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("OPSASSAY_DATA", Path(__file__).parents[2] / "shared" / "data")) / "nezha-datapacks"
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    parser.add_argument("--each", type=int, default=2, help="services per pack and kind")
    parser.add_argument("--every-root", action="store_true", help="try every other service as a root (slow)")
    parser.add_argument("--show", action="store_true", help="print every case")
    given = parser.parse_args()
    sources = sorted(p.parent for p in given.folder.glob("*/injection.json") if "cpu-contention" not in p.parent.name)
    if not sources:
        print(f"SKIPPED: no public datapacks in {given.folder}; set OPSASSAY_DATA or give a folder")
        return
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: dict[str, list[tuple[int, int]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        for number, source in enumerate(sources):
            rng = random.Random(number)
            calls = Counter(pl.read_parquet(source / "abnormal_traces.parquet").get_column("service_name").to_list())
            busy = sorted(s for s, n in calls.items() if n >= LEAST_CALLS and "gateway" not in s)
            for network in (True, False):
                kind = "network delay" if network else "slow method"
                hits = tried = 0
                for service in rng.sample(busy, min(given.each, len(busy))):
                    folder = Path(scratch) / f"{number}-{network}-{service}"
                    delay = rng.choice((100.0, 200.0, 400.0))
                    fault = graft(source, folder, service, delay, network=network, seed=number)
                    pack = Datapack.open(folder)
                    found = annotate(pack, [fault])
                    labels[kind][found.label.value] += 1
                    others = [s for s in pack.services() if s != service]
                    others = others if given.every_root else rng.sample(others, 6)
                    bad = [s for s in others if annotate(pack, [fault], root=s).label is Label.ATTRIBUTED]
                    hits, tried = hits + len(bad), tried + len(others)
                    if given.show:
                        print(
                            f"{source.name} {kind} {delay:.0f} ms at {service}: {found.label.value}; wrong: {bad}; "
                            f"{found.reason}"
                        )
                wrong[kind].append((hits, tried))
    for kind, counted in labels.items():
        n = sum(counted.values())
        hit, tried = sum(h for h, _ in wrong[kind]), sum(t for _, t in wrong[kind])
        low, high = interval(wrong[kind])
        print(f"{kind}: true attributed {counted['attributed']} of {n} ({dict(counted)})")
        print(f"{kind}: wrong attributed {hit} of {tried} ({hit / max(tried, 1):.2%}; 95% {low:.2%} to {high:.2%})")


if __name__ == "__main__":
    main()
