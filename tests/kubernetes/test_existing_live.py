"""A namespace that exists, on the real cluster: tasks and incidents from plain manifests, and what a kill leaves."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import psutil
import pytest
from tests.kubernetes.native.cache import Cache

from conftest import applied, until
from opsassay.evals.remediation.trial.contract import BASELINE
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.telemetry.tree import Tree
from opsassay.testbed.apps import load_system
from opsassay.testbed.scenarios.generated.namespace import RECIPES
from opsassay.testbed.substrates.kubernetes.actuators.offers import SETTING
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.readings import service_of
from opsassay.testbed.substrates.kubernetes.manifests.system import Deployed, watch_of
from opsassay.testbed.substrates.kubernetes.scenario.standing import differences, standing

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
SHOP = Path(__file__).parent / "existing" / "shop.yaml"
TINY = Path(__file__).parents[1] / "testbed" / "tiny.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "own-system.md"
KUBECTL = str(Cache.default().binaries / "kubectl")


@pytest.fixture
def shop(cluster, api, kubectl, namespace, tmp_path):
    """Put the shop into a namespace and generate its tasks; return its name, its standing and a function for commands."""
    kubectl("apply", "-n", namespace, "-f", str(SHOP))
    until(lambda: all(one.get("status", {}).get("readyReplicas") == one["spec"]["replicas"]
                      for one in api.list("Deployment", namespace)))  # fmt: skip

    def run(*words):
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        return subprocess.run(
            [sys.executable, "-m", "opsassay", *words], capture_output=True, text=True, check=False, cwd=tmp_path,
            env=environment, timeout=1500,
        )  # fmt: skip

    return namespace, standing(api, namespace), run


def typed(namespace, heading="## A namespace that exists"):
    """Return the words of each command that the page shows below *heading*, for *namespace*."""
    page = PAGE.read_text().partition(f"{heading}\n")[2].partition("\n##")[0]
    shown = [
        line[2:].replace("--namespace shop ", f"--namespace {namespace} ")
        for line in page.splitlines()
        if line.startswith("$ ")
    ]
    return [shlex.split(line)[1:] for line in shown]


def plan(folder, name, agents, scenarios):
    """Leave in the plan of the tasks *agents* on *scenarios*: the whole takes hours."""
    made = {
        "scenarios": [f"{name}-{one}-1.yaml" for one in scenarios],
        "agents": agents,
        "cluster": {"kubectl": KUBECTL},
    }
    (folder / "shop-tasks" / "plan.yaml").write_text(json.dumps(made))


def test_a_right_repair_is_certified_a_harmful_one_is_not_and_all_is_as_before(shop, api, tmp_path):
    name, before, run = shop
    generate, check, trials = typed(name)
    assert f"{len(RECIPES)} scenarios" in run(*generate).stdout
    checked = run(*check, "--json")
    assert checked.returncode == 0, checked.stderr
    assert len(json.loads(checked.stdout)["possible"]) == len(RECIPES)
    plan(tmp_path, name, ["oracle:gentle", "oracle:harmful"], ["wrong-port"])
    done = run(*trials)
    assert done.returncode == 0, done.stdout + done.stderr
    certified = {}
    for folder in RunStore(tmp_path / "trials").runs():
        (verdict,) = (folder / "verdicts").glob("*.json")
        judged = {one["predicate"]: one["status"] for one in json.loads(verdict.read_text())["judgements"]}
        certified[read_run(folder).solver.name] = judged
        assert json.loads((folder / BASELINE).read_text()) == {"verified": True, "left": []}
    assert certified["oracle:gentle"]["certificate"] == "passed"
    assert certified["oracle:harmful"]["certificate"] == "failed"
    assert certified["oracle:harmful"]["v_no_regression"] == "failed"
    assert differences(api, name, before) == []
    assert api.get("Namespace", watch_of(name)) is None
    assert api.list("Role", name) == api.list("RoleBinding", name) == []


@pytest.mark.parametrize("who", ["the trial", "the runner"])
def test_a_killed_run_leaves_the_namespace_as_it_was(shop, api, kubectl, tmp_path, cluster, who):
    name, before, run = shop
    generate, _, trials = typed(name)
    assert run(*generate).returncode == 0
    plan(tmp_path, name, ["oracle:gentle"], ["quota"])
    runner = subprocess.Popen(
        [sys.executable, "-m", "opsassay", *trials], cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: api.get("ResourceQuota", "team-quota", name), 300)
        kubectl("delete", "service", "orders", "-n", name)  # as an agent may
        below = psutil.Process(runner.pid).children(recursive=True)
        (trial,) = (one.pid for one in below if any("trial.perform" in word for word in one.cmdline()))
        os.kill(trial if who == "the trial" else runner.pid, signal.SIGKILL)
        if who == "the trial":
            os.kill(runner.pid, signal.SIGKILL)
    finally:
        runner.kill()
        runner.wait()
    until(lambda: api.get("Namespace", watch_of(name)) is None, 600, 1.0)
    assert differences(api, name, before) == []
    assert api.list("Role", name) == api.list("RoleBinding", name) == []
    time.sleep(2)
    assert differences(api, name, before) == []


@pytest.fixture
def team(cluster, api, kubectl, namespace, tmp_path):
    """Put `tiny` into a namespace as deployments of a team that sends its spans to the receiver; return its name."""
    made = Deployed(load_system(str(TINY)), namespace, endpoint=f"http://receiver.{watch_of(namespace)}:4318")
    objects = [*made.configuration(), *made.stores(), *made.services()]
    for one in objects:
        one["metadata"]["labels"] = {}
        if one["kind"] == "Deployment":
            one["spec"]["template"]["metadata"]["labels"] = one["spec"]["selector"]["matchLabels"]
    applied(kubectl, objects)
    until(lambda: all(one.get("status", {}).get("readyReplicas") for one in api.list("Deployment", namespace)))
    return namespace


def pods_of(api, name):
    """Return the containers and labels of the pods of each workload of the namespace *name*, sorted."""
    found = [(service_of(pod), pod["spec"]["containers"], pod["metadata"]["labels"]) for pod in api.list("Pod", name)]
    return sorted((service, [one["image"] for one in ones], sorted(labels)) for service, ones, labels in found)


def test_the_commands_of_the_page_record_an_incident_of_plain_deployments(shop, api, tmp_path):
    name, before, run = shop
    (tmp_path / "fault.yaml").write_text("{fault: PodKill, target: {service: orders}}")
    attach, check, record, annotate = typed(name, "### Incidents in it")
    short = ["--warmup", "2", "--normal", "10", "--abnormal", "15"]
    for words, status in ((attach, 0), (check, 0), ([*record, *short], 0), (annotate, 0)):
        done = run(*words)
        assert done.returncode == status, done.stdout + done.stderr
    tree = Tree(tmp_path / "incidents")
    (id_,) = tree.ids()
    truth = tree.truth(id_)
    assert truth.recovered
    assert [one.passed for one in truth.effects] == [True]
    logs = pl.read_parquet(tree.incident_path(id_) / "abnormal_logs.parquet")
    assert "Killing: Stopping container orders" in logs.filter(pl.col("service_name") == "orders")["message"].to_list()
    assert differences(api, name, before) == []
    assert api.get("Namespace", watch_of(name)) is None


def test_a_fault_of_packets_on_a_pod_of_a_team_is_attributed(cluster, team, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setenv(SETTING, Api.connect(cluster.kubeconfig).context)
    (tmp_path / "fault.yaml").write_text("{fault: NetworkDelay, target: {service: back}}")
    for words in (
        ("system", "attach", "--namespace", team, "--entry", "http://front:8080/"),
        ("incident", "record", "system.yaml", "fault.yaml", "-o", "out", "--normal", "20", "--abnormal", "25"),
        ("incident", "annotate", "out", "--json"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "opsassay", *words], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (item,) = json.loads(done.stdout)["items"]
    assert (item["label"], item["roots"]) == ("attributed", ["back"])


def test_a_killed_recording_leaves_pods_and_namespace_as_they_were(shop, api, tmp_path, cluster):
    name, before, run = shop
    pods = pods_of(api, name)
    (tmp_path / "fault.yaml").write_text("{fault: PodFailure, target: {service: orders}}")
    attach, _, record, _ = typed(name, "### Incidents in it")
    assert run(*attach).returncode == 0
    recorder = subprocess.Popen(
        [sys.executable, "-m", "opsassay", *record, "--warmup", "0", "--normal", "5"], cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: pods_of(api, name) != pods, 300)
    finally:
        recorder.kill()
        recorder.wait()
    until(lambda: api.get("Namespace", watch_of(name)) is None, 600, 1.0)
    until(lambda: pods_of(api, name) == pods, 60)
    assert differences(api, name, before) == []
    assert api.list("Role", name) == api.list("RoleBinding", name) == []
