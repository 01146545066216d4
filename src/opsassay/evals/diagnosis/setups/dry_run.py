"""`opsassay agent check`: one run on a generated incident, and checks of the agent's contract."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.incident import Alert, Incident, Window
from opsassay.core.schema.run import Run
from opsassay.core.text import plural
from opsassay.evals.diagnosis.setups.agents import Setup
from opsassay.evals.diagnosis.solve import run_agent
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner.rehearsal import Check, Rehearsal, check_end, check_usage, isolated, traced
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run
from opsassay.solvers.agents import models
from opsassay.solvers.agents.mcp_server import incident_specs
from opsassay.telemetry.content import opaque_id, write_datapack
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql

DRY_RUN_MODEL = f"scripted:{Path(models.__file__).parent / 'dry_run.yaml'}"
"""The model of a check that names none."""

ROOT, KIND = "stock", "http_response_status_modified"
"""The faulty service and the kind of fault in the generated incident."""

_START_NS, _SECOND = 1_767_323_045_000_000_000, 1_000_000_000
_SECONDS = 30


def check(setup: Setup) -> Rehearsal:
    """Run the agent of *setup* once on a generated incident; return the checks of its contract."""
    with tempfile.TemporaryDirectory(prefix="opsassay-", ignore_cleanup_errors=True) as folder:
        incident = tiny_incident(Path(folder) / "incident")
        run_dir = run_agent(RunStore(Path(folder) / "store"), IncidentItem.from_datapack(incident), setup)
        run, diagnosis = read_run(run_dir), read_diagnosis(run_dir)
        found = [
            check_end(run, run_dir),
            *_check_answer(run, diagnosis, incident),
            traced(run_dir),
            isolated(run.isolation),
        ]
        found.append(Check("canary", "canary" not in run.flags, "the false truth beside the view was not repeated"))
        return Rehearsal(incident_specs(), (*found, *check_usage(run)), run.isolation, run.spent)


def tiny_incident(path: Path) -> Datapack:
    """Write a made-up incident to *path*: service front calls stock, which fails in the abnormal period."""
    frames: dict[tuple[str, str], pl.DataFrame] = {}
    for period, begin_ns in (("normal", _START_NS), ("abnormal", _START_NS + _SECONDS * _SECOND)):
        rows = [row for at in range(_SECONDS) for row in _make_trace(period, begin_ns + at * _SECOND)]
        moment = pl.from_epoch("time", time_unit="ns").dt.replace_time_zone("UTC")
        frames[period, "traces"] = pl.DataFrame(rows).with_columns(moment, pl.col("duration").cast(pl.UInt64))
    boundary_ns = _START_NS + _SECONDS * _SECOND
    incident = Incident(
        id=opaque_id("opsassay agent check"),
        system="made-up",
        normal=Window(start_ns=_START_NS, end_ns=boundary_ns),
        abnormal=Window(start_ns=boundary_ns, end_ns=boundary_ns + _SECONDS * _SECOND),
        alerts=(
            Alert(
                time_ns=boundary_ns + 2 * _SECOND, service="front", signal="error_rate", value=1.0, threshold=0.1,
                message="requests fail",
            ),
        ),
        description="Users report that requests fail.",
    )  # fmt: skip
    write_datapack(path, frames, incident, {})
    return Datapack.open(path)


def _make_trace(period: str, time_ns: int) -> list[dict[str, Any]]:
    """Return the rows of one request's two spans, front and stock, at *time_ns* (ns); failing in period "abnormal"."""
    status = "Error" if period == "abnormal" else "Unset"
    trace = f"{time_ns:032x}"
    return [
        {
            "time": time_ns, "trace_id": trace, "span_id": f"{time_ns + depth:016x}",
            "parent_span_id": f"{time_ns + depth - 1:016x}" if depth else "", "span_name": f"GET /{service}",
            "service_name": service, "duration": 10_000_000 - depth * 2_000_000, "attr.status_code": status,
            "attr.span_kind": "Server",
        }
        for depth, service in enumerate(("front", "stock"))
    ]  # fmt: skip


def _check_right(diagnosis: Diagnosis) -> Check:
    """Return an informative check: whether the answer names the right cause, which the contract does not require."""
    named = [(claim.service, claim.fault_kind) for claim in diagnosis.root_causes]
    if named == [(ROOT, KIND)]:
        return Check("right", None, f"yes: {ROOT} answers with errors ({KIND})")
    said = ", ".join(f"{service} ({kind})" for service, kind in named[:3]) or "nothing is wrong"
    return Check("right", None, f"NO: it says {said}; right is {ROOT} ({KIND})")


def _check_answer(run: Run, diagnosis: Diagnosis | None, incident: Datapack) -> list[Check]:
    """Return the checks of a finished dry run: a valid answer, right, with evidence whose SQL runs."""
    if diagnosis is None:
        return [Check("answer", passed=False, said=run.error or "there is none")]
    found = [
        Check("answer", not diagnosis.notes, "; ".join(diagnosis.notes) or "by the contract, nothing to put right")
    ]
    found.append(_check_right(diagnosis))
    given = [claim.evidence for claim in diagnosis.root_causes] + [edge.evidence for edge in diagnosis.propagation]
    statements = [evidence.sql for several in given for evidence in several if evidence.expectation is None]
    with LockedSql(incident) as sql:
        wrong = [(s, r) for s in statements if (r := sql.query(s)).status not in ("ok", "empty")]
    said = (
        f"{plural(len(statements), 'statement')} run"
        if not wrong
        else f"{wrong[0][1].status}: {wrong[0][1].message[:200]}"
    )
    return [*found, Check("evidence", not wrong, said)]
