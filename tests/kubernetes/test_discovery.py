"""Discovery on a cluster: the guard's word, the operator's table, the baseline's reset, against a server of objects."""

from __future__ import annotations

import pytest
import yaml

from opsassay.core.errors import OperationError, UserError
from opsassay.core.schema.scenario import OpsCall
from opsassay.testbed.apps import load_system
from opsassay.testbed.operations.search import Composition
from opsassay.testbed.scenarios import load_scenario
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.object_server import ObjectServer
from opsassay.testbed.substrates.kubernetes.api.small_api import served, write_kubeconfig
from opsassay.testbed.substrates.kubernetes.running import KubernetesSystem
from opsassay.testbed.substrates.kubernetes.search import baseline as module
from opsassay.testbed.substrates.kubernetes.search import candidates as guard
from opsassay.testbed.substrates.kubernetes.search.baseline import normal, objects_in, restore, take_baseline
from opsassay.testbed.substrates.kubernetes.search.candidates import audit_cases, primitives
from opsassay.testbed.substrates.kubernetes.search.environment import ClusterSearchEnvironment
from opsassay.testbed.substrates.kubernetes.search.operator import healthy, repair

GRID = load_system("grid")
TARGET = "auth-service"
BLOCKS = {block.name: block for block in primitives(GRID, TARGET, nodes=True)}


def controllers(server):
    """Do what controllers would: rollouts end at once, endpoints follow selectors, bad images give no ready pod."""
    for (kind, space, name), item in list(server.objects.items()):
        if kind == "Deployment":
            wanted = item["spec"]["replicas"]
            good = not item["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":unavailable")
            item["status"] = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": wanted if good else 0}
            waiting = {} if good else {"state": {"waiting": {"reason": "ErrImagePull"}}}
            ready = [{"type": "Ready", "status": "True" if good else "False"}]
            labels = item["spec"]["template"]["metadata"]["labels"]
            status = {"phase": "Running", "conditions": ready, "containerStatuses": [waiting]}
            server.put("Pod", space, f"{name}-1", metadata={"labels": labels}, status=status, spec={})
        if kind == "Service":
            pods = [p for (k, s, _), p in server.objects.items() if (k, s) == ("Pod", space)]
            chosen = [p for p in pods if item["spec"]["selector"].items() <= p["metadata"]["labels"].items()]
            subsets = [{"addresses": [{}]}] if chosen else []
            server.put("Endpoints", space, name, subsets=subsets)


@pytest.fixture
def server():
    server = ObjectServer(controllers)
    for name in GRID.services:
        pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": name, "image": "ours:1"}]}}
        server.put("Deployment", "shop", name, spec={"replicas": 2, "template": pod})
        server.put("Service", "shop", name, spec={"selector": {"app": name}})
    server.put("Namespace", "", "shop", status={"phase": "Active"})
    server.put("Node", "", "worker1", spec={}, status={"allocatable": {"cpu": "2"}})
    server.put("ConfigMap", "shop", "system", data={"system.yaml": yaml.safe_dump(GRID.model_dump(mode="json"))})
    url = f"http://{TARGET}.shop:8080/"
    server.texts["/api/v1/namespaces/shop-watch/services/probe:8080/proxy/"] = {"status": 200, "error": "", "url": url}
    controllers(server)
    with served(server):
        yield server


@pytest.fixture
def running(server, tmp_path):
    return KubernetesSystem(Api.connect(write_kubeconfig(tmp_path / "config", server.url)), "shop")


@pytest.fixture
def lab(running, tmp_path):
    scenario, settings = load_scenario("unreachable-service"), {"kubeconfig": str(tmp_path / "config")}
    lab = ClusterSearchEnvironment(scenario, TARGET, 0, settings)
    lab.running, lab._baseline = running, take_baseline(running)
    lab._url = running.watched([TARGET]).protected[TARGET]
    return lab


def applied(lab, name):
    for change in BLOCKS[name].changes:
        lab.make(change)


def test_there_are_the_six_primitives_of_the_paper_and_without_nodes_five():
    assert [block.family for block in BLOCKS.values()] == [
        "none", "policy", "budget", "image", "selector", "control plane",
    ]  # fmt: skip
    assert len(primitives(GRID, TARGET, nodes=False)) == 5


@pytest.mark.parametrize("name", BLOCKS)
def test_every_primitive_is_inside_the_reset_boundary(name):
    assert guard.refusal(Composition(changes=BLOCKS[name].changes), nodes=True) is None


def test_what_reaches_outside_is_refused_before_it_acts():
    taken_away, *outside = (Composition(changes=block.changes) for block in audit_cases(TARGET))
    assert guard.refusal(taken_away, nodes=True) is None, "the precondition meets that one"
    assert [guard.refusal(one, nodes=True) for one in outside] == [
        "ClusterRole operators lies outside of what the reset covers",
        "Pod kube-apiserver lies outside of what the reset covers",
    ]
    mounted = {"spec": {"template": {"spec": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}}}}
    for verb, arguments, words in (
        ("patch", {"kind": "Deployment", "name": TARGET, "patch": mounted}, "reaches a node by hostPath"),
        ("delete", {"kind": ["Deployment"], "name": TARGET}, "kind and name are words"),
        ("delete", {"kind": "Deployment", "name": {"of": TARGET}}, "kind and name are words"),
        ("create", {"kind": "ConfigMap", "name": "x", "body": {"metadata": {"namespace": "kube-system"}}}, "metadata"),
        ("delete", {"kind": "ConfigMap", "name": "system"}, "what the baseline is read from"),
        ("create", {"kind": "ConfigMap", "name": "x", "body": "text"}, "given as str"),
        ("node", {"node": "worker1", "op": "stop"}, "only the control plane may be delayed"),
        ("exec", {"pod": "x"}, "no change that is known"),
    ):
        assert words in guard.refusal(Composition(changes=(OpsCall(verb=verb, arguments=arguments),)), nodes=True)
    delayed = Composition(changes=BLOCKS["delayed control plane"].changes)
    assert "no command for nodes" in guard.refusal(delayed, nodes=False)


def test_the_precondition_wants_the_workload_and_a_selector_that_matches_it(lab, server):
    assert lab.violation() is None
    applied(lab, "wrong selector")
    assert "selects other pods" in lab.violation()
    server.objects["Deployment", "shop", TARGET]["spec"]["replicas"] = 0
    assert "wants no replica" in lab.violation()
    lab.make(audit_cases(TARGET)[0].changes[0])
    assert "does not exist" in lab.violation()


@pytest.mark.parametrize(
    ("names", "actions"),
    [
        (["policy lets nobody in"], []),
        (["tight disruption budget"], []),
        (["wrong selector"], [f"patch service {TARGET}: selector app={TARGET}"]),
        (["image that nobody has"], [f"set image of {TARGET} to the last that was good"]),
        (
            ["wrong selector", "image that nobody has"],
            [f"patch service {TARGET}: selector app={TARGET}", f"set image of {TARGET} to the last that was good"],
        ),
    ],
)
def test_the_operator_repairs_what_meets_the_eye_and_nothing_else(lab, server, running, names, actions):
    before = take_baseline(running)
    for name in names:
        applied(lab, name)
    done = repair(running, before, 0.0)
    assert (sorted(done.actions), done.healthy) == (sorted(actions), True)
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        made = [key for key in server.objects if key[0] == kind]
        assert len(made) == sum(("policy" in n and kind[0] == "N") or ("budget" in n and kind[0] == "P") for n in names)


def test_a_taint_that_evicts_is_removed_and_one_of_the_cluster_itself_stays(running, server):
    before = take_baseline(running)
    evicting = {"key": "disk-full", "effect": "NoExecute"}
    lost = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    server.objects["Node", "", "worker1"]["spec"]["taints"] = [evicting, lost]
    assert not healthy(running, before)
    assert repair(running, before, 0.0).actions == ("untaint worker1",)
    assert server.objects["Node", "", "worker1"]["spec"]["taints"] == [lost]


def test_a_reset_brings_back_what_was_changed_removed_or_added(lab, running, server):
    before = {key: normal(item) for key, item in objects_in(running.api, "shop").items()}
    for name in ("wrong selector", "image that nobody has", "policy lets nobody in", "tight disruption budget"):
        applied(lab, name)
    running.api.delete("Service", "web", "shop")
    assert {key: normal(item) for key, item in objects_in(running.api, "shop").items()} != before
    lab.settle()
    assert {key: normal(item) for key, item in objects_in(running.api, "shop").items()} == before


def test_a_cluster_that_is_not_as_before_is_no_baseline(lab, running, server, monkeypatch):
    monkeypatch.setattr(module, "READY_TIMEOUT_S", 0.0)
    server.objects["Node", "", "worker1"]["spec"]["unschedulable"] = True
    with pytest.raises(OperationError, match="nodes of the cluster differ"):
        restore(running, lab._baseline, lab._url)
    del server.objects["Node", "", "worker1"]["spec"]["unschedulable"]
    restore(running, lab._baseline, lab._url)
    probe = "/api/v1/namespaces/shop-watch/services/probe:8080/proxy/"
    server.texts[probe] = {"status": None, "error": "timed out"}
    with pytest.raises(OperationError, match="is answered with timed out"):
        lab.start()


def test_what_the_server_refuses_is_the_candidates_fault(lab):
    applied(lab, "policy lets nobody in")
    with pytest.raises(UserError, match="already exists"):
        applied(lab, "policy lets nobody in")
