"""This build compared with an older one, in one run: `python benchmarks/builds.py OLDER`, a checkout with its own `.venv`.

Each row is a whole process of the command line, run in turn by the older build and by this one, on the same input;
processor time includes that of its children. The packs are the public ones in $OPSASSAY_DATA (nezha-datapacks and
nezha-raw), the suite is copies of them, the table of scores is drawn with the sizes of the paper.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parents[1]
DATA = Path(os.environ.get("OPSASSAY_DATA", HERE.parent / "shared" / "data"))
CASES, METHODS, SYSTEMS = 778, 3, 11
WORKER = """
import sys
from pathlib import Path
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql
import time, resource
def used():
    return sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime for who in (0, -1))
pack = Datapack.open(Path(sys.argv[1]))
before, began = used(), time.perf_counter()
for _ in range(20):
    with LockedSql(pack) as sql:
        sql.query("SELECT count(*) FROM abnormal_traces")
print("cpu", used() - before, "wall", time.perf_counter() - began)
"""

Measured = tuple[float, float, float]
"""Seconds of processors, children included, and of wall clock; the peak of the largest process in MB."""
Command = Callable[[Path, Path], list[str]]
"""The command of a build (its bin folder), writing into a folder."""


def run(command: list[str]) -> Measured:
    """Return what one run of *command* cost; exit statuses up to 1 are results."""
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{text[-2000:]}")
    cpu = used.ru_utime + used.ru_stime
    if text.startswith("cpu "):  # the program measured the part that counts
        _, cpu_text, _, wall_text = text.split()
        cpu, wall = float(cpu_text), float(wall_text)
    return cpu, wall, used.ru_maxrss / 1024


def scores(file: Path) -> None:
    """Write a table of scores like the paper's: CASES cases on SYSTEMS systems by METHODS methods."""
    rng = np.random.default_rng(1)
    case = np.arange(CASES)
    table = pl.DataFrame({"case": case, "system": case % SYSTEMS}).join(
        pl.DataFrame({"method": range(METHODS)}), how="cross"
    )
    table.with_columns(
        family=pl.lit("drawn"),
        score=pl.Series((rng.random(table.height) < 0.2).astype(float)),
        case=pl.format("case-{}", "case"),
        system=pl.format("system-{}", "system"),
        method=pl.format("method-{}", "method"),
    ).write_csv(file)


def suite(folder: Path, count: int) -> Path:
    """Return a folder with *count* copies of the public packs, without annotations."""
    packs = sorted(path.parent for path in (DATA / "nezha-datapacks").glob("*/injection.json"))
    for number, pack in zip(range(count), itertools.cycle(packs), strict=False):
        shutil.copytree(pack, folder / f"{number:04d}-{pack.name}")
    return folder


def rows(scratch: Path, packs: int) -> dict[str, tuple[Command, Command]]:
    """Return the commands of the older build and of this one, by what they do."""
    table = scratch / "scores.csv"
    scores(table)
    one, many = suite(scratch / "one", 1), suite(scratch / "many", packs)
    raw = str(DATA / "nezha-raw")

    def annotate(source: Path, *words: str) -> Command:
        def command(binary: Path, out: Path) -> list[str]:
            shutil.copytree(source, out / "packs")
            return [str(binary / "opsassay"), *words, str(out / "packs"), *(["-j", "2"] if source is many else [])]

        return command

    def worker(binary: Path, _: Path) -> list[str]:
        return [str(binary / "python"), "-c", WORKER, str(next(one.iterdir()))]

    def audit(binary: Path, out: Path) -> list[str]:
        return [str(binary / "opsassay"), "audit", str(table), "-o", str(out / "report")]

    def imports(*words: str) -> Command:
        return lambda binary, out: [str(binary / "opsassay"), *words, "nezha", raw, "-o", str(out / "tree")]

    return {
        "annotate of a small pack": (annotate(one, "annotate"), annotate(one, "incident", "annotate")),
        f"annotate of {packs} packs, -j 2": (annotate(many, "annotate"), annotate(many, "incident", "annotate")),
        f"audit of {CASES} x {METHODS} x {SYSTEMS}": (audit, audit),
        "20 starts of the SQL worker, with one statement": (worker, worker),
        "import of nezha-raw, which has spans for a few incidents": (imports("import"), imports("incident", "import")),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", type=Path, help="a checkout of an older commit, with .venv")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--packs", type=int, default=500, help="in the suite")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    given = parser.parse_args()
    builds = [given.older / ".venv" / "bin", HERE / ".venv" / "bin"]
    table = Table("work", "older: cpu s", "wall s", "MB", "this: cpu s", "wall s", "MB", "cpu", "wall")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for what, commands in rows(scratch, given.packs).items():
            if given.only not in what:
                continue
            taken: list[list[Measured]] = [[], []]
            for _, side in itertools.product(range(given.pairs), (0, 1)):
                out = Path(tempfile.mkdtemp(dir=scratch))
                taken[side].append(run(commands[side](builds[side], out)))
                shutil.rmtree(out)
            old, new = ([statistics.median(column) for column in zip(*side, strict=True)] for side in taken)
            shares = (f"{new[at] / old[at]:.2f}" for at in (0, 1))
            table.add_row(what, *(f"{v:.2f}" for v in old), *(f"{v:.2f}" for v in new), *shares)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
