"""Grading what an agent left, stage by stage: artefact, evidence, what was to be kept, posture; and mutants beside it.

A run passes when every stage does. Posture is right when each world that nobody saw is judged as its label says; mutants
are those worlds with their one violation put in or mended, and tell a policy about the control from one about the worlds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsassay.agents.contract import AnswerError
from opsassay.bench.core.store import read_run
from opsassay.bench.domains.ciso.answers import collected
from opsassay.bench.domains.ciso.kyverno.errors import UnsupportedError
from opsassay.bench.domains.ciso.kyverno.judge import admitted
from opsassay.bench.domains.ciso.kyverno.policy import KyvernoPolicy, read_policies
from opsassay.bench.domains.ciso.repository import repository, what_was_not_kept
from opsassay.bench.domains.ciso.tasks import UPDATE, ComplianceTask
from opsassay.bench.domains.ciso.worlds import ComplianceWorld
from opsassay.model.run import Metric, MetricStatus
from opsassay.model.task import MetricDefinition

STAGES = ("artefact", "evidence", "kept", "posture")
"""IPA, CE and SAP of ITBench, and whether all that was not asked for is as it was."""
RATES = ("false_positive_rate", "false_negative_rate", "mutation_kill_rate")


def definitions() -> tuple[MetricDefinition, ...]:
    """Return the metrics, those to look at first at the front."""
    lower = {"false_positive_rate", "false_negative_rate"}
    return (
        MetricDefinition(name="passed"),
        *(MetricDefinition(name=name) for name in STAGES),
        *(MetricDefinition(name=name, direction="lower" if name in lower else "higher") for name in RATES),
        MetricDefinition(name="tokens", unit="tokens", direction="lower"),
    )


@dataclass(frozen=True)
class JudgedWorlds:
    """Which worlds were judged rightly, as (label, right), or why they could not be judged."""

    rows: Sequence[tuple[bool, bool]] = ()
    error: str | None = None

    @classmethod
    def of(cls, policies: Sequence[KyvernoPolicy], worlds: Sequence[ComplianceWorld]) -> JudgedWorlds:
        """Judge *worlds* by *policies*."""
        try:
            return cls([(one.compliant, admitted(policies, one.objects) == one.compliant) for one in worlds])
        except UnsupportedError as error:
            return cls(error=str(error))

    def wrong(self, *, compliant: bool | None = None) -> tuple[int, int]:
        """Return how many of the worlds with that label were judged wrongly, and how many there are."""
        rows = [right for label, right in self.rows if compliant is None or label == compliant]
        return rows.count(False), len(rows)


def grade_run(run_dir: Path, task: ComplianceTask) -> dict[str, Metric]:
    """Return every metric of the run in *run_dir*; what a stage that failed keeps from being looked at is failed too."""
    run = read_run(run_dir)
    tokens = run.spent.get("input_tokens", 0.0) + run.spent.get("output_tokens", 0.0)
    absent = Metric(status=MetricStatus.NOT_APPLICABLE, reason="no model was asked")
    effort = {"tokens": Metric(value=tokens, status=MetricStatus.SCORED) if tokens else absent}
    try:
        files = collected(run_dir)
    except AnswerError as error:
        return {**_without_artefact(run.error or str(error)), **effort}
    return {**grade_files(files, task), **effort}


def _without_artefact(why: str) -> dict[str, Metric]:
    failed = dict.fromkeys((*STAGES, *RATES), Metric(status=MetricStatus.FAILED, reason=why))
    return {"passed": _mark(why), **failed, "artefact": _mark(why)}


def grade_files(files: Mapping[str, bytes], task: ComplianceTask) -> dict[str, Metric]:
    """Return the metrics of the policy *files* for *task*."""
    try:
        policies = read_policies(files.items())
    except UnsupportedError as error:
        return _without_artefact(str(error))
    if not policies:
        return _without_artefact("the files hold no policy")
    asked = task.asked(policies)
    judged, mutated = (JudgedWorlds.of(asked, some) for some in (task.judged(), task.mutants()))
    others = [JudgedWorlds.of(policies, some) for some in _of_others(task)]
    gone = None if asked else f"there is no policy {task.policy}"
    broken = gone or judged.error or mutated.error or next((one.error for one in others if one.error), None)
    unseen = Metric(status=MetricStatus.FAILED, reason=broken or "")
    stages = {
        "artefact": _mark(None),
        "evidence": unseen if gone else _mark(broken),
        "kept": _kept(policies, others, task),
        "posture": unseen if broken else _mark(_wrongly(judged, mutated)),
    }
    asked_for = [one for one in stages.values() if one.status is not MetricStatus.NOT_APPLICABLE]
    said = next((one.reason for one in asked_for if one.value == 0.0), None)
    said = said or next((one.reason for one in asked_for if one.value != 1.0), None)
    return {"passed": _mark(said), **stages, **_rates(judged, mutated, broken)}


def _of_others(task: ComplianceTask) -> list[list[ComplianceWorld]]:
    """Return the worlds of the other controls that violate them; what complies with one may violate another."""
    return [[one for one in some if not one.compliant] for some in task.others().values()]


def _kept(policies: list[KyvernoPolicy], others: Sequence[JudgedWorlds], task: ComplianceTask) -> Metric:
    if task.task_class != UPDATE:
        return Metric(status=MetricStatus.NOT_APPLICABLE, reason="nothing was there before")
    before = read_policies(repository(task.control_name, task.seed).items())
    why = what_was_not_kept(before, policies, task.policy)
    missed = sum(one.wrong()[0] for one in others)
    return _mark(why or (f"{missed} worlds that other controls kept out are let in" if missed else None))


def _wrongly(judged: JudgedWorlds, mutated: JudgedWorlds) -> str | None:
    kept_out, compliant = judged.wrong(compliant=True)
    missed, violating = judged.wrong(compliant=False)
    if kept_out or missed:
        return f"{missed} of {violating} violating worlds let in, {kept_out} of {compliant} compliant ones kept out"
    wrong, count = mutated.wrong()
    return f"{wrong} of {count} mutants judged wrongly" if wrong else None


def _rates(judged: JudgedWorlds, mutated: JudgedWorlds, error: str | None) -> dict[str, Metric]:
    if error is not None:
        return dict.fromkeys(RATES, Metric(status=MetricStatus.FAILED, reason=error))
    kept_out, missed, (alive, count) = judged.wrong(compliant=True), judged.wrong(compliant=False), mutated.wrong()
    values = (kept_out[0] / kept_out[1], missed[0] / missed[1], 1 - alive / count)
    return {name: Metric(value=value, status=MetricStatus.SCORED) for name, value in zip(RATES, values, strict=True)}


def _mark(why: str | None) -> Metric:
    return Metric(value=0.0 if why else 1.0, status=MetricStatus.SCORED, reason=why or "")
