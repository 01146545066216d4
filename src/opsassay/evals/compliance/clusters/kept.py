"""Stores of older plans: test clusters returned by a real Kubernetes API, and recorded decisions of its Kyverno.

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
"""Settings of a variant, and their value where a real cluster was used."""
WORLDS = "compliance_worlds"
"""Folder of a store with the test clusters that a real API returned, by commitment of the task."""
ADMITTED = "admitted.json"
"""File of a run with Kyverno's recorded decisions, by digest of policies and objects."""


class ReadBackWorlds(Artefact):
    """The test clusters of the task *commitment* as a real cluster (*context*, server *version*) returned them."""

    commitment: str
    context: str
    version: str
    judged: tuple[ComplianceWorld, ...]
    mutants: tuple[ComplianceWorld, ...]
    others: dict[str, tuple[ComplianceWorld, ...]]


class ReadBackTask(ComplianceTask):
    """A task with test clusters that a real API returned; *others* of other controls only violate."""

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
    """Kyverno's recorded decisions in the file *path*."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, bool] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def admits(self, policies: Sequence[KyvernoPolicy], objects: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether Kyverno with *policies* admitted *objects*, as recorded; DatapackError if not recorded."""
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
