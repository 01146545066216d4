"""The file ``STATE/index.jsonl`` with the database rows that no run folder contains, to rebuild the database.

`rebuild` fills an empty database: users, agents, benchmarks and cells from this file, results from run folders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.json_lines import whole_lines
from opsassay.core.schema.locks import folder_lock
from opsassay.core.schema.run import RunStatus
from opsassay.evals.runner.domain import domain_named, outcome_of
from opsassay.evals.runner.ranking import why_not_ranked
from opsassay.evals.runner.store import VERDICTS, RunStore, read_run, read_verdicts
from opsassay.server.artefacts import folder_digest
from opsassay.server.database import AGENTS, BENCHMARKS, CELLS, EVENTS, REPORTS, RESULTS, USERS

INDEX = "index.jsonl"
_LOCK = ".index.lock"
_TABLES: Mapping[str, Table] = {
    table.name: table for table in (USERS, AGENTS, BENCHMARKS, CELLS, REPORTS, EVENTS)
}  # what depends on another comes after it


def note(state: Path, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append *rows* of *table* to index.jsonl in *state*; a later row with the same id replaces an earlier one."""
    lines = "".join(json.dumps({"table": table, "row": dict(row)}, separators=(",", ":")) + "\n" for row in rows)
    with folder_lock(state, name=_LOCK), (state / INDEX).open("a+b") as notes:
        if notes.seek(0, os.SEEK_END) and os.pread(notes.fileno(), 1, notes.tell() - 1) != b"\n":
            notes.write(b"\n")  # a line that a crash has torn cannot swallow this one
        notes.write(lines.encode())
        notes.flush()
        os.fsync(notes.fileno())


def note_events(connection: Connection, state: Path, after_seq: int) -> int:
    """Append the events with numbers above *after_seq* to index.jsonl; return the last number."""
    rows = [
        dict(row)
        for row in connection.execute(select(EVENTS).where(EVENTS.c.seq > after_seq).order_by(EVENTS.c.seq)).mappings()
    ]
    if rows:
        note(state, "events", rows)
    return int(rows[-1]["seq"]) if rows else after_seq


def last_noted(state: Path) -> int:
    """Return the number of the last event in index.jsonl of the folder *state*."""
    path = state / INDEX
    lines = whole_lines(path.read_bytes()) if path.exists() else ()
    return max((line["row"]["seq"] for line in lines if line["table"] == "events"), default=0)


def rebuild(connection: Connection, state: Path) -> dict[str, int]:
    """Fill the empty tables from the folder *state*; return row counts by table; raises UserError if not empty."""
    if connection.execute(select(func.count()).select_from(USERS)).scalar_one():
        raise UserError("The database is not empty; --reindex fills an empty one from the state folder.")
    noted: dict[str, dict[Any, Any]] = {name: {} for name in _TABLES}
    path = state / INDEX
    for line in whole_lines(path.read_bytes()) if path.exists() else ():
        row = line["row"]
        noted[line["table"]][row.get("id", row.get("seq"))] = row
    _drop_uncommitted(noted)
    counts = {}
    for name, table in _TABLES.items():
        rows = list(noted[name].values())
        if rows:
            connection.execute(insert(table), [{c.name: row.get(c.name) for c in table.columns} for row in rows])
        counts[name] = len(rows)
    counts["results"] = _store_results(connection, state, noted)
    return counts


def _drop_uncommitted(rows: dict[str, dict[Any, Any]]) -> None:
    """Remove rows that were never committed from *rows*: duplicate names, and rows without a parent."""
    for name in ("users", "agents"):
        rows[name] = {row["id"]: row for row in {row["name"]: row for row in rows[name].values()}.values()}
    for name, key, of in (
        ("agents", "owner_id", "users"),
        ("benchmarks", "agent_id", "agents"),
        ("cells", "benchmark_id", "benchmarks"),
        ("reports", "agent_id", "agents"),
    ):
        rows[name] = {id_: row for id_, row in rows[name].items() if row[key] in rows[of]}


def _store_results(connection: Connection, state: Path, rows: Mapping[str, Mapping[Any, Any]]) -> int:
    """Store the results in the cells' run folders, end these cells and complete benchmarks; return how many results.

    *rows* is table to key to row, as read from the index file.
    """
    count = 0
    for benchmark in rows["benchmarks"].values():
        store = RunStore(state / "stores" / benchmark["task_set"])
        cells = [cell for cell in rows["cells"].values() if cell["benchmark_id"] == benchmark["id"]]
        found = {cell["id"]: row for cell in cells if (row := _read_result(store, cell)) is not None}
        for cell, row in found.items():
            connection.execute(insert(RESULTS).values(cell_id=cell, **row))
            agent = "Error" if row["errored"] else "Finished"
            connection.execute(CELLS.update().where(CELLS.c.id == cell).values(bundle="Terminated", agent=agent))
        ended = "Finished" if len(found) == len(cells) else "Queued"
        connection.execute(BENCHMARKS.update().where(BENCHMARKS.c.id == benchmark["id"]).values(state=ended))
        count += len(found)
    return count


def _read_result(store: RunStore, cell: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the result row of *cell*, read from its run folder; None when the run has not ended."""
    folder = store.finished(cell["hash"])
    if folder is None:
        return None
    try:
        run = read_run(folder)
        verdict = next((v for v in read_verdicts(folder) if v.profile == "default"), None)
    except OpsAssayError:
        return None
    if verdict is None:
        return None
    return {
        "passed": outcome_of(domain_named(cell["domain"]), run, verdict.metrics),
        "errored": run.status is not RunStatus.DONE,
        "metrics": {name: metric.model_dump(mode="json") for name, metric in verdict.metrics.items()},
        "evidence": folder_digest(folder, ignored_names=(VERDICTS,)),
        "run": folder.relative_to(store.root).as_posix(),
        "not_ranked": list(why_not_ranked(run)),
        "ended_ns": run.ended_ns or 0,
        "record": run.pretty_json(),
    }
