"""Live cost tasks on a cluster: right repairs pass, and an autoscaler that is left as it is brings its surplus back."""

from __future__ import annotations

import pytest
from tests.kubernetes.native.cache import Cache

from opsassay.core.schema.progress import ProgressLines
from opsassay.evals.cost.live.solve import LiveCostRun
from opsassay.evals.cost.live.tasks import LOCAL_TASKS, ON_KUBERNETES, live_task
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.queue import make_runs
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
ORACLES = [*((name, "right") for name in LOCAL_TASKS), ("cost-autoscaler", "one_tick")]


@pytest.mark.parametrize(("name", "oracle"), ORACLES)
def test_an_oracle_on_a_cluster_ends_where_its_file_says(cluster, tmp_path, name, oracle):
    settings = ClusterSettings(kubeconfig=cluster.kubeconfig, kubectl=str(Cache.default().binaries / "kubectl"))
    job = LiveCostRun.for_task(name + ON_KUBERNETES, TrialAgent(name=f"oracle:{oracle}"), 0, settings)
    (end,) = make_runs(RunStore(tmp_path), [job], 1, ProgressLines(print))
    assert end.run_dir is not None, end.message
    metrics = job.evaluate(end.run_dir)
    mark = live_task(job.scenario.id).cost.fails.get(oracle)
    assert metrics["passed"].value == float(mark is None), metrics["passed"].reason
    assert metrics["diagnosis_right"].value == 1.0
    if mark is not None:
        assert metrics[mark].value == 0.0
