"""Injections on a real cluster: who is refused, what is recorded, what a killed injector left."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import applied, until
from live import run_opsassay
from opsassay.core.errors import RefusedError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System
from opsassay.telemetry.tree import Tree
from opsassay.testbed.recording.record import Schedule, record
from opsassay.testbed.substrates.kubernetes.actuators.offers import SETTING
from opsassay.testbed.substrates.kubernetes.endpoints.pod_endpoint import PodEndpoints
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
TINY = load_yaml(Path(__file__).parents[1] / "testbed" / "tiny.yaml", System)
KILLED = """
import os, sys
from pathlib import Path
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate
plan = FaultPlan(fault="HTTPRequestAbort", target={"service": "back"}, parameters={"code": 503}, duration_s=3)
for event in KubernetesSubstrate(sys.argv[1]).running("faults").inject(plan):
    if event["event"] == "applied":
        print("applied", flush=True)
        os.kill(os.getpid(), 9)
"""
CHAOS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "networkchaos.chaos-mesh.org"},
    "spec": {
        "group": "chaos-mesh.org",
        "names": {"kind": "NetworkChaos", "listKind": "NetworkChaosList", "plural": "networkchaos"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["action", "mode", "selector"],
                                "x-kubernetes-preserve-unknown-fields": True,
                                "properties": {"action": {"type": "string", "enum": ["delay", "loss", "partition"]}},
                            }
                        },
                    }
                },
            }
        ],
    },
}
"""What of the definition of NetworkChaos these tests need: no controller acts on it."""


@pytest.fixture(scope="module")
def substrate(cluster):
    return KubernetesSubstrate(cluster.kubeconfig)


@pytest.fixture(scope="module")
def faulty(substrate):
    with substrate.deployed(TINY, "faults") as system:
        yield system


def injected(substrate, fault, target, duration_s=20.0, **parameters):
    """Inject and return the last event."""
    plan = FaultPlan(fault=fault, target=target, parameters=parameters, duration_s=duration_s)
    *_, last = substrate.running("faults").inject(plan)
    return last


@pytest.mark.parametrize("parameters", [{"disturbance": "load_surge"}, {"disturbance": "harmless_restart"}], ids=str)
def test_what_harms_nobody_is_no_fault(substrate, faulty, parameters):
    before = {pod["metadata"]["name"] for pod in faulty.pods()}
    plan = FaultPlan(fault="NoFault", parameters=parameters, duration_s=15)
    *_, last = faulty.inject(plan)
    assert (last["recovered"], last["roots"], last["effects"]) == (True, [], []), last
    replaced = {pod["metadata"]["name"] for pod in faulty.pods()} - before
    assert bool(replaced) == (parameters["disturbance"] == "harmless_restart")


def test_nodes_that_are_not_listed_are_not_touched(substrate, faulty, monkeypatch):
    monkeypatch.delenv(SETTING, raising=False)
    with pytest.raises(RefusedError, match="OPSASSAY_NODE_CONTEXTS"):
        injected(substrate, "NetworkDelay", {"service": "middle"})


def test_an_object_of_chaos_mesh_is_tried_on_the_server_before_it_is_made(substrate, faulty, kubectl, chaos_mesh):
    applied(kubectl, [CHAOS])
    try:
        until(lambda: "chaos-mesh.org/v1alpha1" in kubectl("api-versions"))
        with pytest.raises(RefusedError, match=r"by Chaos Mesh here: .*Unsupported value: \"bandwidth\""):
            injected(substrate, "NetworkBandwidth", {"service": "middle"})
        last = injected(substrate, "NetworkDelay", {"service": "middle"}, duration_s=8, delay_ms=10_000)
        assert not last["effects"][0]["passed"], "nobody acts on the object, and that is said"
        assert json.loads(kubectl("get", "networkchaos", "-n", "faults", "-o", "json"))["items"] == []
    finally:
        kubectl("delete", "crd", "networkchaos.chaos-mesh.org")


def test_an_incident_is_recorded_and_annotated_as_one_of_this_machine_is(faulty, tmp_path):
    plan = FaultPlan(fault="HTTPResponseDelay", target={"service": "middle"}, parameters={"delay_ms": 600})
    id_ = record(faulty, faulty.definition(), plan, Tree(tmp_path), Schedule(2.0, 20.0, 20.0))
    tree = Tree(tmp_path)
    truth, incident = tree.truth(id_), json.loads((tree.incident_path(id_) / "incident.json").read_text())
    assert (truth.isolation, incident["provenance"]["isolation"]) == ("kubernetes", "kubernetes")
    assert truth.effects[0].passed
    import polars as pl

    tables = {p.stem: pl.read_parquet(p) for p in tree.incident_path(id_).glob("*.parquet")}
    spans, metrics = tables["abnormal_traces"], tables["abnormal_metrics"]
    assert {"front", "middle", "back", "loadgenerator"} <= set(spans["service_name"])
    assert {"container.cpu.usage", "container.memory.working_set"} <= set(metrics["metric"])
    ledger = pl.read_parquet(tree.truth_path(id_) / "ledger.parquet")
    assert {"delay", "wait"} <= set(ledger["kind"])
    annotated = run_opsassay("incident", "annotate", str(tmp_path), "--json")
    assert annotated.returncode == 0, annotated.stderr
    (item,) = json.loads(annotated.stdout)["items"]
    assert item["label"] in {"attributed", "drifted"}, item  # a busy machine's normal window may not be normal
    assert not list(tmp_path.glob(".recording-*"))
    assert time.time_ns() > truth.faults[0].end_ns


def test_what_a_killed_injector_ordered_ends_by_itself(cluster, faulty):
    """The last test of this system: until everything must have ended no other injection is let in."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(cluster.kubeconfig)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "applied\n", done.stderr
    (pod,) = [p["metadata"]["name"] for p in faulty.api.list("Pod", "faults", "app=back")]
    pod_endpoints = PodEndpoints.for_namespace(faulty.api, "faults")
    assert pod_endpoints.counters(pod)["desired"]["hooks"]
    with pytest.raises(RefusedError, match="still active"):
        next(iter(faulty.inject(FaultPlan(fault="PodKill", target={"service": "back"}))))
    until(lambda: not pod_endpoints.counters(pod)["desired"]["hooks"], 150)
