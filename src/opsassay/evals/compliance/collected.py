"""Grading a collector and a Rego policy: the evidence that the grader has it collect, and what the policy says of it.

Every world has a mutant that differs from it in the control alone. Evidence that is the same of both cannot tell them
apart, whatever judges it: then the collector did not ask for what matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from os import cpu_count

from opsassay.core.schema.run import Metric
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache, W, evidence_key
from opsassay.evals.compliance.evidence_collection.cluster import gather_on_cluster
from opsassay.evals.compliance.evidence_collection.evidence import CollectedEvidence
from opsassay.evals.compliance.evidence_collection.host import gather_on_host
from opsassay.evals.compliance.evidence_collection.playbooks import playbook_problem
from opsassay.evals.compliance.rego.judging import RegoOutcome, judge_by_rego
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
from opsassay.evals.compliance.tasks import ANSIBLE, POLICY, ComplianceTask

WORDS = ("are not found to violate", "are not found to comply")


@dataclass(frozen=True)
class CollectedWorld:
    """One world: its label, the evidence of it and of its mutant."""

    compliant: bool
    evidence: CollectedEvidence
    mutant: CollectedEvidence

    @property
    def problem(self) -> str | None:
        """Why there is no evidence, of it or of its mutant."""
        return self.evidence.problem or self.mutant.problem or None


def grade_collected(files: Mapping[str, bytes], task: ComplianceTask, shelf: EvidenceCache) -> dict[str, Metric]:
    """Return the metrics of the collector and the policy among *files* for *task*; evidence is kept on *shelf*."""
    if why := problem_of_files(task, files):
        return without_artefact(why)
    worlds = collect_worlds(files, task, shelf)
    stages = {"artefact": mark(None), **_of_collecting(worlds), "kept": not_asked("nothing was there before")}
    broken = next((one.reason for one in stages.values() if one.value == 0.0), None)
    if broken:
        return all_of({**stages, "posture": unseen(broken)}, rates_of(JudgedWorlds(), JudgedWorlds(), broken))
    judged, mutated = (JudgedWorlds(_rows(some)) for some in judged_worlds(files[POLICY], worlds))
    return all_of({**stages, "posture": posture(judged, mutated, WORDS)}, rates_of(judged, mutated, None))


def problem_of_files(task: ComplianceTask, files: Mapping[str, bytes]) -> str | None:
    """Return why *files* are no collector and no policy for *task*, before either is run."""
    assert task.collector is not None
    if missing := next((name for name in (task.collector, POLICY) if name not in files), None):
        return f"there is no {missing}"
    if why := _collector_problem(task.collector, files[task.collector]):
        return f"{task.collector}: {why}"
    why = judge_by_rego(files[POLICY], []).problem
    return f"{POLICY}: {why}" if why else None


def collect_worlds(files: Mapping[str, bytes], task: ComplianceTask, shelf: EvidenceCache) -> list[CollectedWorld]:
    """Return the evidence of the worlds of *task*; of one alone, when that has a problem already.

    Collectors run in an order that follows from the digests of the worlds, and so from nothing that an agent knows: which
    of them it is that runs, which a process number or a clock may tell, says nothing of the label.
    """
    assert task.collector is not None
    collector = {task.collector: files[task.collector]}
    if task.task_class == ANSIBLE:
        hosts = zip(task.judged_hosts(), task.mutant_hosts(), strict=True)
        looks = [_look(collector, world, mutant, shelf, gather_on_host) for world, mutant in hosts]
    else:
        clusters = zip(task.judged(), task.mutants(), strict=True)
        looks = [_look(collector, world, mutant, shelf, gather_on_cluster) for world, mutant in clusters]
    first, *others = sorted(range(len(looks)), key=lambda number: looks[number].key)
    found = {first: looks[first].collect()}
    if found[first].problem or found[first].evidence == found[first].mutant:
        return [found[first]]
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        found |= zip(others, pool.map(lambda number: looks[number].collect(), others), strict=True)
    return [found[number] for number in range(len(looks))]


@dataclass(frozen=True)
class _Look:
    """How one world and its mutant are looked at, the one with the smaller key first; *key* is that one's."""

    compliant: bool
    keys: tuple[str, str]
    gather: tuple[Callable[[], CollectedEvidence], Callable[[], CollectedEvidence]]

    @property
    def key(self) -> str:
        return min(self.keys)

    def collect(self) -> CollectedWorld:
        """Collect on the first of the two, and on the other if there is evidence of the first."""
        mutant_first = self.keys[1] < self.keys[0]
        one = self.gather[mutant_first]()
        other = one if one.problem else self.gather[not mutant_first]()
        return CollectedWorld(self.compliant, *((other, one) if mutant_first else (one, other)))


def _look(
    collector: Mapping[str, bytes],
    world: W,
    mutant: W,
    shelf: EvidenceCache,
    gather: Callable[[Mapping[str, bytes], W], CollectedEvidence],
) -> _Look:
    keys = evidence_key(collector, world), evidence_key(collector, mutant)
    takes = partial(shelf.take, collector, world, gather), partial(shelf.take, collector, mutant, gather)
    return _Look(world.compliant, keys, takes)


def judged_worlds(
    policy: bytes, worlds: Sequence[CollectedWorld]
) -> tuple[list[tuple[bool, RegoOutcome]], list[tuple[bool, RegoOutcome]]]:
    """Return what *policy* says of the worlds and of their mutants, each with its label."""
    inputs = [one.data or b"null" for world in worlds for one in (world.evidence, world.mutant)]
    outcomes = judge_by_rego(policy, inputs).outcomes
    labels = [one.compliant for one in worlds]
    return (
        list(zip(labels, outcomes[::2], strict=True)),
        list(zip((not label for label in labels), outcomes[1::2], strict=True)),
    )


def _rows(judged: Sequence[tuple[bool, RegoOutcome]]) -> list[tuple[bool, bool]]:
    return [(label, outcome.kind == ("true" if label else "false")) for label, outcome in judged]


def _of_collecting(worlds: Sequence[CollectedWorld]) -> dict[str, Metric]:
    problem = next((one.problem for one in worlds if one.problem), None)
    if problem:
        return {"evidence": mark(problem), "asked": unseen(problem)}
    same = sum(one.evidence == one.mutant for one in worlds)
    why = "the evidence of a world is that of its mutant, which differs in the control: it does not hold what matters"
    return {"evidence": mark(None), "asked": mark(why if same else None)}


def _collector_problem(name: str, content: bytes) -> str | None:
    """Return what is wrong with a collector before it is run."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    if not text.strip():
        return "it is empty"
    return playbook_problem(text) if name.endswith(".yml") else None
