"""How long it takes to grade many answers, and to import and diagnose: `python benchmarks/grading_speed.py [DATAPACKS]`.

The first part grades 500 answers to incidents of their own with ten statements each, as `assay grade` does. With a folder
of datapacks in the public form, the second imports it and runs every method on every incident, as `assay import` and
`assay diagnose` do. Exit 1 when a bar is missed: 120 s and 60 s on two cores.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from assay.bench.grades import grade_all
from assay.bench.runner import run_method
from assay.bench.store import RunStore
from assay.methods.base import METHODS
from assay.model.diagnosis import Diagnosis, Evidence, RootCauseClaim
from assay.model.incident import Fault, Incident, Truth, Window
from assay.model.run import Run, RunStatus, Solver
from assay.telemetry.content import content_hash, write_datapack
from assay.telemetry.public import import_public
from assay.telemetry.tree import Tree, resolve

CASES, STATEMENTS, SPANS = 500, 10, 2000
GRADE_BAR_S, NEZHA_BAR_S = 120.0, 60.0
SERVICES = ("frontend", "cart", "store", "payment", "ads")


def main() -> int:
    """Measure both parts; 1 when a bar is missed."""
    with tempfile.TemporaryDirectory() as folder:
        graded_s = grading(Path(folder) / "made")
        print(f"graded {CASES} answers with {STATEMENTS} statements each in {graded_s:.1f} s (bar {GRADE_BAR_S:g} s)")
        missed = graded_s > GRADE_BAR_S
        if len(sys.argv) > 1:
            imported_s, runs = diagnosing(Path(sys.argv[1]), Path(folder) / "imported")
            print(f"imported {sys.argv[1]} and made {runs} runs in {imported_s:.1f} s (bar {NEZHA_BAR_S:g} s)")
            missed |= imported_s > NEZHA_BAR_S
    return 1 if missed else 0


def grading(root: Path) -> float:
    """Return the seconds in which all made answers are graded."""
    tree, store = Tree(root), RunStore(root)
    answer = Diagnosis(root_causes=(RootCauseClaim(service="cart", evidence=tuple(map(statement, range(STATEMENTS)))),))
    for number in range(CASES):
        made_case(tree, number)
    for case in resolve(root):
        begun = Run(
            cell=case.name, attempt=0, item=case.name, item_hash=content_hash(case.datapack.path), system="made",
            solver=Solver(name="made"), solver_hash="made",
        )  # fmt: skip
        run_dir, run = store.begin(begun)
        store.end(run_dir, run.model_copy(update={"status": RunStatus.DONE}), answer)
    began = time.perf_counter()
    verdicts = grade_all(store, resolve(root))
    seconds = time.perf_counter() - began
    assert len(verdicts) == CASES
    assert all(verdict.metrics["sql_exec"].value == 1.0 for verdict in verdicts)
    return seconds


def statement(number: int) -> Evidence:
    """Return one of ten statements, each other than the rest."""
    sql = f"SELECT avg(duration) FROM abnormal_traces WHERE service_name = 'cart' AND duration > {number}"
    return Evidence(kind="trace", sql=sql, claim="cart is slow")


def made_case(tree: Tree, number: int) -> None:
    """Write one incident of SPANS spans a period, and its truth."""
    id_, start, second = f"{number:016x}", datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number), 10**9
    frames = {}
    for minute, period in enumerate(("normal", "abnormal")):
        frames[period, "traces"] = pl.DataFrame({"i": range(SPANS)}).select(
            time=(
                pl.lit(start + timedelta(minutes=minute)) + pl.duration(milliseconds=pl.col("i") * 29)
            ).dt.cast_time_unit("ns"),
            trace_id=(pl.col("i") // 5).cast(pl.String),
            span_id=pl.col("i").cast(pl.String),
            parent_span_id=pl.when(pl.col("i") % 5 == 0).then(pl.lit("")).otherwise((pl.col("i") - 1).cast(pl.String)),
            span_name=pl.lit("GET /"),
            service_name=(pl.col("i") % 5).replace_strict(dict(enumerate(SERVICES))),
            duration=(pl.col("i") + 1000).cast(pl.UInt64),
        )
    begin = int(start.timestamp()) * second
    windows = [Window(start_ns=begin + 60 * second * i, end_ns=begin + 60 * second * (i + 1)) for i in range(2)]
    tree.write_truth(
        Truth(
            id=id_, system="made", faults=(Fault(type="CPUStress", service="cart", start_ns=begin, end_ns=begin + 1),)
        )
    )
    incident = Incident(id=id_, system="made", normal=windows[0], abnormal=windows[1])
    write_datapack(tree.incident_path(id_), frames, incident, {})


def diagnosing(source: Path, root: Path) -> tuple[float, int]:
    """Return the seconds in which *source* is imported and diagnosed by every method, and the number of runs."""
    began = time.perf_counter()
    import_public(source, root)
    store = RunStore(root)
    pairs = [(case, name) for case in resolve(root) for name in METHODS.names()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda pair: run_method(store, pair[0].datapack, pair[1]), pairs))
    return time.perf_counter() - began, len(made)


if __name__ == "__main__":
    sys.exit(main())
