"""What objects say at the four depths, against counts made by hand from the paper's own scenarios."""

from __future__ import annotations

import pytest

from opsassay.testbed.substrates.kubernetes.api.readings import (
    ALWAYS_SET,
    EXPOSED,
    UNREADY,
    availability,
    control_plane,
    critical_parts,
    entities,
    exposure,
    has_own_control_plane,
    plain_settings,
    populated,
    programs,
    protected_settings,
    why_not_ready,
)
from opsassay.testbed.substrates.kubernetes.api.topology import edges


def deployment(name, replicas, namespace="default"):
    return {"kind": "Deployment", "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": replicas}}


def replica_set(name, owner, namespace="default"):
    references = [{"kind": "Deployment", "name": owner, "controller": True}]
    return {"metadata": {"name": name, "namespace": namespace, "ownerReferences": references}}


def pod(name, owner=None, *, ready=True, namespace="default", leaving=False, phase="Running", labels=None, **spec):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    described = {"containers": [{"image": "local/nginx:1.27"}], "nodeName": "worker1", **spec}
    return {"metadata": metadata, "spec": described, "status": {"phase": phase, "conditions": conditions}}


def fleet(name, count, **state):
    return [pod(f"{name}-rs-{n}", ("ReplicaSet", f"{name}-rs"), **state) for n in range(count)]


SETS = {("default", f"{name}-rs"): replica_set(f"{name}-rs", name) for name in ("payment", "filler")}
WANTED = [deployment("payment", 20), deployment("filler", 58)]


def test_availability_has_the_papers_proportions_while_twenty_of_seventy_eight_drain():
    everything = fleet("payment", 20) + fleet("filler", 58)
    assert availability(everything, WANTED, SETS) == (1.0, ())
    share, failing = availability(fleet("payment", 20, leaving=True) + fleet("filler", 58), WANTED, SETS)
    assert share == pytest.approx(58 / 78)
    assert round(share, 3) == 0.744
    assert len(failing) == 20


def test_replicas_whose_pods_are_gone_count_as_missing_and_a_surplus_elsewhere_does_not_help():
    assert availability(fleet("filler", 58), WANTED, SETS)[0] == pytest.approx(58 / 78)
    assert availability(fleet("payment", 10) + fleet("filler", 70), WANTED, SETS)[0] == pytest.approx(68 / 78)


def test_pods_without_a_workload_count_one_each_and_finished_ones_not_at_all():
    pods = [pod("alone", ready=False), pod("done", phase="Succeeded"), pod("job-1", ("Job", "job"), ready=False)]
    assert availability(pods, [], {}) == (0.0, ("alone",))
    assert availability([], [], {}) == (None, ())


def test_a_pod_on_a_lost_node_is_not_ready():
    assert availability([*fleet("filler", 57), *fleet("filler", 1, ready=False)], WANTED[1:], SETS)[0] == pytest.approx(
        57 / 58
    )


def test_a_service_without_addresses_is_named_and_counts_zero():
    address = {"ip": "10.244.1.2"}
    services = {
        "auth.default": {"subsets": [{"notReadyAddresses": [address]}]},
        "ui.default": {"subsets": [{"addresses": [address, address, address], "notReadyAddresses": [address]}]},
        "none.default": None,
    }
    assert populated(services) == (0.0, ("auth.default", "none.default"))
    assert populated({"ui.default": services["ui.default"]}) == (0.75, ())
    assert populated({}) == (1.0, ())


def test_the_control_plane_is_what_is_critical_by_priority_or_by_tier_and_what_is_no_pod():
    kube = {"namespace": "kube-system"}
    dns = [pod(f"coredns-{n}", priorityClassName="system-cluster-critical", **kube) for n in range(2)]
    api = pod("kube-apiserver-a", ready=False, labels={"tier": "control-plane", "component": "kube-apiserver"}, **kube)
    plain = pod("dashboard", ready=False, **kube)
    assert control_plane([*dns, plain]) == (1.0, ())
    assert control_plane([*dns, plain, api]) == (pytest.approx(2 / 3), ("kube-apiserver-a",))
    assert control_plane(dns, {"etcd": True, "scheduler": False}) == (0.75, ("scheduler",))
    assert has_own_control_plane([api])
    assert not has_own_control_plane(dns)


def test_entities_say_service_node_and_version_and_leave_out_what_is_over_or_was_deleted():
    leaving = pod("payment-old", ("ReplicaSet", "payment-rs"), ready=False, leaving=True)
    found = entities([*fleet("payment", 1), pod("done", phase="Failed"), leaving], SETS)
    assert [(e.id, e.service, e.ready, e.host, e.version) for e in found] == [
        ("payment-rs-0", "payment", True, "worker1", "1.27")
    ]


def waiting(reason, message=""):
    return {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes"}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (waiting("ImagePullBackOff", "no such tag"), "ImagePullBackOff: no such tag"),
        ({"phase": "Pending", "conditions": [UNSCHEDULED]}, "Unschedulable: 0/4 nodes"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (waiting("ContainerCreating"), "Pending"),
    ],
)
def test_the_reason_why_a_pod_is_not_ready_is_one_clause(status, words):
    assert why_not_ready({"status": status}) == words


def test_topology_follows_owners_nodes_and_backends():
    here = "default"
    endpoints = {
        "metadata": {"name": "payment", "namespace": here},
        "subsets": [{"addresses": [{"targetRef": {"kind": "Pod", "name": "payment-rs-0"}}]}],
    }
    found = edges({"Pod": fleet("payment", 1), "ReplicaSet": SETS.values(), "Endpoints": [endpoints]})
    assert (("Node", "", "worker1"), ("Pod", here, "payment-rs-0")) in found
    assert (("ReplicaSet", here, "payment-rs"), ("Pod", here, "payment-rs-0")) in found
    assert (("Deployment", here, "payment"), ("ReplicaSet", here, "payment-rs")) in found
    assert (("Service", here, "payment"), ("Pod", here, "payment-rs-0")) in found
    assert len(found) == 5


def test_a_critical_part_that_has_vanished_fails_under_the_name_of_its_workload():
    def dns(*numbers, **state):
        labels = {"k8s-app": "kube-dns"}
        return [pod(f"coredns-rs-{n}", ("ReplicaSet", "coredns-rs"), namespace="kube-system", labels=labels,
                    priorityClassName="system-cluster-critical", **state) for n in numbers]  # fmt: skip

    sets = {("kube-system", "coredns-rs"): replica_set("coredns-rs", "coredns", "kube-system")}
    api = pod("kube-apiserver-a", ("Node", "a"), namespace="kube-system", labels={"tier": "control-plane"})
    expected = critical_parts([*dns(1, 2), api], {"etcd": True}, sets)
    assert expected == {"coredns": 2, "kube-apiserver-a": 1, "etcd": 1}
    assert control_plane([*dns(1, 2), api], {"etcd": True}, expected, sets) == (1.0, ())
    assert control_plane([*dns(3, 4), api], {"etcd": True}, expected, sets)[1] == (), "replaced, one for one"
    assert control_plane([*dns(1), api], {"etcd": True}, expected, sets)[1] == ("coredns",)
    assert control_plane([*dns(1, 2)], {}, expected, sets)[1] == ("etcd", "kube-apiserver-a")
    assert control_plane([], {}, expected, sets)[0] == 0.0
    assert control_plane([*dns(1), api], {"etcd": True})[1] == (), "nobody says how many there have to be"


def test_what_protects_a_system_is_known_by_its_workloads_and_policies():
    container = {
        "name": "web", "image": "x:1", "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "resources": {"limits": {"memory": "64Mi"}}, "env": [
            {"name": "AUTH_MODE", "value": "token"}, {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {}}},
            {"name": "COLOUR", "value": "red"},
        ],
    }  # fmt: skip
    workload = {"metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": [container]}}}}
    policy = {"metadata": {"name": "deny"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}
    assert protected_settings([workload], [policy]) == {
        "web web readinessProbe": '{"tcpSocket": {"port": 8080}}',
        "web web limits.memory": "64Mi",
        "web web AUTH_MODE": "token", "web web DB_PASSWORD": "set",
        "NetworkPolicy deny": '{"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}',
    }  # fmt: skip


def test_whatever_runs_under_a_workloads_name_is_its_program():
    def made(name, container="web", owner=None, **program):
        metadata = {"name": name} | ({"ownerReferences": [{"controller": True, **owner}]} if owner else {})
        return {"metadata": metadata, "spec": {"template": {"spec": {"containers": [{"name": container, **program}]}}}}

    ours = made("web", image="x:1", args=["serve"], env=[])
    assert programs([ours]) == {"web program": '{"runs": [["web", {"image": "x:1", "args": ["serve"]}]]}'}
    assert (
        programs([made("web", image="x:1", args=["serve"]), made("db", image="y")])["web program"]
        == programs([ours])["web program"]
    )
    owned = made("web-5", image="z", owner={"kind": "Deployment", "name": "web"})
    assert programs([ours, owned]) == programs([ours]), "its template says what it runs"
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "x", "image": "x:1", "command": ["ok"]}]}}
    for other in (made("web", image="x:1", args=["ok"]), made("web", "other", image="x:1"), pod):
        assert programs([ours, other])["web program"] != programs([ours])["web program"]


@pytest.mark.parametrize(
    ("container", "rights"),
    [
        ({"securityContext": {"runAsUser": 0}}, {}),
        ({"volumeMounts": [{"name": "x", "mountPath": "/usr/lib/python3"}]}, {}),
        ({"volumeMounts": [{"name": "x", "mountPath": "/app/main.py", "subPath": "main.py"}]}, {}),
        ({"env": [{"name": "PYTHONPATH", "value": "/tmp"}]}, {}),
        ({"env": [{"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}]}, {}),
        ({}, {"initContainers": [{"name": "before", "image": "x:1", "command": ["cp", "a", "b"]}]}),
        ({}, {"securityContext": {"runAsUser": 0}}),
        ({}, {"serviceAccountName": "builder"}),
        ({}, {"hostNetwork": True}),
        ({}, {"hostAliases": [{"ip": "192.0.2.7", "hostnames": ["db"]}]}),
        ({}, {"dnsConfig": {"searches": ["elsewhere.example"]}}),
        ({}, {"dnsPolicy": "None"}),
    ],
)
def test_whoever_has_more_rights_or_other_files_is_another_program(container, rights):
    def made(container, rights):
        spec = {"containers": [{"name": "web", "image": "x:1", **container}], "securityContext": {}, **rights}
        return {"metadata": {"name": "web"}, "spec": {"template": {"spec": spec}}}

    assert programs([made(container, rights)]) != programs([made({}, {})])


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"type": "NodePort"}, EXPOSED),
        ({"type": "LoadBalancer"}, EXPOSED),
        ({"externalIPs": ["192.0.2.7"]}, EXPOSED),
        ({"publishNotReadyAddresses": True}, UNREADY),
    ],
)
def test_another_way_in_is_known_and_who_is_gone_has_none(spec, name):
    closed, opened = ({"metadata": {"name": "web"}, "spec": made} for made in ({"type": "ClusterIP"}, spec))
    nothing = exposure([closed])
    assert exposure([]) == nothing
    assert all(value.startswith("{") for value in nothing.values()), "any other value is another one"
    assert [key for key, value in exposure([opened]).items() if value != nothing[key]] == [name]


def test_every_other_setting_of_a_namespace_is_known_without_what_a_cluster_assigns():
    def service(port, node_port, address):
        spec = {"clusterIP": address, "selector": {"app": "web"}, "ports": [{"port": port, "nodePort": node_port}]}
        return {"metadata": {"name": "web"}, "spec": spec}

    def there(one, replicas=2, quota="4"):
        objects = {kind: [] for kind in ("Deployment", "StatefulSet", "Service", *ALWAYS_SET)}
        objects["Deployment"] = [{"metadata": {"name": "web"}, "spec": {"replicas": replicas}}]
        return objects | {"Service": [one], "ResourceQuota": [{"metadata": {"name": "q"}, "spec": {"hard": quota}}]}

    before = plain_settings(there(service(80, 30001, "10.0.0.1")))
    assert before == plain_settings(there(service(80, 30002, "10.0.0.2"))), "made anew, it is the same"
    assert before["Deployment web replicas"] == "2"
    for other in (there(service(81, 1, "")), there(service(80, 1, ""), 3), there(service(80, 1, ""), quota="40")):
        assert plain_settings(other) != before
