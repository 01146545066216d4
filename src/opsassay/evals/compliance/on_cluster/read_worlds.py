"""Worlds as a real API server has them: every one is made on it once for a task, read back, and kept beside the runs.

Grading asks a task for its worlds and does not know where these have been. What is read back of a mutant differs from its
world in the object that was changed, and in what controllers make of that one, alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.schema.base import Artefact
from opsassay.core.schema.run import Run
from opsassay.core.schema.task import Arm
from opsassay.evals.compliance.clusters.worlds import ComplianceWorld, Object
from opsassay.evals.compliance.tasks import ANSIBLE, ComplianceTask, kept_task
from opsassay.evals.runner.generated_tasks import kept_body
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.prefixes import key_of
from opsassay.testbed.substrates.kubernetes.api.read_back import ReadBack

ON, ENGINE, CLUSTER = "on", "engine", "cluster"
"""Knobs of an arm, and their value where a cluster does it."""
WORLDS = "compliance_worlds"
"""Folder of a store with what was read back, by the commitments of tasks; it holds the truth, as the tasks there do."""


class ReadBackWorlds(Artefact):
    """The worlds of the task with this *commitment* as the cluster of *context*, of server *version*, had them."""

    commitment: str
    context: str
    version: str
    judged: tuple[ComplianceWorld, ...]
    mutants: tuple[ComplianceWorld, ...]
    others: dict[str, tuple[ComplianceWorld, ...]]


class ReadBackTask(ComplianceTask):
    """A task whose worlds are those that were read back; of other controls' worlds those that violate."""

    read_back: ReadBackWorlds

    def judged(self) -> list[ComplianceWorld]:
        """Return the clusters that no agent sees, as they were read back."""
        return list(self.read_back.judged)

    def mutants(self) -> list[ComplianceWorld]:
        """Return the judged clusters with their one violation put in or mended, as they were read back."""
        return list(self.read_back.mutants)

    def others(self) -> dict[str, list[ComplianceWorld]]:
        """Return the violating worlds of the other controls of the repository, as they were read back."""
        return {name: list(some) for name, some in self.read_back.others.items()}


def knobs_of(task: ComplianceTask, on: str, engine: str) -> dict[str, str]:
    """Return what of a plan's `on` and `engine` changes how *task* is graded, as knobs of an arm.

    A cluster that judges fills in itself what reading back would show; hosts are on no cluster.
    """
    if task.task_class == ANSIBLE:
        return {}
    if task.collector is None and engine == CLUSTER:
        return {ENGINE: CLUSTER}
    return {ON: CLUSTER} if on == CLUSTER else {}


def graded_task(root: Path, run: Run) -> ComplianceTask:
    """Return the task of *run* in the store at *root*, with the worlds that it is graded on; raises DatapackError."""
    task = kept_task(root, run.item_hash)
    if Arm.parse(run.arm).knob(ON) != CLUSTER:
        return task
    found = kept_body(root / WORLDS, task.commitment, ReadBackWorlds)
    if found.commitment != task.commitment:
        raise DatapackError(f"{root / WORLDS / task.commitment}.json holds the worlds of another task; restore it.")
    return ReadBackTask(**task.model_dump(), read_back=found)


def read_back_worlds(
    api: Api, version: str, task: ComplianceTask, given_up: Callable[[], bool] = lambda: False
) -> ReadBackWorlds:
    """Make the worlds of *task* on the cluster of *api*, one after the other, and return what it has of them.

    Where evidence is collected, what controllers make of an object belongs to its world; where policies are judged it is
    what somebody sends, and no more. Raises as `ReadBack.take`.
    """
    reader = ReadBack(api, children=task.collector is not None, given_up=given_up)
    pairs = [_pair(reader, *both) for both in zip(task.judged(), task.mutants(), strict=True)]
    others = {
        name: tuple(_alone(reader, one) for one in some if not one.compliant) for name, some in task.others().items()
    }
    return ReadBackWorlds(
        commitment=task.commitment,
        context=api.context,
        version=version,
        judged=tuple(world for world, _ in pairs),
        mutants=tuple(mutant for _, mutant in pairs),
        others=others,
    )


def sendable(one: Mapping[str, Any]) -> Object:
    """Return *one* as a server takes it: pods of jobs end, and nobody chooses a job's selector."""
    body: Object = json.loads(json.dumps(dict(one)))
    if body["kind"] == "Job":
        body["spec"].pop("selector", None)
        body["spec"]["template"]["spec"].setdefault("restartPolicy", "Never")
    if body["kind"] == "CronJob":
        body["spec"]["jobTemplate"]["spec"]["template"]["spec"].setdefault("restartPolicy", "Never")
    return body


def _alone(reader: ReadBack, world: ComplianceWorld) -> ComplianceWorld:
    return ComplianceWorld(_bodies(reader.take([*map(sendable, world.objects)])), world.compliant)


def _pair(reader: ReadBack, world: ComplianceWorld, mutant: ComplianceWorld) -> tuple[ComplianceWorld, ComplianceWorld]:
    """Return both as they were read back; of the mutant only what differs is made, and the rest is the world's own."""
    differing = [other for one, other in zip(world.objects, mutant.objects, strict=True) if one != other]
    first, second = (reader.take([*map(sendable, some)]) for some in (world.objects, differing))
    changed, roots = {key_of(one.body): one for one in second}, {one.root for one in second}
    ours = [one for one in first if one.root not in roots or key_of(one.body) in changed]
    theirs = [changed.get(key_of(one.body), one) for one in ours]
    return ComplianceWorld(_bodies(ours), world.compliant), ComplianceWorld(_bodies(theirs), mutant.compliant)


def _bodies(found: Sequence[Any]) -> tuple[Object, ...]:
    return tuple(one.body for one in found)
