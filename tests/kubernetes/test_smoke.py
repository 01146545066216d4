"""One scenario on a real cluster with every run of the suite; it skips, and says why, where the cluster was never built."""

from __future__ import annotations

import pytest
from tests.kubernetes.native.cache import Cache
from tests.kubernetes.native.cluster import Cluster
from tests.kubernetes.native.images import unpack_images

from opsassay.core.schema.progress import ProgressLines
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.runner.store import RunStore

pytestmark = [pytest.mark.live, pytest.mark.alone, pytest.mark.drawn(most=2), pytest.mark.timeout(900)]


def test_a_selector_and_a_policy_are_repaired_on_a_cluster_of_two_nodes(tmp_path):
    native = Cluster(Cache.default(), "smoke")
    if reason := native.unavailable():
        pytest.skip(reason)
    native.stop()
    unpack_images(native.cache)
    with native.running(2):
        cluster = {"kubeconfig": str(native.kubeconfig), "kubectl": str(native.cache.binaries / "kubectl")}
        plan = TrialPlan(scenarios=("unreachable-service",), agents=({"name": "oracle:gentle"},), cluster=cluster)
        (cell,), store = cells_of(plan), RunStore(tmp_path)
        (folder,) = run_trials(store, (cell,), progress=ProgressLines(print))
    verdict = grade_trial(folder, cell.scenario)
    assert not [one.reason for one in verdict.judgements if one.failed]
    assert verdict.judgement("v_depth").passed
    assert not native.folder.exists()
