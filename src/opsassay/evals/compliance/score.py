"""The score of an answer, stage by stage: artefact, evidence, asked, kept, and posture on hidden test systems.

A run passes when every stage of its class does. Posture: each hidden cluster or host is judged by its label, and so is
its mutant, which differs in the control only. If the evidence of both is equal, the collector did not ask for the
control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from os import cpu_count
from pathlib import Path
from typing import Any

from opsassay.core.errors import LeftByAgentError
from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.core.schema.task import MetricDefinition
from opsassay.core.untrusted import one_sentence
from opsassay.evals.compliance.clusters.controls import ComplianceControl, controls
from opsassay.evals.compliance.clusters.repository import repository, what_was_not_kept
from opsassay.evals.compliance.clusters.worlds import ComplianceWorld
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache, W, evidence_key
from opsassay.evals.compliance.evidence_collection.cluster import gather_on_cluster
from opsassay.evals.compliance.evidence_collection.evidence import CollectedEvidence
from opsassay.evals.compliance.evidence_collection.host import gather_on_host, playbook_problem
from opsassay.evals.compliance.files.submitted import collected
from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.judge import OPERATIONS, admitted, find_bypass
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy, read_policies
from opsassay.evals.compliance.rego.engines import judges
from opsassay.evals.compliance.rego.judging import RegoOutcome, judge_by_rego
from opsassay.evals.compliance.tasks import ANSIBLE, POLICY, UPDATE, ComplianceTask
from opsassay.evals.runner.run import reading_what_was_left
from opsassay.evals.runner.store import read_run
from opsassay.solvers.agents.contract import AnswerError

STAGES = ("artefact", "evidence", "asked", "kept", "posture")
"""IPA, CE, IEC and SAP of ITBench, plus *kept*: whether everything else is unchanged."""
RATES = ("false_positive_rate", "false_negative_rate", "mutation_kill_rate")


@dataclass(frozen=True)
class JudgedWorlds:
    """Results on test systems, (is compliant, was judged rightly) each, or the *error*; *why*: a note on a wrong one."""

    rows: Sequence[tuple[bool, bool]] = ()
    error: str | None = None
    why: str = ""

    def wrong(self, *, compliant: bool | None = None) -> tuple[int, int]:
        """Return (number judged wrongly, number judged) of clusters labelled *compliant*, of all when None."""
        rows = [right for label, right in self.rows if compliant is None or label == compliant]
        return rows.count(False), len(rows)


def stage_metric(failure: str | None) -> Metric:
    """Return the metric of a stage: 1 if *failure* is None, else 0 with *failure* as the reason."""
    return Metric(value=0.0 if failure else 1.0, status=MetricStatus.SCORED, reason=one_sentence(failure or ""))


def not_asked(reason: str) -> Metric:
    """Return the metric of a stage that does not apply to the task: status NOT_APPLICABLE, with *reason*."""
    return Metric(status=MetricStatus.NOT_APPLICABLE, reason=reason)


def unseen(reason: str) -> Metric:
    """Return the metric of a stage that could not be evaluated: status FAILED, with *reason*."""
    return Metric(status=MetricStatus.FAILED, reason=one_sentence(reason))


def without_artefact(reason: str) -> dict[str, Metric]:
    """Return the metrics of a run without a usable answer: "artefact" and "passed" 0, others FAILED, with *reason*."""
    return {
        "passed": stage_metric(reason),
        **dict.fromkeys((*STAGES, *RATES), unseen(reason)),
        "artefact": stage_metric(reason),
    }


def all_of(stages: Mapping[str, Metric], rates: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return *stages* and *rates* after "passed": 1 if every stage that applies is 1, else 0 with the first reason."""
    asked_for = [one for one in stages.values() if one.status is not MetricStatus.NOT_APPLICABLE]
    said = next((one.reason for one in asked_for if one.value == 0.0), None)
    said = said or next((one.reason for one in asked_for if one.value != 1.0), None)
    return {"passed": stage_metric(said), **stages, **rates}


def rates_of(worlds: JudgedWorlds, mutants: JudgedWorlds, error: str | None) -> dict[str, Metric]:
    """Return the error rates over *worlds* and *mutants*; *error* is why they could not be judged.

    Of worlds and of mutants, by how many there are:

        false_positive_rate = compliant worlds judged wrongly / compliant worlds
        false_negative_rate = violating worlds judged wrongly / violating worlds
        mutation_kill_rate  = mutants judged rightly / mutants
    """
    if error is not None:
        return dict.fromkeys(RATES, unseen(error))
    noisy, missed, (alive, count) = worlds.wrong(compliant=True), worlds.wrong(compliant=False), mutants.wrong()
    values = (noisy[0] / noisy[1], missed[0] / missed[1], 1 - alive / count)
    return {name: Metric(value=value, status=MetricStatus.SCORED) for name, value in zip(RATES, values, strict=True)}


def posture(worlds: JudgedWorlds, mutants: JudgedWorlds, words: tuple[str, str]) -> Metric:
    """Return a metric of 1 if all *worlds* and their *mutants* were judged by their label, else 0 with the counts.

    *words* are the verbs of the reason, for wrongly judged violating and compliant ones.
    """
    noisy, compliant = worlds.wrong(compliant=True)
    missed, violating = worlds.wrong(compliant=False)
    if noisy or missed:
        said = f"{missed} of {violating} violating worlds {words[0]}, {noisy} of {compliant} compliant ones {words[1]}"
        return stage_metric(f"{said}{worlds.why}")
    wrong, count = mutants.wrong()
    return stage_metric(f"{wrong} of {count} mutants judged wrongly{mutants.why}" if wrong else None)


Admits = Callable[[Sequence[KyvernoPolicy], Sequence[Mapping[str, Any]]], bool]
"""Returns whether objects may be created under policies; raises UnsupportedError."""


def grade_enforced(files: Mapping[str, bytes], task: ComplianceTask, admits: Admits | None = None) -> dict[str, Metric]:
    """Return all metrics of the policy *files* (content by path); *admits* decides, our own evaluator when None."""
    try:
        policies = read_policies(files.items())
    except UnsupportedError as error:
        return without_artefact(str(error))
    if not policies:
        return without_artefact("the files hold no policy")
    asked = task.applicable_policies(policies)
    judged, mutated = (_judge_worlds(asked, some, task.control, admits) for some in (task.judged(), task.mutants()))
    others = [_judge_worlds(policies, some, control, admits) for control, some in _worlds_of_other_controls(task)]
    gone = None if asked else f"there is no policy {task.policy}"
    broken = gone or judged.error or mutated.error or next((one.error for one in others if one.error), None)
    stages = {
        "artefact": stage_metric(None),
        "evidence": unseen(gone) if gone else stage_metric(broken),
        "asked": not_asked("a cluster brings what is judged"),
        "kept": _score_kept_controls(policies, others, task),
        "posture": unseen(broken) if broken else posture(judged, mutated, ("let in", "kept out")),
    }
    return all_of(stages, rates_of(judged, mutated, broken))


def _judge_worlds(
    policies: Sequence[KyvernoPolicy],
    worlds: Sequence[ComplianceWorld],
    control: ComplianceControl,
    admits: Admits | None,
) -> JudgedWorlds:
    """Return (is compliant, was judged rightly) for each of *worlds*, or the error why *policies* cannot be judged."""
    rows, why = [], ""
    try:
        for one in worlds:
            is_in, bypass = judge_admission(policies, one, control, admits)
            rows.append((one.compliant, is_in == one.compliant))
            why = why or (f": {bypass}" if bypass and not one.compliant else "")
    except UnsupportedError as error:
        return JudgedWorlds(error=str(error))
    return JudgedWorlds(rows, why=why)


def judge_admission(
    policies: Sequence[KyvernoPolicy], world: ComplianceWorld, control: ComplianceControl, admits: Admits | None
) -> tuple[bool, str]:
    """Return (whether *policies* let *world* in, the bypass in words or ''); raises UnsupportedError.

    *admits* decides, our own evaluator when None, which knows the bypass too.
    """
    if admits is not None:
        return admits(policies, world.objects), ""
    if world.compliant:
        return all(admitted(policies, world.objects, operation) for operation in OPERATIONS), ""
    bypass = find_bypass(policies, world.objects, control.parts)
    return bypass is not None, bypass or ""


def _worlds_of_other_controls(task: ComplianceTask) -> list[tuple[ComplianceControl, list[ComplianceWorld]]]:
    """Return each other control of the repository with the test clusters that violate it."""
    return [(controls()[name], [one for one in some if not one.compliant]) for name, some in task.others().items()]


def _score_kept_controls(
    policies: list[KyvernoPolicy], other_worlds: Sequence[JudgedWorlds], task: ComplianceTask
) -> Metric:
    """Return 1 if an update kept the other *policies* and they still judge *other_worlds* rightly, else 0 and why."""
    if task.task_class != UPDATE:
        return not_asked("nothing was there before")
    before = read_policies(repository(task.control_name, task.seed).items())
    why = what_was_not_kept(before, policies, task.policy)
    missed = sum(one.wrong()[0] for one in other_worlds)
    return stage_metric(why or (f"{missed} worlds that other controls kept out are let in" if missed else None))


WORDS = ("are not found to violate", "are not found to comply")


@dataclass(frozen=True)
class CollectedWorld:
    """One test system: its label, and the evidence of it and of its mutant."""

    compliant: bool
    evidence: CollectedEvidence
    mutant: CollectedEvidence

    @property
    def problem(self) -> str | None:
        """Why evidence of the cluster (or host) or of its mutant is missing, None when both have evidence."""
        return self.evidence.problem or self.mutant.problem or None


def grade_collected(files: Mapping[str, bytes], task: ComplianceTask, cache: EvidenceCache) -> dict[str, Metric]:
    """Return all metrics of the collector and Rego policy in *files*; collected evidence is cached in *cache*."""
    if why := problem_of_files(task, files):
        return without_artefact(why)
    worlds = collect_worlds(files, task, cache)
    stages = {
        "artefact": stage_metric(None),
        **_collecting_metrics(worlds),
        "kept": not_asked("nothing was there before"),
    }
    broken = next((one.reason for one in stages.values() if one.value == 0.0), None)
    if broken:
        return all_of({**stages, "posture": unseen(broken)}, rates_of(JudgedWorlds(), JudgedWorlds(), broken))
    judged, mutated = (JudgedWorlds(_labels_with_hits(some)) for some in judged_worlds(files[POLICY], worlds))
    return all_of({**stages, "posture": posture(judged, mutated, WORDS)}, rates_of(judged, mutated, None))


def problem_of_files(task: ComplianceTask, files: Mapping[str, bytes]) -> str | None:
    """Return why *files* (content by path) are no valid collector and policy of *task*, else None; nothing is run."""
    assert task.collector is not None
    if missing := next((name for name in (task.collector, POLICY) if name not in files), None):
        return f"there is no {missing}"
    if why := _collector_problem(task.collector, files[task.collector]):
        return f"{task.collector}: {why}"
    why = judge_by_rego(files[POLICY], []).required().problem
    return f"{POLICY}: {why}" if why else None


def collect_worlds(files: Mapping[str, bytes], task: ComplianceTask, cache: EvidenceCache) -> list[CollectedWorld]:
    """Return the evidence of all hidden clusters or hosts and their mutants; of the first alone if that has a problem.

    Collectors run in the order of digests, so that process numbers and clocks say nothing of the labels.
    """
    assert task.collector is not None
    collector = {task.collector: files[task.collector]}
    if task.task_class == ANSIBLE:
        hosts = zip(task.judged_hosts(), task.mutant_hosts(), strict=True)
        planned = [_plan_collection(collector, world, mutant, cache, gather_on_host) for world, mutant in hosts]
    else:
        clusters = zip(task.judged(), task.mutants(), strict=True)
        planned = [_plan_collection(collector, world, mutant, cache, gather_on_cluster) for world, mutant in clusters]
    first, *others = sorted(range(len(planned)), key=lambda number: planned[number].least_key)
    found = {first: planned[first].collect()}
    if found[first].problem or found[first].evidence == found[first].mutant:
        return [found[first]]
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        found |= zip(others, pool.map(lambda number: planned[number].collect(), others), strict=True)
    return [found[number] for number in range(len(planned))]


@dataclass(frozen=True)
class _PlannedCollection:
    """How evidence on a cluster or host and on its mutant is collected: cache *keys*, and calls that *gather* it."""

    compliant: bool
    keys: tuple[str, str]
    gather: tuple[Callable[[], CollectedEvidence], Callable[[], CollectedEvidence]]

    @property
    def least_key(self) -> str:
        """The smaller cache key of a test cluster (or host) and its mutant, by which collections are ordered."""
        return min(self.keys)

    def collect(self) -> CollectedWorld:
        """Collect evidence on both, the one with the smaller key first; the second only if the first succeeds."""
        mutant_first = self.keys[1] < self.keys[0]
        one = self.gather[mutant_first]()
        other = one if one.problem else self.gather[not mutant_first]()
        return CollectedWorld(self.compliant, *((other, one) if mutant_first else (one, other)))


def _plan_collection(
    collector: Mapping[str, bytes],
    world: W,
    mutant: W,
    cache: EvidenceCache,
    gather: Callable[[Mapping[str, bytes], W], CollectedEvidence],
) -> _PlannedCollection:
    """Return how to collect evidence on *world* and its *mutant* later: cache keys, and calls of *gather*."""
    keys = evidence_key(collector, world), evidence_key(collector, mutant)
    takes = partial(cache.take, collector, world, gather), partial(cache.take, collector, mutant, gather)
    return _PlannedCollection(world.compliant, keys, takes)


def judged_worlds(
    policy: bytes, worlds: Sequence[CollectedWorld]
) -> tuple[list[tuple[bool, RegoOutcome]], list[tuple[bool, RegoOutcome]]]:
    """Return (is compliant, outcome of *policy*) for each of *worlds*, and for each mutant; raises NotJudgedError."""
    inputs = [one.data or b"null" for world in worlds for one in (world.evidence, world.mutant)]
    outcomes = judge_by_rego(policy, inputs).required().outcomes
    labels = [one.compliant for one in worlds]
    return (
        list(zip(labels, outcomes[::2], strict=True)),
        list(zip((not label for label in labels), outcomes[1::2], strict=True)),
    )


def _labels_with_hits(outcomes: Sequence[tuple[bool, RegoOutcome]]) -> list[tuple[bool, bool]]:
    """Return (is compliant, was judged rightly) for each (is compliant, outcome) of *outcomes*."""
    return [(label, outcome.kind == ("true" if label else "false")) for label, outcome in outcomes]


def _collecting_metrics(worlds: Sequence[CollectedWorld]) -> dict[str, Metric]:
    """Return the metrics "evidence" (all *worlds* have it) and "asked" (it differs from that of the mutant)."""
    problem = next((one.problem for one in worlds if one.problem), None)
    if problem:
        return {"evidence": stage_metric(problem), "asked": unseen(problem)}
    same = sum(one.evidence == one.mutant for one in worlds)
    why = "the evidence of a world is that of its mutant, which differs in the control: it does not hold what matters"
    return {"evidence": stage_metric(None), "asked": stage_metric(why if same else None)}


def _collector_problem(name: str, content: bytes) -> str | None:
    """Return why the collector file is invalid by its *name* and *content*, None when valid; it is not run."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    if not text.strip():
        return "it is empty"
    return playbook_problem(text) if name.endswith(".yml") else None


SUBSET = "OpsAssay's subset of Kyverno"
JUDGED = ("passed", "artefact", "posture")
"""The metrics that an engine decides."""
KEPT = "evidence"
"""Folder of a run with evidence collected at grading."""


def definitions() -> tuple[MetricDefinition, ...]:
    """Return the definitions of all compliance metrics, the most important first."""
    lower = {"false_positive_rate", "false_negative_rate"}
    return (
        MetricDefinition(name="passed"),
        *(MetricDefinition(name=name) for name in STAGES),
        *(MetricDefinition(name=name, direction="lower" if name in lower else "higher") for name in RATES),
        MetricDefinition(name="tokens", unit="tokens", direction="lower"),
    )


def grade_run(run_dir: Path, task: ComplianceTask, admits: Admits | None = None) -> dict[str, Metric]:
    """Return every metric of the run in *run_dir*; after a stage that failed, later ones are not evaluated.

    *admits* decides what policies let in, our own evaluator when None.
    """
    run = read_run(run_dir)
    tokens = run.spent.get("input_tokens", 0.0) + run.spent.get("output_tokens", 0.0)
    effort = {"tokens": Metric(value=tokens, status=MetricStatus.SCORED) if tokens else not_asked("no model was asked")}
    try:
        files = collected(run_dir, task)
    except AnswerError as error:
        return {**without_artefact(run.error or str(error)), **effort}
    return {**grade_files(files, task, EvidenceCache(run_dir / KEPT), admits), **effort}


def grade_files(
    files: Mapping[str, bytes], task: ComplianceTask, cache: EvidenceCache, admits: Admits | None = None
) -> dict[str, Metric]:
    """Return all metrics of *files* (content by path) for *task*; *cache* stores evidence.

    Errors caused by the content are failures of the run. *admits* decides what policies let in, our own evaluator when
    None. Raises NotJudgedError where Rego engines disagree: such a run has no grade.
    """
    try:
        with reading_what_was_left():
            if task.collector is None:
                return _note_judge(SUBSET, grade_enforced(files, task, admits))
            label = " and ".join(one.label for one in judges())
            return _note_judge(label, grade_collected(files, task, cache))
    except LeftByAgentError as error:
        return without_artefact(str(error))


def _note_judge(judge: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return *metrics* with the judge's name added to those that the judge decided."""
    return {name: one.model_copy(update={"judge": judge}) if name in JUDGED else one for name, one in metrics.items()}
