"""Worlds that have been on a cluster, and policies that its Kyverno judges: graded as ever, and nothing is left there."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from evals.compliance.world_cluster import running
from opsassay.cli import run as command_line
from opsassay.evals.compliance.clusters.controls import controls
from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.judge import admitted
from opsassay.evals.compliance.kyverno.policy import read_policies
from opsassay.evals.compliance.on_cluster import admission
from opsassay.evals.compliance.on_cluster.read_worlds import read_back_worlds
from opsassay.evals.compliance.on_cluster.renamed import renamed
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import KUBECTL, NEW, ComplianceTask, names
from opsassay.evals.runner.plan import load_plan
from opsassay.solvers.sandbox import sealing_refusal
from opsassay.testbed.substrates.kubernetes.api import client, read_back
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.prefixes import prefixed

POLICIES = "new-kyverno-host-ports"
EVIDENCE = "new-opa-kubectl-privileged-containers"
FAMILY = ("Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicaSet")


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    for module in (read_back, admission):
        monkeypatch.setattr(module, "LOOK_EVERY_S", 0.005)
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.001)


def plan_at(tmp_path, **part):
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"domain": "ciso", "kubeconfig": "kubeconfig", **part}))
    return tmp_path / "plan.yaml"


def ran(tmp_path, capsys, code=0, **part):
    path = plan_at(tmp_path, **part)
    assert command_line(["run", str(path), "-o", str(tmp_path / "store"), "--json"]) == code
    return {item["solver"]: item for item in json.loads(capsys.readouterr().out)["items"]}


def graded(tmp_path, capsys):
    assert command_line(["score", "run", str(tmp_path / "store"), "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    return sorted(item["metrics"]["passed"]["value"] for item in items)


@pytest.mark.sampled
@pytest.mark.parametrize("name", controls())
def test_a_mutant_that_was_read_back_differs_in_the_control_alone(tmp_path, name):
    task = ComplianceTask(name=f"{KUBECTL}-{name}", seed=5)
    with running(tmp_path, pods=(2, 1)) as server:  # a pod more or less at each look
        found = read_back_worlds(Api.connect(server.config), "v1", task)
        assert server.left() == []
    assert [one.compliant for one in found.judged] == [one.compliant for one in task.judged()]
    assert [one.compliant for one in found.mutants] == [not one.compliant for one in found.judged]
    for world, mutant, sent in zip(found.judged, found.mutants, task.judged(), strict=True):
        assert [one["metadata"] for one in world.objects] == [one["metadata"] for one in mutant.objects]
        pairs = [pair for pair in zip(world.objects, mutant.objects, strict=True) if pair[0] != pair[1]]
        roots = {one["metadata"]["labels"]["app"] for one, _ in pairs}
        assert len(roots) == 1, "the object that violates, and what controllers make of it"
        assert len(pairs) == sum(one["metadata"]["labels"]["app"] in roots for one in world.objects), "all of that"
        assert {one["metadata"]["name"] for one in sent.objects} <= {one["metadata"]["name"] for one in world.objects}
        made = [one for one in world.objects if one["metadata"].get("ownerReferences")]
        assert bool(made) is any(one["kind"] in FAMILY for one in sent.objects)


def test_policies_are_judged_on_what_somebody_sends_and_not_on_what_controllers_make_of_it(tmp_path):
    """Pods of a Deployment would be kept out by a policy that lets the Deployment in."""
    task = ComplianceTask(name=POLICIES, seed=5)
    with running(tmp_path) as server:
        found = read_back_worlds(Api.connect(server.config), "v1", task)
    kinds = [[(one["kind"], one["metadata"]["name"]) for one in world.objects] for world in found.judged]
    assert kinds == [[(one["kind"], one["metadata"]["name"]) for one in world.objects] for world in task.judged()]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")
@pytest.mark.skipif(sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}")
def test_evidence_is_collected_in_worlds_as_a_cluster_has_them(tmp_path, capsys):
    part = {"tasks": [EVIDENCE], "on": "cluster", "agents": ["oracle:right", "deny-all", "oracle:constant-true"]}
    with running(tmp_path) as server:
        found = ran(tmp_path, capsys, **part)
        assert server.left() == []
        asked = len(server.asked)
        assert ran(tmp_path, capsys, **part).keys() == found.keys()
        assert len(server.asked) < asked + 5, "the worlds are made once"
    assert {solver: item["metrics"]["passed"]["value"] for solver, item in found.items()} == {
        "oracle:right": 1.0, "deny-all": 0.0, "oracle:constant-true": 0.0,
    }  # fmt: skip
    assert {item["arm"] for item in found.values()} == {"on-cluster"}
    assert all(found[solver]["metrics"]["posture"]["value"] == 0.0 for solver in ("deny-all", "oracle:constant-true"))
    evidence = [path.read_text() for path in (tmp_path / "store").glob("runs/*/*/evidence/*.json")]
    assert any("ownerReferences" in one and "imagePullPolicy" in one for one in evidence)
    assert graded(tmp_path, capsys) == [0.0, 0.0, 1.0], "no cluster is asked again"


@pytest.mark.slow
def test_policies_are_judged_on_worlds_as_a_cluster_has_them(tmp_path, capsys):
    part = {"tasks": [POLICIES], "on": "cluster", "agents": ["oracle:right", "deny-all"]}
    with running(tmp_path, late=1) as server:
        found = ran(tmp_path, capsys, **part)
        assert server.left() == []
    assert [found[name]["metrics"]["passed"]["value"] for name in ("oracle:right", "deny-all")] == [1.0, 0.0]
    assert found["oracle:right"]["metrics"]["mutation_kill_rate"]["value"] == 1.0
    assert graded(tmp_path, capsys) == [0.0, 1.0]
    assert command_line(["report", str(tmp_path / "store"), "-o", str(tmp_path / "pages")]) == 0
    worlds = next((tmp_path / "store" / "compliance_worlds").iterdir())
    worlds.unlink()
    assert command_line(["score", "run", str(tmp_path / "store")]) == 1


def test_a_refused_world_ends_the_run_with_one_sentence_and_no_grade(tmp_path, capsys):
    with running(tmp_path) as server:
        server.refuse = lambda kind, _: (403, "exceeded quota: compute") if kind == "Deployment" else None
        plan = plan_at(tmp_path, tasks=[POLICIES], on="cluster", agents=["oracle:right"])
        assert command_line(["run", str(plan), "-o", str(tmp_path / "store")]) == 1
        assert server.left() == []
    said = capsys.readouterr().err
    assert "exceeded quota" in said
    assert "Deployment opsassay-" in said
    assert not (tmp_path / "store" / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("idle", "number"), [(True, signal.SIGINT), (False, signal.SIGINT), (True, signal.SIGKILL)])
def test_a_run_that_is_ended_leaves_nothing_or_the_next_one_removes_it(tmp_path, capsys, idle, number):
    plan = plan_at(tmp_path, tasks=[EVIDENCE], on="cluster", agents=["untouched"])
    command = [sys.executable, "-m", "opsassay", "run", str(plan), "-o", str(tmp_path / "store")]
    with running(tmp_path, idle=idle) as server:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(server.left)
        process.send_signal(number)
        assert process.wait(30) != 0
        assert bool(server.left()) is (number == signal.SIGKILL)
        assert not (tmp_path / "store" / "compliance_worlds").exists()
        server.idle = False
        assert ran(tmp_path, capsys, 1, tasks=[EVIDENCE], on="cluster", agents=["untouched"])
        assert server.left() == []


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
def test_a_store_holds_the_worlds_of_one_cluster(tmp_path, capsys):
    part = {"tasks": [POLICIES], "on": "cluster", "agents": ["oracle:right"]}
    with running(tmp_path):
        ran(tmp_path, capsys, **part)
    with running(tmp_path) as server:
        server.texts["/version"] = {"gitVersion": "v1.99.0"}
        assert command_line(["run", str(plan_at(tmp_path, **part)), "-o", str(tmp_path / "store")]) == 2
    assert "run it into another store" in capsys.readouterr().err


def test_the_word_on_may_be_written_without_quotes_in_parts_too(tmp_path):
    text = f"domain: ciso\ntasks: [{POLICIES}]\nagents: [deny-all]\non: cluster\nkubeconfig: kubeconfig\n"
    part = "- " + text.replace("\n", "\n  ")
    with running(tmp_path):
        for number, written in enumerate((text, f"parts:\n{part}")):
            (tmp_path / f"{number}.yaml").write_text(written)
            assert [job.cell.arm.label for job in load_plan(tmp_path / f"{number}.yaml")] == ["on-cluster"]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({}, "say `on: cluster`"),
        ({"on": "moon"}, "on"),
        ({"engine": "cluster"}, "clusterpolicies.kyverno.io"),
        ({"on": "cluster", "kubeconfig": "none.yaml"}, "none.yaml"),
    ],
)
def test_what_no_cluster_can_do_is_said_before_anything_is_made(tmp_path, capsys, part, said):
    with running(tmp_path) as server:
        plan = plan_at(tmp_path, **{"tasks": [POLICIES], "agents": ["deny-all"], **part})
        assert command_line(["run", str(plan), "-o", str(tmp_path / "store")]) == 2
        assert [one.method for one in server.asked if one.method != "GET"] == []
    assert said in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in names() if name.startswith(NEW)])
def test_a_renamed_policy_says_the_same_under_the_prefix_and_nothing_of_others(name):
    task = ComplianceTask(name=name, seed=9)
    worlds = [*task.judged(), *task.mutants()]
    for oracle, (play, stage) in ORACLES[NEW].items():
        files = {path: text for path, text in play(task).items() if path.startswith("policies/")}
        try:
            policies = read_policies(files.items())
            before = [admitted(policies, world.objects) for world in worlds]
        except UnsupportedError:
            continue
        text = yaml.safe_dump_all([renamed(one, "opsassay-1f3a") for one in policies])
        there = read_policies([("all.yaml", text.encode())])
        put = [[prefixed(one, "opsassay-1f3a") for one in world.objects] for world in worlds]
        assert [admitted(there, objects) for objects in put] == before, oracle
        assert all(admitted(there, world.objects) for world in worlds), f"{oracle}: others' objects are let in"
        assert stage or not all(before)


PLACES = {
    "names": {"kinds": ["Role", "ClusterRole"], "names": ["bad-*"]},
    "namespaces": {"kinds": ["Role", "ClusterRole"], "namespaces": ["leg*"]},
    "all kinds": {"names": ["bad-*"]},
    "wildcard": {"kinds": ["*Role"], "name": "bad-a"},
}


@pytest.mark.parametrize("block", ["match", "exclude"])
@pytest.mark.parametrize("place", PLACES)
def test_names_and_namespaces_of_match_and_exclude_mean_the_same_under_the_prefix(place, block):
    rule = controls()["wildcards-in-roles"].policy("mine")["spec"]["rules"][0]
    rule[block] = {"any": [{"resources": PLACES[place]}]}
    policy = controls()["wildcards-in-roles"].policy("mine", **{block: rule[block]})
    objects = [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "rules": [{"verbs": ["*"]}],
         "metadata": {"name": name, **({"namespace": space} if kind == "Role" else {})}}
        for kind in ("Role", "ClusterRole") for name in ("bad-a", "good") for space in ("legacy", "shop")
    ]  # fmt: skip
    before = read_policies([("a.yaml", yaml.safe_dump(policy).encode())])
    after = read_policies([("a.yaml", yaml.safe_dump(renamed(before[0], "p")).encode())])
    said = [admitted(before, [one]) for one in objects]
    assert [admitted(after, [prefixed(one, "p")]) for one in objects] == said
    assert len(set(said)) == 2
    assert all(admitted(after, [one]) for one in objects)


def test_a_policy_about_pods_beside_other_kinds_is_not_for_controllers_under_the_prefix_either():
    kinds = {"any": [{"resources": {"kinds": ["Pod", "ClusterRole"]}}]}
    policy = controls()["host-network"].policy("mine", match=kinds)
    template = {"metadata": {}, "spec": {"hostNetwork": True, "containers": []}}
    metadata = {"name": "a", "namespace": "shop"}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": template}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    before = read_policies([("a.yaml", yaml.safe_dump(policy).encode())])
    after = read_policies([("a.yaml", yaml.safe_dump(renamed(before[0], "p")).encode())])
    assert [admitted(before, [one]) for one in (made, pod)] == [True, False]
    assert [admitted(after, [prefixed(one, "p")]) for one in (made, pod)] == [True, False]
    apart = {"any": [{"resources": {"kinds": [kind]}} for kind in ("Pod", "ClusterRole")]}
    written = yaml.safe_dump(controls()["host-network"].policy("mine", match=apart)).encode()
    with pytest.raises(UnsupportedError, match="one or the other"):
        renamed(read_policies([("a.yaml", written)])[0], "p")


@pytest.mark.slow
def test_kyverno_of_a_cluster_judges_and_is_asked_once(tmp_path, capsys):
    part = {"tasks": [POLICIES, "update-kyverno-wildcards-in-roles"], "engine": "cluster"}
    part["agents"] = ["oracle:right", "deny-all"]
    with running(tmp_path, kyverno=True) as server:
        path = plan_at(tmp_path, **part)
        assert command_line(["run", str(path), "-o", str(tmp_path / "store"), "--json"]) == 0
        assert server.left() == []
        assert server.of("ClusterPolicy") == ["somebodys"]
        items = json.loads(capsys.readouterr().out)["items"]
        made = [one for one in server.asked if one.method == "POST" and "dryRun" not in one.query]
        assert {one.body["kind"] for one in made} == {"Namespace", "ClusterPolicy"}
    assert {item["arm"] for item in items} == {"engine-cluster"}
    assert [item["metrics"]["passed"]["value"] for item in items] == [1.0, 0.0] * 2
    assert [item["metrics"]["evidence"]["value"] for item in items] == [1.0] * 4
    assert graded(tmp_path, capsys) == [0.0] * 2 + [1.0] * 2, "no cluster is asked again"
    assert command_line(["report", str(tmp_path / "store"), "-o", str(tmp_path / "pages")]) == 0
    for kept in (tmp_path / "store").glob("runs/*/*/admitted.json"):
        kept.unlink()
    assert command_line(["score", "run", str(tmp_path / "store")]) == 1
    assert "run the plan again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ('admission webhook "other" denied the request: opsassay-is-not-ours', "opsassay-is-not-ours"),
        ("exceeded quota: pods", "exceeded quota"),
    ],
)
def test_what_something_else_refuses_is_no_grade(tmp_path, capsys, refusal, said):
    with running(tmp_path, kyverno=True) as server:
        server.refuse = lambda kind, metadata: (
            (403, refusal) if kind == "Pod" and "opsassay-canary" not in metadata["labels"] else None
        )
        found = ran(tmp_path, capsys, 1, tasks=[POLICIES], engine="cluster", agents=["oracle:right"])
        assert server.left() == []
    assert said in found["oracle:right"]["error"]
    assert "not graded" in found["oracle:right"]["error"]
    assert found["oracle:right"]["metrics"] == {}


def test_a_kyverno_that_is_not_asked_about_a_kind_is_no_grade(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(admission, "READY_TIMEOUT_S", 0.2)
    with running(tmp_path, kyverno=True) as server:
        server.kyverno = False
        found = ran(tmp_path, capsys, 1, tasks=[POLICIES], engine="cluster", agents=["oracle:right"])
        assert server.left() == []
    assert "is not asked about" in found["oracle:right"]["error"]


def test_a_policy_that_kyverno_refuses_and_one_that_reads_namespaces_fail_at_the_evidence(tmp_path, capsys):
    condition = {"key": "{{ request.namespace }}", "operator": "Equals", "value": "shop"}
    validate = {"failureAction": "Enforce", "deny": {"conditions": {"all": [condition]}}}
    agent = "#!/bin/sh\nmkdir -p $1 && cp $2 $1/mine.yaml\n"
    (tmp_path / "leave.sh").write_text(agent)
    policy = controls()["host-ports"].policy("mine", validate=validate)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(policy))
    command = ["sh", "{agent}/leave.sh", "{answer}", "{agent}/mine.yaml"]
    (tmp_path / "agent.yaml").write_text(
        yaml.safe_dump({"agent": "writer", "command": command, "files": ["leave.sh", "mine.yaml"]})
    )
    with running(tmp_path, kyverno=True) as server:
        found = ran(tmp_path, capsys, tasks=[POLICIES], engine="cluster", agents=["agent.yaml"])["writer"]["metrics"]
        assert "reads namespaces" in found["evidence"]["reason"]
        assert found["passed"]["value"] == 0.0
        server.refuse = lambda kind, _: (
            (400, "denied the request: a pattern is wrong") if kind == "ClusterPolicy" else None
        )
        found = ran(tmp_path, capsys, tasks=["new-kyverno-host-memory"], engine="cluster", agents=["oracle:right"])
        assert "Kyverno refuses the policy" in found["oracle:right"]["metrics"]["evidence"]["reason"]
        assert server.left() == []
