"""Writes to the API become actions: from recorded events of watches, and from lines of an audit log."""

from __future__ import annotations

import copy
import json
import time

import pytest

from opsassay.core.schema.cluster import CLUSTER_WIDE, GRANTABLE
from opsassay.testbed.scenarios import load_scenario
from opsassay.testbed.substrates.kubernetes.access.audit import (
    KIND_OF,
    WATCHED,
    Audit,
    WatchedWrites,
    last_manager,
    logged_action,
    writable_elsewhere,
)
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.small_api import write_kubeconfig


def service(selector="auth", manager="kubectl-patch", version=1):
    return {
        "metadata": {
            "name": "auth",
            "namespace": "mine",
            "uid": "u-1",
            "resourceVersion": str(version),
            "managedFields": [
                {
                    "manager": "kubectl",
                    "operation": "Update",
                    "time": "2026-11-22T08:00:00Z",
                    "fieldsV1": {"f:spec": {}},
                },
                {"manager": manager, "operation": "Update", "time": "2026-11-22T08:01:00Z", "fieldsV1": {"f:spec": {}}},
            ],
        },
        "spec": {"selector": {"app": selector}},
    }


@pytest.fixture
def writes():
    recorded = []
    watched = WatchedWrites(recorded.append)
    watched.recorded = recorded
    return watched


def told(writes):
    return [(a.arguments["verb"], a.arguments["kind"], a.arguments["name"], a.touched) for a in writes.recorded]


def test_what_stands_and_what_we_change_before_the_agent_is_let_in_is_not_its_doing(writes):
    writes.note("Service", "ADDED", service(), 1)
    writes.note("Service", "MODIFIED", service("wrong"), 2)
    assert writes.recorded == []


def test_a_patch_a_creation_and_a_deletion_are_recorded_with_the_time_of_their_event(writes):
    writes.note("Service", "ADDED", service("wrong"), 1)
    writes.begin()
    writes.note("Service", "MODIFIED", service("auth", version=2), 5)
    policy = {"metadata": {"name": "deny", "namespace": "mine", "uid": "p"}, "spec": {}}
    writes.note("NetworkPolicy", "ADDED", policy, 6)
    writes.note("NetworkPolicy", "DELETED", policy, 7)
    assert told(writes) == [
        ("update", "Service", "auth", ("auth",)),
        ("create", "NetworkPolicy", "deny", ("deny",)),
        ("delete", "NetworkPolicy", "deny", ("deny",)),
    ]
    assert [a.started_ns for a in writes.recorded] == [5, 6, 7]
    assert all(a.mutating and a.tool == "api" for a in writes.recorded)
    assert writes.recorded[0].arguments["manager"] == "kubectl-patch"


def test_status_and_what_the_cluster_itself_writes_is_nobodys_action(writes):
    item = service()
    writes.note("Service", "ADDED", item, 1)
    writes.begin()
    later = copy.deepcopy(item)
    later["status"] = {"loadBalancer": {}}
    later["metadata"]["resourceVersion"] = "9"
    writes.note("Service", "MODIFIED", later, 2)
    writes.note("Service", "MODIFIED", service("other", manager="kube-controller-manager"), 3)
    assert writes.recorded == []


def pod(name, owner=("ReplicaSet", "web-1"), *, leaving=False, node="worker1", namespace="mine"):
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    metadata = {"name": name, "namespace": namespace, "uid": name, "ownerReferences": owners}
    metadata |= {"deletionTimestamp": "2026-11-22T08:00:00Z"} if leaving else {}
    return {"metadata": metadata, "spec": {"nodeName": node}}


def replicas(wanted, namespace="mine", **metadata):
    owners = [{"kind": "Deployment", "name": "web", "controller": True}]
    metadata |= {"name": "web-1", "namespace": namespace, "uid": "r", "ownerReferences": owners}
    metadata["managedFields"] = [{"manager": "kube-controller-manager", "fieldsV1": {"f:spec": {}}}]
    return {"metadata": metadata, "spec": {"replicas": wanted}}


def node(ready="True", taints=()):
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": "worker1", "uid": "n"},
        "spec": {"taints": list(taints)},
        "status": {"conditions": conditions},
    }


S = 1_000_000_000


@pytest.fixture
def three(writes):
    """Stand three pods of a replica set that wants three on one node."""
    for kind, item in (("Node", node()), ("ReplicaSet", replicas(3)), *(("Pod", pod(f"web-1-{n}")) for n in "abc")):
        writes.note(kind, "ADDED", item, 0)
    writes.begin()
    return writes


def removed(writes, name, now_ns):
    writes.note("Pod", "MODIFIED", pod(name, leaving=True), now_ns)
    writes.note("Pod", "DELETED", pod(name, leaving=True), now_ns + 1)


def test_pods_of_a_controller_that_somebody_deletes_are_recorded_when_it_is_known_what_that_wants(three):
    for at, name in enumerate(("web-1-a", "web-1-b", "web-1-c")):
        removed(three, name, (1 + at) * 10**8)
        three.note("Pod", "ADDED", pod(f"web-1-new-{name}"), (1 + at) * 10**8 + 5)
    assert told(three) == [], "the watch of replica sets may be behind"
    three.note("ConfigMap", "ADDED", {"metadata": {"name": "x", "namespace": "mine", "uid": "x"}}, 3 * S)
    assert told(three)[1:] == [("delete", "Pod", f"web-1-{n}", (f"web-1-{n}",)) for n in "abc"]
    assert [a.started_ns for a in three.recorded[1:]] == [10**8, 2 * 10**8, 3 * 10**8]


def test_pods_that_a_controller_has_too_many_of_are_its_own_doing_however_late_that_is_told(three):
    removed(three, "web-1-a", S)
    removed(three, "web-1-b", S + 10)
    three.note("ReplicaSet", "MODIFIED", replicas(1), S + 20)
    three.end()
    assert told(three) == []


def test_a_pod_that_is_deleted_while_its_set_grows_smaller_is_told_from_those_that_go_with_it(three):
    three.note("ReplicaSet", "MODIFIED", replicas(2), S)
    removed(three, "web-1-a", S + 10)
    removed(three, "web-1-b", S + 20)
    three.end()
    assert told(three) == [("delete", "Pod", "web-1-b", ("web-1-b",))]


@pytest.mark.parametrize(
    "event",
    [
        ("Node", "MODIFIED", node(ready="Unknown")),
        ("Node", "MODIFIED", node(taints=[{"key": "disk", "effect": "NoExecute"}])),
        ("Node", "DELETED", node()),
        ("ReplicaSet", "DELETED", replicas(3)),
        ("ReplicaSet", "MODIFIED", replicas(3, deletionTimestamp="2026-11-22T08:00:00Z")),
    ],
    ids=["lost", "tainted", "gone", "no-set", "set-going"],
)
def test_pods_that_the_cluster_takes_away_are_nobodys_deletions(three, event):
    removed(three, "web-1-a", S)
    three.note(*event, S + 5)
    three.end()
    assert [one for one in told(three) if one[1] == "Pod"] == []


def test_a_pod_without_a_controller_that_leaves_slowly_is_deleted_once(writes):
    writes.begin()
    alone, leaving = pod("tool", None), pod("tool", None, leaving=True)
    for what, item in (("ADDED", alone), ("MODIFIED", leaving), ("MODIFIED", leaving), ("DELETED", leaving)):
        writes.note("Pod", what, item, 3)
    writes.note("Pod", "ADDED", pod("web-1-z"), 4)
    assert [one[0] for one in told(writes)] == ["create", "delete"]


def test_what_is_removed_after_the_agent_is_out_is_not_its_doing(three):
    three.end()
    removed(three, "web-1-a", S)
    three.end()
    assert told(three) == []


def test_elsewhere_only_what_is_granted_there_counts():
    recorded = []
    watched = WatchedWrites(recorded.append, writable_elsewhere(load_scenario("slow-control-plane").cluster.rules()))
    watched.recorded = recorded
    place = "kube-system"
    stand = [
        ("Node", node()),
        ("ReplicaSet", replicas(2, place)),
        *(("Pod", pod(f"dns-{n}", namespace=place)) for n in "ab"),
    ]
    for kind, item in stand:
        watched.note(kind, "ADDED", item, 0)
    watched.begin()
    watched.note("ReplicaSet", "MODIFIED", {**replicas(2, place), "spec": {"replicas": 2, "paused": True}}, S)
    labelled = pod("dns-b", namespace=place)
    labelled["metadata"]["labels"] = {"network": "up"}
    watched.note("Pod", "MODIFIED", labelled, S)
    watched.note("Pod", "DELETED", pod("dns-a", namespace=place), S)
    watched.note("Service", "ADDED", service(), S)
    watched.end()
    assert told(watched) == [("create", "Service", "auth", ("auth",)), ("delete", "Pod", "dns-a", ("dns-a",))]
    assert recorded[1].arguments["namespace"] == place


def test_pods_elsewhere_are_followed_with_their_controllers_where_something_is_granted_there(tmp_path):
    api = Api.connect(write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1"))

    def places(name):
        audit = Audit(api, "mine", print, rules=load_scenario(name).cluster.rules())
        return {(mirror.kind, mirror.namespace) for mirror in audit._mirrors}

    own = {("Node", None), *((kind, "mine") for kind in WATCHED)}
    followed = ("Pod", "ReplicaSet", "StatefulSet", "DaemonSet")
    assert places("slow-control-plane") == own | {(kind, "kube-system") for kind in followed}
    assert places("node-not-ready") == own


def test_an_object_that_was_made_anew_under_its_name_is_a_creation(writes):
    writes.note("Service", "ADDED", service(), 1)
    writes.begin()
    again = service()
    again["metadata"]["uid"] = "u-2"
    writes.note("Service", "MODIFIED", again, 2)
    assert [one[0] for one in told(writes)] == ["create"]


def test_the_last_manager_is_who_wrote_last_status_apart():
    item = service()
    item["metadata"]["managedFields"].append(
        {"manager": "kubelet", "time": "2026-11-22T09:00:00Z", "fieldsV1": {"f:status": {}}}
    )
    assert last_manager(item) == "kubectl-patch"
    assert last_manager({"metadata": {}}) == ""


def test_whatever_may_be_granted_in_a_namespace_is_watched():
    resources = {name for name in GRANTABLE if "/" not in name and name not in CLUSTER_WIDE}
    assert {KIND_OF[name] for name in resources} - {"Event", "Endpoints"} == set(WATCHED)


AGENT = "system:serviceaccount:mine-watch:operator"
LINE = {  # as kube-apiserver 1.20 wrote it, shortened
    "kind": "Event",
    "apiVersion": "audit.k8s.io/v1",
    "level": "Request",
    "stage": "ResponseComplete",
    "requestURI": "/api/v1/namespaces/mine/services/auth?fieldManager=kubectl-patch",
    "verb": "patch",
    "user": {"username": AGENT, "groups": ["system:serviceaccounts"]},
    "userAgent": "curl/7.88",
    "objectRef": {"resource": "services", "namespace": "mine", "name": "auth", "apiVersion": "v1"},
    "responseStatus": {"metadata": {}, "code": 200},
    "requestReceivedTimestamp": "2026-11-22T08:01:02.250000Z",
    "stageTimestamp": "2026-11-22T08:01:02.375000Z",
}


def test_a_line_of_the_audit_log_tells_who_wrote_what_and_when():
    action = logged_action(LINE, AGENT)
    assert action.arguments == {"verb": "patch", "kind": "Service", "name": "auth", "namespace": "mine", "code": 200}
    assert action.ended_ns - action.started_ns == 125_000_000
    assert action.started_ns == 1795334462_250000000
    assert action.touched == ("auth",)


@pytest.mark.parametrize("change", [{"user": {"username": "admin"}}, {"verb": "get"}, {"stage": "RequestReceived"}])
def test_reads_and_what_others_do_are_not_the_agents(change):
    assert logged_action({**LINE, **change}, AGENT) is None


def test_the_log_tells_of_deletions_wherever_they_were():
    about = {"resource": "pods", "namespace": "kube-system", "name": "coredns-1"}
    action = logged_action({**LINE, "verb": "delete", "objectRef": about}, AGENT)
    assert (action.arguments["kind"], action.arguments["namespace"], action.touched) == (
        "Pod",
        "kube-system",
        ("coredns-1",),
    )


def test_a_write_that_was_refused_is_told_and_changed_nothing():
    refused = logged_action({**LINE, "responseStatus": {"code": 403}}, AGENT)
    assert (refused.status, refused.mutating, refused.touched) == ("error", False, ())


def test_the_log_is_read_from_where_the_agent_was_let_in_until_it_is_out(tmp_path):
    log, recorded = tmp_path / "audit.log", []
    log.write_text(json.dumps(LINE) + "\n")
    with Audit(None, "mine", recorded.append, log=log, user=AGENT) as audit:
        audit.begin()
        with log.open("a") as out:
            text = json.dumps({**LINE, "verb": "delete"}) + "\n"
            out.write(text[:40])
            out.flush()
            time.sleep(0.7)
            out.write(text[40:])
        audit.end()
        log.write_text(log.read_text() + json.dumps({**LINE, "verb": "create"}) + "\n")
    assert [action.arguments["verb"] for action in recorded] == ["delete"]
