"""The baseline after a trial: what is still there of its system is found and recorded; the result stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from live import state_folder
from opsassay.core.errors import LostError
from opsassay.core.schema.run import RunStatus
from opsassay.evals.remediation import environment
from opsassay.evals.remediation.environment import TrialEnvironment
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.remediation.trial.contract import BASELINE
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.testbed.core.state import MARKER, SystemState, acquire_lock, leftovers
from scoring.verifiers.made import scenario

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def state():
    with state_folder():
        yield SystemState.for_system("trial-1")


class RemovedSystem:
    """A system that is removed at once; *left* says what is still there."""

    def __init__(self, left):
        self.verify = left

    def remove(self):
        """It is gone."""


@pytest.fixture
def verified(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "GONE_WITHIN_S", 0.3)

    def verified(left):
        trial = TrialEnvironment(RemovedSystem(left), scenario(), tmp_path, probes=True)
        trial._deployed = True
        trial.remove()
        trial.verify()
        return json.loads((tmp_path / BASELINE).read_text())

    return verified


def test_a_system_that_is_gone_is_verified(state, verified):
    assert verified(lambda: leftovers(state, [])) == {"verified": True, "left": []}


def test_a_process_a_group_a_folder_and_a_lock_that_stay_are_said(state, verified, tmp_path):
    state.dir.mkdir(parents=True)
    group = tmp_path / "group"
    group.mkdir()
    marked = {**os.environ, MARKER: str(state.dir)}
    with subprocess.Popen([sys.executable, "-c", SLEEPER], env=marked, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        lock = acquire_lock(state)
        try:
            found = verified(lambda: leftovers(state, [group]))
        finally:
            os.close(lock)
            process.kill()
    assert found == {
        "verified": False,
        "left": [
            f"process {process.pid} still runs",
            f"the control group {group} is still there",
            f"the folder {state.dir} is still there",
            "its lock is still held",
        ],
    }


def test_what_takes_a_moment_to_go_is_waited_for(verified):
    looks = iter([["process 1 still runs"], []])
    assert verified(lambda: next(looks))["verified"]


def test_what_cannot_be_looked_at_is_not_verified(verified):
    def lost():
        raise LostError("the cluster does not answer.")

    assert verified(lost) == {"verified": False, "left": ["it could not be looked at: the cluster does not answer."]}


def test_the_reason_is_in_the_run_which_stays_a_result(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    jobs = cells_of(TrialPlan.model_validate({"scenarios": ["wrong-upstream-port"], "agents": ["oracle:gentle"]}))
    (folder,) = run_trials(RunStore(tmp_path), jobs, performer="evals.remediation.performers:leaving")
    run = read_run(folder)
    assert (run.status, run.notes) == (RunStatus.DONE, ("not back at the baseline: Namespace x is still there",))
