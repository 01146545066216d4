"""Answers to OpenRCA: a CSV with a row per question; its ``prediction`` is a JSON object of numbered root causes.

A question is about half an hour of a system, so a row answers all incidents that began in it; times have the zone of
the days' folders. Source of the form: the README of github.com/microsoft/OpenRCA.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from opsassay.analysis.answers.external_answers import (
    AnswerForm,
    Cases,
    Document,
    ExternalAnswer,
    Reading,
    merge_notes,
    require_text,
)
from opsassay.core.errors import UserError
from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.faults import fault_type
from opsassay.core.schema.run import RunStatus
from opsassay.evals.runner.run import AttemptOutcome
from opsassay.solvers.agents.contract import unknown_services
from opsassay.telemetry.importers.openrca import ZONE, reason_type, root_label
from opsassay.telemetry.tree import Case

TIME, COMPONENT, REASON = "root cause occurrence datetime", "root cause component", "root cause reason"
_ELEMENT = re.compile(rf'"({TIME}|{COMPONENT}|{REASON})"\s*:\s*"([^"]*)"', re.IGNORECASE)
_DAY = re.compile(r"\b([A-Z][a-z]+)\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})\b")
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2})\b")


def _list_readings(document: Document, cases: Cases) -> Iterator[Reading]:
    """Yield for each row of the CSV file a function that returns its answers."""
    for number, row in enumerate(document.content, 1):
        yield partial(_read_answer, f"{document.name} row {number}", row, document, cases)


def _read_answer(place: str, csv_row: Mapping[str, Any], document: Document, cases: Cases) -> Iterator[ExternalAnswer]:
    """Yield the row's answer for each incident in the half hour of its question; raises UserError naming *place*."""
    row = {str(key).strip().lower(): value for key, value in csv_row.items()}
    asked = require_text(row.get("instruction"), f"{place}: instruction", "the text of a question of query.csv")
    about = _find_incidents(asked, document, cases, place)
    system = about[0].datapack.incident.system.removeprefix("openrca-")
    name = re.sub(rf"[-_. ]*(?:market[-_ ]?)?{re.escape(system)}$", "", document.path.stem, flags=re.IGNORECASE)
    solver, notes = cases.find_solver(document, row.get("model"), row.get("agent"), name)
    task = str(row.get("task_index") or "").strip()
    text = str(row.get("prediction") or "").strip()
    causes, odd = read_prediction(text)
    if not causes:
        failed = AttemptOutcome(RunStatus.FAILED, odd[-1], notes=(*notes, *odd))
        yield from (ExternalAnswer(place, case, solver, failed) for case in about)
        return
    if not any(cause.get(COMPONENT) for cause in causes):
        raise UserError(
            f"{place}: prediction names no {COMPONENT}, so it says nothing about an incident; `python -m "
            "benchmarks.papers.openrca` scores times and reasons alone."
        )
    for at, case in enumerate(about):
        one_each = len(causes) == len(about) > 1
        found = [*notes, *odd, *([f"it answers {task}"] if task else [])]
        if len(about) > 1:
            share = f"its root cause {at + 1}" if one_each else "all its root causes"
            found.append(f"the question is about {len(about)} incidents: this one gets {share}")
        diagnosis, said = _build_diagnosis(causes[at : at + 1] if one_each else causes, case)
        yield ExternalAnswer(
            place, case, solver, AttemptOutcome(RunStatus.DONE, diagnosis=diagnosis, notes=(*found, *said))
        )


def _find_incidents(question: str, document: Document, cases: Cases, place: str) -> list[Case]:
    """Return the incidents that began in the half hour of *question*, by start; raises UserError naming *place*."""
    start, end = window_of(question, place)
    path, found = f"{document.name} {question}".lower(), []
    for case in cases.all:
        incident = case.datapack.incident
        system = incident.system.removeprefix("openrca-")
        begun = datetime.fromtimestamp(incident.abnormal.start_ns / 1e9, UTC)
        if (
            incident.system.startswith("openrca-")
            and start <= begun < end
            and re.search(rf"\b{re.escape(system)}\b", path)
        ):
            found.append(case)
    if not found:
        shown = f"{start.astimezone(ZONE):%Y-%m-%d %H:%M} to {end.astimezone(ZONE):%H:%M}"
        raise UserError(
            f"{place}: no incident at hand began in {shown}, in a system that the file or the question names; import its "
            "day with `opsassay incident import openrca`, and keep the system in the name of the file."
        )
    return sorted(found, key=lambda case: case.datapack.incident.abnormal.start_ns)


def window_of(question: str, place: str) -> tuple[datetime, datetime]:
    """Return (start, end) of the half hour that *question* asks about; raises UserError naming *place*."""
    days, clocks = _DAY.findall(question), _CLOCK.findall(question)
    try:
        day = datetime.strptime(" ".join(days[0]), "%B %d %Y").replace(tzinfo=ZONE)
        start, end = (day + timedelta(hours=int(hour), minutes=int(minute)) for hour, minute in clocks[:2])
    except (IndexError, ValueError) as error:
        raise UserError(
            f"{place}: instruction names no day and two times ({question[:80]!r}); give the question of query.csv."
        ) from error
    return start, end if end > start else end + timedelta(days=1)


def read_prediction(text: str) -> tuple[list[dict[str, str]], list[str]]:
    """Return (root causes in number order, each {"time", "component", "reason"} in part; notes on irregularities)."""
    bare = re.sub(r"^```\w*|```$", "", text.strip()).strip()
    try:
        payload, odd = json.loads(bare), list[str]()
    except (ValueError, RecursionError):
        found = _ELEMENT.findall(text)
        payload, odd = _group_elements(found), ["the prediction is no JSON: its elements are read one by one"]
    if isinstance(payload, dict) and {TIME, COMPONENT, REASON} & {str(key).strip().lower() for key in payload}:
        payload = {"1": payload}
    entries = _in_number_order(payload) if isinstance(payload, dict) else payload if isinstance(payload, list) else []
    causes = [_read_elements(entry, odd) for entry in entries if isinstance(entry, dict)]
    if not any(causes) and (deeper := _ELEMENT.findall(text)):  # OpenRCA's own evaluator looks for them at any depth
        odd.append("the root causes are not numbered: their elements are read one by one")
        causes = [_read_elements(entry, odd) for entry in _group_elements(deeper).values()]
    if not any(causes):
        odd.append(f"the prediction holds no root cause ({text[:60]!r})")
    return [cause for cause in causes if cause], odd


def _in_number_order(payload: Mapping[Any, Any]) -> list[Any]:
    """Return the values of *payload* in numeric order of their keys."""

    def number(key: Any) -> tuple[int, str]:
        """Return the first number in *key*, and *key*; keys without one come last."""
        digits = re.search(r"\d+", str(key))
        return int(digits[0]) if digits else len(payload), str(key)

    return [payload[key] for key in sorted(payload, key=number)]


def _read_elements(entry: Mapping[Any, Any], odd: list[str]) -> dict[str, str]:
    """Return the texts among time, component and reason of *entry*, by name; notes on other values go to *odd*."""
    folded = {str(key).strip().lower(): value for key, value in entry.items()}
    found = {}
    for name in (TIME, COMPONENT, REASON):
        value = folded.get(name)
        if isinstance(value, str) and value.strip():
            found[name] = value.strip()
        elif value is not None and value != "":
            odd.append(f"the {name} is {type(value).__name__} and is left out")
    return found


def _group_elements(pairs: Sequence[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Return (name, value) *pairs* as one dict per root cause; a repeated name starts the next."""
    causes: list[dict[str, str]] = [{}]
    for name, value in pairs:
        if name.lower() in causes[-1]:
            causes.append({})
        causes[-1][name.lower()] = value
    return {str(number): cause for number, cause in enumerate(causes, 1)}


def _build_diagnosis(causes: Sequence[Mapping[str, str]], case: Case) -> tuple[Diagnosis, tuple[str, ...]]:
    """Return (the diagnosis that claims *causes*, notes on what was changed or left out); *case*: the incident."""
    claims, notes = [], list[str]()
    for cause in causes:
        if TIME in cause:
            notes.append("the time of occurrence is not graded")
        if COMPONENT not in cause:
            notes.append("a root cause without a component is left out")
            continue
        label = root_label(cause[COMPONENT])
        kind = reason_type(cause[REASON]) if REASON in cause else None
        if label.pod:
            notes.append(f"the pod {label.pod[0]} is graded as its service {label.service[0]} too")
        if REASON in cause and kind is None:
            notes.append(f"the reason {cause[REASON]!r} is no fault kind")
        claim = RootCauseClaim(service=label.service[0], fault_kind=fault_type(kind).kind if kind else None)
        claims.append(claim.model_copy(update={"level": "pod", "component": label.pod[0]} if label.pod else {}))
    diagnosis = Diagnosis(root_causes=tuple(claims))
    notes += unknown_services(diagnosis, case.datapack.candidates())
    return diagnosis.model_copy(update={"notes": merge_notes(notes)}), merge_notes(notes)


def _has_answer_columns(document: Document) -> bool:
    """Whether the table has the columns `instruction` and `prediction`."""
    rows = document.content
    return bool(rows) and {"instruction", "prediction"} <= {str(key).strip().lower() for key in rows[0]}


FORM = AnswerForm((".csv",), _has_answer_columns, _list_readings)
