"""Results of RCAEval: a file SERVICE_FAULT_RUN.json per case with the columns that a method ranks, or one CSV of them.

Source of the form, and of what counts as a service: main.py of github.com/phamquiluan/RCAEval.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from opsassay.analysis.answers.external_answers import (
    AnswerForm,
    Cases,
    Document,
    ExternalAnswer,
    Reading,
    merge_notes,
    require_list,
    require_text,
)
from opsassay.core.errors import UserError
from opsassay.core.schema.diagnosis import Diagnosis, RankedService, RootCauseClaim
from opsassay.core.schema.run import RunStatus
from opsassay.evals.runner.run import AttemptOutcome
from opsassay.solvers.agents.contract import unknown_services
from opsassay.telemetry.importers.cases import owner_and_metric
from opsassay.telemetry.tree import Case

_CASE = re.compile(r"(?P<fault>[^_/]+_[^_/]+)[_/](?P<run>\w+?)(?P<failed>_failed)?")
_DATABASE = "-db"
"""Suffix of a store's name; RCAEval counts the store as the service before it."""


def _list_readings(document: Document, cases: Cases) -> Iterator[Reading]:
    """Yield functions that return answers: one per row of a CSV file, one for a JSON file."""
    if document.suffix == ".csv":
        for number, row in enumerate(document.content, 1):
            yield partial(_read_row, f"{document.name} row {number}", row, document, cases)
        return
    yield partial(_read_file, document, cases)


def _read_file(document: Document, cases: Cases) -> list[ExternalAnswer]:
    """Return the answer of a file SERVICE_FAULT_RUN.json; one that has an error is a failed run."""
    found = _CASE.fullmatch(document.path.stem)
    if found is None:
        raise UserError(f"{document.name} is not called SERVICE_FAULT_RUN.json, which says what case it is about.")
    case = _find_case(f"{found['fault']}/{found['run']}", document.folders, cases)
    content = document.content if isinstance(document.content, dict) else {"0": document.content}
    solver, notes = cases.find_solver(document, content.get("method"), kind="method", fault_kinds=())
    if found["failed"] or "error" in content:
        error = f"the method failed: {content.get('error', 'it says no more')}"
        return [
            ExternalAnswer(document.name, case, solver, AttemptOutcome(RunStatus.FAILED, error, notes=(*notes, error)))
        ]
    ranks = next((content[key] for key in ("0", "ranks", "root_causes") if key in content), None)
    ranked = [
        require_text(one, f"{document.name}: 0", "the name of a column")
        for one in _parse_ranking(ranks, f"{document.name}: 0")
    ]
    return [ExternalAnswer(document.name, case, solver, _outcome_of_ranking(ranked, case, notes))]


def _read_row(place: str, csv_row: dict[str, Any], document: Document, cases: Cases) -> list[ExternalAnswer]:
    """Return the answer of a CSV row, which names its incident and the ranked columns."""
    row = {str(key).strip().lower(): value for key, value in csv_row.items()}
    said = require_text(row.get("case"), f"{place}: case", "SERVICE_FAULT_RUN").replace("\\", "/").strip("/")
    *before, last = said.split("/")
    found = _CASE.fullmatch("/".join([*before[-1:], last]) if last.isdigit() else last)
    names = [str(row[key]) for key in ("dataset", "system") if row.get(key)]
    folders = (*before, *names, *document.folders, document.path.stem)
    case = _find_case(f"{found['fault']}/{found['run']}" if found else said, folders, cases)
    solver, notes = cases.find_solver(document, row.get("method"), kind="method", fault_kinds=())
    text = require_text(row.get("ranks"), f"{place}: ranks", "the columns that were ranked, the first first")
    return [
        ExternalAnswer(place, case, solver, _outcome_of_ranking(_parse_ranking(text, f"{place}: ranks"), case, notes))
    ]


def _find_case(name: str, folders: Sequence[str], cases: Cases) -> Case:
    """Return the incident *name*, in the data set that one of *folders* names if any; raises as `Cases.find_named`."""
    datasets = {part.lower().replace("_", "-") for part in folders}
    fitting = [one for one in cases.all if one.datapack.incident.system.lower().replace("_", "-") in datasets]
    try:
        return Cases(fitting).find_named(name) if fitting else cases.find_named(name)
    except UserError:
        return cases.find_named(name)


def _parse_ranking(value: Any, location: str) -> list[str]:
    """Return the ranked names in *value*: a list, a JSON list as text, or text separated by , ; or spaces."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = [name for name in re.split(r"[;,\s]+", value.strip("[] ").replace("'", "")) if name]
    return [
        require_text(one, location, "names of columns")
        for one in require_list(value, location, "a list of ranked columns")
    ]


def _outcome_of_ranking(ranked: Sequence[str], case: Case, before: Sequence[str]) -> AttemptOutcome:
    """Return the outcome that ranks the services of *ranked* (columns) and blames the first; *before*: notes."""
    notes, services = list(before), list[str]()
    for column in ranked:
        service = owner_and_metric(column, "_")[0] or column
        if service.endswith(_DATABASE):
            notes.append(f"{service!r} counts as {service.removesuffix(_DATABASE)!r}, as in RCAEval's own evaluation")
        services.append(service.removesuffix(_DATABASE))
    distinct = list(dict.fromkeys(services))
    if not distinct:
        notes.append("nothing is ranked: the answer is that nothing is wrong")
    else:
        notes.append("a ranking claims its first service; columns of one service are one place")
    diagnosis = Diagnosis(
        root_causes=tuple(RootCauseClaim(service=name) for name in distinct[:1]),
        ranking=tuple(RankedService(service=name, score=1 / place) for place, name in enumerate(distinct, 1)),
    )
    notes += unknown_services(diagnosis, case.datapack.candidates())
    diagnosis = diagnosis.model_copy(update={"notes": merge_notes(notes)})
    return AttemptOutcome(RunStatus.DONE, diagnosis=diagnosis, notes=merge_notes(notes))


def _is_rcaeval_answer(document: Document) -> bool:
    """Return whether *document* has RCAEval's columns, or its file name with a ranking or an error."""
    content = document.content
    if document.suffix == ".csv":
        return bool(content) and {"case", "ranks"} <= {str(key).strip().lower() for key in content[0]}
    called = _CASE.fullmatch(document.path.stem) is not None
    return called and isinstance(content, dict) and (isinstance(content.get("0"), list) or set(content) == {"error"})


def _has_answer_name(path: Path) -> bool:
    """Whether *path* is a CSV file, or called SERVICE_FAULT_RUN as RCAEval's answers."""
    return path.suffix.lower() == ".csv" or _CASE.fullmatch(path.stem) is not None


FORM = AnswerForm((".json", ".csv"), _is_rcaeval_answer, _list_readings, _has_answer_name)
