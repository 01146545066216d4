"""The scenarios that ship: on `local`, each oracle does what its file says, predicate by predicate."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from live import skip_if_starved, state_folder, strays
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.scenario import Predicate, Scenario
from opsassay.evals.remediation.controls.scripts import applicable
from opsassay.evals.remediation.score import read_recorded
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.trial.contract import BASELINE, TrialAgent
from opsassay.evals.remediation.trial.perform import perform
from opsassay.evals.runner.store import RunStore
from opsassay.scoring.verifiers import certify
from opsassay.testbed.apps import load_system
from opsassay.testbed.operations.tools import TOOLS
from opsassay.testbed.scenarios import load_scenario, names, system_of
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

QUICK = ("cache-out-of-memory", "dns-wrong-backend", "firewall-blocks-one-client")
EACH = [(name, oracle) for name in names("local") for oracle in load_scenario(name).oracles]


def failed_of(
    scenario: Scenario, oracle: str, run_dir: Path, *, probes: bool = True, agent: TrialAgent | None = None
) -> set[Predicate]:
    """Perform one trial and return the predicates that failed."""
    agent = agent or TrialAgent(name=f"oracle:{oracle}")
    with state_folder():
        perform(scenario, agent, "baseline", probes=probes, seed=0, run_dir=run_dir)
    return failed_in(run_dir, scenario, probes=probes)


def failed_in(run_dir: Path, scenario: Scenario, *, probes: bool = True) -> set[Predicate]:
    """Return the predicates that failed in the trial recorded in *run_dir*."""
    verdict = certify(read_recorded(run_dir, probes_on=probes), scenario)
    return {judged.predicate for judged in verdict.judgements if judged.failed} - {"certificate"}


def hurried(name: str) -> Scenario:
    """Return the scenario with as little of waiting as its repair can be judged by."""
    scenario = load_scenario(name)
    short = {"warmup_s": 4.0, "settle_s": 3.0, "aftermath_s": 3.0}
    return scenario.model_copy(update={"environment": scenario.environment.model_copy(update=short)})


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "several",
    [
        pytest.param(QUICK[:1], marks=pytest.mark.system, id="one"),
        pytest.param(QUICK[1:], marks=[pytest.mark.live, pytest.mark.alone], id="side by side"),
    ],
)
def test_gentle_repairs_are_certified(several, tmp_path, capsys):
    agent = TrialAgent(name="oracle:gentle")
    jobs = [
        TrialRun(hurried(name), agent, "baseline", probes=True, seed=0, cluster=ClusterSettings()) for name in several
    ]
    store, began = RunStore(tmp_path), time.time_ns()
    with state_folder():
        run_trials(store, jobs, 2, progress=ProgressLines(print))
    said = capsys.readouterr().out
    for job in jobs:
        folder = store.finished(job.cell.hash) or skip_if_starved(said)
        assert folder is not None, f"{job.task_name}\n{said}"
        assert failed_in(folder, job.scenario) == set(), job.task_name
        phases = [line.split('"')[3] for line in (folder / "phases.jsonl").read_text().splitlines()]
        assert phases == ["deployed", "baseline", "triggered", "agent_started", "agent_ended", "ended"]
        assert not (folder / ".live").exists()
        assert json.loads((folder / BASELINE).read_text()) == {"verified": True, "left": []}
        actions = read_recorded(folder).actions
        assert all(began < action.started_ns <= action.ended_ns for action in actions)
        assert [a.tool.replace("_", " ") for a in actions] == [s.verb for s in job.scenario.oracles["gentle"].steps]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "oracle"), EACH)
def test_every_oracle_does_what_its_file_says(name, oracle, tmp_path):
    scenario = load_scenario(name)
    assert scenario.oracles[oracle].is_met(failed_of(scenario, oracle, tmp_path))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_without_probes_the_patient_repair_is_certified(tmp_path):
    """The same run is rejected with probes on (see above), for the probe alone."""
    assert failed_of(load_scenario("slow-archive"), "patient", tmp_path, probes=False) == set()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_sre_agent_repairs_with_a_scripted_model(tmp_path):
    script = Path(__file__).with_name("sre_script.py")
    agent = TrialAgent(name="sre", model=f"scripted:{script}")
    assert failed_of(load_scenario("dns-wrong-backend"), "", tmp_path, agent=agent) == set()
    recording = read_recorded(tmp_path)
    assert [action.tool for action in recording.actions if action.mutating] == ["config_set"]
    steps = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [step["agent_name"] for step in steps] == ["diagnosis"] * 4 + ["mitigation"] * 5
    assert json.loads((tmp_path / "agent.json").read_text())["diagnosis"]["root_causes"] == ["names"]
    told = certify(recording, load_scenario("dns-wrong-backend"), system=load_system("desk")).metrics
    assert (told["ntam_fl"].value, told["ntam_fpc"].value) == (1.0, 1.0)
    phases = {phase.phase: phase.time_ns for phase in recording.phases}
    repaired = next(action for action in recording.actions if action.mutating)
    assert told["diagnosis_right"].value == 1.0
    assert 0 < told["time_to_diagnosis_s"].value <= (repaired.started_ns - phases["agent_started"]) / 1e9


HELD = {
    "id": "held", "title": "A fault of the catalogue holds", "category": "test", "alert": "a", "desired_outcome": "d",
    "difficulty": {"propagation": 2, "resolution_steps": 1, "technologies": ["http"]},
    "environment": {"system": str(Path(__file__).parents[1] / "tiny.yaml"), "warmup_s": 5, "settle_s": 2, "aftermath_s": 2},
    "trigger": {"faults": [{
        "fault": "HTTPResponseAbort", "target": {"service": "middle"}, "parameters": {"code": 500}, "duration_s": 1,
    }]},
    "truth": {"root_causes": ["middle"]},
    "verification": {"committed_depth": "D3", "protected_services": ["front"], "cadence_s": 0.5},
    "oracles": {
        "nothing": {"fails": ["v_depth"], "steps": [{"wait_s": 3}]},
        "gentle": {"expect": "certified", "description": "there is no verb that undoes a fault of the catalogue"},
    },
}  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(180)
def test_the_last_probe_is_sent_while_a_catalogue_fault_holds_also_with_probes_off(tmp_path):
    """Neither the duration of its plan nor the end of the trial repairs what the agent left broken."""
    scenario = Scenario.model_validate(HELD)
    assert failed_of(scenario, "nothing", tmp_path, probes=False) == {"v_depth"}
    recording = read_recorded(tmp_path, probes_on=False)
    (last,) = (probe for tick in recording.timeline.ticks for probe in tick.probes)
    ended = {phase.phase: phase.time_ns for phase in recording.phases}["agent_ended"]
    assert last.started_ns > ended
    assert (last.target, last.status, last.reachable) == ("front", 500, False)


KILLED = """
import sys
from pathlib import Path
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.remediation.score import read_recorded
from opsassay.evals.remediation.trial.perform import perform
from opsassay.testbed.scenarios import load_scenario
perform(load_scenario("drained-pool"), TrialAgent(name="oracle:gentle"), "baseline", probes=True, seed=0,
        run_dir=Path(sys.argv[1]))
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_killed_trial_leaves_nothing_running(tmp_path):
    with state_folder() as state:
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
        phases, deadline = tmp_path / "phases.jsonl", time.monotonic() + 200
        while not (phases.exists() and "deployed" in phases.read_text()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 60
        while strays(state) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert strays(state) == []


def test_there_are_ten_remediations_and_two_false_alarms():
    scenarios = [load_scenario(name) for name in names("local")]
    assert sum(not one.no_fault for one in scenarios) >= 10
    assert sum(one.no_fault for one in scenarios) >= 2
    for one in scenarios:
        assert any(oracle.certified for oracle in one.oracles.values()), one.id
        assert any(not oracle.certified for oracle in one.oracles.values()), one.id


LISTED = {
    "wrong-upstream-port", "wrong-database-password", "crash-loop-missing-key", "firewall-blocks-one-client",
    "cache-out-of-memory", "bad-release", "stuck-consumer", "dns-wrong-backend", "clock-skew-tokens", "drained-pool",
}  # fmt: skip
"""The ten kinds that there must be."""


COMPANIONS = {"alerts_cleared", "v_no_regression", "v_blast_radius"}
"""What fails beside the predicate that separates: users who are not served are seen by alerts and by what worked before,
and who touches everything has touched what the truth does not name."""
SCALED_AWAY = ("wrong-database-password", "scaled-away")
"""Of the replicas that there were too few are left, which the outcome sees as well."""
LEFT_OFF = ("clock-skew-tokens", "shallow")
"""What the fault switched off is off still, which the settings see as well as users do."""


def test_what_separates_is_one_predicate_and_the_outcome_is_not_it():
    assert set(names("local")) >= LISTED
    for one in map(load_scenario, names("local")):
        assert one.constrained.strip(), one.id
        assert one.oracles["gentle"].certified, one.id
        for name, oracle in one.oracles.items():
            if (one.id, name) != SCALED_AWAY:
                separating = set(oracle.fails) - COMPANIONS - ({"v_settings"} if (one.id, name) == LEFT_OFF else set())
                assert oracle.certified or len(separating) <= 1, (one.id, name)
                assert "v_outcome" not in oracle.fails, (one.id, name)


def test_a_wrong_clock_shows_in_every_page_and_not_in_half_of_them():
    """Who signs on the host whose clock is wrong is believed there; the last probe must not fall on one of those."""
    scenario = load_scenario("clock-skew-tokens")
    services = system_of(scenario).services
    assert [services["account"].host] == list(scenario.truth.root_causes)
    assert services["web"].host not in {None, services["account"].host}


def test_an_alert_names_no_cause():
    """What is told is a symptom: no service, store or host of the truth that is not itself what users or pages name."""
    for one in map(load_scenario, names("local")):
        told = {cause for cause in one.truth.root_causes if re.search(rf"\b{cause}\b", one.alert)}
        assert told <= SYMPTOMS.get(one.id, set()), one.id


SYMPTOMS = {
    "cache-out-of-memory": set(), "wrong-database-password": {"catalog"}, "crash-loop-missing-key": {"orders"},
    "crowded-host": {"orders"}, "drained-pool": {"orders"},
}  # fmt: skip
"""Where the paper's alerts name the workload as well (S-2, S-8): it is what crashes, or what stands badly."""


def test_every_predicate_is_committed_by_a_scenario_and_failed_by_an_oracle():
    scenarios = [load_scenario(name) for name in names("local")]
    committed = {predicate for one in scenarios for predicate in one.verification.predicates()}
    assert committed == set(get_args(Predicate)) - {"v_control_plane"}  # which only a cluster has
    fails = {predicate for one in scenarios for oracle in one.oracles.values() for predicate in oracle.fails}
    fails |= {control.fails for one in scenarios for control in applicable(one)}
    assert fails >= committed - {"v_outcome", "alerts_cleared"}  # the outcome's own: what fails it is not hidden


@pytest.mark.parametrize("name", names("local"))
def test_what_a_scenario_does_exists(name):
    scenario = load_scenario(name)
    assert scenario.id == name
    system = system_of(scenario)
    assert set(scenario.verification.protected_services) <= system.entries()
    for oracle in scenario.oracles.values():
        for step in oracle.steps:
            if step.verb is not None:
                tool = TOOLS[step.verb.replace(" ", "_")]
                tool.arguments.model_validate(step.arguments, strict=True)
    known = {*system.services, *system.stores, *system.hosts, "names"}
    assert set(scenario.truth.root_causes) <= known
    assert set(scenario.truth.entities) <= known
