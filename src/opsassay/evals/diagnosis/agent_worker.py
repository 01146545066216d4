"""What a worker process does with an agent in Python: an exam over the incident in the current folder."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.solvers.agents.asking import Asker, LimitError
from opsassay.solvers.agents.base import Exam, agent_named
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Limits, Meter, Price
from opsassay.solvers.agents.models.base import ModelError
from opsassay.solvers.agents.models.named import model_named
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tools import MAX_ROWS, TelemetryToolbox
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql


def solve(job: dict[str, Any], incident: Datapack) -> dict[str, Any]:
    """Return what came of the agent's exam: diagnosis or error, what was spent, the limits that were hit.

    ``world`` tells that the endpoint failed, not the agent.
    """
    limits = Limits.model_validate(job["limits"])
    meter = Meter(limits, Price.model_validate(job["price"]))
    payload: dict[str, Any] = {}
    try:
        agent = agent_named(job["name"])
        model = model_named(job["model"], retries=0, timeout_s=min(limits.seconds, 300.0))
        with LockedSql(incident, timeout_s=limits.query_seconds, max_rows=MAX_ROWS) as sql:
            asker = Asker(model, meter, AgentRecorder(Path.cwd()), temperature=job["temperature"])
            exam = Exam(incident.incident, tuple(incident.services()), TelemetryToolbox(sql), asker, meter)
            answer = agent.solve(exam)
        payload["diagnosis"] = answer.diagnosis.model_dump(mode="json", by_alias=True)
    except ModelError as error:
        payload |= {"error": str(error), "world": error.passing}
    except (AnswerError, LimitError) as error:
        payload["error"] = f"no answer by the contract: {error}"
    except OpsAssayError as error:
        payload["error"] = str(error)
    except Exception as error:  # noqa: BLE001 - whatever the agent raises is its result
        traceback.print_exc()
        payload["error"] = f"{type(error).__name__}: {error}"
    return payload | {"spent": meter.spent(), "limits_hit": meter.hit}
