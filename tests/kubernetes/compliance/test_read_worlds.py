"""Worlds that have been on a cluster: graded as the drawn ones are, and nothing of them is left there."""

from __future__ import annotations

import shutil

import pytest
from tests.kubernetes.compliance import read_back
from tests.kubernetes.compliance.graded import grades
from tests.kubernetes.compliance.read_worlds import read_back_worlds, task_read_back
from tests.kubernetes.compliance.world_cluster import running

from opsassay.evals.compliance.clusters.controls import controls
from opsassay.evals.compliance.tasks import KUBECTL, ComplianceTask
from opsassay.solvers.sandbox import sealing_refusal
from opsassay.testbed.substrates.kubernetes.api import client
from opsassay.testbed.substrates.kubernetes.api.client import Api

POLICIES = "new-kyverno-host-ports"
EVIDENCE = "new-opa-kubectl-privileged-containers"
FAMILY = ("Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicaSet")


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(read_back, "LOOK_EVERY_S", 0.005)
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.001)


@pytest.mark.sampled
@pytest.mark.parametrize("name", controls())
def test_a_mutant_that_was_read_back_differs_in_the_control_alone(tmp_path, name):
    task = ComplianceTask(name=f"{KUBECTL}-{name}", seed=5)
    with running(tmp_path, pods=(2, 1)) as server:  # a pod more or less at each look
        found = read_back_worlds(Api.connect(server.config), task)
        assert server.left() == []
    assert [one.compliant for one in found.judged] == [one.compliant for one in task.judged()]
    assert [one.compliant for one in found.mutants] == [not one.compliant for one in found.judged]
    for world, mutant, sent in zip(found.judged, found.mutants, task.judged(), strict=True):
        assert [one["metadata"] for one in world.objects] == [one["metadata"] for one in mutant.objects]
        pairs = [pair for pair in zip(world.objects, mutant.objects, strict=True) if pair[0] != pair[1]]
        roots = {one["metadata"]["labels"]["app"] for one, _ in pairs}
        assert len(roots) == 1, "the object that violates, and what controllers make of it"
        assert len(pairs) == sum(one["metadata"]["labels"]["app"] in roots for one in world.objects), "all of that"
        assert {one["metadata"]["name"] for one in sent.objects} <= {one["metadata"]["name"] for one in world.objects}
        made = [one for one in world.objects if one["metadata"].get("ownerReferences")]
        assert bool(made) is any(one["kind"] in FAMILY for one in sent.objects)


def test_policies_are_judged_on_what_somebody_sends_and_not_on_what_controllers_make_of_it(tmp_path):
    """Pods of a Deployment would be kept out by a policy that lets the Deployment in."""
    task = ComplianceTask(name=POLICIES, seed=5)
    with running(tmp_path) as server:
        found = read_back_worlds(Api.connect(server.config), task)
    kinds = [[(one["kind"], one["metadata"]["name"]) for one in world.objects] for world in found.judged]
    assert kinds == [[(one["kind"], one["metadata"]["name"]) for one in world.objects] for world in task.judged()]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")
@pytest.mark.skipif(sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}")
def test_evidence_is_collected_in_worlds_as_a_cluster_has_them(tmp_path):
    with running(tmp_path) as server:
        task = task_read_back(Api.connect(server.config), ComplianceTask(name=EVIDENCE, seed=1))
        assert server.left() == []
    found = {solver: grades(task, solver, tmp_path / solver) for solver in ("right", "deny-all", "constant-true")}
    assert [one["passed"] for one in found.values()] == [1.0, 0.0, 0.0]
    assert [one["posture"] for one in found.values()] == [1.0, 0.0, 0.0]
    evidence = [path.read_text() for path in (tmp_path / "right").iterdir()]
    assert any("ownerReferences" in one and "imagePullPolicy" in one for one in evidence)


def test_policies_are_judged_on_worlds_as_a_cluster_has_them(tmp_path):
    with running(tmp_path, late=1) as server:
        task = task_read_back(Api.connect(server.config), ComplianceTask(name=POLICIES, seed=1))
        assert server.left() == []
    right, wrong = (grades(task, solver, tmp_path) for solver in ("right", "deny-all"))
    assert (right["passed"], wrong["passed"]) == (1.0, 0.0)
    assert right["mutation_kill_rate"] == 1.0
