"""A trial whose machine others kept busy is no result, and what a calibration counts; processes are real, trials made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from evals.remediation.test_trials import MADE, _paths, plan_of  # noqa: F401 - an autouse fixture
from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.task import Arm
from opsassay.evals.remediation.authoring.calibration import LOOP, Calibrated, busy, by_load, by_predicate, drawn_trials
from opsassay.evals.remediation.domain import SRE_DOMAIN
from opsassay.evals.remediation.report import grade_trials
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.scoring.verifiers import certify
from opsassay.testbed.scenarios import load_scenario
from scoring.verifiers.made import recording, timeline


@pytest.mark.slow
def test_a_starved_trial_is_no_result_is_shown_by_name_and_made_again(tmp_path):
    (trial,) = plan_of(tmp_path, agents=["oracle:gentle"], probes=[True])
    store = RunStore(tmp_path / "store")
    assert run_trials(store, [replace(trial, retries=0)], performer=MADE + "starving") == []
    graded = grade_trials(SRE_DOMAIN, {store.root: None})
    assert graded.graded == ()
    (shown,) = [one for one in graded.results() if one.title == "Trials without a result"]
    assert shown.rows[0][:2] == (trial.scenario.id, "oracle:gentle")
    assert "others kept the machine busy at 21 of 21 ticks" in shown.rows[0][-1]
    (folder,) = run_trials(store, [trial], performer=MADE + "starving")
    assert read_run(folder).status is RunStatus.DONE
    assert [read_run(one).status for one in store.attempts_of(trial.cell.hash)] == [RunStatus.ABORTED, RunStatus.DONE]
    graded = grade_trials(SRE_DOMAIN, {store.root: None})
    assert "Trials without a result" not in {one.title for one in graded.results()}


def test_a_calibration_draws_as_many_right_as_wrong_repairs_and_any_load_the_same_for_a_seed():
    scenarios = [load_scenario("wrong-upstream-port"), load_scenario("bad-release")]
    drawn = drawn_trials(scenarios, 20, 7)
    assert [one.run.cell.hash for one in drawn] == [one.run.cell.hash for one in drawn_trials(scenarios, 20, 7)]
    assert sum(one.right for one in drawn) == 20
    assert {one.loops for one in drawn} == {0, 1, 2, 3}
    assert all(one.run.scenario.oracles[one.run.agent.oracle].certified == one.right for one in drawn)
    assert {one.run.cell.arm for one in drawn} == {Arm.of({"prompt": "baseline", "probes": "on"})}


def test_false_rejections_and_false_certifications_are_rates_of_valid_trials_with_intervals():
    scenario = load_scenario("wrong-upstream-port")
    verdict = certify(recording(timeline([1.0] * 20), triggered=3, started=5, ended=15), scenario)
    assert verdict.judgement("v_outcome").passed
    right, wrong = drawn_trials([scenario], 1, 0)
    found = [Calibrated(right, verdict), Calibrated(wrong, None, "starved: others"), Calibrated(right, None, "it hung")]
    rows = {row[0]: row[1:] for row in by_predicate(found).rows}
    assert rows["certificate"] == ("1/1", "21% to 100%", "0/0", None)
    assert rows["v_outcome"][0] == "0/1"
    trials, starved, lost = (sum(row[column] for row in by_load(found).rows) for column in (1, 2, 3))
    assert (trials, starved, lost) == (3, 1, 1)


def test_the_load_ends_with_its_block_and_with_its_process_however_that_ends():
    def loops(of):
        return [one for one in psutil.Process(of).children() if LOOP in one.cmdline()]

    with busy(1):
        began = loops(os.getpid())
        assert len(began) == os.cpu_count()
        assert os.getpgrp() not in {os.getpgid(one.pid) for one in began}  # a terminal's Ctrl-C does not reach them
    assert not loops(os.getpid())
    code = (
        "import time\nfrom opsassay.evals.remediation.authoring.calibration import busy\nwith busy(1): time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as owner:
        while not (began := loops(owner.pid)):
            time.sleep(0.1)
        owner.send_signal(signal.SIGKILL)
    assert not psutil.wait_procs(began, timeout=60)[1]


def test_a_load_whose_owner_is_gone_before_it_begins_ends():
    with subprocess.Popen([sys.executable, "-c", ""]) as owner:
        pass
    subprocess.run([sys.executable, "-S", "-c", LOOP, str(owner.pid)], timeout=60, check=True)
