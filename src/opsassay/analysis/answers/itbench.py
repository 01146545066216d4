"""Answers to ITBench: ``agent_output.json`` with entities and propagations, on incidents of ITBench-Lite.

An entity NAMESPACE/KIND/NAME is the service of its name, or that of the workload whose pod it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from opsassay.analysis.answers.given import AnswerForm, Cases, Document, GivenAnswer, Reading, once
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.diagnosis import Diagnosis, PropagationClaim, RootCauseClaim
from opsassay.core.schema.run import RunStatus
from opsassay.evals.runner.run import AttemptOutcome
from opsassay.scoring.itbench import read_itbench_answer
from opsassay.scoring.names import normalise
from opsassay.telemetry.importers.itbench_lite import workload_of
from opsassay.telemetry.tree import Case

OUTPUTS = ("agent_output.json", "agent_response.json")
"""What the files of answers are called."""

_SERVICES = frozenset({"", "service", "deployment", "statefulset", "daemonset", "replicaset", "pod", "container"})
"""Kinds whose name is that of a service, or begins with it."""


def _entries(document: Document, cases: Cases) -> Iterator[Reading]:
    yield partial(_given, document, cases)


def _given(document: Document, cases: Cases) -> list[GivenAnswer]:
    case = _scenario(document, cases)
    answer = read_itbench_answer(document.path)
    solver, notes = document.solver_named(fault_kinds=())
    services, found = case.datapack.candidates(), list(notes)
    entities = document.content["entities"]
    unread = [
        one for one in entities if not isinstance(one, dict) or not isinstance(one.get("name", one.get("id")), str)
    ]
    found += ["an entity without a name is left out"] * len(unread)
    said = [_service(name, services, found) for name in answer.roots]
    edges = dict.fromkeys((_service(a, services, found), _service(b, services, found)) for a, b in answer.edges)
    within = [pair for pair in edges if pair[0] == pair[1]]
    found += ["a propagation within one service is left out"] * len(within)
    diagnosis = Diagnosis(
        root_causes=tuple(RootCauseClaim(service=name) for name in dict.fromkeys(said)),
        propagation=tuple(PropagationClaim.model_validate({"from": a, "to": b}) for a, b in edges if a != b),
        notes=once(found),
    )
    outcome = AttemptOutcome(RunStatus.DONE, diagnosis=diagnosis, notes=once(found))
    return [GivenAnswer(document.name, case, solver, outcome)]


def _scenario(document: Document, cases: Cases) -> Case:
    """Return the incident of the scenario whose name or number is that of a folder; raises NotFoundError."""
    named = [found[1] for part in document.folders if (found := re.search(r"scenario[-_ ]*0*(\d+)$", part, re.I))]
    bare = [part.lstrip("0") for part in reversed(document.folders) if part.isdigit()]  # the outer is no trial
    numbers = [f"scenario{between}{number}" for number in (*named, *bare[:1]) for between in ("-", "_", "", " ")]
    try:
        return cases.named(*document.folders, document.path.stem, *numbers)
    except NotFoundError as error:
        raise UserError(
            f"{error} Answers to scenarios whose truth alone is at hand are matched by `python -m "
            "benchmarks.papers.itbench_answers`."
        ) from error


def _service(name: str, services: list[str], notes: list[str]) -> str:
    """Return the service that an entity means, by its name as it is where it means none at hand."""
    *before, base = [part for part in name.split("/") if part] or [name]
    kind = before[-1].lower() if before else ""
    known = {normalise(one): one for one in services}
    for candidate in (base, workload_of(base)):
        if normalise(candidate) in known and kind in _SERVICES:
            if known[normalise(candidate)] != base:
                notes.append(f"{base!r} is read as the service {known[normalise(candidate)]!r}")
            return known[normalise(candidate)]
    notes.append(f"{name[:80]!r} is no service of the telemetry and stays what it is")
    return base


def _is_answer(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("entities"), list)


def _fits(path: Path) -> bool:
    return path.name in OUTPUTS


FORM = AnswerForm((".json",), lambda document: _is_answer(document.content), _entries, _fits)
