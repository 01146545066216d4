"""Stores of older plans: worlds that a real cluster gave, and what its Kyverno said. No cluster is asked again.

A plan could make the worlds of a task on a cluster (the arm `on-cluster`), or have Kyverno judge there (`engine-cluster`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.schema.base import Artefact
from opsassay.core.schema.run import Run
from opsassay.core.schema.task import Arm
from opsassay.evals.compliance.clusters.worlds import ComplianceWorld
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy
from opsassay.evals.compliance.score import Admits
from opsassay.evals.compliance.tasks import ComplianceTask, kept_task
from opsassay.evals.runner.generated_tasks import kept_body

ON, ENGINE, CLUSTER = "on", "engine", "cluster"
"""Knobs of an arm, and their value where a cluster did it."""
WORLDS = "compliance_worlds"
"""Folder of a store with the worlds that a cluster gave, by the commitments of tasks."""
ADMITTED = "admitted.json"
"""File of a run with what Kyverno let in, by digests of policies and objects."""


class ReadBackWorlds(Artefact):
    """The worlds of the task with this *commitment* as the cluster of *context*, of server *version*, had them."""

    commitment: str
    context: str
    version: str
    judged: tuple[ComplianceWorld, ...]
    mutants: tuple[ComplianceWorld, ...]
    others: dict[str, tuple[ComplianceWorld, ...]]


class ReadBackTask(ComplianceTask):
    """A task whose worlds are those that a cluster gave; of other controls' worlds those that violate."""

    read_back: ReadBackWorlds

    def judged(self) -> list[ComplianceWorld]:
        """Return the hidden test clusters that grade the task, as a real Kubernetes API once returned them."""
        return list(self.read_back.judged)

    def mutants(self) -> list[ComplianceWorld]:
        """Return each hidden test cluster with its violation added or removed, as a real Kubernetes API returned it."""
        return list(self.read_back.mutants)

    def others(self) -> dict[str, list[ComplianceWorld]]:
        """Return test clusters that violate the repository's other controls, by control, as a real API gave them."""
        return {name: list(some) for name, some in self.read_back.others.items()}


class KeptAdmissions:
    """What Kyverno let in, as the file *path* has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, bool] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def admits(self, policies: Sequence[KyvernoPolicy], objects: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether Kyverno with *policies* let *objects* be created, as recorded; raises DatapackError if not."""
        key = admission_digest(policies, objects)
        if key not in self._kept:
            raise DatapackError(f"{self._path} lacks what Kyverno said of this; restore it.")
        return self._kept[key]


def admission_digest(policies: Sequence[KyvernoPolicy], objects: Sequence[Mapping[str, Any]]) -> str:
    """Return the SHA-256 key of the recorded Kyverno decision on creating *objects* under *policies*."""
    parts = [[one.document for one in policies], [dict(one) for one in objects]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def graded_task(root: Path, run: Run) -> ComplianceTask:
    """Return the task of *run* with the hidden test clusters in the store *root*; raises DatapackError if missing."""
    task = kept_task(root, run.item_hash)
    if Arm.parse(run.arm).knob(ON) != CLUSTER:
        return task
    found = kept_body(root / WORLDS, task.commitment, ReadBackWorlds)
    if found.commitment != task.commitment:
        raise DatapackError(f"{root / WORLDS / task.commitment}.json holds the worlds of another task; restore it.")
    return ReadBackTask(**task.model_dump(), read_back=found)


def admissions_of(run: Run, run_dir: Path) -> Admits | None:
    """Return the function that looks up Kyverno's recorded decisions for *run*, None when our evaluator decides."""
    if Arm.parse(run.arm).knob(ENGINE) != CLUSTER:
        return None
    return KeptAdmissions(run_dir / ADMITTED).admits
