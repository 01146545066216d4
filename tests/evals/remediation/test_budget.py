"""The time of an agent: when it is over its tools refuse, whoever it is; the script of an oracle is played to its end."""

from __future__ import annotations

import time

import pytest

from opsassay.core.schema.trajectory import SettingsReading
from opsassay.evals.remediation import perform
from opsassay.evals.remediation.contract import TrialAgent
from opsassay.testbed.operations.stage import OperatorToolSession
from opsassay.testbed.operations.tools import VerbToolbox
from scoring.verifiers.made import scenario


class NoStage:
    """A stage on which nothing happens."""

    def start_agent(self):
        """Nobody has to be told."""

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
    toolbox = VerbToolbox(None, None, recorded.append)

    def late(_agent, task, tools):
        tools.call("wait", {"seconds": 0.01})
        time.sleep(task.timeout_s + 0.5)
        tools.call("wait", {"seconds": 0.01})

    monkeypatch.setattr(perform, "run_operator", late)
    made = scenario()
    made = made.model_copy(update={"environment": made.environment.model_copy(update={"agent_timeout_s": 0.5})})
    perform._work(made, agent, "baseline", NoStage(), OperatorToolSession(toolbox), 0, tmp_path)
    assert [action.status for action in recorded] == answers
    assert toolbox.call("wait", {"seconds": 0.01}).output == "Error: the time for repairs is over."
    phases = [line.split('"')[3] for line in (tmp_path / "phases.jsonl").read_text().splitlines()]
    assert phases == ["agent_started", "agent_ended"]
