"""Policies that the Kyverno of a cluster judges: the grades of our evaluator, and nothing is left there."""

from __future__ import annotations

import pytest
import yaml
from tests.kubernetes.compliance import admission, read_back
from tests.kubernetes.compliance.admission import asking_kyverno, has_kyverno
from tests.kubernetes.compliance.graded import grades
from tests.kubernetes.compliance.world_cluster import running

from opsassay.core.errors import StartError
from opsassay.evals.compliance.clusters.controls import controls
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.score import grade_files
from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.testbed.substrates.kubernetes.api import client
from opsassay.testbed.substrates.kubernetes.api.client import Api

TASK = ComplianceTask(name="new-kyverno-host-ports", seed=1)
UPDATE = ComplianceTask(name="update-kyverno-wildcards-in-roles", seed=1)


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    for module in (read_back, admission):
        monkeypatch.setattr(module, "LOOK_EVERY_S", 0.005)
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.001)


@pytest.fixture
def server(tmp_path):
    """Serve a cluster with a Kyverno; at the end nothing of ours is there, and what is somebody's is."""
    with running(tmp_path, kyverno=True) as server:
        yield server
        assert server.left() == []
        assert server.of("ClusterPolicy") == ["somebodys"]


def by_kyverno(server, tmp_path, solver="right", task=TASK):
    with asking_kyverno(Api.connect(server.config), task) as admits:
        return grades(task, solver, tmp_path, admits)


@pytest.mark.sampled
@pytest.mark.parametrize("solver", ["right", "deny-all", "allow-all"])
@pytest.mark.parametrize("task", [TASK, UPDATE], ids=lambda task: task.name)
def test_kyverno_of_a_cluster_gives_the_grades_of_our_evaluator(server, tmp_path, task, solver):
    found = by_kyverno(server, tmp_path, solver, task)
    assert found == grades(task, solver, tmp_path)
    assert (found["evidence"], found["passed"]) == (1.0, float(solver == "right"))
    made = [one for one in server.asked if one.method == "POST" and "dryRun" not in one.query]
    assert {one.body["kind"] for one in made} == {"Namespace", "ClusterPolicy"}


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ('admission webhook "other" denied the request: opsassay-is-not-ours', "opsassay-is-not-ours"),
        ("exceeded quota: pods", "exceeded quota"),
    ],
)
def test_what_something_else_refuses_is_no_grade(server, tmp_path, refusal, said):
    server.refuse = lambda kind, metadata: (
        (403, refusal) if kind == "Pod" and "opsassay-canary" not in metadata["labels"] else None
    )
    with pytest.raises(StartError, match=f"nothing is graded.*{said}"):
        by_kyverno(server, tmp_path)


def test_a_kyverno_that_is_not_asked_about_a_kind_is_no_grade(server, tmp_path, monkeypatch):
    monkeypatch.setattr(admission, "READY_TIMEOUT_S", 0.2)
    server.kyverno = False
    with pytest.raises(StartError, match="is not asked about"):
        by_kyverno(server, tmp_path)


def test_a_policy_that_reads_namespaces_fails_at_the_evidence(server, tmp_path):
    condition = {"key": "{{ request.namespace }}", "operator": "Equals", "value": "shop"}
    validate = {"failureAction": "Enforce", "deny": {"conditions": {"all": [condition]}}}
    written = yaml.safe_dump(controls()["host-ports"].policy("mine", validate=validate)).encode()
    with asking_kyverno(Api.connect(server.config), TASK) as admits:
        found = grade_files({"policies/mine.yaml": written}, TASK, EvidenceCache(tmp_path), admits)
    assert "reads namespaces" in found["evidence"].reason
    assert found["passed"].value == 0.0


def test_a_policy_that_kyverno_refuses_fails_at_the_evidence(server, tmp_path):
    refusal = (400, "denied the request: a pattern is wrong")
    server.refuse = lambda kind, _: refusal if kind == "ClusterPolicy" else None
    found = by_kyverno(server, tmp_path)
    assert (found["evidence"], found["passed"]) == (0.0, 0.0)


def test_a_cluster_with_kyverno_is_told_from_one_without(server, tmp_path):
    assert has_kyverno(Api.connect(server.config))
    (tmp_path / "bare").mkdir()
    with running(tmp_path / "bare") as bare:
        assert not has_kyverno(Api.connect(bare.config))
