"""Answers to ITBench: ``agent_output.json`` with entities and propagations, on incidents of ITBench-Lite.

An entity NAMESPACE/KIND/NAME is the service of its name, or that of the workload whose pod it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from opsassay.analysis.answers.external_answers import AnswerForm, Cases, Document, ExternalAnswer, Reading, merge_notes
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.diagnosis import Diagnosis, PropagationClaim, RootCauseClaim
from opsassay.core.schema.run import RunStatus
from opsassay.core.untrusted import MAX_FILE_BYTES, read_plain
from opsassay.evals.runner.run import AttemptOutcome
from opsassay.scoring.itbench import ItbenchTruth, read_itbench_answer
from opsassay.scoring.itbench_names import readings_of
from opsassay.scoring.profiles import normalise
from opsassay.telemetry.importers.itbench import ENTITIES, GroundTruth
from opsassay.telemetry.importers.itbench_objects import workload_of
from opsassay.telemetry.tree import Case

OUTPUTS = ("agent_output.json", "agent_response.json")
"""File names of answers."""

_SERVICES = frozenset({"service", "deployment", "statefulset", "daemonset", "replicaset", "pod", "container"})
"""Kinds of entities whose name is a service's name, or starts with one."""


def _list_readings(document: Document, cases: Cases) -> Iterator[Reading]:
    """Yield one function, which reads the answer in an agent's output file."""
    yield partial(_read_answer, document, cases)


def _read_answer(document: Document, cases: Cases) -> list[ExternalAnswer]:
    """Return the one answer in *document*: its entities as root causes, its propagations as edges."""
    case = _find_scenario(document, cases)
    answer = read_itbench_answer(document.path)
    solver, notes = cases.find_solver(document, fault_kinds=())
    names, found = _EntityNames(case), list(notes)
    entities = document.content["entities"]
    unread = [
        one for one in entities if not isinstance(one, dict) or not isinstance(one.get("name", one.get("id")), str)
    ]
    found += ["an entity without a name is left out"] * len(unread)
    said = [names.service(name, found) for name in answer.roots]
    edges = dict.fromkeys((names.service(a, found), names.service(b, found)) for a, b in answer.edges)
    within = [pair for pair in edges if pair[0] == pair[1]]
    found += ["a propagation within one service is left out"] * len(within)
    diagnosis = Diagnosis(
        root_causes=tuple(RootCauseClaim(service=name) for name in dict.fromkeys(said)),
        propagation=tuple(PropagationClaim.model_validate({"from": a, "to": b}) for a, b in edges if a != b),
        notes=merge_notes(found),
    )
    outcome = AttemptOutcome(RunStatus.DONE, diagnosis=diagnosis, notes=merge_notes(found))
    return [ExternalAnswer(document.name, case, solver, outcome)]


def _find_scenario(document: Document, cases: Cases) -> Case:
    """Return the incident that a folder of *document* names by scenario name or number; raises UserError."""
    named = [found[1] for part in document.folders if (found := re.search(r"scenario[-_ ]*0*(\d+)$", part, re.I))]
    bare = [part.lstrip("0") for part in reversed(document.folders) if part.isdigit()]  # the outer is no trial
    numbers = [f"scenario{between}{number}" for number in (*named, *bare[:1]) for between in ("-", "_", "", " ")]
    try:
        return cases.find_named(*document.folders, document.path.stem, *numbers)
    except NotFoundError as error:
        raise UserError(
            f"{error} Answers to scenarios whose truth alone is at hand are matched by `python -m "
            "benchmarks.papers.itbench_answers`."
        ) from error


class _EntityNames:
    """Maps the names of ITBench entities to services of the incident *case*."""

    def __init__(self, case: Case) -> None:
        self._services = {normalise(one): one for one in case.datapack.candidates()}
        self._roots, self._truth = dict[str, str](), None
        path = case.truth_path / ENTITIES if case.truth_path else None
        if path is None or not path.exists() or case.truth is None or case.annotation is None:
            return
        entities = json.loads(read_plain(path, MAX_FILE_BYTES))["groups"]
        groups = {name: {"kind": of["kind"], "filter": of["filters"]} for name, of in entities.items()}
        self._truth = ItbenchTruth(case.name, GroundTruth(groups, (), case.annotation, {}))
        named = zip(case.annotation.graph.root_causes, case.truth.roots, strict=False)
        self._roots = {node.component: label.service[0] for node, label in named if label.service}

    def service(self, name: str, notes: list[str]) -> str:
        """Return the service of the entity *name*, else *name*; appends a note to *notes* if they differ.

        A root of the ground truth that is no workload, such as an experiment or a policy, becomes the service that
        stands for it in the incident's truth.
        """
        for one in readings_of(name, _SERVICES, ()):
            for candidate in (one.name, workload_of(one.name)) if one.kind in {"", *_SERVICES} else ():
                if found := self._services.get(normalise(candidate)):
                    notes += [f"{one.name!r} is read as the service {found!r}"] if found != one.name else []
                    return found
        group = self._truth.group_of(name) if self._truth else None
        if group in self._roots:
            notes.append(f"{name[:80]!r} is read as the service {self._roots[group]!r}, by which the truth names it")
            return self._roots[group]
        notes.append(f"{name[:80]!r} is no service of the telemetry and stays what it is")
        return name


def _is_answer(row: Any) -> bool:
    """Whether *row* is an output of ITBench: an object with a list of entities."""
    return isinstance(row, dict) and isinstance(row.get("entities"), list)


def _has_output_name(path: Path) -> bool:
    """Whether *path* is named as ITBench names an agent's output."""
    return path.name in OUTPUTS


FORM = AnswerForm((".json",), lambda document: _is_answer(document.content), _list_readings, _has_output_name)
