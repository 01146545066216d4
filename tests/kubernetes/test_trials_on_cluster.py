"""Trials on a real cluster: S-4 from deployment to verdict, and what its agent could and could not do."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from tests.kubernetes.native.cache import Cache
from tests.kubernetes.native.images import BOX_IMAGE

from conftest import applied, until, web
from opsassay.core.schema.cluster import STANDARD, AccessRule
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.run_folder import ACTIONS
from opsassay.core.schema.trajectory import Action
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.substrates.kubernetes.access import account
from opsassay.testbed.substrates.kubernetes.access.audit import Audit
from opsassay.testbed.substrates.kubernetes.scenario.objects import found_at

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
KUBECTL = str(Cache.default().binaries / "kubectl")


def plan(cluster, **changes):
    """Return a plan for S-4 on the native cluster, whose policies keep pods off its nodes."""
    settings = {"kubeconfig": str(cluster.kubeconfig), "kubectl": KUBECTL}
    agents = ({"name": "oracle:gentle"}, {"name": "oracle:shallow"})
    return TrialPlan(scenarios=("unreachable-service",), agents=agents, cluster=settings, **changes)


def test_the_repair_that_stops_at_the_selector_passes_the_outcome_and_fails_the_depth(cluster, tmp_path):
    wanted = plan(cluster)
    cells, store = cells_of(wanted), RunStore(tmp_path)
    run_trials(store, cells, progress=ProgressLines(print))
    found = {}
    for cell in cells:
        folder = store.finished(cell.cell.hash)
        assert folder is not None
        verdict = grade_trial(folder, cell.scenario)
        found[cell.agent.name] = {one.predicate: one.passed for one in verdict.judgements}
        actions = [Action.model_validate_json(line) for line in (folder / ACTIONS).read_text().splitlines()]
        written = {(a.arguments["verb"], a.arguments["name"]) for a in actions if a.tool == "api"}
        assert ("update", "auth-service") in written
        assert (("delete", "deny-all") in written) == (cell.agent.name == "oracle:gentle")
    assert found["oracle:gentle"]["certificate"]
    shallow = found["oracle:shallow"]
    assert shallow["v_outcome"]
    assert not shallow["v_depth"]
    assert not shallow["certificate"]
    assert cells[0].scenario.oracles["shallow"].is_met([name for name, passed in shallow.items() if not passed])


NAME_SERVICE = AccessRule(resources=("pods",), verbs=("get", "list", "watch", "delete"), namespace="kube-system")


@pytest.fixture
def operator(api, namespace, tmp_path, request):
    """Make an agent's account with the standard rights in *namespace*, and those of a parameter; return its kubectl."""
    watch = f"{namespace}-w"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": watch}})
    made = account.role_objects(namespace, watch, (*STANDARD, *getattr(request, "param", ())))
    for item in made:
        api.create(item)
    kubeconfig = account.write_kubeconfig(api, namespace, account.issue_token(api, watch, 600), tmp_path / "agent")

    def run(*words, feed=None):
        command = [KUBECTL, f"--kubeconfig={kubeconfig}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, input=feed, timeout=120)

    run.watch = watch
    yield run
    for item in made:
        if item["metadata"].get("namespace") not in (namespace, watch):
            api.delete(item["kind"], item["metadata"]["name"], item["metadata"].get("namespace"))
    api.delete("Namespace", watch)


HOSTILE = [
    ("get", "secrets"),
    ("get", "secrets", "-A"),
    ("get", "serviceaccounts"),
    ("create", "token", "default"),
    ("get", "pods", "-n", "{watch}"),
    ("exec", "-n", "{watch}", "probe", "--", "id"),
    ("get", "configmaps", "-n", "kube-system"),
    ("delete", "deployment", "coredns", "-n", "kube-system"),
    ("delete", "node", "worker1"),
    ("taint", "node", "worker1", "x=y:NoExecute"),
    ("get", "--raw", "/api/v1/nodes/worker1/proxy/pods"),
    ("get", "--raw", "/api/v1/namespaces/{watch}/services/probe:8080/proxy/"),
    ("create", "clusterrolebinding", "mine", "--clusterrole=cluster-admin", "--serviceaccount={watch}:operator"),
    ("create", "rolebinding", "mine", "--clusterrole=admin", "--serviceaccount={watch}:operator"),
    ("create", "serviceaccount", "mine"),
    ("create", "namespace", "mine"),
    ("get", "pods", "--as=admin"),
    ("get", "pods", "--as=system:serviceaccount:kube-system:replicaset-controller"),
]


@pytest.mark.parametrize("words", HOSTILE, ids=" ".join)
def test_the_cluster_itself_denies_what_is_not_granted(operator, words):
    done = operator(*(word.format(watch=operator.watch) for word in words))
    assert done.returncode != 0
    assert "forbidden" in done.stderr.lower() or "unknown" in done.stderr.lower(), done.stderr


def test_what_is_granted_works_and_is_recorded_also_outside_of_the_tools(operator, api, cluster, namespace):
    assert operator("get", "pods").returncode == 0
    recorded, logged = [], []
    user = f"system:serviceaccount:{operator.watch}:operator"
    log = cluster.folder / "audit.log"
    with (
        Audit(api, namespace, recorded.append) as watched,
        Audit(api, namespace, logged.append, log=log, user=user) as read,
    ):
        watched.begin()
        read.begin()
        began = time.time_ns()
        assert operator("create", "configmap", "mine", "--from-literal=a=b").returncode == 0
        assert operator("patch", "configmap", "mine", "-p", json.dumps({"data": {"a": "c"}})).returncode == 0
        assert operator("delete", "configmap", "mine").returncode == 0
        assert operator("delete", "secret", "any").returncode != 0
        until(lambda: len(recorded) >= 3 and len(logged) >= 4, 60)
    assert [(a.arguments["verb"], a.arguments["name"]) for a in recorded] == [
        ("create", "mine"), ("update", "mine"), ("delete", "mine"),
    ]  # fmt: skip
    assert [(a.arguments["verb"], a.arguments["name"], a.status) for a in logged] == [
        ("create", "mine", "ok"), ("patch", "mine", "ok"), ("delete", "mine", "ok"), ("delete", "any", "error"),
    ]  # fmt: skip
    assert all(began <= action.started_ns <= time.time_ns() for action in [*recorded, *logged])


@pytest.mark.parametrize("operator", [(NAME_SERVICE,)], indirect=True, ids=["name-service"])
def test_a_pod_of_the_name_service_that_is_deleted_is_recorded_by_watch_and_by_log(operator, api, cluster, namespace):
    watched, logged = [], []
    user, log = f"system:serviceaccount:{operator.watch}:operator", cluster.folder / "audit.log"
    pod = api.list("Pod", "kube-system", "k8s-app=kube-dns")[0]["metadata"]["name"]
    with (
        Audit(api, namespace, watched.append, rules=[NAME_SERVICE]) as by_watch,
        Audit(api, namespace, logged.append, log=log, user=user) as by_log,
    ):
        by_watch.begin()
        by_log.begin()
        assert operator("delete", "pod", pod, "-n", "kube-system", "--wait=false").returncode == 0
        assert operator("delete", "pods", "-n", "kube-system", "-l", "tier=none").returncode == 0
        until(lambda: logged, 60)
        until(lambda: dns_ready(api), 60)
    told = [(a.arguments["verb"], a.arguments["kind"], a.arguments["name"], a.arguments["namespace"]) for a in watched]
    assert told == [("delete", "Pod", pod, "kube-system")]
    assert [(a.arguments["verb"], a.arguments["name"], a.status) for a in logged] == [("delete", pod, "ok")]


def dns_ready(api):
    return api.get("Deployment", "coredns", "kube-system")["status"].get("readyReplicas") == 2


def test_pods_that_a_controller_removes_are_not_the_agents_deletions_and_those_that_it_deletes_are(
    operator, api, kubectl, namespace
):
    applied(kubectl, web("web", namespace, 3))
    until(lambda: api.get("Deployment", "web", namespace).get("status", {}).get("readyReplicas") == 3)
    watched = []
    with Audit(api, namespace, watched.append) as audit:
        audit.begin()
        assert operator("rollout", "restart", "deployment/web").returncode == 0
        assert operator("rollout", "status", "deployment/web", "--timeout=100s").returncode == 0
        assert operator("scale", "deployment/web", "--replicas=1").returncode == 0
        until(lambda: len(api.list("Pod", namespace, "app=web")) == 1)
        (last,) = api.list("Pod", namespace, "app=web")
        assert operator("delete", "pod", last["metadata"]["name"]).returncode == 0
        time.sleep(1)
    deleted = [a.arguments["name"] for a in watched if a.arguments["verb"] == "delete"]
    assert deleted == [last["metadata"]["name"]]


# --- ways to a node -----------------------------------------------------------------------------------------------------


def test_the_cluster_is_closed_to_whoever_makes_pods_of_deployments_and_open_where_that_is_granted(api, namespace):
    until(lambda: api.get("ServiceAccount", "default", namespace))
    account.require_closed(api, namespace, BOX_IMAGE)
    assert account.paths_to_a_node(api, "kube-system", BOX_IMAGE) == list(account.PATHS_TO_A_NODE)


@pytest.mark.parametrize("way", [*account.PATHS_TO_A_NODE, "none"])
def test_pods_that_are_a_way_to_their_node_are_refused_directly_and_by_way_of_a_deployment(
    operator, api, namespace, way
):
    pod = account._make_pod(way, account.PATHS_TO_A_NODE.get(way, {}), namespace, BOX_IMAGE)
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    until(lambda: api.get("ServiceAccount", "default", namespace))
    direct = operator("create", "-f", "-", feed=json.dumps(pod))
    template = {"metadata": {"labels": {"app": "way"}}, "spec": pod["spec"]}
    wanted = {"replicas": 1, "selector": {"matchLabels": {"app": "way"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "way"}, "spec": wanted}
    assert operator("create", "-f", "-", feed=json.dumps(deployment)).returncode == 0
    if way == "none":
        assert direct.returncode == 0, "an ordinary pod is none"
        until(lambda: (api.get("Deployment", "way", namespace).get("status") or {}).get("readyReplicas") == 1)
        return
    assert direct.returncode != 0
    assert "PodSecurityPolicy" in direct.stderr
    refused = until(
        lambda: found_at(api.get("Deployment", "way", namespace), "status.conditions.ReplicaFailure.message")
    )
    assert "PodSecurityPolicy" in refused
    assert api.list("Pod", namespace) == []


def test_two_trials_at_once_do_not_disturb_one_another(cluster, tmp_path):
    from threading import Thread

    codes = {}

    def one(name):
        wanted = plan(cluster).model_copy(update={"scenarios": (name,), "agents": (TrialAgent(name="oracle:gentle"),)})
        (cell,) = cells_of(wanted)
        store = RunStore(tmp_path / name)
        run_trials(store, [cell], progress=ProgressLines(print))
        codes[name] = grade_trial(store.finished(cell.cell.hash), cell.scenario).judgement("certificate").passed

    pair = [Thread(target=one, args=(name,)) for name in ("unreachable-service", "isolated-service")]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join()
    assert codes == {"unreachable-service": True, "isolated-service": True}
