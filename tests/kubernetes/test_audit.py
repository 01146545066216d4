"""Writes to the API become actions: from recorded events of watches, and from lines of an audit log."""

from __future__ import annotations

import copy
import json
import time

import pytest

from assay.model.cluster import CLUSTER_WIDE, GRANTABLE
from assay.testbed.kubernetes.access.audit import KIND_OF, WATCHED, Audit, WatchedWrites, last_manager, logged_action


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
    writes.told("Service", "ADDED", service(), 1)
    writes.told("Service", "MODIFIED", service("wrong"), 2)
    assert writes.recorded == []


def test_a_patch_a_creation_and_a_deletion_are_recorded_with_the_time_of_their_event(writes):
    writes.told("Service", "ADDED", service("wrong"), 1)
    writes.open = True
    writes.told("Service", "MODIFIED", service("auth", version=2), 5)
    policy = {"metadata": {"name": "deny", "namespace": "mine", "uid": "p"}, "spec": {}}
    writes.told("NetworkPolicy", "ADDED", policy, 6)
    writes.told("NetworkPolicy", "DELETED", policy, 7)
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
    writes.told("Service", "ADDED", item, 1)
    writes.open = True
    later = copy.deepcopy(item)
    later["status"] = {"loadBalancer": {}}
    later["metadata"]["resourceVersion"] = "9"
    writes.told("Service", "MODIFIED", later, 2)
    writes.told("Service", "MODIFIED", service("other", manager="kube-controller-manager"), 3)
    assert writes.recorded == []


def test_pods_of_a_controller_come_and_go_and_one_that_leaves_slowly_is_deleted_once(writes):
    writes.open = True
    owner = {"kind": "ReplicaSet", "name": "web", "controller": True}
    owned = {"name": "web-1", "namespace": "mine", "uid": "a", "ownerReferences": [owner]}
    writes.told("Pod", "ADDED", {"metadata": owned, "spec": {}}, 1)
    writes.told("Pod", "DELETED", {"metadata": owned, "spec": {}}, 2)
    assert writes.recorded == []
    alone = {"metadata": {"name": "tool", "namespace": "mine", "uid": "b"}, "spec": {}}
    leaving = {**alone, "metadata": {**alone["metadata"], "deletionTimestamp": "2026-11-22T08:00:00Z"}}
    for what, item in (("ADDED", alone), ("MODIFIED", leaving), ("MODIFIED", leaving), ("DELETED", leaving)):
        writes.told("Pod", what, item, 3)
    assert [one[0] for one in told(writes)] == ["create", "delete"]


def test_an_object_that_was_made_anew_under_its_name_is_a_creation(writes):
    writes.told("Service", "ADDED", service(), 1)
    writes.open = True
    again = service()
    again["metadata"]["uid"] = "u-2"
    writes.told("Service", "MODIFIED", again, 2)
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


@pytest.mark.parametrize(
    "change",
    [{"user": {"username": "admin"}}, {"verb": "get"}, {"stage": "RequestReceived"}],
)
def test_reads_and_what_others_do_are_not_the_agents(change):
    assert logged_action({**LINE, **change}, AGENT) is None


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
