"""What the cost of a system on a cluster is made of, read from and written to objects as tools and kubectl leave them."""

from __future__ import annotations

import pytest
from object_server import READY

from opsassay.core.schema.cost import AutoscalerSettings, ResourceRequest
from opsassay.testbed.apps import load_system
from opsassay.testbed.operations.costs import Autoscaler, CostedSystem
from opsassay.testbed.substrates.kubernetes.access.audit import MACHINERY
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.scenario.costed import HPA, SCALER, ClusterCost
from opsassay.testbed.substrates.kubernetes.scenario.populating import PopulatedSystem, SystemPopulation

SMALL = ResourceRequest(cpu=0.1, memory_mb=128)
PRICING = AutoscalerSettings(service="pricing", min_replicas=1, max_replicas=8, target_utilization=0.7)


@pytest.fixture
def cost(small_cluster):
    system = load_system("till")
    furnished = PopulatedSystem(
        system, "mine", furnishing=SystemPopulation(requests=dict.fromkeys(system.services, SMALL))
    )
    small_cluster._react = lambda _: None
    for item in furnished.services():
        small_cluster.keep((item["kind"], "mine", item["metadata"]["name"]), item)
        for number in range(item["spec"]["replicas"] if item["kind"] == "Deployment" else 0):
            pod = item["spec"]["template"]
            name = f"{item['metadata']['name']}-{number}"
            small_cluster.put("Pod", "mine", name, metadata=pod["metadata"], spec=pod["spec"], status=READY)
    return ClusterCost(Api.connect(small_cluster.config), "mine", system)


def resources(cluster, service):
    return cluster.objects["Deployment", "mine", service]["spec"]["template"]["spec"]["containers"][0]["resources"]


def test_what_pods_request_is_summed_and_what_is_over_costs_nothing(cost, small_cluster):
    found = cost.allocations()
    assert {name: one.replicas for name, one in found.items()} == {"web": 2, "pricing": 3, "archive": 1}
    assert found["pricing"].cpu == pytest.approx(0.3)
    assert found["pricing"].memory_gb == pytest.approx(3 * 0.125)
    small_cluster.objects["Pod", "mine", "pricing-0"]["status"] = {"phase": "Failed"}
    small_cluster.objects["Pod", "mine", "pricing-1"]["status"] = {"phase": "Pending"}
    assert cost.allocations()["pricing"].replicas == 2


def test_a_request_brings_the_limit_that_it_needs_and_gives_it_back(cost, small_cluster):
    own = {"cpu": "500m", "memory": "256Mi"}
    assert resources(small_cluster, "web") == {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": own}
    cost.set_requests("web", ResourceRequest(cpu=0.1, memory_mb=4096))
    assert resources(small_cluster, "web")["limits"] == {"cpu": "500m", "memory": "4096Mi"}
    assert cost.requests()["web"].memory_mb == 4096
    cost.set_requests("web", SMALL)
    assert resources(small_cluster, "web")["limits"] == own


def test_an_autoscaler_is_an_object_that_kubectl_may_change(cost, small_cluster):
    assert cost.autoscalers() == {}
    cost.set_autoscaler(PRICING)
    assert cost.autoscalers() == {"pricing": PRICING}
    spec = small_cluster.objects[HPA, "mine", "pricing"]["spec"]
    spec["metrics"][0]["resource"]["target"]["averageUtilization"] = 150
    assert cost.autoscalers()["pricing"].target_utilization == 1.5
    cost.set_autoscaler(PRICING)
    assert cost.autoscalers() == {"pricing": PRICING}
    spec = small_cluster.objects[HPA, "mine", "pricing"]["spec"]
    memory = {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}}
    for other in (
        {"type": "Resource", "resource": memory},
        {"type": "External", "external": {"metric": {"name": "q"}}},
    ):
        spec["metrics"] = [other]
        assert cost.autoscalers() == {}, "one that follows something else is left to the cluster"
    cost.delete_autoscaler("pricing")
    assert small_cluster.of(HPA) == []


def test_what_our_autoscaler_scales_is_no_write_of_the_agent(cost, small_cluster):
    cost.set_autoscaler(PRICING)
    scaler = Autoscaler(cost, lambda _: (3, 1.4))
    scaler.decide("pricing", PRICING, 0.0)
    assert small_cluster.objects["Deployment", "mine", "pricing"]["spec"]["replicas"] == 6
    assert small_cluster.asked[-1].query["fieldManager"] == SCALER
    assert SCALER.startswith(MACHINERY)


@pytest.mark.parametrize(("groups", "own"), [([], False), ([{"name": "metrics.k8s.io"}], True)])
def test_where_the_cluster_has_metrics_its_own_controller_scales(cost, small_cluster, groups, own):
    small_cluster.texts["/apis"] = {"groups": [{"name": "apps"}, *groups]}
    assert cost.scales_itself is own
    system: CostedSystem = cost
    assert system is cost
