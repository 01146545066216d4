"""A system on a real cluster: the same YAML as on local, seen at four depths, gone without a trace."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import applied, until
from opsassay.core.errors import NotFoundError, StartError, UserError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import parse_timeline
from opsassay.testbed.apps import load_system
from opsassay.testbed.recording.observer import Observer
from opsassay.testbed.substrates.kubernetes import substrate as module
from opsassay.testbed.substrates.kubernetes.endpoints.probing import send_probe
from opsassay.testbed.substrates.kubernetes.manifests.system import Deployed, render
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]
ORPHAN = """
import os, sys
from pathlib import Path
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.system import System
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate
KubernetesSubstrate(sys.argv[1]).deploy(load_yaml(Path(sys.argv[2]), System), "orphan", owned=True)
os.kill(os.getpid(), 9)
"""
TINY = load_yaml(Path(__file__).parents[1] / "testbed" / "tiny.yaml", System)


@pytest.fixture(scope="module")
def substrate(cluster):
    return KubernetesSubstrate(cluster.kubeconfig)


@pytest.fixture(scope="module")
def running(substrate):
    with substrate.deployed(TINY, "tiny") as system:
        yield system


def observed(system, out, seconds, **options):
    """Observe *system* for some seconds; return its timeline."""
    probes = system.probes()

    async def watch():
        observer = Observer(probes, out, **options)
        asyncio.get_running_loop().call_later(seconds, observer.stop)
        await observer.run()

    asyncio.run(watch())
    return parse_timeline(out.read_text()), probes


def depths(tick):
    return {o.depth: (o.value, o.failing) for o in tick.observations}


def test_a_healthy_system_is_whole_at_all_four_depths(running, tmp_path):
    status = running.status()
    assert status.phase == "ready"
    assert status.rate_rps == 20
    (url,) = running.watched().protected.values()
    until(lambda: send_probe(running.api, "tiny-watch", url, 5.0)["status"] == 200)
    timeline, probes = observed(running, tmp_path / "t.jsonl", 6, cadence_s=1.0, probe_every_s=2.0)
    assert len(timeline.ticks) >= 6
    for tick in timeline.ticks:
        seen = depths(tick)
        assert [seen[d] for d in ("D1", "D2", "D4")] == [(1.0, ())] * 3
    sent = [probe for tick in timeline.ticks for probe in tick.probes]
    assert len(sent) >= 3
    assert {p.target for p in sent} == {"front.tiny"}
    assert 200 in {p.status for p in sent}
    assert all(p.reachable == (p.status == 200 and p.latency_s <= 3.0) for p in sent)
    assert {e.service for e in timeline.ticks[0].entities} == {"front", "middle", "back", "cache", "loadgenerator"}
    assert all(mirror.lists == 1 for mirror in probes.mirrors.values()), "one list per kind"
    beside = [json.loads(line) for line in (tmp_path / "t.control-plane.jsonl").read_text().splitlines()]
    assert all(line["ready"] and line["latency_s"] > 0 and not line["failing"] for line in beside)
    assert {"kube-scheduler", "kube-controller-manager"} <= beside[-1]["lease_ages_s"].keys()


def test_telemetry_of_every_process_arrives_at_the_receiver(running, kubectl):
    script = (
        "from opsassay.telemetry.otlp.client import ReceiverControl; from pathlib import Path;"
        "print(ReceiverControl(Path('/tmp/receiver')).stats().model_dump_json())"
    )

    def stats():
        return json.loads(kubectl("exec", "-n", "tiny-watch", "deploy/receiver", "--", "python", "-c", script))

    before = stats()
    until(lambda: stats()["requests"] > before["requests"] if "requests" in before else stats() != before)


def test_topology_comes_from_owners_nodes_and_endpoints(running):
    found = running.topology()
    (pod,) = {b for a, b in found if a == ("Service", "tiny", "front")}
    (replicas,) = {a for a, b in found if b == pod and a[0] == "ReplicaSet"}
    (node,) = {a for a, b in found if b == pod and a[0] == "Node"}
    assert (("Deployment", "tiny", "front"), replicas) in found
    assert node[2].startswith("worker")


def test_healthy_pods_behind_a_closed_door_are_seen_at_depth_three_only(running, kubectl, tmp_path):
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "isolation", "namespace": "tiny"},
        "spec": {"podSelector": {"matchLabels": {"app": "front"}}, "policyTypes": ["Ingress"]},
    }
    (url,) = running.watched().protected.values()
    applied(kubectl, [policy])
    until(lambda: send_probe(running.api, "tiny-watch", url, 1.0)["status"] is None)
    timeline, _ = observed(running, tmp_path / "t.jsonl", 2, cadence_s=1.0, probe_every_s=None)
    last = depths(timeline.ticks[-1])
    assert last["D1"] == last["D2"] == (1.0, ())
    assert last["D3"] == (0.0, ("front.tiny",))
    kubectl("delete", "networkpolicy", "isolation", "-n", "tiny")
    until(lambda: send_probe(running.api, "tiny-watch", url, 2.0)["status"] == 200)


def test_a_wrong_selector_empties_the_endpoints_while_pods_stay_ready(running, kubectl, tmp_path):
    kubectl("patch", "service", "front", "-n", "tiny", "-p", '{"spec": {"selector": {"app": "frnt"}}}')
    try:
        until(lambda: not running.api.get("Endpoints", "front", "tiny").get("subsets"))
        timeline, _ = observed(running, tmp_path / "t.jsonl", 2, cadence_s=1.0, probe_every_s=None)
        last = depths(timeline.ticks[-1])
        assert last["D1"] == (1.0, ())
        assert last["D2"] == (0.0, ("front.tiny",))
        assert last["D3"] == (0.0, ("front.tiny",))
    finally:
        kubectl("patch", "service", "front", "-n", "tiny", "-p", '{"spec": {"selector": {"app": "front"}}}')
    (url,) = running.watched().protected.values()
    until(lambda: send_probe(running.api, "tiny-watch", url, 2.0)["status"] == 200)


def test_a_replica_that_is_missing_is_missed(running, kubectl, tmp_path):
    unavailable = json.dumps({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}}})
    kubectl(
        "patch", "deployment", "back", "-n", "tiny", "-p", unavailable
    )  # else the old one stays until a new one is ready
    kubectl("set", "image", "deployment/back", "-n", "tiny", "back=opsassay.invalid/none:v9")
    try:
        until(lambda: running.status().phase == "starting")
        time.sleep(3)
        timeline, _ = observed(running, tmp_path / "t.jsonl", 3, cadence_s=1.0, probe_every_s=20.0)
        value, failing = depths(timeline.ticks[-1])["D1"]
        assert value == pytest.approx(4 / 5)
        assert all(name.startswith("back-") for name in failing)
    finally:
        kubectl("rollout", "undo", "deployment/back", "-n", "tiny")
    until(lambda: running.status().phase == "ready")


def test_what_does_not_start_says_why_and_leaves_nothing(cluster, monkeypatch, api):
    monkeypatch.setattr(module, "START_TIMEOUT_S", 40.0)
    with pytest.raises(StartError, match=r"not ready after 40 s: .*(ErrImagePull|ImagePullBackOff)"):
        KubernetesSubstrate(cluster.kubeconfig, image="opsassay.invalid/none:v9").deploy(TINY, "absent")
    assert api.get("Namespace", "absent") is None
    assert api.get("Namespace", "absent-watch") is None


def test_a_name_that_is_taken_is_refused_and_what_is_not_there_cannot_be_removed(running, substrate):
    with pytest.raises(UserError, match="exists"):
        substrate.deploy(TINY, "tiny")
    assert running.status().phase == "ready"
    with pytest.raises(NotFoundError, match="tiny"):
        substrate.remove("tny")
    assert [row.name for row in substrate.status()] == ["tiny"]


def test_rendered_manifests_are_applied_and_removed_by_plain_kubectl(kubectl, api, substrate):
    manifests = render(Deployed(TINY, "plain").manifests())
    kubectl("apply", "-f", "-", feed=manifests)
    try:
        for namespace in ("plain", "plain-watch"):
            kubectl("wait", "-n", namespace, "--for=condition=Available", "deployment", "--all", "--timeout=240s")
        assert substrate.running("plain").status().phase == "ready"
    finally:
        kubectl("delete", "-f", "-", "--wait=true", "--timeout=240s", feed=manifests)
    assert api.get("Namespace", "plain") is None


def test_the_system_of_a_process_that_was_killed_is_removed_by_the_next_status(cluster, substrate, api):
    tiny = Path(__file__).parents[1] / "testbed" / "tiny.yaml"
    subprocess.run([sys.executable, "-c", ORPHAN, str(cluster.kubeconfig), str(tiny)], check=False)
    assert api.get("Namespace", "orphan") is not None
    rows = {row.name: row.phase for row in substrate.status()}
    assert rows["orphan"] == "cleared"
    assert api.get("Namespace", "orphan") is None


def test_the_shop_runs_with_its_stores_and_its_users_are_served(substrate):
    with substrate.deployed(load_system("shop"), "shop") as shop:
        status = shop.status()
        assert status.ready == status.replicas >= 20
        for url in shop.watched().protected.values():
            outcome = until(lambda url=url: send_probe(shop.api, "shop-watch", url, 5.0))
            assert outcome["status"] == 200, outcome
