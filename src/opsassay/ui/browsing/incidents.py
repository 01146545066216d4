"""Pages of recorded incidents: a filtered list, one with its telemetry, and SQL; the truth is shown only if requested."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.incident import Incident
from opsassay.core.text import plural
from opsassay.core.untrusted import one_sentence
from opsassay.telemetry.sql import LockedSql, QueryResult
from opsassay.ui.browsing.catalogue import StoredRun
from opsassay.ui.browsing.rows import Shown, View, page_of, run_row
from opsassay.ui.browsing.stored_incidents import StoredIncident, incident_page, name_of, stored_incidents
from opsassay.ui.page import inert_json
from opsassay.ui.payload import AnswerPayload, build_case
from opsassay.ui.plain import plain, utc

FILTERS = ("system", "alert", "store")
"""Names of the filters of incidents; alert matches a part of an alert's service or signal."""
SQL_TIMEOUT_S, SQL_MEMORY_MB, SQL_ROWS = 10.0, 1024, 200
_AT_ONCE = threading.BoundedSemaphore(2)
"""Limits the statements that run at the same time: each has a process with its own memory."""


def incidents_view(state: Shown, number: int, filters: Mapping[str, str]) -> View:
    """Return the page data of page *number* of the incidents that pass *filters*."""
    filters = {name: value for name in FILTERS if (value := filters.get(name, ""))}
    found, problems = [], []
    for one in stored_incidents(state):
        try:
            found.append((one, one.incident()))
        except (OpsAssayError, OSError) as error:
            problems.append(plain(str(error), 300))
    passed = [(one, incident) for one, incident in found if _passes_filters(one, incident, filters)]
    passed.sort(key=lambda pair: (pair[1].abnormal.start_ns, pair[0].key), reverse=True)
    chosen, paging = page_of(passed, number, "incidents.html")
    systems = sorted({plain(incident.system, 60) for _, incident in found})
    loud = max(passed, key=lambda pair: len(pair[1].alerts), default=None)
    return {
        "answer": f"{plural(len(found), 'incident')} of {plural(len(systems), 'system')}."
        + (
            f" The loudest: {name_of(loud[1])}, {plural(len(loud[1].alerts), 'alert')}."
            if loud and loud[1].alerts
            else ""
        ),
        "incidents": [_incident_row(state, one, incident) for one, incident in chosen],
        "paging": paging,
        "asked": {name: plain(value, 200) for name, value in filters.items()},
        "choices": {"system": systems, "store": sorted({plain(one.store, 60) for one, _ in found})},
        "problems": problems[:20],
    }


def _passes_filters(stored: StoredIncident, incident: Incident, filters: Mapping[str, str]) -> bool:
    """Whether the incident matches *filters*: system and store exactly, others by a part of its alerts."""
    exact = {"system": incident.system, "store": stored.store}
    alerts = " ".join(f"{alert.service} {alert.signal}" for alert in incident.alerts).lower()
    return all(value == exact[name] if name in exact else value.lower() in alerts for name, value in filters.items())


def _incident_row(state: Shown, stored: StoredIncident, incident: Incident) -> View:
    """Return the incident as a table row, with the number of its runs and of right ones."""
    runs = state.catalogue.by_task.get(("diagnosis", stored.id), ())
    right = sum(state.verdicts.succeeded(run) is True for run in runs)
    return {
        "page": incident_page(stored.store, stored.id),
        "id": plain(stored.id, 60),
        "name": name_of(incident),
        "system": plain(incident.system, 60),
        "store": plain(stored.store, 60),
        "at": utc(incident.abnormal.start_ns),
        "alerts": len(incident.alerts),
        "runs": len(runs),
        "right": right,
    }


def incident_view(state: Shown, stored: StoredIncident, *, reveal: bool) -> View:
    """Return the page data of an incident: telemetry and alerts; truth and answers only with *reveal*."""
    from opsassay.ui.view import page_view

    incident, runs = stored.incident(), state.catalogue.by_task.get(("diagnosis", stored.id), ())
    if reveal:
        case = stored.case()
        report = build_case(case.datapack, case.truth, case.annotation, [_answer_payload(state, run) for run in runs])
    else:
        report = build_case(stored.datapack(), None, None, [])
    payload = {"cases": page_view([report]), "solvers": None, "withheld": not reveal}
    view = _incident_row(state, stored, incident)
    first = min(incident.alerts, key=lambda alert: alert.time_ns, default=None)
    after_s = f"{(first.time_ns - incident.abnormal.start_ns) / 1e9:.0f} s into it" if first else ""
    loud = (
        f"{plural(len(incident.alerts), 'alert')}, the first of {plain(first.service, 80)} {after_s}"
        if first
        else "no alert"
    )
    found = (
        f"{view['right']} of {plural(len(runs), 'run')} found what was broken"
        if runs
        else "no solver was run on it yet"
    )
    return view | {
        "answer": f"{plain(incident.system, 60)}: {loud}; {found}.",
        "description": plain(incident.description, 600),
        "revealed": reveal,
        "sql": f"sql/{stored.key}.html",
        "results": [run_row(state, run) for run in runs[:50]],
        "payload": payload,
        "inert": inert_json(payload),
    }


def _answer_payload(state: Shown, stored: StoredRun) -> AnswerPayload:
    """Return the run *stored* on an incident, with its diagnosis and verdict, as the incident's page shows it."""
    from opsassay.evals.runner.store import read_diagnosis

    return AnswerPayload(
        run=stored.run, diagnosis=read_diagnosis(stored.folder), verdict=state.verdicts.verdict_of(stored)
    )


def sql_view(stored: StoredIncident, sql: str) -> View:
    """Return the page data with the result of the statement *sql* over the incident's tables.

    It runs in the locked worker, for SQL_TIMEOUT_S at most. Raises UserError where two run already.
    """
    if not _AT_ONCE.acquire(timeout=SQL_TIMEOUT_S):
        raise UserError("Two statements run already; reload this page when they have ended.")
    try:
        with LockedSql(
            stored.datapack(), timeout_s=SQL_TIMEOUT_S, memory_mb=SQL_MEMORY_MB, max_rows=SQL_ROWS
        ) as locked:
            tables = [{"name": name, "columns": locked.schema(name)} for name in locked.tables()]
            result = locked.query(sql) if sql.strip() else None
    finally:
        _AT_ONCE.release()
    return {
        "answer": _describe_result(result),
        "incident": incident_page(stored.store, stored.id),
        "name": name_of(stored.incident()),
        "sql": plain(sql, 8_000),
        "tables": tables,
        "status": result.status if result else "",
        "columns": [plain(column, 80) for column in result.columns] if result else [],
        "rows": [[plain("–" if cell is None else cell, 300) for cell in row] for row in result.rows] if result else [],
    }


def _describe_result(result: QueryResult | None) -> str:
    """Return a sentence on the result of the SQL statement; without one, on what may be queried."""
    if result is None:
        return (
            f"One SELECT over this incident, up to {SQL_ROWS} rows and {SQL_TIMEOUT_S:g} s; its address can be sent on."
        )
    if result.status == "ok":
        more = f"; there are more, {SQL_ROWS} are shown" if result.truncated else ""
        return f"{plural(len(result.rows), 'row')}{more}."
    return (
        "No rows." if result.status == "empty" else f"The statement was not carried out: {one_sentence(result.message)}"
    )
