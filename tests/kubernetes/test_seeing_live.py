"""What agents see on a real cluster: a trial that begins with its alert, looks that are answered, closed endpoints."""

from __future__ import annotations

import pytest
import yaml
from tests.kubernetes.native.cache import Cache

from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.run_folder import ACTIONS, ALERTS, PHASES
from opsassay.core.schema.trajectory import Action, AlertReading, Phase
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.apps import load_system
from opsassay.testbed.scenarios import load_scenario
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
LOOKS = {
    "alerts": ({}, "of requests fail"),
    "metrics": ({"metric": "k8s.pod.ready", "service": "front"}, "front front-"),
    "traces": ({"service": "front", "failed": True, "limit": 3}, "front GET / Server"),
    "search logs": ({"service": "front", "level": "ERROR"}, "front-"),
    "summarise": ({}, "front: "),
    "topology": ({}, "front -> catalog: "),
}
KNOCK = """
import os, sys, urllib.error, urllib.request
for address in sys.argv[1:]:
    asked = urllib.request.Request(f"http://{address}:9090/", headers={"X-Endpoint-Key": os.environ["ENDPOINT_KEY"]})
    try:
        print(urllib.request.urlopen(asked, timeout=10).status)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
"""


def lines(path, noun):
    return [noun.model_validate_json(line) for line in path.read_text().splitlines()]


def test_an_alert_fires_before_the_agent_is_let_in_and_clears_behind_the_right_repair_alone(cluster, tmp_path):
    payload = load_scenario("replicas-scaled-to-zero").model_dump(mode="json", exclude_defaults=True)
    looks = [{"verb": verb, "arguments": arguments} for verb, (arguments, _) in LOOKS.items()]
    for oracle in payload["oracles"].values():
        oracle["steps"] = [*looks, *oracle["steps"]]
    file = tmp_path / "seeing.yaml"
    file.write_text(yaml.safe_dump(payload))
    settings = {"kubeconfig": str(cluster.kubeconfig), "kubectl": str(Cache.default().binaries / "kubectl")}
    agents = ({"name": "oracle:gentle"}, {"name": "oracle:shallow"})
    wanted = TrialPlan(scenarios=(str(file),), agents=agents, cluster=settings)
    cells, store = cells_of(wanted), RunStore(tmp_path / "store")
    run_trials(store, cells, progress=ProgressLines(print))
    for cell in cells:
        folder = store.finished(cell.cell.hash)
        assert folder is not None
        readings, phases = lines(folder / ALERTS, AlertReading), lines(folder / PHASES, Phase)
        at = {phase.phase: phase.time_ns for phase in phases}
        early = [one for one in readings if at["triggered"] <= one.time_ns <= at["agent_started"]]
        assert ("front", "error_rate") in {(a.service, a.signal) for one in early for a in one.firing}
        seen = [one for one in lines(folder / ACTIONS, Action) if one.tool.replace("_", " ") in LOOKS]
        assert [(one.tool.replace("_", " "), one.status, one.mutating) for one in seen] == [
            (verb, "ok", False) for verb in LOOKS
        ]
        for action, (_, said) in zip(seen, LOOKS.values(), strict=True):
            assert said in action.output, (action.tool, action.output)
        failed = {one.predicate for one in grade_trial(folder, cell.scenario).judgements if one.failed}
        assert cell.scenario.oracles[cell.agent.oracle].is_met(failed)
        assert not (folder / ".live").exists()


def test_who_runs_commands_in_a_pod_of_the_system_has_no_key_to_the_receiver(cluster, api, kubectl):
    with KubernetesSubstrate(cluster.kubeconfig).deployed(load_system("kiosk"), "closed"):
        (receiver,) = api.list("Pod", "closed-watch", "app=receiver")
        told = kubectl(
            "exec", "deployment/catalog", "-n", "closed", "--",
            "python", "-c", KNOCK, "127.0.0.1", receiver["status"]["podIP"],
        )  # fmt: skip
    own, other = told.splitlines()
    assert own == "200"
    assert other.startswith("404 ")
    assert "the key is missing or wrong" in other
