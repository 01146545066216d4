"""Scenarios of a namespace that exists: every class from plain manifests, sound in the eyes of an author."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.authoring.checks import findings_here
from opsassay.evals.remediation.controls.scripts import applicable
from opsassay.testbed.scenarios import load_scenario
from opsassay.testbed.scenarios.generated.namespace import (
    KINDS_READ,
    RECIPES,
    probe_urls,
    scenarios_of_namespace,
    system_of_namespace,
)
from opsassay.testbed.substrates.kubernetes.access.kubectl import parse_kubectl

SHOP = Path(__file__).parents[2] / "kubernetes" / "existing" / "shop.yaml"


@pytest.fixture
def there():
    """Return the objects of the shop and three nodes, by kind."""
    found = {kind: [] for kind in KINDS_READ}
    for one in yaml.safe_load_all(SHOP.read_text()):
        found.setdefault(one["kind"], []).append(one)
    for name in ("worker1", "worker2", "worker3"):
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        found["Node"].append({"metadata": metadata, "spec": {}})
    return found


def drawn(there, *, seed=0, each=1, file="system.yaml", proof=lambda _: ""):
    probes = {name: urls[0] for name, urls in probe_urls("shop", there).items()}
    system = system_of_namespace("shop", there, probes)
    return system, *scenarios_of_namespace(system, there, seed, each, file, proof)


def test_a_request_goes_to_the_service_that_selects_the_pods_and_to_the_path_of_their_readiness(there):
    assert probe_urls("shop", there) == {
        "front": ["http://front-http.shop:80/healthz", "http://front-http.shop:80/"],
        "orders": ["http://orders.shop:8080/healthz", "http://orders.shop:8080/"],
    }


def test_every_class_is_drawn_and_what_cannot_be_seen_is_left_out_with_the_reason(there):
    _, scenarios, left_out = drawn(there)
    assert [one.category for one in scenarios] == [one.name for one in RECIPES]
    assert list(left_out) == ["Ingress"]


def test_scenarios_read_from_their_files_fit_in_the_eyes_of_an_author_and_have_controls(there, tmp_path):
    file = tmp_path / "system.yaml"
    system, scenarios, _ = drawn(there, each=3, file=str(file))
    file.write_text(yaml.safe_dump(system.model_dump(mode="json", exclude_defaults=True)))
    assert len(scenarios) > 2 * len(RECIPES)
    for scenario in scenarios:
        target = tmp_path / f"{scenario.id}.yaml"
        target.write_text(yaml.safe_dump(scenario.model_dump(mode="json", exclude_defaults=True)))
        read = load_scenario(str(target))
        assert read.digest() == scenario.digest()
        assert [one.message for one in findings_here(read) if one.error] == [], read.id
        assert set(read.oracles) == {"gentle", "shallow", "harmful"}
        assert {"control-no-op", "control-scale-to-zero", "control-drift"} <= {one.name for one in applicable(read)}
        for oracle in read.oracles.values():
            for step in oracle.steps:
                assert step.verb is None or parse_kubectl(step.arguments["args"]).arguments


def test_a_seed_draws_the_same_and_another_one_other_deployments(there):
    digests = [[one.digest() for one in drawn(there, seed=seed)[1]] for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_repairs_give_back_what_the_objects_say(there):
    words = {
        one.category: [step.arguments.get("args") for step in one.oracles["gentle"].steps] for one in drawn(there)[1]
    }
    assert ["patch", "configmap", "front-settings", "-p", '{"data": {"UPSTREAM": "http://orders:8080/"}}'] in words[
        "ConfigValue"
    ]
    assert ["uncordon", "worker2"] in words["CordonedNode"]
    repaired = [args[-1] for args in words["WrongPort"] + words["WrongSelector"] if args and args[0] == "patch"]
    assert set(repaired) <= {
        '{"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}',
        '{"spec": {"ports": [{"port": 8080, "targetPort": 8080}]}}',
        '{"spec": {"selector": {"app": "front"}}}', '{"spec": {"selector": {"app": "orders"}}}',
    }  # fmt: skip


def test_no_scenario_holds_the_value_of_a_secret(there):
    assert "open-sesame" not in "".join(one.model_dump_json() for one in drawn(there, each=3)[1])


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("ConfigMap", {"ConfigValue"}),
        ("ResourceQuota", {"Quota"}),
        ("Node", {"CordonedNode"}),
        ("NetworkPolicy", {"NetworkPolicy"}),
    ],
)
def test_a_kind_that_may_not_be_listed_costs_what_needs_it_and_the_right_to_write_it(there, kind, lost):
    del there[kind]
    _, scenarios, left_out = drawn(there)
    assert set(left_out) - {"Ingress"} == lost
    assert all(said == f"this user may not list {kind} objects" for name, said in left_out.items() if name in lost)
    granted = {resource for one in scenarios for rule in one.cluster.rules() for resource in rule.resources
               if "create" in rule.verbs or rule.cluster_wide}  # fmt: skip
    assert f"{kind.lower()}s" not in granted


def test_what_cannot_be_undone_is_left_out_with_the_reason(there):
    _, scenarios, left_out = drawn(there, proof=lambda one: "no right" if one.category == "Quota" else "")
    assert left_out["Quota"] == "no right"
    assert "Quota" not in {one.category for one in scenarios}


def test_where_nothing_but_a_deployment_is_there_the_rest_is_left_out(there):
    (orders,) = (one for one in there["Deployment"] if one["metadata"]["name"] == "orders")
    (container,) = orders["spec"]["template"]["spec"]["containers"]
    for field in ("env", "readinessProbe", "livenessProbe", "resources"):
        del container[field]
    there |= {"Deployment": [orders], "Ingress": []}
    _, scenarios, left_out = drawn(there)
    assert set(left_out) == {"MemoryLimit", "ReadinessProbe", "LivenessProbe", "Secret", "ConfigValue", "CordonedNode"}
    assert left_out["MemoryLimit"] == "there is not a memory limit"
    harm = scenarios[0].oracles["harmful"]
    assert harm.steps[-1].arguments["args"] == ["scale", "deployment/orders", "--replicas=0"]


def test_a_scenario_says_that_its_namespace_exists_and_takes_nothing_else_with_it(there):
    scenario = drawn(there)[1][0].model_dump(mode="json")
    scenario["cluster"]["fillers"] = 3
    with pytest.raises(ValueError, match="the namespace is as it is"):
        Scenario.model_validate(scenario)
