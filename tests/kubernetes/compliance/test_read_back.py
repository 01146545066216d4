"""Objects put on a cluster for a moment: read back as its server has them, the same each time, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from tests.kubernetes.compliance import read_back
from tests.kubernetes.compliance.prefixes import MARK
from tests.kubernetes.compliance.read_back import ReadBack, await_removal, clear_left_behind
from tests.kubernetes.compliance.read_worlds import sendable
from tests.kubernetes.compliance.world_cluster import running

from conftest import until
from opsassay.core.errors import OperationError, StartError
from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.testbed.substrates.kubernetes.api import client
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.owners import OWNER, this_process

LABELS = {"app": "basket"}
POD = {"containers": [{"name": "a", "image": "registry.test/app:1.4"}]}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD}


def object_of(kind, name, version="apps/v1", namespace="shop", **spec):
    metadata = {"name": name, "namespace": namespace, "labels": LABELS}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


WORLD = [
    object_of("Pod", "alone", "v1", **POD),
    object_of("Deployment", "basket", selector={"matchLabels": LABELS}, template=TEMPLATE),
    object_of("StatefulSet", "stock", namespace="legacy", selector={"matchLabels": LABELS}, template=TEMPLATE),
    object_of("DaemonSet", "relay", namespace="default", selector={"matchLabels": LABELS}, template=TEMPLATE),
    sendable(object_of("Job", "rates", "batch/v1", template=TEMPLATE)),
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader", "labels": LABELS},
        "rules": [{"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}],
    },
]
TAKES = """
import sys, json
from opsassay.testbed.substrates.kubernetes.api.client import Api
from tests.kubernetes.compliance.read_back import ReadBack
ReadBack(Api.connect(sys.argv[1]), children=True).take(json.loads(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(read_back, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.001)


def taken(server, world=WORLD):
    return ReadBack(Api.connect(server.config), children=True).take(world)


def test_what_is_read_back_has_defaults_and_children_and_no_trace_of_the_making(tmp_path):
    with running(tmp_path, late=2) as server:
        found = taken(server)
        assert server.left() == []
    there = {(one.body["kind"], one.body["metadata"].get("namespace"), one.root[2]) for one in found}
    assert len(found) == len(WORLD) + 7  # a replica set and its two pods, a pod, two of the daemon set, that of the job
    assert {("ReplicaSet", "shop", "basket"), ("Pod", "shop", "basket"), ("Pod", "default", "relay")} <= there
    text = json.dumps([one.body for one in found])
    for trace in ("opsassay", MARK, OWNER, "managedFields", "creationTimestamp", "nodeName", "status", "psp", "x/v1"):
        assert trace not in text, trace
    pods = [one.body for one in found if one.body["kind"] == "Pod"]
    assert {one["spec"]["containers"][0]["imagePullPolicy"] for one in pods} == {"IfNotPresent"}
    assert [one.body["metadata"]["name"] for one in found if one.root[0] == "StatefulSet"] == ["stock", "stock-0"]
    assert next(one.body for one in found if one.body["kind"] == "ClusterRole")["metadata"]["name"] == "reader"
    owners = {one.body["metadata"]["uid"]: one.body for one in found}
    for one in found:
        for reference in one.body["metadata"].get("ownerReferences", []):
            owner = owners[reference["uid"]]
            assert (owner["kind"], owner["metadata"]["name"]) == (reference["kind"], reference["name"])
            assert owner["apiVersion"] == reference["apiVersion"]


def test_two_makings_read_the_same_to_the_last_byte(tmp_path):
    with running(tmp_path) as server:
        first, second = taken(server), taken(server)
    assert json.dumps([one.body for one in first]) == json.dumps([one.body for one in second])


def test_two_worlds_that_differ_in_one_field_read_the_same_in_all_others(tmp_path):
    """The hash in a replica set's name is of the whole template: names alone would tell of the field."""
    changed = json.loads(json.dumps(WORLD))
    changed[1]["spec"]["template"]["spec"]["hostPID"] = True
    with running(tmp_path) as server:
        first, second = taken(server), taken(server, changed)
    text = json.dumps([one.body for one in second])
    assert text.count(', "hostPID": true') == 4  # deployment, replica set, two pods
    assert json.dumps([one.body for one in first]) == text.replace(', "hostPID": true', "")


ESCALATE = """clusterroles.rbac.authorization.k8s.io "reader" is forbidden: user "dev" is attempting to grant RBAC
permissions not currently held:
{APIGroups:[""], Resources:["*"], Verbs:["get"]}"""


@pytest.mark.parametrize(
    ("kind", "refusal", "said"),
    [
        (
            "Pod",
            (403, 'pods "alone" is forbidden: exceeded quota: compute'),
            "Pod opsassay-.*-shop/alone .*exceeded quota",
        ),
        ("Pod", (403, 'pods "alone" is forbidden: violates PodSecurity "restricted:latest"'), "violates PodSecurity"),
        ("Deployment", (400, 'admission webhook "theirs" denied the request: no'), "Deployment .*/basket .*denied"),
        ("ClusterRole", (403, ESCALATE), "ClusterRole opsassay-.*-reader .*the right to `escalate` them"),
        ("Namespace", (403, "namespaces is forbidden"), "Namespace opsassay-.*-shop .*is forbidden"),
        ("Job", (422, 'Job "rates" is invalid'), "Job .*/rates .*is invalid"),
    ],
)
def test_what_the_cluster_refuses_is_one_sentence_and_leaves_nothing(tmp_path, kind, refusal, said):
    with running(tmp_path) as server:
        server.refuse = lambda asked, _: refusal if asked == kind else None
        with pytest.raises(StartError, match=said) as caught:
            taken(server)
        assert server.left() == []
    assert "\n" not in str(caught.value)
    assert "nothing is graded" in str(caught.value)


def test_controllers_that_make_nothing_are_waited_for_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(read_back, "SETTLE_TIMEOUT_S", 0.3)
    with (
        running(tmp_path, idle=True) as server,
        pytest.raises(StartError, match=r"Deployment .*/basket has 0 of 1 pods"),
    ):
        taken(server)
    with running(tmp_path, idle=True) as server:
        found = ReadBack(Api.connect(server.config), children=False).take(WORLD)
        assert [one.root[2] for one in found] == ["alone", "basket", "stock", "relay", "rates", "reader"]
        assert server.left() == []


def test_a_killed_process_leaves_what_the_next_one_removes(tmp_path):
    with running(tmp_path, idle=True) as server:
        process = subprocess.Popen([sys.executable, "-c", TAKES, str(server.config), json.dumps(WORLD)])
        until(lambda: server.of("ClusterRole"), 60)
        api = Api.connect(server.config)
        assert clear_left_behind(api) == []  # it is alive
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = server.left()
        assert len(left) == 4
        assert sorted(clear_left_behind(api)) == left
        assert server.left() == []


def test_an_interrupted_process_takes_its_objects_away(tmp_path):
    with running(tmp_path, idle=True) as server:
        command = [sys.executable, "-c", TAKES, str(server.config), json.dumps(WORLD)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until(lambda: server.of("ClusterRole"), 60)
        process.send_signal(signal.SIGINT)
        assert process.wait() != 0
        assert server.left() == []


def test_what_others_make_is_left_alone_until_it_is_old(tmp_path):
    now, owner = datetime.now(UTC), f"elsewhere:{os.getpid()}:1.00"
    with running(tmp_path) as server:
        for name, hours, by in (("young", 1, owner), ("old", 3, owner), ("mine", 0, this_process())):
            made = (now - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
            marks = {"labels": {MARK: name}, "annotations": {OWNER: by}, "creationTimestamp": made}
            server.put("Namespace", "", f"opsassay-{name}", metadata=marks)
        server.put("Namespace", "", "opsassay-theirs", metadata={"creationTimestamp": "2020-01-01T00:00:00Z"})
        api = Api.connect(server.config)
        assert clear_left_behind(api) == ["opsassay-old"]
        with pytest.raises(OperationError, match="opsassay-mine"):
            await_removal(api, 0.05)
        assert server.left() == ["opsassay-mine", "opsassay-theirs", "opsassay-young"]


@pytest.mark.kubernetes
def test_a_real_server_fills_in_defaults_and_its_controllers_make_children(api):
    task = ComplianceTask(name="new-opa-kubectl-host-paths", seed=3)
    for world in task.judged()[:4]:
        sent = [*map(sendable, world.objects)]
        first, second = (ReadBack(api, children=True).take(sent) for _ in range(2))
        assert json.dumps([one.body for one in first]) == json.dumps([one.body for one in second])
        assert all("terminationMessagePath" in json.dumps(one.body) for one in first)
        controlled = {one.root for one in first if one.root[0] in ("Deployment", "StatefulSet", "DaemonSet", "Job")}
        assert controlled == {one.root for one in first if one.body["metadata"].get("ownerReferences")}
    await_removal(api)
    assert api.list("Namespace", selector=MARK) == []
