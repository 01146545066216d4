"""The native cluster behaves as a cluster: traffic, names, policies, controllers; and it goes without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.kubernetes.native.cache import Cache
from tests.kubernetes.native.cluster import GROUPS, Cluster

from conftest import applied, until, web
from opsassay.testbed.substrates.kubernetes.api.readings import why_not_ready

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
STARTER = """
import time
from tests.kubernetes.native.cache import Cache
from tests.kubernetes.native.cluster import Cluster
Cluster(Cache.default(), "killed").start(1, owned=True)
time.sleep(600)
"""
DENY = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]}


def ready(api, name, namespace):
    return api.get("Deployment", name, namespace).get("status", {}).get("readyReplicas", 0)


def places(api, namespace):
    """Return where the pods of the web server are that stay."""
    pods = api.list("Pod", namespace, "app=web")
    return {pod["spec"].get("nodeName") for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def client(kubectl, namespace):
    """Start a pod to send requests from."""
    kubectl("run", "client", "-n", namespace, "--image=docker.io/library/opsassay-box:1", "--image-pull-policy=Never",
            "--restart=Never", "--", "pause")  # fmt: skip
    kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/client", "--timeout=180s")


def fetch(kubectl, namespace, url):
    return kubectl("exec", "-n", namespace, "client", "--", "wget", "-q", "-T", "2", "-O", "-", url, check=False)


def test_a_service_is_reached_by_name_on_every_node_and_a_policy_closes_it(api, kubectl, namespace):
    deployment, service = web("web", namespace, 8)
    even = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    even["labelSelector"] = {"matchLabels": {"app": "web"}}
    deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] = [even]
    applied(kubectl, [deployment, service])
    client(kubectl, namespace)
    until(lambda: ready(api, "web", namespace) == 8)
    nodes = {pod["spec"]["nodeName"] for pod in api.list("Pod", namespace, "app=web")}
    assert nodes == {"worker1", "worker2", "worker3", "worker4"}
    url = f"http://web.{namespace}.svc.cluster.local/"
    until(lambda: fetch(kubectl, namespace, url).returncode == 0)
    answering = {fetch(kubectl, namespace, url).stdout.strip() for _ in range(24)}
    assert len(answering) > 2, "requests are spread over pods"
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": DENY}
    applied(kubectl, [{**policy, "metadata": {"name": "deny", "namespace": namespace}}])
    until(lambda: fetch(kubectl, namespace, url).returncode != 0)
    assert ready(api, "web", namespace) == 8, "the node still probes"
    kubectl("delete", "networkpolicy", "deny", "-n", namespace)
    until(lambda: fetch(kubectl, namespace, url).returncode == 0)


def test_a_policy_lets_through_whom_it_names_from_other_namespaces(api, kubectl, namespace):
    applied(kubectl, web("web", namespace, 1))
    client(kubectl, namespace)
    until(lambda: ready(api, "web", namespace) == 1)
    url = f"http://web.{namespace}/"
    allowed = {
        **DENY,
        "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"role": "friend"}}}], "ports": [{"port": 8080}]}],
    }
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": allowed}
    applied(kubectl, [{**policy, "metadata": {"name": "friends", "namespace": namespace}}])
    until(lambda: fetch(kubectl, namespace, url).returncode != 0)
    kubectl("label", "namespace", namespace, "role=friend")
    until(lambda: fetch(kubectl, namespace, url).returncode == 0)


def test_logs_exec_and_a_pull_that_fails(api, kubectl, namespace):
    client(kubectl, namespace)
    assert kubectl("exec", "-n", namespace, "client", "--", "sh", "-c", "echo $((6*7))").strip() == "42"
    kubectl("run", "loud", "-n", namespace, "--image=docker.io/library/opsassay-box:1", "--image-pull-policy=Never",
            "--restart=Never", "--command", "--", "echo", "spoken")  # fmt: skip
    until(lambda: "spoken" in kubectl("logs", "loud", "-n", namespace, check=False).stdout)
    applied(kubectl, web("web", namespace, 1, image="opsassay.invalid/none:v9"))
    until(lambda: "image" in str([why_not_ready(pod) for pod in api.list("Pod", namespace, "app=web")]).lower())


def test_a_node_whose_kubelet_stops_is_lost_and_comes_back(api, cluster):
    def condition():
        conditions = api.get("Node", "worker2")["status"]["conditions"]
        return next(c["status"] for c in conditions if c["type"] == "Ready")

    until(lambda: condition() == "True")
    cluster.node("worker2", "stop")
    until(lambda: condition() == "Unknown")
    cluster.node("worker2", "start")
    until(lambda: condition() == "True")


def test_a_taint_evicts_and_the_scheduler_places_elsewhere(api, kubectl, namespace):
    applied(kubectl, web("web", namespace, 8))
    until(lambda: ready(api, "web", namespace) == 8)
    kubectl("taint", "node", "worker3", "worker4", "disk-full=true:NoExecute")
    try:
        until(lambda: places(api, namespace) == {"worker1", "worker2"})
        until(lambda: ready(api, "web", namespace) == 8)
    finally:
        kubectl("taint", "node", "worker3", "worker4", "disk-full-")


@pytest.mark.parametrize("after_s", [0.5, 3.0, None])
def test_a_cluster_that_is_killed_at_any_moment_is_followed_by_a_sound_one(after_s):
    native = Cluster(Cache.default(), "killed")
    if reason := native.unavailable():
        pytest.skip(reason)
    native.stop()
    starter = subprocess.Popen([sys.executable, "-c", STARTER], cwd=Path(__file__).parents[2])
    if after_s is None:
        until((native.folder / "ready.json").exists)
    else:
        until((native.folder / "pid").exists)
        time.sleep(after_s)
    leader = native._leader()
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    if after_s == 0.5:
        os.kill(leader.pid, signal.SIGKILL)
    with native.running(1):
        assert native.status()["running"]
    assert not leader.is_running()
    assert not native.folder.exists()
    assert not [g for g in GROUPS.iterdir() if (g / native.group).exists()]
    assert str(native.folder) not in Path("/proc/mounts").read_text()
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(native.folder) in " ".join(p.info["cmdline"] or ())]
