"""Trials of Harbor on our tasks: one folder per trial in the folder of a job, with ``result.json`` and the answer.

Source: the results that Harbor writes (harbor-framework/harbor, models/trial/result.py), and what our tasks ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from opsassay.analysis.answers.external_answers import (
    AnswerForm,
    Cases,
    Document,
    ExternalAnswer,
    Reading,
    require_text,
)
from opsassay.core.schema.run import RunStatus
from opsassay.core.untrusted import is_plain, read_plain
from opsassay.evals.diagnosis.harnesses.submissions import read_given
from opsassay.evals.runner.run import MAX_ANSWER_BYTES, AttemptOutcome

RESULT, ANSWER = "result.json", "answer.json"
_SPENT = {"n_input_tokens": "input_tokens", "n_output_tokens": "output_tokens", "cost_usd": "usd"}


def _list_readings(document: Document, cases: Cases) -> Iterator[Reading]:
    """Yield one function, which reads the answer of the trial in *document*."""
    yield partial(_read_answer, document, cases)


def _read_answer(document: Document, cases: Cases) -> list[ExternalAnswer]:
    """Return the one answer of the trial in *document*, with the agent, model and version named there."""
    trial: dict[str, Any] = document.content
    task = require_text(trial.get("task_name"), f"{document.name}: task_name", "the name of a task")
    case = cases.find_named(task, task.rpartition("/")[2], _get_object(trial, "task_id").get("path"))
    agent = _get_object(trial, "agent_info")
    model = _get_object(agent, "model_info").get("name")
    version = str(agent.get("version") or "")
    solver, notes = cases.find_solver(document, agent.get("name"), f"({model})" if model else None, version=version)
    outcome = _read_outcome(document.path.parent, trial, case.datapack.candidates(), notes)
    return [ExternalAnswer(document.name, case, solver, outcome)]


def _read_outcome(
    folder: Path, trial: Mapping[str, Any], services: list[str], notes: tuple[str, ...]
) -> AttemptOutcome:
    """Return the outcome of a trial by the answer file in *folder*: the diagnosis, failed or timed out."""
    used = _get_object(trial, "agent_result")
    spent = {ours: float(used[key]) for key, ours in _SPENT.items() if isinstance(used.get(key), int | float)}
    failed = str(_get_object(trial, "exception_info").get("exception_type") or "")
    places = sorted(path for path in folder.rglob(ANSWER) if is_plain(path) and "verifier" not in path.parts)
    if not places:
        status = RunStatus.TIMEOUT if "timeout" in failed.lower() else RunStatus.FAILED
        why = f"the trial left no {ANSWER}" + (f" ({failed})" if failed else "")
        return AttemptOutcome(status, why, spent=spent, notes=(*notes, why))
    if len(places) > 1:
        notes = (*notes, f"the trial left {len(places)} files {ANSWER}: {places[0].relative_to(folder)} is graded")
    given = read_given(read_plain(places[0], MAX_ANSWER_BYTES), services)
    said = given.diagnosis.notes if given.diagnosis else (str(given.error),)
    return AttemptOutcome(given.status, given.error, given.diagnosis, spent=spent, notes=(*notes, *said))


def _get_object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the object under *key* of *value*, {} for anything else."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _is_trial(row: Any) -> bool:
    """Whether *row* has the keys of a trial's result."""
    return isinstance(row, dict) and {"trial_name", "task_name"} <= row.keys()


def _is_trial_result(path: Path) -> bool:
    """Whether *path* is the result of one trial, not that of a job with trials below it."""
    return path.name == RESULT and not any(path.parent.glob(f"*/{RESULT}"))


FORM = AnswerForm(
    (".json",), lambda document: _is_trial(document.content), _list_readings, _is_trial_result, owns_folder=True
)
