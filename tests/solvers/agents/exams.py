"""An exam in this process, for agents that ask a model of the test's making."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

from opsassay.core.schema.trajectory import TraceStep
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.base import Exam
from opsassay.solvers.agents.limits import Limits, Meter, Price
from opsassay.solvers.agents.models import Reply, ToolRequest
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tools import TelemetryToolbox
from opsassay.telemetry.sql import LockedSql

GOOD = {
    "root_causes": [
        {
            "service": "cart",
            "fault_kind": "http_aborted",
            "evidence": [{"kind": "trace", "sql": "SELECT count(*) FROM abnormal_traces WHERE service_name = 'cart'"}],
        }
    ],
    "propagation": [],
}


def says(text):
    return Reply(text=text if isinstance(text, str) else json.dumps(text))


def calls(tool, **arguments):
    return Reply(tool_requests=(ToolRequest(id="1", tool=tool, arguments=arguments),))


def is_synthesis(messages):
    return "synthesiser" in messages[0].content


@contextmanager
def exam(pack, folder, respond, *, limits=None, price=None, sleep=lambda _: None, clock=None):
    """Give an exam on *pack* whose model answers by *respond*, a function or a model; its record goes into *folder*."""
    model = respond if hasattr(respond, "complete") else ScriptedModel(respond)
    given = Limits.model_validate({"pause_s": 0.01, **(limits or {})})
    meter = Meter(given, price or Price(), **({"clock": clock} if clock else {}))
    with LockedSql(pack, timeout_s=given.query_seconds, max_rows=200) as sql:
        asker = Asker(model, meter, AgentRecorder(folder), sleep=sleep)
        yield Exam(pack.incident, tuple(pack.services()), TelemetryToolbox(sql), asker, meter)


def steps(folder: Path) -> list[TraceStep]:
    return [TraceStep.model_validate_json(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
