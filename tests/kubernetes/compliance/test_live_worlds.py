"""Compliance tasks on a real cluster: its server and its Kyverno give the grades that ours give, and nothing stays."""

from __future__ import annotations

import pytest
from tests.kubernetes.compliance.admission import KYVERNO, asking_kyverno, has_kyverno
from tests.kubernetes.compliance.graded import grades
from tests.kubernetes.compliance.prefixes import MARK
from tests.kubernetes.compliance.read_back import MARKED_KINDS, await_removal, clear_left_behind
from tests.kubernetes.compliance.read_worlds import task_read_back

from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.solvers.sandbox import sealing_refusal

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
POLICIES = "new-kyverno-wildcards-in-roles"
PASSING = {"new-opa-kubectl-host-ports": "asked", POLICIES: "evidence"}
WRONG = ("deny-all", "allow-all")


@pytest.mark.skipif(sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}")
@pytest.mark.parametrize("name", PASSING)
def test_a_task_is_graded_on_worlds_of_the_cluster_and_nothing_is_left(api, tmp_path, name):
    clear_left_behind(api)
    task = task_read_back(api, ComplianceTask(name=name, seed=1))
    await_removal(api)
    assert task.read_back.version == api.require()
    for kind in MARKED_KINDS:
        assert api.list(kind, selector=MARK) == []
    right = grades(task, "right", tmp_path)
    assert (right["passed"], right["mutation_kill_rate"]) == (1.0, 1.0)
    for wrong in WRONG:  # what says no, or yes, to everything
        found = grades(task, wrong, tmp_path)
        assert (found[PASSING[name]], found["posture"]) == (1.0, 0.0)


def test_kyverno_of_the_cluster_gives_the_grades_of_our_evaluator(api, tmp_path):
    if not has_kyverno(api):
        pytest.skip(f"there is no Kyverno on {api.context}")
    clear_left_behind(api, KYVERNO)
    task = ComplianceTask(name=POLICIES, seed=1)
    for solver in ("right", *WRONG):
        with asking_kyverno(api, task) as admits:
            assert grades(task, solver, tmp_path, admits) == grades(task, solver, tmp_path), solver
    assert api.list("ClusterPolicy", selector=MARK) == []
