"""Worlds as an API server has them: every one of a task is made on it and read back.

What is read back of a mutant differs from its
world in the object that was changed, and in what controllers make of that one, alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.kubernetes.compliance.prefixes import key_of
from tests.kubernetes.compliance.read_back import ReadBack

from opsassay.evals.compliance.clusters.kept import ReadBackTask, ReadBackWorlds
from opsassay.evals.compliance.clusters.worlds import ComplianceWorld, Object
from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.testbed.substrates.kubernetes.api.client import Api


def task_read_back(api: Api, task: ComplianceTask) -> ReadBackTask:
    """Return *task* with the worlds that the cluster of *api* has of it."""
    return ReadBackTask(**task.model_dump(), read_back=read_back_worlds(api, task))


def read_back_worlds(api: Api, task: ComplianceTask) -> ReadBackWorlds:
    """Make the worlds of *task* on the cluster of *api*, one after the other, and return what it has of them.

    Where evidence is collected, what controllers make of an object belongs to its world; where policies are judged it is
    what somebody sends, and no more. Raises as `ReadBack.take`.
    """
    reader = ReadBack(api, children=task.collector is not None)
    pairs = [_pair(reader, *both) for both in zip(task.judged(), task.mutants(), strict=True)]
    others = {
        name: tuple(_alone(reader, one) for one in some if not one.compliant) for name, some in task.others().items()
    }
    return ReadBackWorlds(
        commitment=task.commitment,
        context=api.context,
        version=api.require(),
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
