"""Reading the ledger: what faults cost, per call, from the files of all processes of a system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.testbed.workload.runtime.ledger import GAVE_UP, LOAD_RECORD


def read_ledger(folder: Path, since_ns: int) -> pl.DataFrame:
    """Return the ledger, what faults caused, of all processes since *since_ns* (UTC), from the files in *folder*.

    A line that is cut off is dropped. A caller that gave up on a callee counts as having waited for it if a fault
    delayed the callee in the same trace; else it has no line. Columns: time_ns (UTC), process, kind, ns, error,
    service, operation, callee, link, direction, there_ns, back_ns, trace_id, span_id; null where a kind has no such
    thing. ns is the delay that the fault itself introduced, or how long a caller waited because of it; of a one_way
    line it is there_ns + back_ns, how long the request and its answer were under way.
    """
    schema = {
        "time_ns": pl.Int64, "process": pl.String, "kind": pl.String, "ns": pl.Int64, "error": pl.Boolean,
        "service": pl.String, "operation": pl.String, "callee": pl.String, "link": pl.String, "direction": pl.String,
        "there_ns": pl.Int64, "back_ns": pl.Int64, "trace_id": pl.String, "span_id": pl.String,
    }  # fmt: skip
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        if path.name == LOAD_RECORD:
            continue
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        rows += [
            row for line in whole.splitlines() if (row := _parse_row(line)) is not None and row["time_ns"] >= since_ns
        ]
    return _with_given_up(pl.DataFrame(rows, schema=schema, orient="row")).sort("time_ns")


def _with_given_up(lines: pl.DataFrame) -> pl.DataFrame:
    """Return *lines* in which callers that gave up on a callee have waited, if a fault delayed it in that trace."""
    known, open_ = lines.filter(pl.col("kind") != GAVE_UP), lines.filter(pl.col("kind") == GAVE_UP)
    while open_.height:
        busy = known.filter(pl.col("trace_id").is_not_null()).select("trace_id", callee="service").unique()
        waited = open_.join(busy, on=["trace_id", "callee"], how="semi")
        if waited.is_empty():
            break
        known = pl.concat([known, waited.with_columns(kind=pl.lit("wait"))])
        open_ = open_.join(busy, on=["trace_id", "callee"], how="anti")
    return known


def _parse_row(line: bytes) -> dict[str, Any] | None:
    """Parse *line* as JSON; return None when it is cut off."""
    try:
        row: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row
