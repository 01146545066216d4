"""A namespace that is attached to: what is read of it, which faults its pods can have, what is recorded of them."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pydantic import ValidationError

from conftest import until
from opsassay.cli import run
from opsassay.core.errors import NotFoundError, RefusedError, UserError
from opsassay.core.schema.incident import FaultPlan, PlannedFault
from opsassay.core.schema.system import System
from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.telemetry.otlp.spool import SpoolFile, spool_path
from opsassay.testbed.apps import load_system
from opsassay.testbed.catalogue.network import links_fail
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Fleet
from opsassay.testbed.core.injection import Injection
from opsassay.testbed.substrates.kubernetes.actuators import object_faults
from opsassay.testbed.substrates.kubernetes.actuators.changes import Change, injected
from opsassay.testbed.substrates.kubernetes.actuators.mechanisms import choose, refusals
from opsassay.testbed.substrates.kubernetes.actuators.offers import SETTING, offers_of
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.readings import memory_bytes, service_of
from opsassay.testbed.substrates.kubernetes.attaching import attach
from opsassay.testbed.substrates.kubernetes.endpoints.pod_logs import PodLogs
from opsassay.testbed.substrates.kubernetes.manifests.system import watch_of
from opsassay.testbed.substrates.kubernetes.scenario import attached, standing
from opsassay.testbed.substrates.kubernetes.scenario.attached import watching_objects
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

SHOP = Path(__file__).parent / "existing" / "shop.yaml"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ANSWERING = ("front-http:80/proxy/", "front-http:80/proxy/healthz", "orders:8080/proxy/healthz")


@pytest.fixture
def shop(small_cluster, monkeypatch):
    """Put the shop, a store and what answers its pages on the small cluster; return the server."""
    monkeypatch.setattr(standing, "ROLLED_OUT_WITHIN_S", 0.0)
    monkeypatch.setattr(attached, "GONE_WITHIN_S", 0.1)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(small_cluster.config))
    small_cluster.put("Namespace", "", "shop", status={"phase": "Active"})
    for one in yaml.safe_load_all(SHOP.read_text()):
        small_cluster.keep((one["kind"], "shop", one["metadata"]["name"]), one)
    limits = {"limits": {"cpu": "250m", "memory": "1Gi"}}
    container = {"name": "db", "image": "docker.io/library/postgres:16", "resources": limits}
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [container]}}
    small_cluster.put("StatefulSet", "shop", "db", metadata={}, spec={"replicas": 1, "template": template})
    path = "/api/v1/namespaces/shop/services/{}"
    small_cluster.texts |= {path.format(one): "ok" for one in ANSWERING} | {REVIEWS: {"status": {"allowed": True}}}
    return small_cluster


@pytest.fixture
def api(shop):
    return Api.connect(shop.config)


def attached_shop(api) -> System:
    return attach(api, "shop", ["http://front-http/"], None).system


def test_services_are_deployments_and_stateful_sets_with_their_ports_and_limits(api):
    system = attached_shop(api)
    found = {name: (one.replicas, one.program.port, one.program.calls) for name, one in system.services.items()}
    assert found == {
        "db": (1, 5432, ()), "front": (2, 8080, None), "orders": (2, 8080, None), "reports": (1, 0, None),
    }  # fmt: skip
    assert (system.services["db"].cpu_limit, system.services["db"].memory_limit_mb) == (0.25, 1024)
    assert system.namespace.unlimited == ("front", "orders", "reports")
    assert system.namespace.probes == {
        "front": "http://front-http.shop:80/", "orders": "http://orders.shop:8080/healthz",
    }  # fmt: skip
    assert system.namespace.context == api.context
    assert [one.request for one in system.load.mix] == ["front GET /"]


def test_a_workload_that_cannot_be_a_service_is_left_out_with_the_reason(shop, api):
    shop.objects["Deployment", "shop", "orders"]["spec"]["replicas"] = 0
    shop.objects["Deployment", "shop", "reports"]["spec"]["template"]["spec"]["hostNetwork"] = True
    shop.keep(("Deployment", "shop", LOAD_GENERATOR), shop.objects["Deployment", "shop", "front"])
    found = attach(api, "shop", ["http://front-http/"], None)
    assert set(found.system.services) == {"db", "front"}
    assert found.left_out.keys() == {"orders", "reports", LOAD_GENERATOR}
    assert found.left_out["reports"] == "its pods are in the network of their node"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("http://front.example/", r"no Service of shop is there.*http://front-http:80/"),
        ("http://front-http:81/", "no Service of shop is there"),
        ("http://front-http/absent", "is not answered well"),
        ("https://front-http/", "is a URL such as"),
    ],
)
def test_a_page_is_at_a_service_of_the_namespace_and_answers(api, page, words):
    with pytest.raises(UserError, match=words):
        attach(api, "shop", [page], None)


def test_a_namespace_that_is_not_there_is_one_sentence(api):
    with pytest.raises(NotFoundError, match="shop"):
        attach(api, "shoop", ["http://front-http/"], None)


def test_the_command_writes_a_file_that_is_read_back_and_changes_nothing(shop, api, tmp_path, capsys):
    before = {key: dict(item) for key, item in shop.objects.items()}
    file = tmp_path / "system.yaml"
    words = ["system", "attach", "--namespace", "shop", "--entry", "http://front-http/", "-o", str(file), "--json"]
    assert run([*words, "--logs", "kubectl", "--traces", "tempo=http://tempo:3200"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {one["service"]: one["limited"] for one in said["items"]} == {
        "db": True, "front": False, "orders": False, "reports": False,
    }  # fmt: skip
    assert any("shop-watch" in one for one in said["changes"])
    system = load_system(str(file))
    assert system == attached_shop(api).model_copy(update={"backends": system.backends})
    assert list(system.backends.backends()) == ["tempo"]
    assert shop.objects == before
    assert not [one for one in shop.asked if one.method != "GET"]


def test_no_sidecar_goes_into_its_pods_and_no_load_of_a_user_next_to_them(api):
    document = attached_shop(api).model_dump(mode="json", exclude_defaults=True)
    with pytest.raises(ValidationError, match="own load generator sends the load of a namespace"):
        System.model_validate({**document, "load": {"command": ["k6", "run", "load.js"]}})
    document["services"]["front"]["sidecar"] = "envoy"
    with pytest.raises(ValidationError, match="nothing of ours goes into the pods"):
        System.model_validate(document)


def test_each_fault_is_said_for_each_service_without_a_start(shop, api, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(SETTING, raising=False)
    file = tmp_path / "system.yaml"
    file.write_text(yaml.safe_dump(attached_shop(api).model_dump(mode="json", exclude_defaults=True)))
    before = dict(shop.objects)
    assert run(["system", "faults", "--system", str(file), "--json"]) == 0
    found = {one["type"]: one for one in json.loads(capsys.readouterr().out)["items"]}
    assert {fault for fault, one in found.items() if all(one["injectable"].values())} == {
        "PodKill", "PodFailure", "NetworkPartition",
    }  # fmt: skip
    assert "own runtime" in found["DNSError"]["reason"]["front"]
    assert "sidecar" not in found["HTTPRequestAbort"]["reason"]["front"]
    assert shop.objects == before


def plan(fault, service="orders", **parameters):
    document = {"fault": fault, "target": {"service": service}, "parameters": parameters}
    return PlannedFault.model_validate(document)


def test_faults_go_by_objects_and_where_allowed_by_the_node_but_never_by_an_agent_in_the_pod(api, monkeypatch):
    monkeypatch.delenv(SETTING, raising=False)
    by_objects = offers_of(api, existing="shop")
    assert choose(plan("PodKill"), by_objects).name == choose(plan("NetworkPartition"), by_objects).name == "object"
    with pytest.raises(RefusedError, match="leave `peer` out"):
        choose(plan("NetworkPartition", peer="front"), by_objects)
    with pytest.raises(RefusedError, match="own runtime in the pod; node: it touches a node"):
        choose(plan("ContainerKill"), by_objects)
    monkeypatch.setenv(SETTING, api.context)
    by_node = offers_of(api, existing="shop")
    for fault in ("NetworkPartition", "NetworkDelay", "ContainerKill", "CPUStress"):
        assert choose(plan(fault), by_node).name == "node"
    with pytest.raises(RefusedError, match="own runtime in the pod"):
        choose(plan("MemoryStress"), by_node)


def test_a_right_that_is_missing_costs_the_types_that_need_it_with_a_sentence(shop, api):
    def refuse(method, path):
        if path != REVIEWS:
            return ...
        asked = shop.request.body["spec"]["resourceAttributes"]
        assert (asked["namespace"], method) == ("shop", "POST")
        return 201, {"status": {"allowed": asked["resource"] != "networkpolicies"}}

    shop.refuse = refuse
    found = {fault: reason for reason, faults in refusals(api, "shop").items() for fault in faults}
    assert "may not create networkpolicies, delete networkpolicies in shop" in found["NetworkPartition"]
    assert found.keys().isdisjoint({"PodKill", "PodFailure"})
    assert "own runtime" in found["HTTPRequestAbort"]


def test_a_policy_that_stands_would_let_through_what_another_one_shall_stop(shop, api):
    class UnderTest:
        name, system = "shop", attached_shop(api)

    UnderTest.api = api
    labels = {"labels": {"app": "orders", "tier": "back"}}
    shop.put("Pod", "shop", "orders-1", metadata=labels, spec={}, status={})
    fault = plan("NetworkPartition", direction="both")
    replica = Fleet(UnderTest.system, 0).replicas_of("orders")[0]
    replica.pod = "orders-1"
    injection = Injection("1", fault, (replica,), ("orders-1",), UnderTest)
    label, policy = object_faults.parting(injection)
    assert (label.kind, policy.kind) == ("Pod", "NetworkPolicy")
    expression = {"key": "tier", "operator": "NotIn", "values": ["front"]}
    shop.put("NetworkPolicy", "shop", "team", metadata={}, spec={"podSelector": {"matchExpressions": [expression]}})
    with pytest.raises(RefusedError, match="the policy team selects orders-1"):
        object_faults.parting(injection)


def test_a_recording_adds_load_and_receiver_and_a_trial_of_generated_tasks_neither(shop, api):
    system = attached_shop(api)
    assert {one["metadata"]["name"] for one in watching_objects(system, "ours") if one["kind"] == "Deployment"} == {
        "probe", "receiver", "loadgenerator",
    }  # fmt: skip
    assert {one["metadata"].get("namespace") for one in watching_objects(system, "ours")} == {None, watch_of("shop")}
    with KubernetesSubstrate(shop.config, "here").deployed(system, "ignored", rate_rps=7) as running:
        assert running.existing
        assert running.definition().services.keys() == system.services.keys()
        assert running.status().rate_rps == 7
        running.require(FaultPlan.model_validate({"fault": "PodKill", "target": {"service": "orders"}}))
        with pytest.raises(RefusedError, match="a program of yours"):
            running.require(FaultPlan.model_validate({"fault": "HTTPRequestAbort", "target": {"service": "orders"}}))
    assert not [key for key in shop.objects if watch_of("shop") in (key[1], key[2])]


def test_what_a_killed_injection_had_changed_of_a_pod_is_undone_with_what_watches(shop, api, monkeypatch):
    container = {"name": "db", "image": "postgres:16"}
    metadata = {"ownerReferences": [{"kind": "StatefulSet", "name": "db", "controller": True}]}
    shop.put("Pod", "shop", "db-0", metadata=metadata, spec={"containers": [container]}, status=shop.pods)
    wrong = {"spec": {"containers": [{**container, "image": "postgres:unavailable"}]}}
    held = ExitStack()
    with KubernetesSubstrate(shop.config, "here").attached(attached_shop(api)):
        held.enter_context(injected(api, [Change("Pod", "db-0", "shop", patch=wrong)], watch_of("shop"), 60))
        assert shop.objects["Pod", "shop", "db-0"]["spec"] == wrong["spec"]
    assert shop.objects["Pod", "shop", "db-0"]["spec"] == {"containers": [container]}
    assert not [key for key in shop.objects if watch_of("shop") in (key[1], key[2])]
    held.close()


def test_quantities_and_owners_are_read_as_kubernetes_writes_them():
    assert [memory_bytes(one) for one in ("64Mi", "1Gi", "5M", "1k", "134217728", "2e3")] == [
        64 << 20, 1 << 30, 5_000_000, 1000, 134_217_728, 2000,
    ]  # fmt: skip
    owner = {"kind": "ReplicaSet", "name": "my-shop-7f9c", "controller": True}
    metadata = {"name": "my-shop-7f9c-x", "ownerReferences": [owner], "labels": {"pod-template-hash": "7f9c"}}
    assert service_of({"metadata": metadata}) == "my-shop"
    metadata = {"name": "db-0", "ownerReferences": [{"kind": "StatefulSet", "name": "db", "controller": True}]}
    assert service_of({"metadata": metadata}) == "db"
    assert service_of({"metadata": {"name": "by-hand"}}) == ""


def test_lines_states_and_events_of_pods_are_added_to_the_spool(shop, api, tmp_path, monkeypatch):
    monkeypatch.setattr("opsassay.testbed.substrates.kubernetes.endpoints.pod_logs.STATES_EVERY_S", 0.01)
    owner = {"kind": "ReplicaSet", "name": "orders-7f", "controller": True}
    metadata = {"uid": "u1", "ownerReferences": [owner], "labels": {"pod-template-hash": "7f"}}
    state = {"name": "server", "restartCount": 3, "state": {"running": {}}}
    status = {"phase": "Running", "containerStatuses": [state]}
    container = {"name": "server", "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}}
    spec = {"nodeName": "worker1", "containers": [container]}
    shop.put("Pod", "shop", "orders-7f-x", metadata=metadata, spec=spec, status=status)
    cpu = {"time": "2099-01-01T00:00:00Z", "usageNanoCores": 250_000_000, "usageCoreNanoSeconds": 7_000_000_000}
    measured = {"name": "server", "cpu": cpu, "memory": {"workingSetBytes": 16 << 20}}
    summary = {"pods": [{"podRef": {"uid": "u1"}, "containers": [measured]}, {"podRef": {"uid": "u2"}}]}
    shop.texts["/api/v1/nodes/worker1/proxy/stats/summary"] = summary
    lines = [
        '2099-01-01T00:00:00.123456789Z {"level": "error", "msg": "no money", "trace_id": "ab", "span_id": "cd"}',
        "2000-01-01T00:00:00Z it is too old",
        "2099-01-01T00:00:01Z WARN slow",
    ]
    shop.texts["/api/v1/namespaces/shop/pods/orders-7f-x/log"] = "\n".join([*lines, ""]).encode()
    about = {"kind": "Pod", "name": "orders-7f-x"}
    event = {"involvedObject": about, "lastTimestamp": "2099-01-01T00:00:02Z", "type": "Warning", "reason": "BackOff"}
    shop.put("Event", "shop", "one", metadata={}, message="it restarts", **event)
    shop.put("Event", "shop", "two", metadata={}, message="of nobody", **{**event, "involvedObject": {"kind": "Node"}})
    logs = PodLogs(api, "shop", ("orders",))
    until(lambda: len(logs._records) == 2 and logs._states)
    for signal in ("traces", "metrics", "logs"):
        SpoolFile(spool_path(tmp_path, signal)).close()
    logs.write(tmp_path)
    frames = decode_spool(tmp_path)
    rows = frames["logs"].sort("time").select("level", "message", "service_name", "attr.k8s.pod.name").rows()
    assert rows == [
        ("ERROR", "no money", "orders", "orders-7f-x"),
        ("WARN", "WARN slow", "orders", "orders-7f-x"),
        ("WARN", "BackOff: it restarts", "orders", "orders-7f-x"),
    ]
    assert frames["logs"].sort("time")["trace_id"][0] == "000000000000000000000000000000ab"
    values = dict(frames["metrics"].select("metric", "value").unique().iter_rows())
    assert values == {
        "k8s.container.restarts": 3.0, "k8s.pod.ready": 0.0, "container.cpu.usage": 0.25,
        "container.cpu.limit_utilization": 0.5, "container.memory.working_set": float(16 << 20),
        "container.memory.limit_utilization": 0.25,
    }  # fmt: skip
    assert frames["metrics_sum"].select("metric", "value").rows() == [("container.cpu.time", 7.0)]


def test_a_pod_that_is_cut_off_is_noticed_where_its_service_hides_it_from_users(api):
    """Users are sent to another replica by the Service; the probe has asked this one itself."""
    system = attached_shop(api)
    fleet = Fleet(system, 0)
    asked = {destination for source, destination in fleet.links() if source == LOAD_GENERATOR}
    assert asked == {"front-0", "front-1", "orders-0", "orders-1"}
    replica = fleet.replicas_of("orders")[1]
    fault = plan("NetworkPartition", direction="both")
    under_test = SimpleNamespace(fleet=fleet)
    injection = Injection("1", fault, (replica,), (replica.pod,), under_test)
    for second in range(20):
        fleet.load.history.append((float(second), {"call:front": [second * 20, 0, second], "call:orders": [0, 0, 0]}))
        failed = max(second - 10, 0)
        replica.history.append((float(second), {"server": [second, failed, second]}))
    before, after, threshold = links_fail(injection, (0.0, 10.0))
    assert before == 0.0
    assert after > threshold
