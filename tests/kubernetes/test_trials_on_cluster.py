"""Trials on a real cluster: S-4 from deployment to verdict, and what its agent could and could not do."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from tests.kubernetes.native.cache import Cache

from assay.bench.store import RunStore
from assay.bench.trials.contract import ACTIONS, TrialAgent
from assay.bench.trials.grading import grade_trial
from assay.bench.trials.matrix import run_matrix
from assay.bench.trials.plan import TrialPlan, cells_of
from assay.model.cluster import STANDARD
from assay.model.trajectory import Action
from assay.testbed.kubernetes.access import account
from assay.testbed.kubernetes.access.audit import Audit
from conftest import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
KUBECTL = str(Cache.default().binaries / "kubectl")


def plan(cluster, **changes):
    """Return a plan for S-4 on the native cluster, which has no policy that keeps pods off its nodes."""
    settings = {"kubeconfig": str(cluster.kubeconfig), "kubectl": KUBECTL, "open_nodes": True}
    agents = ({"name": "oracle:gentle"}, {"name": "oracle:shallow"})
    return TrialPlan(scenarios=("unreachable-service",), agents=agents, cluster=settings, **changes)


def test_the_repair_that_stops_at_the_selector_passes_the_outcome_and_fails_the_depth(cluster, tmp_path):
    wanted = plan(cluster)
    cells, store = cells_of(wanted), RunStore(tmp_path)
    run_matrix(wanted, cells, store, tell=print)
    found = {}
    for cell in cells:
        folder = store.finished(cell.key)
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
    assert [name for name, passed in shallow.items() if not passed] == ["v_depth", "certificate"]


@pytest.fixture
def operator(api, namespace, tmp_path):
    """Make an agent's account with the standard rights in *namespace*; return its kubectl."""
    watch = f"{namespace[:30]}-w"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": watch}})
    made = account.role_objects(namespace, watch, STANDARD)
    for item in made:
        api.create(item)
    kubeconfig = account.write_kubeconfig(api, namespace, account.issue_token(api, watch, 600), tmp_path / "agent")

    def run(*words, feed=None):
        command = [KUBECTL, f"--kubeconfig={kubeconfig}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, input=feed, timeout=120)

    run.watch = watch
    yield run
    for item in made:
        if "namespace" not in item["metadata"]:
            api.delete(item["kind"], item["metadata"]["name"])
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


def test_two_trials_at_once_do_not_disturb_one_another(cluster, tmp_path):
    from threading import Thread

    codes = {}

    def one(name):
        wanted = plan(cluster).model_copy(update={"scenarios": (name,), "agents": (TrialAgent(name="oracle:gentle"),)})
        (cell,) = cells_of(wanted)
        store = RunStore(tmp_path / name)
        run_matrix(wanted, [cell], store, tell=print)
        codes[name] = grade_trial(store.finished(cell.key), cell.scenario).judgement("certificate").passed

    pair = [Thread(target=one, args=(name,)) for name in ("unreachable-service", "isolated-service")]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join()
    assert codes == {"unreachable-service": True, "isolated-service": True}
