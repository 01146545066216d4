"""What `audit` and `compare` read: a score table, or a folder of graded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.errors import UserError

if TYPE_CHECKING:
    import polars as pl

    from opsassay.audit.settings import AuditSettings


def scores_of(path: Path, settings: AuditSettings, metric: str) -> pl.DataFrame:
    """Return the long, checked scores at *path*: a CSV or parquet file, or a store of graded runs.

    For a store *metric* of the default profile is the score, a solver is a method (its arm part of the name), its
    configuration the protocol, and repeats on one incident are averaged. One run of every cell counts; those that are not
    ranked (unsealed, or flagged) are left out. Raises UserError.
    """
    from opsassay.audit.settings import Columns
    from opsassay.audit.table import long_scores, read_table

    if not path.is_dir():
        return long_scores(read_table(path), settings.columns, str(path))
    return long_scores(_of_runs(path, metric), Columns(family=None), str(path))


def _of_runs(path: Path, metric: str) -> pl.DataFrame:
    import polars as pl

    from opsassay.bench.core.ranking import counted, solver_label, why_not_ranked
    from opsassay.bench.core.store import RunStore, read_run, read_verdicts
    from opsassay.errors import NotFoundError

    rows: list[tuple[str, str, str, str, float | None]] = []
    names: set[str] = set()
    store = RunStore(path)
    for run in counted(map(read_run, store.runs())):
        run_dir = store.runs_dir / run.cell / str(run.attempt)
        verdict = next((v for v in read_verdicts(run_dir) if v.profile == "default"), None)
        if verdict is None or why_not_ranked(run):
            continue
        names |= verdict.metrics.keys()
        if metric in verdict.metrics:
            protocol = json.dumps(run.solver.configuration, sort_keys=True) if run.solver.configuration else ""
            rows.append((run.system, run.item, solver_label(run), protocol, verdict.metrics[metric].value))
    if not names:
        raise UserError(
            f"{path} holds no graded runs; make some with `opsassay diagnose {path}` and `opsassay grade {path}`."
        )
    if not rows:
        raise NotFoundError("metric", metric, names)
    keys = ["system", "case", "method", "protocol"]
    table = pl.DataFrame(rows, schema={**dict.fromkeys(keys, pl.String), "score": pl.Float64}, orient="row")
    return table.group_by(keys, maintain_order=True).agg(pl.col("score").mean())
