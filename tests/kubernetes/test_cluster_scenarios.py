"""Scenarios for a cluster as they are written: what fits, names that are filled in, states, patches, turns, nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from test_injection import values
from tiny_api import tiny_api

from opsassay.core.errors import NotFoundError, OperationError, RefusedError
from opsassay.core.schema.cluster import NodeChange, ObjectChange, ObjectState, OnCluster
from opsassay.core.schema.scenario import Oracle, Scenario
from opsassay.evals.remediation.authoring.checks import findings
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.remediation.trial.external import operate
from opsassay.evals.remediation.trial.operators import Assignment, play
from opsassay.solvers.agents.mcp_server import serving
from opsassay.solvers.sandbox import sealing_refusal
from opsassay.testbed.apps import load_system
from opsassay.testbed.scenarios import load_scenario, names, system_of
from opsassay.testbed.substrates.kubernetes.access.kubectl import Kubectl
from opsassay.testbed.substrates.kubernetes.access.tools import ClusterToolSession
from opsassay.testbed.substrates.kubernetes.actuators.node_command import NodeCommand
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.merging import merge_patch
from opsassay.testbed.substrates.kubernetes.api.small_api import write_kubeconfig
from opsassay.testbed.substrates.kubernetes.manifests.system import INSTANCE_LABEL, MANAGED
from opsassay.testbed.substrates.kubernetes.scenario.names import OpenNames, takes_pods, workers
from opsassay.testbed.substrates.kubernetes.scenario.objects import (
    _difference,
    await_state,
    broken_nodes,
    changes_of,
    found_at,
    manifest,
)
from opsassay.testbed.substrates.kubernetes.scenario.populating import EXCLUSIVE, PopulatedSystem, SystemPopulation
from opsassay.testbed.substrates.kubernetes.scenario.sharing import CLAIMED_S, await_turn, in_the_way
from testbed.operations.test_mcp import talk

NAMES = OpenNames("mine", "mine-watch", "image:1", ("a", "b"))


def cluster_block(**changes):
    """Return S-4 as written, with *changes* in its cluster block."""
    payload = load_scenario("unreachable-service").model_dump(mode="json")
    payload["cluster"] |= changes
    return payload


@pytest.mark.parametrize("name", names("kubernetes"))
def test_every_scenario_for_a_cluster_fits(name):
    scenario = load_scenario(name)
    assert [one for one in findings(scenario, system_of(scenario), {}) if one.error] == []
    assert scenario.environment.substrate == "kubernetes"


def test_the_paper_and_ten_patterns_are_there_and_all_means_those_of_this_machine():
    assert len(names("kubernetes")) >= 18
    assert set(names("local")).isdisjoint(names("kubernetes"))
    local = cells_of(TrialPlan(scenarios=("all",), agents=({"name": "oracle:*"},)))
    assert {cell.scenario.environment.substrate for cell in local} == {"local"}
    there = cells_of(TrialPlan(scenarios=("all-on-kubernetes",), agents=({"name": "oracle:*"},)))
    assert {cell.scenario.id for cell in there} == set(names("kubernetes"))


def test_the_proportions_of_s_8_are_the_papers():
    block, system = load_scenario("crowded-node").cluster, system_of(load_scenario("crowded-node"))
    others = block.fillers + sum(service.replicas for service in system.services.values())
    crowd = block.changes[0].create["spec"]["replicas"]
    assert (others, others + crowd) == (58, 78)


def test_what_is_not_there_leaves_no_trace_in_a_digest():
    local = load_scenario("wrong-upstream-port")
    assert "cluster" in local.model_dump(mode="json")
    changed = Scenario.model_validate({**local.model_dump(mode="json"), "title": "another"})
    assert local.digest() != changed.digest()
    on_cluster = load_scenario("unreachable-service")
    other = Scenario.model_validate(cluster_block(fillers=7))
    assert on_cluster.digest() != other.digest()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"environment": {"substrate": "local", "system": "grid"}}, "goes with `substrate: kubernetes`"),
        ({"cluster": None}, "goes with `substrate: kubernetes`"),
        ({"trigger": {"operations": [{"verb": "scale"}]}}, "give cluster.changes"),
        ({"trigger": {"faults": [{"fault": "PodKill", "target": {"service": "web"}}]}}, "are stand-ins"),
        ({"cluster": {"changes": []}}, "nothing is broken"),
    ],
)
def test_a_scenario_that_contradicts_itself_is_refused(change, words):
    with pytest.raises(ValidationError, match=words):
        Scenario.model_validate({**cluster_block(), **change})


@pytest.mark.parametrize(
    ("block", "field", "words"),
    [
        ({"changes": [{"kind": "Servce", "name": "x", "patch": {}}]}, "cluster.changes.0.kind", "no kind 'Servce'"),
        ({"nodes": [{"node": "{worker1}", "op": "stop"}]}, "cluster.exclusive", "felt by every system"),
        ({"until": [{"kind": "Node", "name": "{worker9}", "path": "x"}]}, "cluster.workers", r"\{worker9\} is named"),
    ],
)
def test_an_author_is_told_what_does_not_fit(block, field, words):
    scenario = Scenario.model_validate(cluster_block(**block))
    found = {one.field: one.message for one in findings(scenario, system_of(scenario), {})}
    assert field in found
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found[field])


def test_an_author_is_told_of_steps_that_would_be_refused():
    payload = cluster_block()
    payload["oracles"]["gentle"]["steps"] = [
        {"verb": "kubectl", "arguments": {"args": ["edit", "service"]}},
        {"verb": "node", "arguments": {"node": "{worker1}", "op": "start"}},
        {"verb": "restart", "arguments": {"target": "web"}},
        {"verb": "kubectl", "arguments": {"words": ["get"]}},
    ]
    scenario = Scenario.model_validate(payload)
    told = [
        one.message for one in findings(scenario, system_of(scenario), {}) if one.field.startswith("oracles.gentle")
    ]
    assert len(told) >= 4
    for words in ("kubectl edit is not allowed", "not granted", "no verb 'restart'", "it takes args, input"):
        assert any(words in one for one in told), words


# --- names and states -------------------------------------------------------------------------------------------------


def test_names_are_filled_in_wherever_texts_are_and_json_stays_json():
    given_ = {"args": ["patch", "x", '{"spec": {"a": 1}}', "{worker2}"], "{namespace}": ["{image}", 3, None]}
    assert NAMES.fill(given_) == {"args": ["patch", "x", '{"spec": {"a": 1}}', "b"], "mine": ["image:1", 3, None]}
    with pytest.raises(RefusedError, match=r"\{worker3\} is not there: this cluster has 2 nodes"):
        NAMES.fill("{worker3}")
    assert NAMES.known_node("b") == "b"
    with pytest.raises(NotFoundError):
        NAMES.known_node("worker9")


def node(name, *, ready="True", taints=(), cordoned=False, key="disk-full"):
    spec = {"taints": [{"key": key, "effect": effect} for effect in taints], "unschedulable": cordoned}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def test_workers_keep_their_numbers_when_one_is_lost_and_those_of_a_role_are_none():
    nodes = [
        node("c"),
        node("a", ready="Unknown"),
        node("b", taints=["NoExecute"]),
        node("d", taints=["PreferNoSchedule"]),
    ]
    role = node("control", taints=["NoSchedule"], key="node-role.kubernetes.io/master")
    assert workers([*nodes, role]) == ("a", "b", "c", "d")
    assert [takes_pods(one) for one in nodes] == [True, False, False, True]
    assert not takes_pods(node("off", cordoned=True))


def test_a_path_leads_through_lists_by_type_name_and_number():
    conditions, containers = [{"type": "Ready", "status": "Unknown"}], [{"name": "web", "image": "x"}]
    item = {"status": {"conditions": conditions}, "spec": {"containers": containers}}
    assert found_at(item, "status.conditions.Ready.status") == "Unknown"
    assert found_at(item, "spec.containers.web.image") == found_at(item, "spec.containers.0.image") == "x"
    assert [found_at(item, path) for path in ("status.none.x", "spec.containers.7", "spec.containers.db.image")] == [
        None
    ] * 3


def test_nodes_that_a_scenario_breaks_are_no_place_for_its_undo_as_long_as_there_are_others():
    def broken(name, *workers):
        return set(broken_nodes(load_scenario(name).cluster, OpenNames("mine", "mine-watch", "image:1", workers)))

    assert broken("tainted-nodes", "a", "b", "c", "d") == {"a", "b"}
    assert broken("node-not-ready", "a", "b", "c", "d") == {"b"}
    assert broken("tainted-nodes", "a", "b") == set()
    assert broken("slow-control-plane", "a") == broken("unreachable-service", "a", "b") == set()


def test_a_state_is_waited_for_and_what_stands_instead_is_told(tmp_path):
    replies = iter([3, 3, 6, 6, 6])

    def answer(_method, _path, _query):
        return 200, {"metadata": {}, "status": {"readyReplicas": next(replies, 6)}}

    state = ObjectState(kind="Deployment", name="web", path="status.readyReplicas", equals=6)
    with tiny_api(answer, tmp_path) as (tiny, config):
        api = Api.connect(config)
        await_state(api, state, NAMES)
        assert len(tiny.asked) == 3
        await_state(api, state.model_copy(update={"equals": 5, "differs": True}), NAMES)
        late = state.model_copy(update={"equals": 7, "within_s": 0.1})
        with pytest.raises(OperationError, match=r"Deployment web: status.readyReplicas is 6 after 0.1 s, not 7"):
            await_state(api, late, NAMES)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), values), st.dictionaries(st.sampled_from("abc"), values))
def test_the_difference_of_two_objects_is_the_patch_between_them(standing, wanted):
    assert merge_patch(standing, _difference(standing, wanted)) == wanted


def test_a_patch_is_tried_on_the_server_and_becomes_one_that_can_be_taken_back(tmp_path):
    """The answer to the dry run is the API server's of 1.20, cut to what matters."""
    standing = {
        "metadata": {"name": "web", "resourceVersion": "5", "labels": {"app": "web"}},
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "good", "ports": [1]}]}}},
        "status": {"readyReplicas": 8},
    }
    wanted = json.loads(json.dumps(standing).replace("good", "gone"))
    wanted["metadata"]["resourceVersion"] = "6"

    def answer(method, _path, query):
        if method == "PATCH":
            assert query == {"dryRun": "All"}
        return 200, wanted if method == "PATCH" else standing

    containers = [{"name": "web", "image": "{image}"}]
    asked = ObjectChange(
        kind="Deployment", name="web", patch={"spec": {"template": {"spec": {"containers": containers}}}}
    )
    with tiny_api(answer, tmp_path) as (tiny, config):
        (change,) = changes_of(Api.connect(config), [asked], NAMES)
    assert change.patch == {
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "gone", "ports": [1]}]}}}
    }
    assert tiny.asked[-1][4]["spec"]["template"]["spec"]["containers"][0]["image"] == "image:1"


def test_objects_are_whole_and_in_the_namespace_that_they_belong_to(tmp_path):
    api = Api.connect(write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1"))
    policy = ObjectChange(kind="NetworkPolicy", name="deny", create={"spec": {"podSelector": {}}})
    assert manifest(api, policy, NAMES) == {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny", "namespace": "mine"},
        "spec": {"podSelector": {}},
    }
    volume = manifest(api, ObjectChange(kind="PersistentVolume", name="v-{namespace}", create={"spec": {}}), NAMES)
    assert (volume["apiVersion"], volume["metadata"]) == ("v1", {"name": "v-mine"})
    with pytest.raises(ValidationError, match="either `create` or `patch`"):
        ObjectChange(kind="Service", name="x")
    with pytest.raises(ValidationError, match="is made with the system"):
        OnCluster(objects=(ObjectChange(kind="Service", name="x", patch={}),))


# --- what is deployed -------------------------------------------------------------------------------------------------


def test_stand_ins_and_fillers_have_the_shape_of_the_system_and_nothing_of_its_inside():
    furnished = PopulatedSystem(load_system("grid"), "mine", furnishing=SystemPopulation(stand_ins=True, fillers=26))
    objects = list(yaml.safe_load_all("---\n".join(yaml.safe_dump(one) for one in furnished.manifests())))
    deployments = {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == "Deployment"}
    assert {name: spec["replicas"] for name, spec in deployments.items()} == {
        "web": 8, "auth-service": 3, "payment-service": 3, "filler": 26, "probe": 2,
    }  # fmt: skip
    for name in ("web", "filler"):
        pod = deployments[name]["template"]["spec"]
        assert "volumes" not in pod
        assert "env" not in pod["containers"][0]
        assert {t["tolerationSeconds"] for t in pod["tolerations"]} == {600}
    services = {o["metadata"]["name"]: o["metadata"]["namespace"] for o in objects if o["kind"] == "Service"}
    assert services == {"web": "mine", "auth-service": "mine", "payment-service": "mine", "probe": "mine-watch"}
    assert not [o for o in objects if o["kind"] == "Secret"]
    labels = {o["metadata"]["name"]: o["metadata"]["labels"] for o in objects if o["kind"] == "Namespace"}
    assert labels["mine"]["pod-security.kubernetes.io/enforce"] == "baseline"
    assert EXCLUSIVE not in labels["mine"]


def test_a_real_system_is_furnished_too():
    plain = PopulatedSystem(load_system("kiosk"), "mine", furnishing=SystemPopulation(fillers=2, exclusive=True))
    objects = plain.manifests()
    assert {"front", "catalog", "db", "cache", "loadgenerator", "filler"} <= {
        o["metadata"]["name"] for o in objects if o["kind"] == "Deployment"
    }
    assert objects[0]["metadata"]["labels"][EXCLUSIVE] == "true"


def test_whoever_came_later_waits_where_one_of_the_two_cannot_share():
    def namespace(name, second, *, exclusive):
        labels = {EXCLUSIVE: "true"} if exclusive else {}
        return {"metadata": {"name": name, "creationTimestamp": f"2026-11-22T08:00:{second:02}Z", "labels": labels}}

    alone = namespace("s1", 5, exclusive=True)
    early, late = namespace("a", 1, exclusive=False), namespace("b", 9, exclusive=False)
    assert in_the_way(alone, {"a": early, "b": late}) == ["a"]
    assert in_the_way(late, {"a": early, "s1": alone}) == ["s1"]
    assert in_the_way(early, {"b": late, "s1": alone}) == []
    twin = namespace("s0", 5, exclusive=True)
    assert [in_the_way(alone, {"s0": twin}), in_the_way(twin, {"s1": alone})] == [["s0"], []], "one of two goes first"


@pytest.mark.slow
def test_of_two_that_claim_in_one_second_the_later_name_waits_though_it_was_there_alone(small_cluster):
    def claim(name):
        labels = MANAGED | {INSTANCE_LABEL: name, EXCLUSIVE: "true"}
        small_cluster.put(
            "Namespace", "", name, metadata={"labels": labels, "creationTimestamp": "2026-11-26T19:00:05Z"}
        )

    claim("s1")
    waiting = threading.Thread(target=await_turn, args=(Api.connect(small_cluster.config), "s1", lambda _: False))
    waiting.start()
    time.sleep(0.3)
    claim("s0")
    waiting.join(CLAIMED_S + 1.0)
    assert waiting.is_alive(), "it was there first, and looked before anybody else was there"
    del small_cluster.objects["Namespace", "", "s0"]
    waiting.join(20)
    assert not waiting.is_alive()


# --- the stand-in, nodes, tools -----------------------------------------------------------------------------------------


def test_a_stand_in_answers_and_one_that_lacks_its_file_says_so_and_ends():
    done = subprocess.run(
        [sys.executable, "-m", "opsassay.testbed.substrates.kubernetes.agent.stand_in", "--needs", "/nowhere/payment.conf"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "cannot read the configuration /nowhere/payment.conf" in done.stderr


@pytest.fixture
def allowed(monkeypatch):
    monkeypatch.setenv("OPSASSAY_NODE_CONTEXTS", "here")


def logging_command(log: Path):
    return (sys.executable, "-c", f"open({str(log)!r}, 'a').write('{{op}} {{node}}\\n')")


def test_nodes_are_touched_on_listed_contexts_by_a_command_of_the_users_alone(tmp_path, monkeypatch):
    command = NodeCommand(logging_command(tmp_path / "log"), "here")
    monkeypatch.delenv("OPSASSAY_NODE_CONTEXTS", raising=False)
    with pytest.raises(RefusedError, match="OPSASSAY_NODE_CONTEXTS"), command.broken("worker1", "stop", 60):
        pytest.fail("it began")
    monkeypatch.setenv("OPSASSAY_NODE_CONTEXTS", "here")
    with pytest.raises(RefusedError, match="node_command"):
        NodeCommand((), "here").require()
    assert not (tmp_path / "log").exists()


@pytest.mark.usefixtures("allowed")
def test_what_is_done_at_a_node_is_taken_back_with_the_block(tmp_path):
    log = tmp_path / "log"
    with NodeCommand(logging_command(log), "here").broken("worker1", "partition", 60):
        assert log.read_text() == "partition worker1\n"
    assert log.read_text() == "partition worker1\nrestore worker1\n"


KILLED = """
import os, sys
from opsassay.testbed.substrates.kubernetes.actuators.node_command import NodeCommand
with NodeCommand(tuple(sys.argv[1:]), "here").broken("worker1", "stop", 60):
    os.kill(os.getpid(), 9)
"""


@pytest.mark.usefixtures("allowed")
def test_what_a_killed_process_did_at_a_node_is_taken_back_by_its_guard(tmp_path):
    log = tmp_path / "log"
    subprocess.run([sys.executable, "-c", KILLED, *logging_command(log)], check=False, timeout=60)
    deadline = time.monotonic() + 30
    while "start worker1" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert log.read_text() == "stop worker1\nstart worker1\n"


@pytest.mark.usefixtures("allowed")
def test_a_guard_whose_time_is_over_does_not_wait_for_the_block(tmp_path):
    log = tmp_path / "log"
    with NodeCommand(logging_command(log), "here").broken("control-plane", "delay", 0.5):
        deadline = time.monotonic() + 30
        while "undelay" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert log.read_text().splitlines()[-1] == "undelay control-plane"


@pytest.fixture
def toolbox(tmp_path, allowed):
    del allowed
    program = tmp_path / "kubectl"
    program.write_text('#!/bin/sh\nshift\necho "$@"\n')
    program.chmod(0o755)
    recorded = []
    nodes = NodeCommand(logging_command(tmp_path / "log"), "here")
    made = ClusterToolSession(Kubectl(tmp_path / "config", str(program)), nodes, ("start",), NAMES, recorded.append)
    made.recorded = recorded
    return made


def test_every_call_of_a_tool_is_recorded_and_says_whether_it_may_have_changed_something(toolbox):
    calls = [
        ("kubectl_read", {"args": ["get", "pods"]}, "ok", False),
        ("kubectl_read", {"args": ["delete", "pod", "x"]}, "error", False),
        ("kubectl", {"args": ["get", "pods"]}, "ok", False),
        ("kubectl", {"args": ["delete", "pod", "x"]}, "ok", True),
        ("kubectl", {"args": ["edit", "pod", "x"]}, "error", False),
        ("kubectl", {"args": "get pods"}, "error", False),
        ("kubectl", {}, "error", False),
        ("node", {"node": "a", "op": "start"}, "ok", True),
        ("node", {"node": "a", "op": "stop"}, "error", True),
        ("node", {"node": "elsewhere", "op": "start"}, "error", True),
        ("wait", {"seconds": 0.01}, "ok", False),
        ("restart", {"target": "web"}, "error", False),
    ]
    for name, arguments, status, _ in calls:
        outcome = toolbox.call(name, arguments, 1)
        assert outcome.status == status, (name, arguments, outcome.output)
    assert [(a.tool, a.status, a.mutating) for a in toolbox.recorded] == [(n, s, m) for n, _, s, m in calls]
    assert toolbox.recorded[7].touched == ("a",)
    toolbox.close()
    assert "time for repairs is over" in toolbox.call("kubectl", {"args": ["get", "pods"]}).output


def test_who_only_looks_has_no_tool_that_changes_and_nobody_has_an_ungranted_one(toolbox, tmp_path):
    assert {one.name for one in toolbox.specs()} == {"kubectl_read", "kubectl", "node", "wait"}
    assert {one.name for one in toolbox.specs(changing=False)} == {"kubectl_read", "wait"}
    without = ClusterToolSession(toolbox._kubectl, toolbox._nodes, (), NAMES, toolbox.recorded.append)
    assert "node" not in {one.name for one in without.specs()}


def test_any_mcp_client_has_kubectl_and_every_call_is_recorded(toolbox, tmp_path):
    with serving(toolbox, tmp_path / "s.sock") as path:
        offered, (fine, hostile) = talk(
            path,
            ("kubectl", {"args": ["get", "pods", "-n", "mine"]}),
            ("kubectl", {"args": ["get", "secrets", "--as=system:admin"]}),
        )
    assert {tool.name for tool in offered} == {"kubectl_read", "kubectl", "node", "wait"}
    assert (fine.is_error, fine.content[0].text) == (False, "get pods --namespace=mine\n")
    assert hostile.is_error
    assert [(a.tool, a.status) for a in toolbox.recorded] == [("kubectl", "ok"), ("kubectl", "error")]


@pytest.mark.parametrize(("sealing", "lent"), [("off", True), ("auto", False)])
def test_an_unsealed_command_has_its_own_way_into_the_cluster_and_a_sealed_one_none(toolbox, tmp_path, sealing, lent):
    if sealing == "auto" and sealing_refusal():
        pytest.skip("no seal can be made here")
    (tmp_path / "kubeconfig").write_text("token: mine")
    script = "import sys, pathlib; w = sys.argv[1]; print('lent', pathlib.Path(w).read_text() if w else 'nothing')"
    agent = TrialAgent(name="mine", command=("{python}", "-c", script, "{kubeconfig}"), settings={"sealing": sealing})
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    task = Assignment(load_scenario("unreachable-service"), "Repair it.", 60, 0, run_dir)
    toolbox.kubeconfig = tmp_path / "kubeconfig"
    operate(agent, task, toolbox)
    assert (run_dir / "agent.log").read_text().strip() == ("lent token: mine" if lent else "lent nothing")


def test_oracles_and_prompts_are_told_with_the_names_of_the_cluster(toolbox, tmp_path):
    oracle = Oracle(expect="certified", steps=({"verb": "kubectl", "arguments": {"args": ["get", "node/{worker2}"]}},))
    play(oracle, "gentle", Assignment(load_scenario("node-not-ready"), "", 60, 0, tmp_path), toolbox)
    assert toolbox.recorded[0].output == "get node/b\n"
    assert "Node b has been NotReady" in NAMES.fill(load_scenario("node-not-ready").prompt())


def test_a_node_change_names_what_can_be_taken_back():
    with pytest.raises(ValidationError):
        NodeChange(node="{worker1}", op="start")
