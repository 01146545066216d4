"""Time and memory of annotate beside the public implementation, and how both grow: `python benchmarks/causes_speed.py`.

The peer is the PyPI package rcabench-platform (v3.internal.reasoning.runner.run_single_case) in a virtual environment of
its own under ~/.cache/opsassay-bench/rcabench, made on first use. Each measurement is a process of its own; imports, the
catalogue of faults among them, are not counted, memory is the peak of the process; processor time says most on a busy
machine. `--sizes` adds a line per size and the exponent with which time grows between them, `--dense` a pack of 200
services in cycles under a memory cap, `--capped 30000000` one of so many spans of which a sample of traces fits.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from math import log
from pathlib import Path

from rich.console import Console
from rich.table import Table

PEER = Path.home() / ".cache" / "opsassay-bench" / "rcabench"
CAP_SPANS_PER_MB = 1000
NEEDED = ["rcabench-platform[sdk,internal]", "openai", "sqlmodel", "colorlog", "jinja2", "rich"]

OURS = """
import json, resource, sys, time
from pathlib import Path
from opsassay.annotation.verdict.annotate import annotate
from opsassay.annotation.search.paths import SearchLimits
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.telemetry.tree import resolve
import duckdb
from opsassay.core.schema.faults import fault_type
fault_type("NetworkDelay")  # reads the catalogue of faults
cap = int(sys.argv[2]) if len(sys.argv) > 2 else None
began, used = time.perf_counter(), time.process_time()
(case,) = resolve(Path(sys.argv[1]))
found = annotate(case.datapack, case.truth.faults, settings=AnnotateSettings(limits=SearchLimits(memory_mb=cap)))
seconds, cpu = time.perf_counter() - began, time.process_time() - used
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
told = {"seconds": seconds, "cpu": cpu, "peak_mb": peak}
print(json.dumps({**told, "said": found.label.value, "edges": len(found.graph.edges)}))
"""

THEIRS = """
import json, resource, sys, time
from pathlib import Path
from rcabench_platform.v3.internal.reasoning.runner import run_single_case
folder = Path(sys.argv[1])
began, used = time.perf_counter(), time.process_time()
result = run_single_case(folder, 5, injection_data=json.loads((folder / "injection.json").read_text()))
seconds, cpu = time.perf_counter() - began, time.process_time() - used
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
told = {"seconds": seconds, "cpu": cpu, "peak_mb": peak}
print(json.dumps({**told, "said": result["label"], "edges": result.get("paths", 0)}))
"""

SCAN = """
import json, resource, sys, time
from pathlib import Path
import polars as pl
began, used = time.perf_counter(), time.process_time()
names = ["trace_id", "span_id", "parent_span_id", "time", "duration", "service_name", "span_name", "attr.span_kind"]
files = [Path(sys.argv[1]) / f"{period}_traces.parquet" for period in ("normal", "abnormal")]
spans = pl.concat([pl.read_parquet(file, columns=names) for file in files])
parents = spans.select("trace_id", parent_span_id="span_id", parent_service="service_name")
joined = spans.join(parents, on=["trace_id", "parent_span_id"], how="left")
seconds, cpu = time.perf_counter() - began, time.process_time() - used
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "cpu": cpu, "peak_mb": peak, "said": "", "edges": joined.height}))
"""


def measure(python: Path | str, program: str, folder: Path, *further: str) -> dict[str, float | str]:
    """Return what one process that runs *program* on *folder* says about itself."""
    command = [str(python), "-c", program, str(folder), *further]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder.parent)
    if done.returncode:
        raise SystemExit(f"the measurement failed:\n{done.stderr[-2000:]}")
    result: dict[str, float | str] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def peer() -> Path:
    """Return the interpreter of the peer's environment, making it when it is not there."""
    python = PEER / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *NEEDED], check=True)
    return python


def make(folder: Path, spans: int, *further: str) -> None:
    """Write a pack in a process of its own: what a child may hold in memory begins with what its parent held."""
    script = Path(__file__).with_name("causes_packs.py")
    subprocess.run(
        [sys.executable, str(script), str(folder), "--spans", str(spans), *further],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _add(table: Table, pack: str, what: str, seen: dict[str, float | str]) -> None:
    table.add_row(
        pack,
        what,
        f"{float(seen['seconds']):.2f}",
        f"{float(seen['cpu']):.2f}",
        f"{float(seen['peak_mb']):.0f}",
        str(seen["said"]),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[10_000, 100_000, 10_000_000], help="further sizes, ours only"
    )
    parser.add_argument("--dense", action="store_true", help="also 200 services that call each other in cycles")
    parser.add_argument("--capped", type=int, metavar="SPANS", help="also a pack of SPANS within 4000 and 1000 MB")
    parser.add_argument("--repeats", type=int, default=3, help="alternating runs of each on the first pack")
    parser.add_argument("--no-peer", action="store_true")
    given = parser.parse_args()
    table = Table("pack", "what", "seconds", "of processors", "peak MB", "label", title="Speed of annotate")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "pack"
        make(folder, given.spans)
        runs = [("one scan and the parent self-join", sys.executable, SCAN), ("opsassay", sys.executable, OURS)]
        if not given.no_peer:
            runs.append(("rcabench-platform", str(peer()), THEIRS))
        taken: dict[str, list[dict[str, float | str]]] = {name: [] for name, _, _ in runs}
        for _ in range(given.repeats):
            for name, python, program in runs:
                taken[name].append(measure(python, program, folder))
        seen = {name: sorted(each, key=lambda m: float(m["seconds"]))[len(each) // 2] for name, each in taken.items()}
        for name, middle in seen.items():
            _add(table, f"{given.spans:,} spans, median of {given.repeats}", name, middle)
        grown = {given.spans: seen["opsassay"]}
        for size in given.sizes:
            other = Path(scratch) / f"pack-{size}"
            make(other, size)
            runs_ = [measure(sys.executable, OURS, other) for _ in range(given.repeats)]
            grown[size] = sorted(runs_, key=lambda m: float(m["seconds"]))[len(runs_) // 2]
            _add(table, f"{size:,} spans", "opsassay", grown[size])
            shutil.rmtree(other)
        if given.dense:
            dense, cap = Path(scratch) / "dense", given.spans // CAP_SPANS_PER_MB
            make(dense, given.spans, "--services", "200", "--dense")
            held = measure(sys.executable, OURS, dense, str(cap))
            _add(table, f"{given.spans:,} spans, 200 services in cycles, cap {cap:,} MB", "opsassay", held)
        if given.capped:
            capped = Path(scratch) / "capped"
            make(capped, given.capped)
            for cap in (4000, 1000):
                held = measure(sys.executable, OURS, capped, str(cap))
                _add(table, f"{given.capped:,} spans, cap {cap:,} MB", "opsassay", held)
    console = Console(width=130)
    console.print(table)
    for (a, small), (b, large) in pairwise(sorted(grown.items())):
        ratio = float(large["seconds"]) / float(small["seconds"])
        console.print(f"from {a:,} to {b:,} spans: {ratio:.1f} times as long, exponent {log(ratio) / log(b / a):.2f}")
    ours = seen["opsassay"]
    if theirs := seen.get("rcabench-platform"):
        console.print(
            f"ours over the peer's: time {float(ours['seconds']) / float(theirs['seconds']):.3f}, "
            f"of processors {float(ours['cpu']) / float(theirs['cpu']):.3f}, "
            f"memory {float(ours['peak_mb']) / float(theirs['peak_mb']):.2f}"
        )
    scan = seen["one scan and the parent self-join"]
    console.print(f"ours over the scan and join: {float(ours['seconds']) / float(scan['seconds']):.1f}")


if __name__ == "__main__":
    main()
