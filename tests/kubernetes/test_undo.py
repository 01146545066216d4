"""What undoes from within the cluster: two pods, either of which is enough, that may both do it and do it late."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_injection import patches, values

from conftest import until
from opsassay.testbed.substrates.kubernetes.actuators import changes as changing
from opsassay.testbed.substrates.kubernetes.actuators.changes import Change, _inverse, injected
from opsassay.testbed.substrates.kubernetes.agent import undo
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError
from opsassay.testbed.substrates.kubernetes.api.merging import merge_patch
from opsassay.testbed.substrates.kubernetes.api.readings import is_ready


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), values), st.dictionaries(st.sampled_from("abcd"), patches))
def test_an_undo_that_is_sent_twice_does_what_it_does_once(standing, patch):
    inverse = _inverse(patch, standing)
    once = merge_patch(merge_patch(standing, patch), inverse)
    assert merge_patch(once, inverse) == once


WRONG = Change("Service", "auth", "mine", patch={"spec": {"selector": {"app": "wrong", "tier": "x"}}})
MADE = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny", "namespace": "mine"},
}
DENY = Change("NetworkPolicy", "deny", "mine", create={**MADE, "spec": {"podSelector": {}}})


@pytest.fixture
def admin(small_cluster):
    return Api.connect(small_cluster.config)


@pytest.fixture
def left(small_cluster, admin, tmp_path, monkeypatch):
    """Inject, do not end it, and return the order that the undo's pods have; they reach the server as pods do theirs."""
    (tmp_path / "token").write_text("of the undo")
    monkeypatch.setattr(undo, "ACCOUNT", tmp_path)
    monkeypatch.setattr(undo, "server", lambda: small_cluster.url)
    monkeypatch.setattr(undo, "trust", lambda: None)
    monkeypatch.setattr(undo, "PAUSE_S", 0.001)
    small_cluster.put("Service", "mine", "auth", spec={"selector": {"app": "auth"}, "ports": [{"port": 80}]})
    held = injected(admin, [WRONG, DENY], "mine-watch", 60.0)
    held.__enter__()
    assert selector(small_cluster) == {"app": "wrong", "tier": "x"}
    (order,) = [item["data"]["order.json"] for _, item in small_cluster.of("ConfigMap")]
    assert "resourceVersion" not in order
    yield json.loads(order)
    small_cluster.refuse = lambda _method, _path: ...
    held.__exit__(None, None, None)


def selector(server):
    return server.objects["Service", "mine", "auth"]["spec"]["selector"]


def writes(server, since):
    return [(method, path.rpartition("/")[2]) for method, path, *_ in server.asked[since:] if method != "GET"]


def test_whichever_pod_is_first_undoes_and_the_other_one_leaves_what_came_after_alone(small_cluster, left):
    assert undo.undone(left)
    assert selector(small_cluster) == {"app": "auth"}
    assert not small_cluster.of("NetworkPolicy")
    small_cluster.objects["Service", "mine", "auth"]["spec"]["selector"] = {"app": "repaired"}
    since = len(small_cluster.asked)
    assert undo.undone(left), "a pod on a node that was away for an hour"
    assert writes(small_cluster, since) == []
    assert selector(small_cluster) == {"app": "repaired"}


def test_two_pods_at_the_same_moment_do_no_more_than_one(small_cluster, left):
    nested = []

    def other_pod(method, _path):
        if method == "PATCH" and not nested:
            nested.append(True)
            assert undo.undone(left)
        return ...

    small_cluster.refuse = other_pod
    # the first has removed the policy, and the second comes in between, does all of it, and removes the order
    assert undo.undone(left)
    assert nested
    assert selector(small_cluster) == {"app": "auth"}
    assert small_cluster.objects["Service", "mine", "auth"]["spec"]["ports"] == [{"port": 80}]
    assert not small_cluster.of("NetworkPolicy")
    assert not small_cluster.of("ConfigMap")


@pytest.mark.parametrize(
    "answer", [(409, {"message": "modified"}), (503, {"message": "busy"}), (403, {}), None], ids=str
)
def test_what_is_refused_or_lost_is_sent_again_and_keeps_nothing_else_from_being_undone(small_cluster, left, answer):
    refused = []

    def refuse(method, path):
        if method == "DELETE" and path.endswith("/deny") and len(refused) < 3:
            refused.append(path)
            return answer
        return ...

    small_cluster.refuse = refuse
    assert undo.undone(left)
    assert len(refused) == 3
    assert selector(small_cluster) == {"app": "auth"}
    assert not small_cluster.of("NetworkPolicy")


def test_an_undo_that_cannot_be_done_is_said_to_have_failed_and_its_order_stays(small_cluster, left, monkeypatch):
    monkeypatch.setattr(undo, "ROUNDS", 4)
    small_cluster.refuse = lambda method, _path: (422, {}) if method == "PATCH" else ...
    assert not undo.undone(left)
    assert small_cluster.of("ConfigMap"), "its pod is started again, and tries again"


WAITING = """
import sys, pathlib
from opsassay.testbed.substrates.kubernetes.agent import undo
undo.ORDER_FILE = pathlib.Path(sys.argv[1])
print("waiting", flush=True)
undo.main()
"""


def test_a_pod_that_is_evicted_before_its_time_has_not_succeeded(tmp_path):
    """A job of which one pod has succeeded makes no other one."""
    order = tmp_path / "order.json"
    order.write_text(json.dumps({"deadline": time.time() + 600, "path": "/", "requests": []}))
    process = subprocess.Popen([sys.executable, "-c", WAITING, str(order)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"waiting\n"
    time.sleep(0.2)  # it has said so before it can be told
    process.terminate()
    assert process.wait(20) != 0
    process.stdout.close()


def test_an_undo_that_collides_here_with_the_writes_of_others_is_sent_again(small_cluster, admin, monkeypatch):
    monkeypatch.setattr(changing, "PAUSE_S", 0.001)
    small_cluster.put("Service", "mine", "auth", spec={"selector": {"app": "auth"}})
    collisions = []

    def refuse(method, _path):
        if method == "PATCH" and len(collisions) in (1, 2):
            collisions.append(method)
            return 409, {"message": "the object has been modified"}
        collisions.extend([method] if method == "PATCH" else [])
        return ...

    small_cluster.refuse = refuse
    with injected(admin, [WRONG], "mine-watch", 60.0):
        assert selector(small_cluster) == {"app": "wrong", "tier": "x"}
    assert len(collisions) == 4
    assert selector(small_cluster) == {"app": "auth"}
    assert {kind for kind, *_ in small_cluster.objects} == {"Service"}, "nothing of the undo stays"


def test_the_pods_of_an_undo_keep_to_nodes_of_their_own_off_those_that_break_and_leave_lost_ones_soon(
    small_cluster, admin
):
    small_cluster.put("Service", "mine", "auth", spec={"selector": {"app": "auth"}})
    with injected(admin, [WRONG], "mine-watch", 60.0, avoid={"worker2", "worker1"}) as name:
        ((_, job),) = small_cluster.of("Job")
        assert len(admin.list("Pod", "mine-watch", f"app={name}")) == 2
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["parallelism"], spec.get("completions")) == (2, None), "once one is done no other one is made"
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [(one["key"], one["operator"], one["values"]) for one in term["matchFields"]] == [
        ("metadata.name", "NotIn", ["worker1"]), ("metadata.name", "NotIn", ["worker2"]),
    ]  # fmt: skip
    (apart,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["labelSelector"]["matchLabels"] == {"app": name}
    assert spec["template"]["metadata"]["labels"]["app"] == name
    assert patience(pod["tolerations"], "node.kubernetes.io/unreachable", "NoExecute") == 5
    assert patience(pod["tolerations"], "node.kubernetes.io/not-ready", "NoExecute") == 5
    assert patience(pod["tolerations"], "disk-full", "NoExecute") == float("inf")
    assert patience(pod["tolerations"], "node.kubernetes.io/unschedulable", "NoSchedule") == float("inf")
    assert patience(pod["tolerations"], "node.kubernetes.io/unreachable", "NoSchedule") is None, "not there again"
    with injected(admin, [WRONG], "mine-watch", 60.0):
        ((_, job),) = small_cluster.of("Job")
    assert "nodeAffinity" not in job["spec"]["template"]["spec"]["affinity"]


def test_rights_for_what_lives_in_no_namespace_are_for_that_alone_and_go_also_when_the_injector_was_killed(
    small_cluster, admin
):
    small_cluster.put("Node", "", "worker1", spec={})
    tainted = Change("Node", "worker1", None, patch={"spec": {"taints": [{"key": "full", "effect": "NoExecute"}]}})

    def of_the_cluster():
        return [item for kind in ("ClusterRole", "ClusterRoleBinding") for _, item in small_cluster.of(kind)]

    with injected(admin, [tainted], "mine-watch", 60.0):
        role, binding = of_the_cluster()
        assert role["rules"] == [
            {"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["worker1"], "verbs": ["patch"]}
        ]
        assert [one["namespace"] for one in binding["subjects"]] == ["mine-watch"]
        for item in of_the_cluster():
            assert item["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "opsassay"
    assert of_the_cluster() == []
    assert "taints" not in small_cluster.objects["Node", "", "worker1"]["spec"]
    held = injected(admin, [tainted], "mine-watch", 60.0)
    held.__enter__()
    assert of_the_cluster()
    changing.clear_cluster_roles(admin, "mine-watch")
    assert of_the_cluster() == []
    held.__exit__(None, None, None)


def patience(tolerations, key, effect):
    """Return for how long a pod stays on a node with that taint, as the cluster counts; None when it is not let in."""
    for one in tolerations:
        if one.get("key", key) == key and one.get("effect", effect) == effect:
            return one.get("tolerationSeconds", float("inf"))
    return None


@pytest.mark.parametrize(("times", "begins"), [(2, True), (10_000, False)])
def test_an_account_without_a_token_yet_is_waited_for_and_a_pod_that_is_refused_is_told(
    small_cluster, admin, monkeypatch, times, begins
):
    monkeypatch.setattr("opsassay.testbed.substrates.kubernetes.actuators.undoing.UNDO_READY_TIMEOUT_S", 0.3)
    small_cluster.put("Service", "mine", "auth", spec={"selector": {"app": "auth"}})
    tried = []

    def refuse(method, path):
        if (method, path) != ("POST", "/api/v1/namespaces/mine-watch/pods") or len(tried) >= times:
            return ...
        tried.append(path)
        return 500, {"message": "no API token found for service account, retry after the token is created"}

    small_cluster.refuse = refuse
    before = copy.deepcopy(small_cluster.objects)
    held = injected(admin, [WRONG], "mine-watch", 60.0)
    if begins:
        with held:
            assert selector(small_cluster)["app"] == "wrong"
        assert len(tried) == times
    else:
        with pytest.raises(ApiError, match="no API token"), held:
            pytest.fail("it began")
    assert small_cluster.objects["Service", "mine", "auth"]["spec"] == before["Service", "mine", "auth"]["spec"]
    assert {kind for kind, *_ in small_cluster.objects} == {"Service"}


# --- on a real cluster ------------------------------------------------------------------------------------------------


INJECTOR = """
import os, sys
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError
from opsassay.testbed.substrates.kubernetes.actuators.changes import Change, injected
policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
          "metadata": {"name": "deny", "namespace": sys.argv[2]},
          "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}
changes = [Change("Service", "auth", sys.argv[2], patch={"spec": {"selector": {"app": "wrong"}}}),
           Change("NetworkPolicy", "deny", sys.argv[2], create=policy)]
api = Api.connect(sys.argv[1])
with injected(api, changes, sys.argv[2], float(sys.argv[3])):
    assert api.get("Service", "auth", sys.argv[2])["spec"]["selector"] == {"app": "wrong"}
    print("injected", flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def orphaned(cluster, api, namespace):
    """Return a function that injects for some seconds, and whose injector is killed; it returns the nodes of the undo."""

    def inject(limit_s):
        ports = {"selector": {"app": "auth"}, "ports": [{"port": 80}]}
        metadata = {"name": "auth", "namespace": namespace}
        api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports})
        command = [sys.executable, "-c", INJECTOR, str(cluster.kubeconfig), namespace, str(limit_s)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == "injected\n", done.stderr
        assert api.get("NetworkPolicy", "deny", namespace) is not None
        return waiting(api, namespace)

    return inject


def waiting(api, namespace):
    """Return the nodes of the undo's pods by their names; those that the cluster has given up are none of them."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in api.list("Pod", namespace)
        if pod["metadata"]["name"].startswith("undo-")
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"]["phase"] == "Running"
    }


def undone_within(api, namespace, timeout_s):
    until(lambda: api.get("Service", "auth", namespace)["spec"]["selector"] == {"app": "auth"}, timeout_s)
    until(lambda: api.get("NetworkPolicy", "deny", namespace) is None, 20)


@pytest.mark.kubernetes
def test_the_cluster_undoes_what_an_injector_that_was_killed_left(api, namespace, orphaned):
    assert len(set(orphaned(40).values())) == 2, "a node each"
    undone_within(api, namespace, 90)
    writers = {entry["manager"] for entry in api.get("Service", "auth", namespace)["metadata"]["managedFields"]}
    assert writers == {"kubectl"}
    until(lambda: all(pod["status"]["phase"] == "Succeeded" for pod in api.list("Pod", namespace)), 30)
    assert len(api.list("Pod", namespace)) == 2, "nobody does it again"


@pytest.mark.kubernetes
def test_pods_of_an_undo_that_are_deleted_on_nodes_that_are_cordoned_are_made_again(api, kubectl, namespace, orphaned):
    first = orphaned(50)
    nodes = sorted(set(first.values()))
    kubectl("cordon", *nodes)
    try:
        kubectl("delete", "pods", *first, "-n", namespace)
        others = until(lambda: len(found := waiting(api, namespace)) == 2 and found, 60)
        assert not set(first) & set(others)
        undone_within(api, namespace, 120)
    finally:
        kubectl("uncordon", *nodes)


@pytest.mark.kubernetes
def test_an_undo_survives_the_loss_of_its_nodes_and_those_that_come_back_touch_nothing(
    cluster, api, namespace, orphaned
):
    first = orphaned(75)
    lost = sorted(set(first.values()))
    try:
        for node in lost:
            cluster.node(node, "partition")
        others = until(lambda: (found := waiting(api, namespace)) and not set(found) & set(first) and found, 70)
        assert not set(others.values()) & set(lost)
        undone_within(api, namespace, 120)
        until(lambda: not waiting(api, namespace), 60)  # for a moment after the deadline either pod may write
        api.patch("Service", "auth", {"spec": {"selector": {"app": "repaired"}}}, namespace)
    finally:
        for node in lost:
            cluster.node(node, "restore")
    until(lambda: all(is_ready(node) for node in api.list("Node")), 120)
    until(lambda: not set(first) & {pod["metadata"]["name"] for pod in api.list("Pod", namespace)}, 120)
    assert api.get("Service", "auth", namespace)["spec"]["selector"] == {"app": "repaired"}
