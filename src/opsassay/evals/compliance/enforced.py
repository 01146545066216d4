"""Grading Kyverno policies: what they keep out of worlds that nobody saw, and what of a repository they leave as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsassay.core.schema.run import Metric
from opsassay.evals.compliance.kyverno.errors import UnsupportedError
from opsassay.evals.compliance.kyverno.judge import admitted
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy, read_policies
from opsassay.evals.compliance.repository import repository, what_was_not_kept
from opsassay.evals.compliance.stages import (
    JudgedWorlds,
    all_of,
    mark,
    not_asked,
    posture,
    rates_of,
    unseen,
    without_artefact,
)
from opsassay.evals.compliance.tasks import UPDATE, ComplianceTask
from opsassay.evals.compliance.worlds import ComplianceWorld

Admits = Callable[[Sequence[KyvernoPolicy], Sequence[Mapping[str, Any]]], bool]
"""Whether objects may be created under policies; raises UnsupportedError for a policy that cannot be judged by."""


def grade_enforced(files: Mapping[str, bytes], task: ComplianceTask, admits: Admits = admitted) -> dict[str, Metric]:
    """Return the metrics of the policy *files* for *task*; *admits* judges, our own evaluator unless another is given."""
    try:
        policies = read_policies(files.items())
    except UnsupportedError as error:
        return without_artefact(str(error))
    if not policies:
        return without_artefact("the files hold no policy")
    asked = task.asked(policies)
    judged, mutated = (_judged(asked, some, admits) for some in (task.judged(), task.mutants()))
    others = [_judged(policies, some, admits) for some in _of_others(task)]
    gone = None if asked else f"there is no policy {task.policy}"
    broken = gone or judged.error or mutated.error or next((one.error for one in others if one.error), None)
    stages = {
        "artefact": mark(None),
        "evidence": unseen(gone) if gone else mark(broken),
        "asked": not_asked("a cluster brings what is judged"),
        "kept": _kept(policies, others, task),
        "posture": unseen(broken) if broken else posture(judged, mutated, ("let in", "kept out")),
    }
    return all_of(stages, rates_of(judged, mutated, broken))


def _judged(policies: Sequence[KyvernoPolicy], worlds: Sequence[ComplianceWorld], admits: Admits) -> JudgedWorlds:
    try:
        return JudgedWorlds([(one.compliant, admits(policies, one.objects) == one.compliant) for one in worlds])
    except UnsupportedError as error:
        return JudgedWorlds(error=str(error))


def _of_others(task: ComplianceTask) -> list[list[ComplianceWorld]]:
    """Return the worlds of the other controls that violate them; what complies with one may violate another."""
    return [[one for one in some if not one.compliant] for some in task.others().values()]


def _kept(policies: list[KyvernoPolicy], others: Sequence[JudgedWorlds], task: ComplianceTask) -> Metric:
    if task.task_class != UPDATE:
        return not_asked("nothing was there before")
    before = read_policies(repository(task.control_name, task.seed).items())
    why = what_was_not_kept(before, policies, task.policy)
    missed = sum(one.wrong()[0] for one in others)
    return mark(why or (f"{missed} worlds that other controls kept out are let in" if missed else None))
