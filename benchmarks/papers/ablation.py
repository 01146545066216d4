"""What each gate is worth: how often the true root, a wrong one and a sham are attributed with the gate removed.

Run: ``python -m benchmarks.papers.ablation PATH...``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import click

from opsassay.annotation.reading.split_windows import parted_at_fault
from opsassay.annotation.verdict.annotate import Opened, annotate_seen, open_pack
from opsassay.annotation.verdict.hypothetical_roots import sham
from opsassay.annotation.verdict.settings import AnnotateSettings, Gate, load_settings
from opsassay.cli.output import json_option, print_json, print_table, say
from opsassay.core.schema.incident import Fault, Label, Truth
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import resolve

from .running import run


@dataclass(frozen=True)
class Ablated:
    """Hits and tries with the gate *without* removed (None: with all): the true root, wrong ones, and shams."""

    without: str | None
    true: tuple[int, int] = (0, 0)
    wrong: tuple[int, int] = (0, 0)
    sham: tuple[int, int] = (0, 0)

    def plus(self, other: Ablated) -> Ablated:
        """Return the sums of both."""
        sums = [
            (a[0] + b[0], a[1] + b[1])
            for a, b in ((self.true, other.true), (self.wrong, other.wrong), (self.sham, other.sham))
        ]
        return Ablated(self.without, *sums)


def ablate(pack: Datapack, truth: Truth, settings: AnnotateSettings) -> Iterator[Ablated]:
    """Yield what comes out for the first fault of *truth* on *pack*, with all gates and without each in turn.

    Wrong roots are every other service; shams the same type at every service, on the halves of the normal window. A case
    without a fault on a service yields nothing.
    Raises DatapackError as `open_pack` does, and UserError where the normal window is too short to be halved.
    """
    affected = [one for one in truth.affected() if one.services]
    if not affected:
        return
    fault, roots, _ = affected[0]
    true = fault if fault.service else fault.model_copy(update={"service": sorted(roots)[0]})
    opened = open_pack(parted_at_fault(pack, [true]), settings)
    halved, _ = sham(pack, truth, true.type, true.service or "")
    calm = open_pack(halved, settings)
    quiet = halved.incident.abnormal
    pretended = true.model_copy(update={"start_ns": quiet.start_ns, "end_ns": quiet.end_ns})
    services = pack.services()
    for without in (None, *get_args(Gate)):
        off = settings.gates_off | ({without} if without else set())
        ablated = settings.model_copy(update={"gates_off": frozenset(off)})
        others = [service for service in services if service not in roots]
        yield Ablated(
            without,
            true=_attributed(opened, true, [None], ablated),
            wrong=_attributed(opened, true, others, ablated),
            sham=_attributed(calm, pretended, services, ablated),
        )


def _attributed(
    opened: Opened, fault: Fault, roots: list[str] | list[None], settings: AnnotateSettings
) -> tuple[int, int]:
    """Return how many of *roots* (None: the fault's own) are attributed, and how many there are."""
    seen = opened.since(fault.start_ns, settings)
    found = [annotate_seen(opened, seen, [fault], root=root, settings=settings).label for root in roots]
    return sum(label is Label.ATTRIBUTED for label in found), len(found)


@click.command("ablation")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--settings", type=click.Path(path_type=Path, dir_okay=False), help="YAML: slo, thresholds, limits, rules."
)
@json_option
def command(paths: tuple[Path, ...], settings: Path | None, *, as_json: bool) -> None:
    """Print per gate how often true roots, wrong ones and shams are attributed without it, over all cases of PATHS."""
    chosen = load_settings(settings)
    sums: dict[str | None, Ablated] = {}
    for path in paths:
        for case in resolve(path, lambda where, error: say(f"opsassay: {where.name} is left out: {error}")):
            if case.truth is None:
                say(f"opsassay: {case.name} is left out: it has no truth next to it.")
                continue
            for found in ablate(case.datapack, case.truth, chosen):
                sums[found.without] = sums[found.without].plus(found) if found.without in sums else found
            say(f"opsassay: {case.name}: done")
    if as_json:
        rates = [{"without": f.without, "true": f.true, "wrong": f.wrong, "sham": f.sham} for f in sums.values()]
        print_json("ablation", rates)
        return
    rows = [
        (f.without or "all gates", *(f"{hit} of {tried}" for hit, tried in (f.true, f.wrong, f.sham)))
        for f in sums.values()
    ]
    print_table("Attributed without a gate", ("without", "true roots", "wrong roots", "shams"), rows)


if __name__ == "__main__":
    sys.exit(run(command))
