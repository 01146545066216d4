"""The time of an agent: when it is over its tools refuse, whoever it is; the script of an oracle is played to its end."""

from __future__ import annotations

import time

import pytest

from opsassay.core.schema.trajectory import SettingsReading
from opsassay.evals.remediation.environment import TrialEnvironment
from opsassay.evals.remediation.trial import perform
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.testbed.operations.tools import VerbToolSession
from scoring.verifiers.made import scenario


class NoSystem:
    """A system on which nothing happens."""

    def start_agent(self):
        """Nothing has to be done."""

    stop_agent = start_agent

    def read_settings(self):
        """It has none."""
        return SettingsReading(time_ns=time.time_ns(), settings={})


@pytest.mark.parametrize(
    ("agent", "answers"),
    [
        (TrialAgent(name="sre", model="m"), ["ok", "error"]),
        (TrialAgent(name="mine", command=("x",)), ["ok", "error"]),
        (TrialAgent(name="oracle:gentle"), ["ok", "ok"]),
    ],
)
def test_once_the_time_is_over_tools_refuse(tmp_path, monkeypatch, agent, answers):
    recorded = []
    session = VerbToolSession(None, None, recorded.append)

    def late(_agent, task, tools):
        tools.call("wait", {"seconds": 0.01})
        time.sleep(task.timeout_s + 0.5)
        tools.call("wait", {"seconds": 0.01})

    monkeypatch.setattr(perform, "run_operator", late)
    made = scenario()
    made = made.model_copy(update={"environment": made.environment.model_copy(update={"agent_timeout_s": 0.5})})
    trial = TrialEnvironment(NoSystem(), made, tmp_path, probes=True)
    perform.work(trial, session, made, agent, "baseline", 0, tmp_path)
    assert [action.status for action in recorded] == answers
    assert session.call("wait", {"seconds": 0.01}).output == "Error: the time for repairs is over."
    phases = [line.split('"')[3] for line in (tmp_path / "phases.jsonl").read_text().splitlines()]
    assert phases == ["agent_started", "agent_ended"]
