"""What a solver leaves for a task, graded in memory: on the worlds of the task, by our evaluator or by a Kyverno."""

from __future__ import annotations

from pathlib import Path

from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.kyverno.judge import admitted
from opsassay.evals.compliance.score import Admits, grade_files
from opsassay.evals.compliance.scripts.oracles import BASELINES, ORACLES, baseline
from opsassay.evals.compliance.tasks import ComplianceTask


def grades(task: ComplianceTask, solver: str, folder: Path, admits: Admits = admitted) -> dict[str, float | None]:
    """Return the value of each metric of the oracle or baseline *solver* of *task*; evidence is kept in *folder*."""
    files = baseline(solver, task) if solver in BASELINES else ORACLES[task.task_class][solver][0](task)
    wanted = {path: content for path, content in files.items() if path.startswith("policies/") or task.collector}
    return {name: one.value for name, one in grade_files(wanted, task, EvidenceCache(folder), admits).items()}
