"""The built-in SRE agent in a trial: a model by its name, within the scenario's time."""

from __future__ import annotations

import json
from typing import Any

from assay.agents.asking import Asker
from assay.agents.limits import Limits, Meter
from assay.agents.models.named import model_named
from assay.agents.record import Recorder
from assay.agents.sre import SreAgent
from assay.bench.trials.contract import REPORT, TrialAgent
from assay.bench.trials.desk import OpsDesk
from assay.bench.trials.diagnosing import Diagnoses
from assay.bench.trials.tasks import Task
from assay.testbed.ops.toolbox import BaseToolbox
from assay.testbed.scenarios import system_of


def run_sre(agent: TrialAgent, task: Task, toolbox: BaseToolbox) -> None:
    """Let the SRE agent work; its reports lie in the run folder. Raises UserError for a model that there is not."""
    assert agent.model is not None
    limits = Limits(seconds=task.timeout_s, **agent.settings)
    asker = Asker(model_named(agent.model, timeout_s=task.timeout_s), Meter(limits), Recorder(task.run_dir))
    system = system_of(task.scenario)
    names = [*system.services, *system.stores, *system.hosts]
    report = SreAgent(asker, OpsDesk(toolbox), names, Diagnoses(task).take).run(task.prompt)
    told: dict[str, Any] = {
        "diagnosis": report.diagnosis,
        "mitigation": report.mitigation,
        "notes": report.notes,
        "spent": asker.meter.spent(),
        "limits_hit": asker.meter.hit,
    }
    (task.run_dir / REPORT).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
