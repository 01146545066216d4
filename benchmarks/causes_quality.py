"""How often annotate attributes the true root, and how often any other service: `python benchmarks/causes_quality.py DIR`.

DIR holds datapacks in the public form (each with its injection.json). Every other service of every pack is tried as a
wrong root. The interval of the wrong-root rate is a bootstrap over packs, because roots of one pack are not independent.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from opsassay.causes.evidence.added import added_time
from opsassay.causes.verdict.annotate import Opened, annotate, annotate_opened, open_pack
from opsassay.causes.verdict.sham import halves
from opsassay.model.incident import Fault, Label
from opsassay.telemetry.datapack import Datapack

Rate = tuple[int, int]
"""Hits and tries."""

SHAM_TYPES = ("NetworkDelay", "HTTPResponseDelay", "JVMException", "JVMReturn", "PodKill", "CPUStress")


def read_fault(folder: Path) -> Fault:
    """Return the fault that injection.json tells of."""
    told = json.loads((folder / "injection.json").read_text(encoding="utf-8"))
    start, end = (int(datetime.fromisoformat(told[k]).timestamp() * 1e9) for k in ("start_time", "end_time"))
    target = told["engine_config"][0]
    return Fault(type=target["chaos_type"], service=target["app"], start_ns=start, end_ns=end)


def interval(rates: list[Rate], draws: int = 2000) -> tuple[float, float]:
    """Return the 95% bootstrap interval of sum(hits) / sum(tries), resampling whole packs.

    Without a single hit a bootstrap knows nothing: the upper end is then the exact one for packs with any hit.
    """
    if not any(h for h, _ in rates):
        return 0.0, 1 - 0.05 ** (1 / max(len(rates), 1))
    chance = random.Random(0)
    values = []
    for _ in range(draws):
        drawn = chance.choices(rates, k=len(rates))
        values.append(sum(h for h, _ in drawn) / max(sum(n for _, n in drawn), 1))
    values.sort()
    return values[int(0.025 * draws)], values[int(0.975 * draws)]


def kin(opened: Opened, root: str) -> dict[str, set[str]]:
    """Return the services that call *root*, however far, those that share a caller with it, and the loudest one."""
    calls = opened.calls.exits.filter(pl.col("caller_entry").is_not_null())
    pairs = set(calls.select("caller_service", "callee_service").drop_nulls().unique().iter_rows())
    ancestors: set[str] = set()
    new = {root}
    while new:
        new = {a for a, b in pairs if b in new} - ancestors - {root}
        ancestors |= new
    parents = {a for a, b in pairs if b == root}
    siblings = {b for a, b in pairs if a in parents} - ancestors - {root}
    slower = added_time(opened.calls.entries, "duration_ms", ["service"], ["node"]).sort("added_ms", "service")
    loudest = [s for s in slower.get_column("service") if s != root]
    return {"ancestors": ancestors, "siblings": siblings, "the loudest": set(loudest[-1:])}


def shams(folder: Path) -> Rate:
    """Return how many shams were attributed on the halves of the normal window: every service, several types."""
    pack = Datapack.open(folder)
    calm = halves(pack)
    opened, window = open_pack(calm), calm.incident.abnormal
    tried = [
        Fault(type=type_, service=service, start_ns=window.start_ns, end_ns=window.end_ns)
        for service in pack.services()
        for type_ in SHAM_TYPES
    ]
    return sum(annotate_opened(opened, [fault]).label is Label.ATTRIBUTED for fault in tried), len(tried)


def main() -> None:
    """Try every service of every pack as the root and print what was attributed."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("OPSASSAY_DATA", Path(__file__).parents[2] / "shared" / "data")) / "nezha-datapacks"
    parser.add_argument("folder", type=Path, nargs="?", default=default, help="packs; $OPSASSAY_DATA/nezha-datapacks")
    folder = parser.parse_args().folder
    folders = sorted(p.parent for p in folder.glob("*/injection.json"))
    if not folders:
        print(f"SKIPPED: no public datapacks in {folder}; set OPSASSAY_DATA or give a folder")
        return
    table = Table("datapack", "fault", "label", "wrong roots", "seconds", "why", title="Root attribution")
    labels: Counter[Label] = Counter()
    wrong: list[Rate] = []
    of_kind: dict[str, list[Rate]] = defaultdict(list)
    for folder in folders:
        pack, fault = Datapack.open(folder), read_fault(folder)
        began = time.perf_counter()
        found = annotate(pack, [fault])
        seconds = time.perf_counter() - began
        others = [s for s in pack.services() if s != fault.service]
        opened = open_pack(pack)
        hits = [s for s in others if annotate_opened(opened, [fault], root=s).label is Label.ATTRIBUTED]
        labels[found.label] += 1
        wrong.append((len(hits), len(others)))
        for kind, members in kin(opened, fault.service or "").items():
            of_kind[kind].append((len(members & set(hits)), len(members & set(others))))
        table.add_row(
            folder.name, fault.type, found.label.value, ", ".join(hits) or "-", f"{seconds:.2f}", found.reason
        )
    hit, tried = sum(h for h, _ in wrong), sum(n for _, n in wrong)
    low, high = interval(wrong)
    console = Console(width=200)
    console.print(table)
    console.print(f"true root attributed: {labels[Label.ATTRIBUTED]} of {len(folders)}  labels: {dict(labels)}")
    console.print(f"wrong root attributed: {hit} of {tried} ({hit / max(tried, 1):.2%}; 95% {low:.2%} to {high:.2%})")
    for kind, rates in of_kind.items():
        hit, tried = sum(h for h, _ in rates), sum(n for _, n in rates)
        console.print(f"  of these {kind}: {hit} of {tried}")
    hit, tried = shams(folders[0])
    console.print(f"sham on the halves of the normal window, which the packs share: {hit} of {tried} attributed")
    console.print(f"packs with any wrong root: {sum(h > 0 for h, _ in wrong)} of {len(folders)}")


if __name__ == "__main__":
    main()
