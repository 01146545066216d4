"""How often annotate attributes the true root, and how often any other service: `python benchmarks/causes_quality.py DIR`.

DIR holds datapacks in the public form (each with its injection.json). Printed per fault family are two figures: in how
many packs the fault is *shown at its place* (its signature holds there), and in how many it is *attributed* (carried to
the surface). Every other service of every pack is tried as a wrong root, with the pack's own fault type and with every
other that may be there. Intervals are bootstraps over packs, because roots of one pack are not independent.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from opsassay.annotation.evidence.latency_delta import added_time
from opsassay.annotation.verdict.annotate import Opened, annotate, open_pack
from opsassay.annotation.verdict.hypothetical_roots import halves, pretend
from opsassay.annotation.verdict.settings import AnnotateSettings, load_settings
from opsassay.core.schema.faults import fault_type
from opsassay.core.schema.incident import Fault, Label
from opsassay.telemetry.datapack import Datapack

Rate = tuple[int, int]
"""Hits and tries."""

UNSEEN_SEED = 38
"""Draws the third of all incidents, by name over both folders of packs, that the rules were not made on."""

WRONG = ("shown, own type", "shown, any type", "attributed, own type", "attributed, any type")


@dataclass
class OfFamily:
    """What came out for one fault family: rates of packs at the true place, and of tries per pack at all others."""

    shown: list[Rate] = field(default_factory=list)
    labels: Counter[Label] = field(default_factory=Counter)
    wrong: dict[str, list[Rate]] = field(default_factory=lambda: defaultdict(list))

    def add(self, other: OfFamily) -> None:
        """Add what came out for *other*."""
        self.shown += other.shown
        self.labels.update(other.labels)
        for what, rates in other.wrong.items():
            self.wrong[what] += rates


def read_fault(folder: Path) -> Fault:
    """Return the fault that injection.json tells of."""
    told = json.loads((folder / "injection.json").read_text(encoding="utf-8"))
    start, end = (int(datetime.fromisoformat(told[k]).timestamp() * 1e9) for k in ("start_time", "end_time"))
    target = told["engine_config"][0]
    return Fault(type=target["chaos_type"], service=target["app"], start_ns=start, end_ns=end)


def interval(rates: list[Rate], draws: int = 2000) -> tuple[float, float]:
    """Return the 95% bootstrap interval of sum(hits) / sum(tries), resampling whole packs.

    Without a single hit, or a single miss, a bootstrap knows nothing: the other end is then the exact one for packs.
    """
    exact = 0.05 ** (1 / max(len(rates), 1))
    if not any(h for h, _ in rates):
        return 0.0, 1 - exact
    if all(h == n for h, n in rates):
        return exact, 1.0
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


def shams(folder: Path, settings: AnnotateSettings) -> Rate:
    """Return how many shams were attributed on the halves of the normal window: every service, every possible type."""
    pack = Datapack.open(folder)
    calm = halves(pack)
    opened, window = open_pack(calm, settings), calm.incident.abnormal
    fault = Fault(type="NetworkDelay", service=None, start_ns=window.start_ns, end_ns=window.end_ns)
    found = list(pretend(opened, fault, settings, pack.services()))
    return sum(one.label is Label.ATTRIBUTED for one in found), len(found)


def wrong_roots(
    opened: Opened, fault: Fault, others: list[str], settings: AnnotateSettings
) -> tuple[dict[str, Rate], list[str]]:
    """Return the rates of WRONG over *others*, and what was attributed wrongly, in words."""
    found = list(pretend(opened, fault, settings, others))
    own = [one for one in found if one.type == fault.type]
    rates = {
        "shown, own type": (sum(one.shown for one in own), len(own)),
        "shown, any type": (sum(one.shown for one in found), len(found)),
        "attributed, own type": (sum(one.label is Label.ATTRIBUTED for one in own), len(own)),
        "attributed, any type": (sum(one.label is Label.ATTRIBUTED for one in found), len(found)),
    }
    words = [
        f"{one.type} at {one.service}" + " (shown)" * (one.label is not Label.ATTRIBUTED)
        for one in found
        if one.label is Label.ATTRIBUTED or (one.shown and one.type == fault.type)
    ]
    return rates, words


def told(rates: list[Rate]) -> str:
    """Return hits of tries with their interval."""
    hit, tried = sum(h for h, _ in rates), sum(n for _, n in rates)
    low, high = interval(rates)
    return f"{hit} of {tried} ({hit / max(tried, 1):.2%}; {low:.2%} to {high:.2%})"


def judge(folder: Path, table: Table, settings: AnnotateSettings) -> tuple[OfFamily, dict[str, Rate], str]:
    """Return what came out for the pack in *folder*, wrong roots by kin, and the family of its fault."""
    pack, fault = Datapack.open(folder), read_fault(folder)
    began = time.perf_counter()
    found = annotate(pack, [fault], settings=settings)
    seconds = time.perf_counter() - began
    others = [s for s in pack.services() if s != fault.service]
    opened = open_pack(pack, settings)
    rates, words = wrong_roots(opened, fault, others, settings)
    shown = any(verdict.shown for verdict in found.faults)
    direction = next((v.direction for v in found.faults if v.direction), "")
    label = f"{found.label.value}{', shown' * shown} {direction}"
    table.add_row(folder.name, fault.type, label, ", ".join(words) or "-", f"{seconds:.2f}", found.reason)
    bad = {word.split(" at ")[1] for word in words if "(shown)" not in word}
    near = {k: (len(m & bad), len(m & set(others))) for k, m in kin(opened, fault.service or "").items()}
    result = OfFamily([(int(shown), 1)], Counter([found.label]))
    for what, rate in rates.items():
        result.wrong[what].append(rate)
    return result, near, fault_type(fault.type).category.value


def unseen(data: Path) -> set[str]:
    """Return the names of the incidents in the folders of *data* that are kept apart until the end."""
    folders = ("nezha-datapacks", "nezha-ob-datapacks")
    names = sorted(p.parent.name for folder in folders for p in (data / folder).glob("*/injection.json"))
    return set(random.Random(UNSEEN_SEED).sample(names, len(names) // 3))


def main() -> None:
    """Try every service of every pack as the root and print what was shown and attributed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("OPSASSAY_DATA", Path(__file__).parents[2] / "shared" / "data")) / "nezha-datapacks"
    parser.add_argument("folder", type=Path, nargs="?", default=default, help="packs; $OPSASSAY_DATA/nezha-datapacks")
    parts = ("all", "even", "odd", "seen", "unseen")
    parser.add_argument("--part", choices=parts, default="all", help="by place in the sorted list, or by UNSEEN_SEED")
    parser.add_argument("--settings", type=Path, help="settings of annotate; the defaults when left out")
    given = parser.parse_args()
    settings = load_settings(given.settings)
    folders = sorted(p.parent for p in given.folder.glob("*/injection.json"))
    third = unseen(given.folder.parent)
    folders = {
        "all": folders,
        "even": folders[::2],
        "odd": folders[1::2],
        "seen": [folder for folder in folders if folder.name not in third],
        "unseen": [folder for folder in folders if folder.name in third],
    }[given.part]
    if not folders:
        print(f"SKIPPED: no public datapacks in {given.folder}; set OPSASSAY_DATA or give a folder")
        return
    table = Table("datapack", "fault", "label", "wrong", "seconds", "why", title="Root attribution")
    families: dict[str, OfFamily] = defaultdict(OfFamily)
    of_kin: dict[str, list[Rate]] = defaultdict(list)
    for folder in folders:
        result, near, family = judge(folder, table, settings)
        families[family].add(result)
        families["all"].add(result)
        for kind, rate in near.items():
            of_kin[kind].append(rate)
    console = Console(width=200)
    console.print(table)
    for family, of in sorted(families.items()):
        labels = ", ".join(f"{n} {label.value}" for label, n in of.labels.most_common())
        console.print(f"{family}: shown at its place {told(of.shown)}; labels: {labels}")
        for what in WRONG:
            console.print(f"  wrong roots {what}: {told(of.wrong[what])}")
    for kind, rates in of_kin.items():
        console.print(f"services attributed wrongly of {kind}: {told(rates)}")
    console.print(
        f"sham on the halves of the normal window, which the packs share: {told([shams(folders[0], settings)])}"
    )


if __name__ == "__main__":
    main()
