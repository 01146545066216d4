"""What pods are given that start from now on, and who runs with something else: by objects as a cluster has them."""

from __future__ import annotations

import copy

import pytest

from opsassay.testbed.substrates.kubernetes.api.next_start import next_start

MADE, SINCE, LATER = "2026-01-01T10:00:00Z", "2026-01-01T10:00:05Z", "2026-01-01T10:09:00Z"
SPEC = {
    "containers": [
        {
            "name": "web",
            "image": "x:1",
            "envFrom": [{"configMapRef": {"name": "web-config"}}, {"secretRef": {"name": "web-secrets"}}],
            "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "colours", "key": "a"}}}, {"name": "B"}],
        }
    ],
    "volumes": [
        {"name": "system", "configMap": {"name": "system"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "token", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
    ],
}
MAPS = ("web-config", "colours", "system")


def owned(kind, name):
    return [{"kind": kind, "name": name, "controller": True}]


def template(**labels):
    return {"metadata": {"labels": {"app": "web", **labels}}, "spec": copy.deepcopy(SPEC)}


def config_map(name, **data):
    return {"metadata": {"name": name, "creationTimestamp": MADE}, "data": data}


@pytest.fixture
def cluster():
    """Return a deployment of two pods whose replica set has its template, and what they read."""
    return {
        "Deployment": [{"metadata": {"name": "web"}, "spec": {"template": template()}}],
        "ReplicaSet": [
            {
                "metadata": {"name": "web-1", "ownerReferences": owned("Deployment", "web")},
                "spec": {"template": template(**{"pod-template-hash": "1"})},
            }
        ],
        "Pod": [
            {
                "metadata": {"name": f"web-1-{n}", "ownerReferences": owned("ReplicaSet", "web-1")},
                "spec": copy.deepcopy(SPEC),
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [{"state": {"running": {"startedAt": SINCE}}}],
                },
            }
            for n in "ab"
        ],
        "ConfigMap": [config_map(name, a="1") for name in MAPS],
        "PersistentVolumeClaim": [{"metadata": {"name": "data", "uid": "u-1"}}],
    }


def test_nothing_waits_where_whatever_runs_was_started_with_what_is_there(cluster):
    configured, pending = next_start(cluster)
    assert pending == {}
    assert set(configured) == {
        "Deployment web template", *(f"ConfigMap {name}" for name in MAPS), "PersistentVolumeClaim data",
    }  # fmt: skip


def test_a_template_that_no_replica_set_has_waits_for_its_rollout(cluster):
    before, _ = next_start(cluster)
    cluster["Deployment"][0]["spec"]["template"]["spec"]["nodeSelector"] = {"a": "nowhere"}
    configured, pending = next_start(cluster)
    assert pending == {"Deployment web template": ("web-1-a", "web-1-b")}
    assert configured["Deployment web template"] != before["Deployment web template"]


def test_rollouts_that_are_paused_wait_though_nothing_has_to_be_rolled_out_yet(cluster):
    cluster["Deployment"][0]["spec"] |= {"paused": True}
    configured, pending = next_start(cluster)
    assert pending == {"Deployment web rollouts": ("web",)}
    assert configured.keys() - next_start(cluster | {"Deployment": []})[0].keys() == {
        "Deployment web template", "Deployment web rollouts",
    }  # fmt: skip
    cluster["Deployment"][0]["spec"] |= {"paused": False}
    assert next_start(cluster)[1] == {}


def test_pods_of_a_former_replica_set_wait_until_they_are_replaced_and_restarts_are_no_other_template(cluster):
    before, _ = next_start(cluster)
    annotated = cluster["Deployment"][0]["spec"]["template"]["metadata"]
    annotated["annotations"] = {"kubectl.kubernetes.io/restartedAt": LATER}
    young = copy.deepcopy(cluster["ReplicaSet"][0])
    young["metadata"]["name"] = "web-2"
    young["spec"]["template"]["metadata"]["annotations"] = annotated["annotations"]
    cluster["ReplicaSet"].append(young)
    cluster["Pod"][0]["metadata"]["ownerReferences"] = owned("ReplicaSet", "web-2")
    configured, pending = next_start(cluster)
    assert pending == {"Deployment web template": ("web-1-b",)}
    assert configured["Deployment web template"] == before["Deployment web template"]
    cluster["Pod"][1]["status"]["conditions"][0]["status"] = "False"
    assert next_start(cluster)[1] == {}, "who is not ready runs with nothing"


@pytest.mark.parametrize("name", MAPS)
def test_a_map_that_was_written_after_its_reader_was_started_waits_for_the_next(cluster, name):
    before, _ = next_start(cluster)
    found = next(one for one in cluster["ConfigMap"] if one["metadata"]["name"] == name)
    found["data"] = {"a": "2"}
    found["metadata"]["managedFields"] = [{"manager": "a", "time": MADE}, {"manager": "kubectl", "time": LATER}]
    configured, pending = next_start(cluster)
    assert pending == {f"ConfigMap {name}": ("web-1-a", "web-1-b")}
    assert configured[f"ConfigMap {name}"] != before[f"ConfigMap {name}"]
    cluster["Pod"][0]["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = LATER
    assert next_start(cluster)[1] == {f"ConfigMap {name}": ("web-1-b",)}, "a container that was restarted has read it"


@pytest.mark.parametrize("name", MAPS)
def test_a_map_that_is_gone_waits_as_well(cluster, name):
    cluster["ConfigMap"] = [one for one in cluster["ConfigMap"] if one["metadata"]["name"] != name]
    configured, pending = next_start(cluster)
    assert pending == {f"ConfigMap {name}": ("web-1-a", "web-1-b")}
    assert f"ConfigMap {name}" not in configured


def test_a_claim_that_is_deleted_while_it_is_used_waits_for_its_last_user(cluster):
    cluster["PersistentVolumeClaim"][0]["metadata"]["deletionTimestamp"] = LATER
    configured, pending = next_start(cluster)
    assert pending == {"PersistentVolumeClaim data": ("web-1-a", "web-1-b")}
    assert "PersistentVolumeClaim data" not in configured


def test_a_node_that_somebody_closed_takes_no_next_pod(cluster):
    def node(name, **spec):
        return {"metadata": {"name": name}, "spec": spec}

    mine = {"key": "mine", "effect": "NoSchedule"}
    nodes = [
        node("open", taints=[{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]),
        node("soft", taints=[{"key": "mine", "effect": "PreferNoSchedule"}]),
        node("cordoned", unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
        node("tainted", taints=[mine]),
    ]  # fmt: skip
    configured, pending = next_start(cluster, nodes)
    closed = {f"Node {name} scheduling": (name,) for name in ("cordoned", "tainted")}
    assert pending == closed
    nodes[3]["spec"]["taints"].append({"key": "another", "effect": "NoExecute"})
    assert next_start(cluster, nodes)[0]["Node tainted scheduling"] != configured["Node tainted scheduling"]
