"""Every fault type has a way on a cluster or is refused for a reason; objects of Chaos Mesh say what the plan says."""

from __future__ import annotations

from functools import partial

import pytest

from opsassay.core.errors import RefusedError
from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.incident import PlannedFault
from opsassay.core.schema.plan import complete
from opsassay.testbed.substrates.kubernetes.actuators.mechanisms import MECHANISMS, choose
from opsassay.testbed.substrates.kubernetes.actuators.object_faults import isolation
from opsassay.testbed.substrates.kubernetes.actuators.offers import SETTING, Offers, node_refusal, offers_of
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.manifests.system import PURPOSE_LABEL

CHAOS_KINDS = frozenset(row.category.value for row in CATALOGUE.values())
BARE = Offers("nodes may not be touched")
NODES = Offers(None)


@pytest.fixture
def mesh(chaos_mesh):
    """Return the offers of a cluster with every kind of Chaos Mesh, whose nodes may not be touched."""
    return BARE._replace(further={"chaos-mesh": partial(chaos_mesh.obstacle, CHAOS_KINDS)})


@pytest.fixture
def made_object(chaos_mesh):
    where = chaos_mesh.Where("shop", "cart", "cart-5d4-abcde", ("pricing", "stock"))

    def made(fault, name, seconds):
        return chaos_mesh.manifest(chaos_mesh.MAKERS[fault.fault], fault, where, name, seconds)

    return made


def planned(fault, target=None, **parameters):
    target = target or {"service": "cart"}
    return PlannedFault(fault=fault, target=target, parameters=complete(fault, parameters))


def way(fault, offers, target=None):
    return choose(planned(fault, target), offers).name


def test_every_type_of_the_catalogue_is_in_the_table_and_can_be_seen_to_act():
    assert set(MECHANISMS) == set(CATALOGUE)


def test_a_bare_cluster_takes_all_types_but_those_that_need_packets(mesh):
    refused = {fault for fault in MECHANISMS if fault.startswith("Network") and fault != "NetworkPartition"}
    for fault in MECHANISMS:
        if fault not in refused:
            assert way(fault, BARE) in ("object", "pod")
            continue
        with pytest.raises(RefusedError, match="nodes may not be touched"):
            way(fault, BARE)
    assert {way(fault, NODES) for fault in refused} == {"node"}
    assert {way(fault, mesh) for fault in refused} == {"chaos-mesh"}


def test_the_way_that_is_preferred_is_taken_where_it_can_be_gone(mesh, chaos_mesh):
    assert way("HTTPResponseDelay", mesh._replace(prefer="chaos-mesh")) == "chaos-mesh"
    assert way("HTTPResponseDelay", BARE._replace(prefer="chaos-mesh")) == "pod"
    assert way("NetworkPartition", mesh._replace(nodes=None, prefer="object")) == "object"


def test_a_package_is_asked_once_which_kinds_the_cluster_has(chaos_mesh, small_cluster):
    listed = [{"name": "networkchaos", "kind": "NetworkChaos"}, {"name": "networkchaos/status", "kind": "NetworkChaos"}]
    small_cluster.texts["/apis/chaos-mesh.org/v1alpha1"] = {"resources": listed}
    offers = offers_of(Api.connect(small_cluster.config), "chaos-mesh")
    assert set(offers.further) == {"chaos-mesh"}
    made = choose(planned("NetworkDelay"), offers).make
    assert made.__self__.__class__ is chaos_mesh.ChaosMesh
    assert way("TimeSkew", offers) == "pod"
    assert offers.further["chaos-mesh"](planned("TimeSkew")) == "the cluster has no TimeChaos of Chaos Mesh; install it"


def test_a_node_is_hit_by_the_way_of_nodes_alone(mesh):
    host = {"host": "worker2"}
    for fault in ("PodFailure", "CPUStress", "NetworkDelay", "NetworkPartition"):
        assert way(fault, mesh._replace(nodes=None), host) == "node"
        with pytest.raises(RefusedError, match="nodes may not be touched"):
            way(fault, mesh, host)
    with pytest.raises(RefusedError, match="hits one pod, not a node"):
        way("MemoryStress", NODES, host)


def test_calls_of_one_way_and_protocols_are_for_mechanisms_that_know_them(mesh):
    inbound, spoken = ({"direction": "inbound"}, {"protocol": "postgresql"})
    delay, cut = (partial(planned, name) for name in ("NetworkDelay", "NetworkPartition"))
    with pytest.raises(RefusedError, match="knows who sends a packet and not who called"):
        choose(delay(**inbound), mesh)
    with pytest.raises(RefusedError, match="knows pods and no protocols"):
        choose(cut(**spoken), BARE)
    assert choose(cut(**inbound), BARE).name == "object"
    assert {choose(delay(**given), NODES).name for given in (inbound, spoken)} == {"node"}


def test_nodes_may_be_touched_on_contexts_that_are_listed_only(monkeypatch):
    monkeypatch.delenv(SETTING, raising=False)
    assert "production is not among the contexts of OPSASSAY_NODE_CONTEXTS" in node_refusal("production")
    monkeypatch.setenv(SETTING, "kind-opsassay, test")
    assert node_refusal("kind-opsassay") is node_refusal("test") is None
    assert node_refusal("kind") is not None


NAMESPACE = {"mode": "all", "selector": {"namespaces": ["shop"]}}
OBJECTS = {
    ("NetworkDelay", (("delay_ms", 250.0), ("jitter_ms", 10.0))): {
        "action": "delay", "direction": "to", "delay": {"latency": "250ms", "jitter": "10ms"},
    },
    ("NetworkLoss", (("direction", "both"), ("peer", "stock"))): {
        "action": "loss", "direction": "both", "loss": {"loss": "10"},
        "target": {"mode": "all", "selector": {"namespaces": ["shop"], "labelSelectors": {"app": "stock"}}},
    },
    ("NetworkBandwidth", (("direction", "to"), ("rate_bps", 80_000))): {
        "action": "bandwidth", "direction": "from", "target": NAMESPACE,
        "bandwidth": {"rate": "10000bps", "limit": 20_971_520, "buffer": 10_000},
    },
    ("NetworkPartition", ()): {"action": "partition", "direction": "to"},
    ("CPUStress", (("cores", 2), ("load_percent", 80.0))): {"stressors": {"cpu": {"workers": 2, "load": 80}}},
    ("MemoryStress", (("size_mb", 100),)): {"stressors": {"memory": {"workers": 1, "size": "100MB"}}},
    ("HTTPResponseDelay", (("operation", "POST /cart"),)): {
        "target": "Response", "port": 8080, "path": "/cart", "method": "POST", "delay": "300ms",
    },
    ("HTTPResponsePatchBody", (("patch", '{"a": 1}'),)): {
        "target": "Response", "port": 8080, "path": "*", "patch": {"body": {"type": "JSON", "value": '{"a": 1}'}},
    },
    ("HTTPResponseReplaceCode", (("code", 503),)): {
        "target": "Response", "port": 8080, "path": "*", "replace": {"code": 503},
    },
    ("DNSRandom", ()): {
        "action": "random", "patterns": ["pricing.shop.svc.cluster.local", "stock.shop.svc.cluster.local"],
    },
    ("DNSError", (("hostname", "stock"),)): {"action": "error", "patterns": ["stock.shop.svc.cluster.local"]},
    ("TimeSkew", (("offset_ms", -5000.0),)): {"timeOffset": "-5000ms"},
    ("ContainerKill", ()): {"action": "container-kill", "containerNames": ["cart"]},
    ("PodFailure", ()): {"action": "pod-failure"},
}  # fmt: skip


@pytest.mark.parametrize("case", OBJECTS, ids=lambda case: case[0])
def test_an_object_of_chaos_mesh_says_what_the_plan_says_for_one_pod_and_a_time(case, made_object):
    fault, parameters = case
    made = made_object(planned(fault, **dict(parameters)), "task-1", 60.4)
    assert (made["apiVersion"], made["kind"]) == ("chaos-mesh.org/v1alpha1", CATALOGUE[fault].category.value)
    assert made["metadata"] == {"name": "task-1", "namespace": "shop"}
    common = {"mode": "all", "selector": {"pods": {"shop": ["cart-5d4-abcde"]}}, "duration": "60s"}
    assert made["spec"] == {**common, **OBJECTS[case]}


def test_every_type_that_may_go_by_chaos_mesh_has_an_object(chaos_mesh, made_object):
    through = set(chaos_mesh.MAKERS)
    assert {fault for fault in MECHANISMS if not fault.startswith("JVM")} - through == {
        "HTTPRequestAbort",
        "HTTPResponseAbort",
    }
    for fault in through:
        assert made_object(planned(fault), "task", 60)["kind"] == CATALOGUE[fault].category.value
    with pytest.raises(RefusedError, match="use body_type empty"):
        made_object(planned("HTTPResponseReplaceBody", body_type="random"), "task", 60)


def admits(rules, side, peer, port, protocol="TCP"):
    """Tell whether a policy's *rules* let a connection with *peer* (app, purpose of its namespace) to *port* pass."""
    app, purpose = peer

    def holds(selector, labels):
        return all(labels.get(e["key"]) not in e["values"] for e in selector["matchExpressions"])

    for rule in rules:
        ports = [(p["protocol"], p["port"]) for p in rule.get("ports", ())]
        if ports and (protocol, port) not in ports:
            continue
        peers = rule.get(side)
        if peers is None or any(
            (purpose == "system" and "podSelector" in one and holds(one["podSelector"], {"app": app}))
            or ("namespaceSelector" in one and holds(one["namespaceSelector"], {PURPOSE_LABEL: purpose}))
            for one in peers
        ):
            return True
    return False


@pytest.mark.parametrize("peer", [None, "stock"])
def test_a_policy_parts_a_pod_from_its_peers_and_leaves_it_to_those_who_observe(peer):
    spec = isolation("segment-1", "shop", ("segment", "1"), peer)["spec"]
    assert spec["podSelector"] == {"matchLabels": {"segment": "1"}}
    for side, rules in (("to", spec["egress"]), ("from", spec["ingress"])):
        assert not admits(rules, side, ("stock", "system"), 8080)
        assert admits(rules, side, ("pricing", "system"), 8080) == (peer is not None)
    assert admits(spec["egress"], "to", ("receiver", "watch"), 4318)
    assert admits(spec["egress"], "to", ("coredns", None), 53, "UDP")
    assert admits(spec["ingress"], "from", (None, None), 9090)


@pytest.mark.parametrize(("direction", "cut"), [("inbound", "ingress"), ("outbound", "egress")])
def test_a_policy_cuts_the_calls_of_one_way(direction, cut):
    spec = isolation("segment-1", "shop", ("segment", "1"), None, direction)["spec"]
    assert spec["policyTypes"] == [cut.capitalize()]
    assert {"ingress", "egress"} & set(spec) == {cut}
