"""Manifests hold the whole system, for every app that ships, and nothing of it where it does not belong."""

from __future__ import annotations

import json

import pytest
import yaml

from live import run_opsassay
from opsassay.core.schema.files import parse_yaml
from opsassay.core.schema.system import System
from opsassay.testbed.apps import load_system, names
from opsassay.testbed.substrates.kubernetes.manifests.system import Deployed, render


def of_kind(objects, kind, namespace):
    return {
        o["metadata"]["name"]: o for o in objects if o["kind"] == kind and o["metadata"].get("namespace") == namespace
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_service_and_store_has_its_deployment_and_the_pods_read_the_same_system(name):
    system = load_system(name)
    objects = list(yaml.safe_load_all(render(Deployed(system, "mine").manifests())))
    deployments = of_kind(objects, "Deployment", "mine")
    assert set(deployments) == {*system.services, *system.stores, "loadgenerator"}
    assert {n: d["spec"]["replicas"] for n, d in deployments.items() if n in system.services} == {
        n: s.replicas for n, s in system.services.items()
    }
    assert set(of_kind(objects, "Service", "mine")) == {*system.services, *system.stores}
    assert set(of_kind(objects, "Deployment", "mine-watch")) == {"receiver", "probe"}
    read = parse_yaml(of_kind(objects, "ConfigMap", "mine")["system"]["data"]["system.yaml"], System, "system.yaml")
    stores = {n: s.model_copy(update={"password": None}) for n, s in system.stores.items()}
    services = {n: s.model_copy(update={"config": {}}) for n, s in system.services.items()}
    assert read == system.model_copy(update={"stores": stores, "services": services})


def test_a_selector_matches_its_own_pods_and_no_others():
    objects = Deployed(load_system("shop"), "mine").manifests()
    for service in (o for o in objects if o["kind"] == "Service"):
        place, selector = service["metadata"]["namespace"], service["spec"]["selector"].items()
        matching = [
            d["metadata"]["name"]
            for d in objects
            if d["kind"] == "Deployment" and d["metadata"]["namespace"] == place
            and selector <= d["spec"]["template"]["metadata"]["labels"].items()
        ]  # fmt: skip
        assert matching == [service["metadata"]["name"]]


def test_passwords_are_in_secrets_only_and_no_pod_has_a_right_on_the_cluster():
    system = load_system("desk")
    (password,) = {s.password for s in system.stores.values()} - {None}
    users = {n for n, s in system.services.items() if password in s.config.values()}
    objects = Deployed(system, "desk").manifests()
    holding = {(o["kind"], o["metadata"]["name"]) for o in objects if password in yaml.safe_dump(o)}
    assert users
    assert holding == {("Secret", "db-password"), *(("Secret", f"{user}-secrets") for user in users)}
    for name, service in system.services.items():
        settings = {}
        for kind, suffix, key in (("ConfigMap", "config", "data"), ("Secret", "secrets", "stringData")):
            settings |= of_kind(objects, kind, "desk").get(f"{name}-{suffix}", {key: {}})[key]
        assert settings == service.config
    for item in (o for o in objects if o["kind"] == "Deployment"):
        pod = item["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsUser"] > 0
        assert not {"hostNetwork", "hostPID", "nodeName"} & pod.keys()


def test_a_collector_of_the_users_takes_the_receivers_place():
    objects = Deployed(load_system("shop"), "mine", endpoint="http://collector.monitoring:4318").manifests()
    assert set(of_kind(objects, "Deployment", "mine-watch")) == {"probe"}
    (container,) = of_kind(objects, "Deployment", "mine")["loadgenerator"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "TELEMETRY", "value": "http://collector.monitoring:4318"} in container["env"]


@pytest.mark.slow
def test_the_command_prints_documents_that_say_what_was_asked_for():
    done = run_opsassay(
        "system", "render", "shop", "--name", "two", "--rate", "7", "--image", "registry.example/opsassay:9"
    )
    objects = list(yaml.safe_load_all(done.stdout))
    assert done.returncode == 0, done.stderr
    images = {o["spec"]["template"]["spec"]["containers"][0]["image"] for o in objects if o["kind"] == "Deployment"}
    assert images == {"registry.example/opsassay:9"}
    (container,) = of_kind(objects, "Deployment", "two")["loadgenerator"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "RATE_RPS", "value": "7"} in container["env"]
    assert [o["metadata"]["name"] for o in objects if o["kind"] == "Namespace"] == ["two", "two-watch"]
    refused = run_opsassay("system", "render", "shp")
    assert refused.returncode == 2
    assert "shop" in refused.stderr


@pytest.mark.live
@pytest.mark.timeout(400)
def test_a_real_api_server_takes_workers_of_the_platform(kubectl):
    """A dry run on the server's side: the validation and the admission of a real control plane."""
    manifests = run_opsassay("system", "render", "worker", "--server", "http://opsassay-server:8400").stdout
    taken = json.loads(kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", feed=manifests))
    assert (taken["kind"], taken["spec"]["replicas"]) == ("Deployment", 4)
    refused = kubectl(
        "apply", "--dry-run=server", "-f", "-", feed=manifests.replace("replicas: 4", "replicas: -4"), check=False
    )
    assert refused.returncode != 0
