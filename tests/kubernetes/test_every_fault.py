"""Every fault type by every way of ours on a real cluster: seen to act by its own signature, and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import until
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System
from opsassay.testbed.substrates.kubernetes.actuators.mechanisms import MECHANISMS
from opsassay.testbed.substrates.kubernetes.actuators.offers import SETTING
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

CORNER = load_yaml(Path(__file__).parents[1] / "testbed" / "faults.yaml", System)
CASES = [
    ("PodKill", "object", "rate", {}),
    ("PodFailure", "object", "rate", {}),
    ("PodFailure", "node", None, {}),
    ("ContainerKill", "pod", "stock", {}),
    ("CPUStress", "pod", "stock", {"cores": 2}),
    ("CPUStress", "node", None, {"cores": 8}),
    ("MemoryStress", "pod", "rate", {}),
    ("HTTPRequestAbort", "pod", "stock", {}),
    ("HTTPResponseAbort", "pod", "stock", {}),
    ("HTTPRequestDelay", "pod", "stock", {}),
    ("HTTPResponseDelay", "pod", "stock", {}),
    ("HTTPResponseReplaceBody", "pod", "stock", {}),
    ("HTTPResponsePatchBody", "pod", "rate", {}),
    ("HTTPRequestReplacePath", "pod", "stock", {}),
    ("HTTPRequestReplaceMethod", "pod", "stock", {}),
    ("HTTPResponseReplaceCode", "pod", "stock", {}),
    ("DNSError", "pod", "stock", {}),
    ("DNSRandom", "pod", "stock", {"hostname": "rate"}),
    ("NetworkDelay", "node", "rate", {}),
    ("NetworkLoss", "node", "rate", {"loss_percent": 30.0}),
    ("NetworkDuplicate", "node", "rate", {"duplicate_percent": 50.0}),
    ("NetworkCorrupt", "node", "rate", {"corrupt_percent": 30.0}),
    ("NetworkBandwidth", "node", "rate", {"rate_bps": 40_000}),
    ("NetworkPartition", "node", "rate", {}),
    ("NetworkPartition", "object", "rate", {}),
    ("NetworkPartition", "object", "stock", {"peer": "db"}),
    ("TimeSkew", "pod", "rate", {}),
    ("JVMLatency", "pod", "rate", {}),
    ("JVMReturn", "pod", "rate", {"value": "7", "value_type": "int"}),
    ("JVMException", "pod", "stock", {}),
    ("JVMGarbageCollector", "pod", "stock", {}),
    ("JVMCPUStress", "pod", "stock", {"cpu_count": 2}),
    ("JVMMemoryStress", "pod", "rate", {"size_mb": 100}),
    ("JVMMySQLLatency", "pod", "stock", {}),
    ("JVMMySQLException", "pod", "stock", {}),
]
"""Type, way, service (None: the node that `rate` is on), parameters."""
HELD_S = {("PodFailure", "node"): 45.0}
"""A node counts as lost only after a while; the others are held for 15 s."""

MAY_NOT_BITE = {("CPUStress", "node")}
"""Burners beside the pods take what those leave; how much they slow depends on how busy the machine is without them."""


def test_no_type_and_no_way_is_left_out():
    ours = {(fault, way.name) for fault, ways in MECHANISMS.items() for way in ways}
    assert {case[:2] for case in CASES} == ours


@pytest.fixture(scope="module")
def corner(cluster):
    with KubernetesSubstrate(cluster.kubeconfig).deployed(CORNER, "every-fault") as system:
        yield system


@pytest.mark.kubernetes
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fault", "way", "service", "parameters"), CASES, ids=lambda value: str(value)[:24])
def test_it_is_seen_to_act_and_taken_back(cluster, corner, api, monkeypatch, fault, way, service, parameters):
    monkeypatch.setenv(SETTING, api.context)
    host = None if service else node_of("rate", corner)
    asked = {"fault": fault, "target": {"service": service, "host": host}, "parameters": parameters}
    plan = FaultPlan.model_validate({**asked, "duration_s": HELD_S.get((fault, way), 15.0)})
    *_, last = KubernetesSubstrate(cluster.kubeconfig, prefer=way).running("every-fault").inject(plan)
    (effect,), (told,) = last["effects"], last["faults"]
    assert effect["passed"] or (fault, way) in MAY_NOT_BITE, effect
    assert last["recovered"], last["notes"]
    assert (told["type"], told["service"], told["host"]) == (fault, service, host)
    assert host or told["pod"].startswith(f"{service}-")
    until(lambda: corner.status().phase == "ready")
    until(lambda: watchers(corner) == {"receiver", "probe"})  # neither an undo nor an agent stays
    until(lambda: all(ready(node) for node in api.list("Node")))


def node_of(service, system):
    """Return the node that a pod of *service* is on."""
    return next(p["spec"]["nodeName"] for p in system.pods() if p["metadata"]["labels"]["app"] == service)


def watchers(system):
    """Return what runs where the watchers are."""
    return {pod["metadata"]["labels"].get("app") for pod in system.api.list("Pod", system.watch_namespace)}


def ready(node):
    """Return whether *node* says of itself that it is ready."""
    return {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
