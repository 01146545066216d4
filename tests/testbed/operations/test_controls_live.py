"""A seeded sample of the controls on real systems: none is certified, and what each says has to fail does."""

from __future__ import annotations

import pytest

from live import skip_if_starved, state_folder
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.scenario import Settling
from opsassay.evals.remediation.controls.scripts import applicable, sampled, script_of
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.scenarios import load_scenario, names
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

SAMPLE, SEED, SIDE_BY_SIDE = 4, 0, 2


def shortened(name):
    """Return the scenario with the shortest waits after the repair that still tell its controls from right repairs.

    An alert over state fires eight seconds after a control has broken the system again and is read two later; a record may
    end `gap_s`, five seconds, before its hold does. A fault with a late onset needs all its time before.
    """
    scenario = load_scenario(name)
    environment = scenario.environment.model_copy(update={"aftermath_s": 3.0})
    alerts = scenario.verification.alerts
    short = {"settling": Settling(hold_s=18, limit_s=60)}
    short |= {"alerts": alerts.model_copy(update={"hold_s": 2.0})} if alerts is not None else {}
    verification = scenario.verification.model_copy(update=short)
    return scenario.model_copy(update={"environment": environment, "verification": verification})


@pytest.mark.live
@pytest.mark.alone
@pytest.mark.timeout(1200)
def test_none_of_a_sample_of_controls_is_certified(tmp_path, capsys):
    pairs = [(name, control.name) for name in names("local") for control in applicable(load_scenario(name))]
    jobs = [
        TrialRun(
            shortened(name),
            TrialAgent(name=ORACLE + control),
            "baseline",
            probes=True,
            seed=0,
            cluster=ClusterSettings(),
        )
        for name, control in sampled(pairs, SAMPLE, SEED)
    ]
    store = RunStore(tmp_path)
    with state_folder():
        run_trials(store, jobs, SIDE_BY_SIDE, progress=ProgressLines(print))
    said, starved = capsys.readouterr().out, False
    for job in jobs:
        if (folder := store.finished(job.cell.hash)) is None and "no result: starved" in said:
            starved = True
            continue
        assert folder is not None, (job.task_name, job.agent.name, said)
        verdict = grade_trial(folder, job.scenario)
        failed = {judged.predicate for judged in verdict.judgements if judged.failed}
        assert not verdict.judgement("certificate").passed, (job.task_name, job.agent.name)
        assert script_of(job.scenario, job.agent.oracle).fails in failed, (job.task_name, job.agent.name, failed)
    if starved:
        skip_if_starved(said)
