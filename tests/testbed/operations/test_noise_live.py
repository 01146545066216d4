"""Under background noise a right repair is certified and a control is not; what happened is not held against the agent."""

from __future__ import annotations

import pytest

from live import skip_if_starved, state_folder
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.run_folder import NOISE
from opsassay.core.schema.trajectory import EnvironmentAction
from opsassay.evals.remediation.score import grade_trial, read_recording
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.operations.noise import SCRAPE
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings
from testbed.operations.test_scenarios import hurried


@pytest.mark.live
@pytest.mark.drawn
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("oracle", "right"), [("gentle", True), ("control-scale-to-one", False)])
def test_noise_changes_no_verdict(oracle, right, tmp_path, capsys):
    job = TrialRun(
        hurried("dns-wrong-backend"), TrialAgent(name=f"oracle:{oracle}"), "baseline", probes=True, seed=0,
        cluster=ClusterSettings(), noise=True,
    )  # fmt: skip
    store = RunStore(tmp_path)
    with state_folder():
        run_trials(store, [job], progress=ProgressLines(print))
    said = capsys.readouterr().out
    folder = store.finished(job.cell.hash) or skip_if_starved(said)
    noise = [EnvironmentAction.model_validate_json(line) for line in (folder / NOISE).read_text().splitlines()]
    assert {one.status for one in noise} <= {"done", "left_alone"}
    restarted = {name.rpartition("-")[0] for one in noise if one.status == "done" for name in one.touched}
    assert restarted, noise
    recording = read_recording(folder)
    assert not {name for action in recording.actions for name in action.touched if action.mutating} & restarted
    assert all(alert.signal != SCRAPE for one in recording.alerts for alert in one.firing)
    assert grade_trial(folder, job.scenario).judgement("certificate").passed is right, said
