"""Bad luck and bad manners: each is a recorded outcome with its reason, and none of them certifies anybody."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest

from evals.remediation.performers import write
from evals.remediation.test_trials import MADE, TESTS, plan_of
from opsassay.core.errors import OperationError
from opsassay.core.schema.base import Written
from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.scenario import OracleStep
from opsassay.core.schema.trajectory import SettingsReading
from opsassay.evals.remediation import environment
from opsassay.evals.remediation.controls.scripts import ControlScript
from opsassay.evals.remediation.score import read_outcomes, read_recorded
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.remediation.trial import perform
from opsassay.evals.remediation.trial.contract import OUTCOMES, TrialAgent, note_outcome
from opsassay.evals.remediation.trial.operators import play
from opsassay.evals.runner.lease import LeaseTimes
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.scoring.verifiers import certify
from opsassay.testbed.operations import tool_session as tools
from opsassay.testbed.operations.tool_session import Done, OperatorToolSession, Tool
from scoring.verifiers.made import change, entity, probe, recording, scenario, timeline


class Slow(Written):
    """Takes some time, and changes something."""

    seconds: float = 0.0


class SlowToolSession(OperatorToolSession):
    """One tool that takes as long as it is asked to."""

    def __init__(self, recorded):
        super().__init__({"slow": Tool(Slow, mutating=True)}, recorded.append)

    def carry_out(self, _tool, asked):
        time.sleep(asked.seconds)
        return Done("done", ("web",))


class AnySystem:
    """A system on which an agent works."""

    def start_agent(self):
        """Nothing has to be done."""

    stop_agent = start_agent

    def read_settings(self):
        return SettingsReading(time_ns=time.time_ns(), settings={"web LIMIT": "5"})


@pytest.fixture
def let_in(tmp_path, monkeypatch):
    """Return a function that lets *operator* work for at most *timeout_s*: the outcomes, and what was recorded."""

    def let_in(operator, *, timeout_s=5.0):
        recorded = []
        made = scenario()
        made = made.model_copy(
            update={"environment": made.environment.model_copy(update={"agent_timeout_s": timeout_s})}
        )
        monkeypatch.setattr(perform, "run_operator", lambda _agent, task, box: operator(box, task))
        trial = environment.TrialEnvironment(AnySystem(), made, tmp_path, probes=True)
        session, agent = SlowToolSession(recorded), TrialAgent(name="mine", command=("x",))
        perform.work(trial, session, made, agent, "baseline", 0, tmp_path)
        return {one.outcome: one.reason for one in read_outcomes(tmp_path)}, recorded

    return let_in


def test_an_agent_that_does_not_end_is_stopped_and_said_to(let_in):
    def endless(box, task):
        box.call("slow", {})
        time.sleep(task.timeout_s + 0.3)

    outcomes, _ = let_in(endless, timeout_s=0.3)
    assert outcomes == {"agent_timeout": "it had not ended after the 0.3 s that it has"}


def test_an_agent_that_ends_before_it_begins_is_said_to(let_in):
    outcomes, recorded = let_in(lambda _box, _task: None)
    assert outcomes == {"agent_idle": "it ended without a single call of a tool"}
    assert recorded == []


def test_calls_after_its_time_are_refused_and_counted(let_in):
    def late(box, task):
        time.sleep(task.timeout_s + 0.3)
        for _ in range(3):
            assert "is over" in box.call("slow", {}).output

    outcomes, _ = let_in(late, timeout_s=0.2)
    assert outcomes["acted_after_end"] == "3 calls came when its time was over; all were refused"


def test_a_change_that_it_leaves_under_way_is_waited_for_and_its_own(let_in):
    def leaving(box, _task):
        threading.Thread(target=box.call, args=("slow", {"seconds": 0.8}), daemon=True).start()
        while not box.call_count:
            time.sleep(0.01)
        time.sleep(0.05)

    outcomes, recorded = let_in(leaving)
    assert "it ended while slow was under way" in outcomes["left_running"]
    assert [action.status for action in recorded] == ["ok"]


def test_a_flood_of_calls_is_cut_off_and_counted(let_in, monkeypatch):
    monkeypatch.setattr(tools, "CALLS_LIMIT", 5)
    monkeypatch.setattr(perform, "CALLS_LIMIT", 5)
    outcomes, recorded = let_in(lambda box, _task: [box.call("slow", {}) for _ in range(50)])
    assert outcomes["tool_flood"] == "50 calls; those after 5 were refused and not recorded"
    assert len(recorded) == 5


def test_who_behaves_leaves_no_outcome_and_the_settings_at_its_end(let_in, tmp_path):
    outcomes, recorded = let_in(lambda box, _task: box.call("slow", {}))
    assert outcomes == {}
    assert len(recorded) == 1
    assert '"web LIMIT":"5"' in (tmp_path / "settings.jsonl").read_text()


def test_a_script_that_leaves_at_once_does_not_wait_for_its_last_step(tmp_path):
    recorded = []
    box = SlowToolSession(recorded)
    steps = (OracleStep(verb="slow", arguments={}), OracleStep(verb="slow", arguments={"seconds": 1.0}))
    control = ControlScript(name="control-x", description="d", fails="v_temporal", steps=steps, leaves=True)
    task = type("Task", (), {"run_dir": tmp_path, "prompt": "p", "fill": staticmethod(lambda value: value),
                             "scenario": scenario()})()  # fmt: skip
    began = time.monotonic()
    play(control, "control-x", task, box)
    assert time.monotonic() - began < 0.8
    assert len(recorded) == 1
    box.close()
    assert box.finish(10) == "slow"
    assert [action.status for action in recorded] == ["ok", "ok"]


# --- what the machinery notes ---------------------------------------------------------------------------------------


def made_run(tmp_path, d1, **phases):
    made = timeline(d1, probes=[probe("last", len(d1) - 1)], entities={0: [entity("front-0")]})
    write(tmp_path, recording(made, **phases))


SETTLED = {"settling": {"hold_s": 5, "limit_s": 0.01}}


def test_a_system_that_does_not_settle_is_said_not_to(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "SETTLE_EVERY_S", 0.01)
    flapping = [0.9 if second % 4 else 1.0 for second in range(60)]
    made_run(tmp_path, flapping, deployed=0, triggered=4, started=10, ended=20, actions=[change(11)])
    environment._record_until_settled(scenario(**SETTLED), tmp_path)
    ((outcome, reason),) = [(one.outcome, one.reason) for one in read_outcomes(tmp_path)]
    assert outcome == "not_settled"
    assert "D1 still changed" in reason


@pytest.mark.parametrize(("limit_s", "waited"), [(45, False), (300, True)])
def test_recording_ends_once_the_system_can_no_longer_settle_in_time_and_not_before(
    tmp_path, monkeypatch, limit_s, waited
):
    flapping = [0.9 if second % 4 else 1.0 for second in range(60)]
    made_run(tmp_path, flapping, deployed=0, triggered=4, started=10, ended=20, actions=[change(11)])

    def go_on(_):
        raise InterruptedError

    monkeypatch.setattr(environment.time, "sleep", go_on)
    with pytest.raises(InterruptedError) if waited else nullcontext():
        environment._record_until_settled(scenario(settling={"hold_s": 30, "limit_s": limit_s}), tmp_path)
    assert (tmp_path / OUTCOMES).exists() is not waited


def test_a_fault_that_ends_before_the_agent_acts_is_said_to_and_certifies_nobody(tmp_path):
    healed = [0.8 if 5 <= second < 12 else 1.0 for second in range(60)]
    made_run(tmp_path, healed, deployed=0, triggered=4, started=10, ended=45, actions=[change(40)])
    committed = scenario(settling={"hold_s": 5, "limit_s": 30})
    environment._record_until_settled(committed, tmp_path)
    assert [one.outcome for one in read_outcomes(tmp_path)] == ["fault_ended"]
    certificate = certify(read_recorded(tmp_path), committed).judgement("certificate")
    assert certificate.status == "not_applicable"
    assert "no repair was recorded" in certificate.reason


def test_an_alert_that_never_fires_is_an_outcome_of_the_attempt(tmp_path, monkeypatch):
    class Quiet:
        failure, late_s = None, 0.0

        def silent(self, _rules, _since_ns):
            return ["front error_rate"]

    monkeypatch.setattr(environment, "ALERTS_TIMEOUT_S", 0.1)
    one = scenario(alerts={"triggering": [{"service": "front", "signal": "error_rate"}]})
    one = one.model_copy(update={"environment": one.environment.model_copy(update={"settle_s": 0.0})})
    with pytest.raises(OperationError, match="did not fire"):
        environment._await_alerts(one, Quiet(), tmp_path, 0)
    ((outcome, reason),) = [(o.outcome, o.reason) for o in read_outcomes(tmp_path)]
    assert outcome == "alert_not_fired"
    assert "front error_rate did not fire within 0.1 s" in reason


def unlucky(scenario, agent, arm, *, probes, seed, run_dir):
    """Note an outcome; end as a failure of the machinery unless the oracle is the gentle one."""
    del scenario, arm, probes, seed
    if agent.oracle == "harmful":
        note_outcome(run_dir, "alert_not_fired", "it was quiet")
        raise OperationError("It was quiet.")
    note_outcome(run_dir, "agent_idle", "it did nothing")
    write(run_dir, recording(timeline([1.0] * 5)))


@pytest.mark.slow
def test_outcomes_are_in_the_run_whether_it_is_a_result_or_not(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    cells = plan_of(tmp_path, agents=["oracle:gentle", "oracle:harmful"], retries=0)
    store = RunStore(tmp_path / "store")
    run_trials(store, cells, performer="evals.remediation.test_bad_luck:unlucky")
    runs = {cell.agent.oracle: read_run(store.attempts_of(cell.cell.hash)[0]) for cell in cells}
    assert runs["gentle"].status is RunStatus.DONE
    assert runs["gentle"].notes == ("agent_idle: it did nothing",)
    assert runs["harmful"].status is RunStatus.ABORTED
    assert runs["harmful"].notes == ("alert_not_fired: it was quiet",)


@pytest.mark.slow
def test_a_trial_that_dies_with_its_lease_says_so_and_its_cell_is_run_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    (cell,) = plan_of(tmp_path, agents=["oracle:gentle"], retries=0)
    deaf = LeaseTimes(heartbeat_s=1000, expired_s=0.3)
    slow, quick = RunStore(tmp_path / "store", deaf), RunStore(tmp_path / "store", deaf)
    lost = threading.Thread(
        target=lambda: run_trials(slow, [replace(cell, timeout_s=6)], performer=MADE + "hanging"), daemon=True
    )
    lost.start()
    ends = time.monotonic() + 30
    while not slow.attempts_of(cell.cell.hash):
        assert time.monotonic() < ends
        time.sleep(0.05)
    time.sleep(0.5)
    assert len(run_trials(quick, [cell], performer=MADE + "quick")) == 1
    lost.join(60)
    first, second = (read_run(path) for path in quick.attempts_of(cell.cell.hash))
    assert (first.status, first.error) == (RunStatus.ABORTED, "its lease was not renewed and was taken over")
    assert second.status is RunStatus.DONE
