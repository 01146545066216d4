"""The environment of a trial on a cluster, from what it asks before it deploys anything to what it leaves: nothing."""

from __future__ import annotations

import json

import pytest
from object_server import READY

from opsassay.core.errors import LostError, RefusedError, UserError
from opsassay.core.schema.run_folder import CLUSTER
from opsassay.testbed.scenarios import load_scenario, system_of
from opsassay.testbed.substrates.kubernetes.environment import ClusterEnvironment
from opsassay.testbed.substrates.kubernetes.scenario.names import OpenNames
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

UNREACHABLE = load_scenario("unreachable-service")


@pytest.fixture
def block(small_cluster, tmp_path):
    """Return the plan's block for the cluster, which has one node and a kubectl of its version."""
    program, told = tmp_path / "kubectl", json.dumps({"clientVersion": {"gitVersion": "v1.20.2"}})
    program.write_text(f"#!/bin/sh\necho '{told}'\n")
    program.chmod(0o755)
    small_cluster.put("Node", "", "worker1", spec={}, status=READY)
    return {"kubeconfig": str(small_cluster.config), "kubectl": str(program)}


def test_an_environment_says_where_it_is_and_what_stands_behind_each_service_and_leaves_nothing(
    small_cluster, block, tmp_path
):
    environment = ClusterEnvironment(UNREACHABLE, 0, tmp_path, block)
    with environment.deployed():
        environment.require_alive()
        name = environment.running.name
        assert small_cluster.namespaces() == [name, f"{name}-watch"]
        about = json.loads((tmp_path / CLUSTER).read_text())
    assert (about["context"], about["version"], about["nodes"]) == ("here", "v1.20.2", ["worker1"])
    assert [["Deployment", name, "auth-service"], ["Pod", name, "auth-service-1"]] in about["topology"]
    assert small_cluster.namespaces() == []


def test_the_namespace_by_which_a_system_is_known_goes_last(small_cluster, block, tmp_path):
    environment = ClusterEnvironment(UNREACHABLE, 0, tmp_path, block)
    environment.prepare()
    name = environment.running.name
    environment.remove()
    ended = [one.path.rpartition("/")[2] for one in small_cluster.asked if one.method == "DELETE"]
    assert [one for one in ended if one.startswith(name)] == [f"{name}-watch", name]


@pytest.mark.parametrize(
    ("scenario", "change", "error", "words"),
    [
        ("unreachable-service", {"kubectl": "kubectl-of-nobody"}, UserError, "There is no kubectl-of-nobody"),
        ("node-not-ready", {}, RefusedError, "no command for nodes is known"),
        ("crowded-node", {"node_command": ["true"]}, RefusedError, "needs 4 nodes; here has 1 for pods"),
    ],
)
def test_what_cannot_be_performed_is_refused_before_anything_is_made(
    small_cluster, block, tmp_path, scenario, change, error, words
):
    with pytest.raises(error, match=words):
        ClusterEnvironment(load_scenario(scenario), 0, tmp_path, {**block, **change}).prepare()
    assert {method for method, *_ in small_cluster.asked} <= {"GET"}


def test_a_trial_in_which_a_node_is_lost_that_nobody_stopped_is_no_result(small_cluster, block, tmp_path):
    names = OpenNames("mine", "mine-watch", "ours:1", ("worker1", "worker2"))
    running = KubernetesSubstrate(small_cluster.config).deploy(system_of(UNREACHABLE), "mine")

    def require_alive(name):
        environment = ClusterEnvironment(load_scenario(name), 0, tmp_path, {})
        environment.running, environment.names = running, names
        environment.require_alive()

    with pytest.raises(LostError, match="which breaks no node: worker2 of here"):
        require_alive("unreachable-service")
    require_alive("node-not-ready")
    small_cluster.put("Node", "", "worker2", spec={}, status=READY)
    require_alive("unreachable-service")
