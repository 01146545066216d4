"""The built-in SRE agent in a trial: a model by its name, within the scenario's time."""

from __future__ import annotations

import json
from typing import Any

from opsassay.evals.remediation.assignment import Assignment
from opsassay.evals.remediation.contract import REPORT, TrialAgent
from opsassay.evals.remediation.diagnosing import Diagnoses
from opsassay.evals.remediation.tool_session import OpsToolSession
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.models.named import model_named
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.sre import SreAgent
from opsassay.testbed.operations.toolbox import BaseToolbox
from opsassay.testbed.scenarios import system_of


def run_sre(agent: TrialAgent, task: Assignment, toolbox: BaseToolbox) -> None:
    """Let the SRE agent work; its reports lie in the run folder. Raises UserError for a model that there is not."""
    assert agent.model is not None
    limits = Limits(seconds=task.timeout_s, **agent.settings)
    asker = Asker(model_named(agent.model, timeout_s=task.timeout_s), Meter(limits), AgentRecorder(task.run_dir))
    system = system_of(task.scenario)
    names = [*system.services, *system.stores, *system.hosts]
    report = SreAgent(asker, OpsToolSession(toolbox), names, Diagnoses(task).take).run(task.prompt)
    summary: dict[str, Any] = {
        "diagnosis": report.diagnosis,
        "mitigation": report.mitigation,
        "notes": report.notes,
        "spent": asker.meter.spent(),
        "limits_hit": asker.meter.hit,
    }
    (task.run_dir / REPORT).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
