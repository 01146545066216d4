"""Task sets that authors upload: a tar with task_set.yaml at its top, checked, and bound by a published commitment.

The upload is secret until the set is closed; then everybody may download it and compare it with the commitment.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from sqlalchemy import Connection

from opsassay.core.errors import UserError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.diagnosis.solve import IncidentRun
from opsassay.evals.remediation.authoring.checks import findings_here
from opsassay.evals.remediation.solve import TrialRun
from opsassay.server.access import ForbiddenError, User
from opsassay.server.artefacts import unpack
from opsassay.server.benchmarks import Platform
from opsassay.server.events import append
from opsassay.server.task_sets import (
    FOLDER,
    USUAL_BASELINES,
    HandedIn,
    TaskSet,
    baselines_of,
    jobs_of,
    load_task_set,
    task_set_names,
)
from opsassay.telemetry.content import whole_file

TASK_SET_YAML = "task_set.yaml"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")


def hand_in(platform: Platform, connection: Connection, user: User, name: str, content: bytes) -> dict[str, Any]:
    """Check the task set in the tar *content*, store it as the next version of *name*, return its commitment.

    Raises UserError and the domain's errors, and then stores nothing; ForbiddenError for the name of another author.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            "A task set's name has small letters, digits and -, 60 at most; say it in the query: ?name=NAME."
        )
    version, names = 1, task_set_names(platform.state)
    handed_in = [one for one in (load_task_set(platform.state, name).handed_in for name in names) if one is not None]
    user.require_uploads_left(sum(one.version for one in handed_in if one.author == user.id), "versions of task sets")
    if name in names:
        version += _handed_in_by(platform, user, name)[1].version
    salt, folder = secrets.token_hex(16), f"{name}.{version}"
    place = platform.state / FOLDER / folder
    unpack(content, place)
    try:
        if not (place / TASK_SET_YAML).is_file():
            raise UserError(f"The upload has no {TASK_SET_YAML} at its top.")
        tasks = load_yaml(place / TASK_SET_YAML, TaskSet)
        if tasks.handed_in is not None or tasks.closed:
            raise UserError(f"{TASK_SET_YAML}: `handed_in` and `closed` are the platform's to say; leave them out.")
        commitment = hashlib.sha256(bytes.fromhex(salt) + content).hexdigest()
        artefact = platform.artefacts.keep(content)
        handed = HandedIn(
            version=version, author=user.id, commitment=commitment, salt=salt, artefact=artefact, folder=folder
        )
        tasks = tasks.model_copy(update={"handed_in": handed})
        count = _require_valid_tasks(platform.state, name, tasks)
        _write_task_set(platform.state, name, tasks)
    except Exception:
        shutil.rmtree(place, ignore_errors=True)
        raise
    append(connection, "task set handed in", name, {"version": version, "commitment": commitment})
    return {"name": name, "version": version, "commitment": commitment, "tasks": count}


def close_task_set(platform: Platform, connection: Connection, user: User, name: str) -> dict[str, Any]:
    """End grading on the task set *name* of *user* and publish its upload; raises ForbiddenError."""
    tasks, handed = _handed_in_by(platform, user, name)
    if not tasks.closed:
        _write_task_set(platform.state, name, tasks.model_copy(update={"closed": True}))
        append(connection, "task set closed", name, {"version": handed.version, "commitment": handed.commitment})
    return {"name": name, "version": handed.version, "commitment": handed.commitment, "salt": handed.salt}


def opened_upload(platform: Platform, user: User, name: str) -> bytes:
    """Return the uploaded tar of *name*, before it is closed only to its author; raises ForbiddenError."""
    tasks = load_task_set(platform.state, name)
    if tasks.handed_in is None or not tasks.closed:
        tasks, _ = _handed_in_by(platform, user, name)
    assert tasks.handed_in is not None
    return platform.artefacts.read(tasks.handed_in.artefact)


def _handed_in_by(platform: Platform, user: User, name: str) -> tuple[TaskSet, HandedIn]:
    """Return the uploaded task set *name* of *user*, any author's for an admin; raises ForbiddenError."""
    tasks = load_task_set(platform.state, name)
    if tasks.handed_in is None or not user.owns(tasks.handed_in.author):
        raise ForbiddenError(f"{name} was not handed in by you; another name is free.")
    return tasks, tasks.handed_in


def _require_valid_tasks(state: Path, name: str, tasks: TaskSet) -> int:
    """Return the number of tasks in *tasks*; raises UserError for paths outside the upload and invalid tasks."""
    for text in _list_texts(tasks.part):
        if PurePosixPath(text).is_absolute() or ".." in PurePosixPath(text).parts:
            raise UserError(f"{TASK_SET_YAML}: {text!r} lies outside of the upload; put the file into it.")
    agent = (*baselines_of(tasks), *USUAL_BASELINES.get(tasks.domain, ()), "constant")[0]
    jobs = {job.cell.task.commitment: job for job in jobs_of(state, name, tasks, [agent], {})}
    for job in jobs.values():
        if isinstance(job, IncidentRun) and job.case.truth is None:
            raise UserError(f"The incident {job.task_name} has no truth in the upload; no agent could be graded on it.")
        if isinstance(job, TrialRun):
            _require_valid_scenario(job.scenario)
    return len(jobs)


def _require_valid_scenario(scenario: Scenario) -> None:
    """Raise UserError for the first error that the checks of *scenario* find."""
    for one in findings_here(scenario):
        if one.error:
            raise UserError(f"{scenario.id}: {one.field}: {one.message}.")


def _list_texts(value: Any) -> Iterator[str]:
    """Yield each string in *value*, JSON data of any depth, except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _list_texts(one)


def _write_task_set(state: Path, name: str, tasks: TaskSet) -> None:
    """Write *tasks* as the YAML file of the task set *name* in the platform's folder *state*."""
    with whole_file(state / FOLDER / f"{name}.yaml") as partial:
        partial.write_text(yaml.safe_dump(tasks.model_dump(mode="json"), sort_keys=False), encoding="utf-8")
