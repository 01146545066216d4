"""What an operator says is the cause while it works, taken down at the moment when it says so."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import DIAGNOSES
from opsassay.core.schema.trajectory import OperatorDiagnosis, Propagation
from opsassay.evals.remediation.assignment import Assignment
from opsassay.solvers.agents.models.base import ToolSpec
from opsassay.solvers.agents.sre_prompts import DIAGNOSIS_REPORT

REPORT_DIAGNOSIS: ToolSpec = DIAGNOSIS_REPORT.model_copy(
    update={
        "description": "Hand in what you think is the cause, as soon as you know. It is graded, and so is how soon it "
        "came; a later one takes its place."
    }
)
"""The tool of external operators; to the built-in agent it is the end of its first part."""


NAMES_KEPT, NAME_KEPT, CONDITION_KEPT = 100, 200, 4_000
"""What of a diagnosis is taken down: names, characters of each, and of the condition."""


class Diagnoses:
    """The diagnoses of one trial. From here on the run folder says that one was asked for, also when none comes."""

    def __init__(self, task: Assignment) -> None:
        self._path = task.run_dir / DIAGNOSES
        self._path.touch()
        # a scenario may leave names open: what is said is put down as the scenario has it
        self._open = {str(task.fill(name)): name for name in task.scenario.true_causes()}

    def take(self, given: Mapping[str, Any]) -> None:
        """Write down what was *given*: arguments that the linter let pass."""
        line = OperatorDiagnosis(
            time_ns=time.time_ns(),
            root_causes=tuple(self._open.get(name, name) for name in _names(given["root_causes"])),
            propagation=tuple(_names(given["propagation"])),
            condition=given["condition"][:CONDITION_KEPT],
            edges=tuple(self._edges(given.get("edges") or ())),
        )
        append_line(self._path, line)

    def _edges(self, given: Iterable[Any]) -> Iterator[Propagation]:
        """Yield the steps that have both ends; a model's answer holds whatever it likes."""
        for one in islice(given, NAMES_KEPT):
            if not isinstance(one, Mapping) or not all(isinstance(one.get(end), str) for end in ("source", "target")):
                continue
            source, target = (self._open.get(name, name) for name in _names((one["source"], one["target"])))
            words = {key: str(one.get(key, ""))[:CONDITION_KEPT] for key in ("condition", "effect")}
            yield Propagation(source=source, target=target, **words)


def _names(given: Iterable[Any]) -> list[str]:
    return [str(name)[:NAME_KEPT] for name in islice(given, NAMES_KEPT)]
