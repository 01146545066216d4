"""Faults of the catalogue as the trigger of a scenario for a cluster: checked first, held until the run is over, undone."""

from __future__ import annotations

import base64

import pytest
from object_server import READY, SmallCluster
from pydantic import ValidationError
from tests.kubernetes.native.cache import Cache

from opsassay.core.errors import RefusedError
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.authoring.checks import findings
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.scenarios import load_scenario, system_of
from opsassay.testbed.substrates.kubernetes.actuators import inject
from opsassay.testbed.substrates.kubernetes.environment import ClusterEnvironment
from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE
from opsassay.testbed.substrates.kubernetes.scenario.names import OpenNames
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

NAME = "pod-without-image"


def scenario(*faults, **cluster):
    """Return the shipped scenario with other *faults*, which nothing has to show before it goes on."""
    payload = load_scenario(NAME).model_dump(mode="json")
    payload["trigger"]["faults"] = list(faults) or payload["trigger"]["faults"]
    payload["cluster"] |= {"until": [], **cluster}
    return Scenario.model_validate(payload)


def control(server):
    """Make two pods for each deployment, once: whoever changes one finds it changed."""
    standing = {key: item for key, item in server.objects.items() if key[0] == "Pod"}
    SmallCluster.control(server)
    for name, item in server.of("Deployment"):
        spec = {"containers": [{"name": name, "image": "ours:1"}]}
        server.put("Pod", item["metadata"]["namespace"], f"{name}-0", metadata={"labels": {"app": name}}, spec=spec,
                   status=READY)  # fmt: skip
    server.objects |= {key: item for key, item in standing.items() if key in server.objects}


@pytest.fixture
def stage(small_cluster, monkeypatch):
    """Return what makes a stage of a scenario on a small cluster, where nobody waits to see what is usual."""
    monkeypatch.setattr(inject, "BEFORE_S", 0.0)
    monkeypatch.setattr("opsassay.testbed.injection.inject.EFFECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr("opsassay.testbed.injection.inject.RECOVERY_TIMEOUT_S", 0.1)
    monkeypatch.setattr(small_cluster, "_react", control)
    small_cluster.put("Node", "", "worker1", spec={}, status=READY)
    running = KubernetesSubstrate(small_cluster.config).deploy(system_of(load_scenario(NAME)), "mine")
    small_cluster.put("Secret", "mine", "endpoint-key", data={"key": base64.b64encode(b"k" * 32).decode()})
    small_cluster.refuse = lambda method, path: (
        (200, {}) if method == "PUT" and path.endswith(":9090/proxy/desired") else ...
    )
    names = OpenNames("mine", "mine-watch", IMAGE, ("worker1",))

    def made(one):
        environment = ClusterEnvironment(one, 0, None, {})
        environment.running, environment.names = running, names
        return environment

    return made


def images(server):
    """Return the images that pods of the catalog run."""
    pods = [pod for name, pod in server.of("Pod") if name in ("catalog-0", "catalog-1")]
    return sorted(container["image"].rpartition(":")[2] for pod in pods for container in pod["spec"]["containers"])


class AgentDiedError(Exception):
    pass


@pytest.mark.parametrize("error", [None, AgentDiedError], ids=["over", "failed"])
def test_a_fault_holds_until_the_run_is_over_and_is_undone_however_that_ends(small_cluster, stage, error):
    before = images(small_cluster)
    caught = pytest.raises(error) if error else pytest.MonkeyPatch.context()
    with caught, stage(scenario()).broken():
        assert sorted({*images(small_cluster)} - {*before}) == ["unavailable"]
        assert inject.activity(stage(scenario()).running.api, "mine-watch") == "PodFailure"
        if error:
            raise error
    assert images(small_cluster) == before
    assert inject.activity(stage(scenario()).running.api, "mine-watch") is None


def test_a_fault_that_cannot_begin_is_said_and_leaves_nothing(small_cluster, stage):
    before = images(small_cluster)
    wrong = scenario({"fault": "NetworkDelay", "target": {"service": "catalog"}, "parameters": {"delay_ms": 100}})
    refused = pytest.raises(RefusedError, match=r"NetworkDelay on catalog cannot be injected on this cluster")
    with refused, stage(wrong).broken():
        pytest.fail("it began")
    assert images(small_cluster) == before


def test_an_author_is_told_of_a_fault_that_does_not_fit():
    wrong = scenario({"fault": "PodFailure", "target": {"service": "catalogue"}})
    (found,) = [one for one in findings(wrong, system_of(wrong), {}) if one.field.startswith("trigger.")]
    assert (found.field, found.error) == ("trigger.faults.0.target.service", True)
    assert "There is no service 'catalogue'" in found.message
    with pytest.raises(ValidationError, match=r"trigger\.faults: the services are stand-ins, which no fault of the"):
        scenario(stand_ins=True)


@pytest.mark.kubernetes
@pytest.mark.timeout(1800)
def test_each_oracle_does_to_a_fault_of_the_catalogue_what_the_file_says(cluster, tmp_path):
    settings = {"kubeconfig": str(cluster.kubeconfig), "kubectl": str(Cache.default().binaries / "kubectl")}
    plan = TrialPlan(scenarios=(NAME,), agents=({"name": "oracle:*"},), cluster=settings)
    cells, store = cells_of(plan), RunStore(tmp_path / "store")
    run_trials(store, cells, progress=ProgressLines(print))
    for cell in cells:
        folder = store.finished(cell.cell.hash)
        assert folder is not None
        failed = {one.predicate for one in grade_trial(folder, cell.scenario).judgements if one.failed}
        assert cell.scenario.oracles[cell.agent.oracle].is_met(failed)
