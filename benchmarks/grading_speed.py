"""How long it takes to grade many answers: `python benchmarks/grading_speed.py`.

500 answers, each to an incident of its own and with ten statements as evidence, are graded by `opsassay score run` as a
user would call it: one process with all its imports, on two cores. Printed are wall clock, the processor time of all its
processes, and every reason for which an answer was not graded as it should be; the bar is 120 s of wall clock. The exit
code is 1 when it is missed or one of the answers was not graded.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from nezha import timed
from opsassay.core.schema.diagnosis import Diagnosis, Evidence, RootCauseClaim
from opsassay.core.schema.incident import Fault, Incident, Truth, Window
from opsassay.core.schema.run import Run, RunStatus, Solver
from opsassay.evals.runner.store import RunStore, read_verdicts
from opsassay.telemetry.content import content_hash, write_datapack
from opsassay.telemetry.tree import Tree, resolve

CASES, STATEMENTS, SPANS = 500, 10, 2000
BAR_S, CORES = 120.0, 2
NAMES = re.compile(r"\S*/\S*")
"""Paths: with them, no two reasons would be the same."""
SERVICES = ("frontend", "cart", "store", "payment", "ads")


def main() -> int:
    """Measure the command; 1 when the bar is missed or an answer was not graded as it should be."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        printed, wall_s, cpu_s = timed("grade", folder)
        right = [item for item in printed["items"] if item["metrics"]["sql_exec"]["value"] == 1.0]
        wrong = Counter(reasons(RunStore(Path(folder)), printed))
    cores = len(os.sched_getaffinity(0))
    print(
        f"graded {len(printed['items'])} of {CASES} answers with {STATEMENTS} statements each; in {len(right)} all ran"
    )
    for reason, times in wrong.most_common():
        print(f"  {times} x {reason}")
    print(f"{wall_s:.1f} s on {cores} cores ({cpu_s:.1f} s of processor time); bar {BAR_S:g} s")
    return 1 if len(right) != CASES or wall_s > BAR_S else 0


def reasons(store: RunStore, printed: dict[str, Any]) -> Iterator[str]:
    """Yield why answers were not graded, why their evidence was not, and what came of each statement that did not run."""
    for problem in printed["problems"]:
        yield f"not graded: {NAMES.sub('...', problem)}"
    for item in printed["items"]:
        metric = item["metrics"]["sql_exec"]
        if metric["value"] is None:
            yield f"evidence not graded: {NAMES.sub('...', metric['reason'])}"
        elif metric["value"] < 1.0:
            (verdict,) = read_verdicts(store.runs_dir / item["run"])
            for one in verdict.evidence:
                if one.status != "ok":
                    yield f"statement: {one.status}: {one.message.partition(chr(10))[0]}"


def make(root: Path) -> None:
    """Write CASES incidents with their truth, and a run with an answer on each."""
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


if __name__ == "__main__":
    sys.exit(main())
