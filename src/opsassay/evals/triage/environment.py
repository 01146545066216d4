"""The environment of an alert storm: a folder with its alerts and telemetry, and tools for SQL and submit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.diagnosis.environment import copy_visible
from opsassay.evals.runner.generated_run import FolderEnvironment
from opsassay.evals.runner.json_answers import JsonToolSession
from opsassay.evals.triage.alerts.answers import read_sorted
from opsassay.evals.triage.tasks import Storm
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tool_sessions import SUBMIT, CanCall
from opsassay.solvers.agents.tools import MAX_ROWS, NOTED, TelemetryToolbox, Think, Toolbox, tool_specs
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql

ALERTS_FILE = "alerts.json"
_IDS = {"type": "array", "items": {"type": "string"}}
SUBMIT_SPEC = ToolSpec(
    name=SUBMIT,
    description="Hand in the answer by the contract of the task. A later answer takes the place of an earlier one.",
    parameters={
        "type": "object",
        "properties": {"groups": {"type": "array", "items": _IDS}, "noise": _IDS},
        "required": ["groups", "noise"],
        "additionalProperties": False,
    },
)


class Notebook(Toolbox):
    """The tools of a storm without telemetry: only `think`."""

    tools = {"think": Think}  # noqa: RUF012 - as of every toolbox

    def _run_tool(self, request: Any) -> Any:
        """Return the fixed answer of the tool `think`; nothing is done."""
        del request
        return NOTED


class StormToolSession(JsonToolSession):
    """The agent's tools for *storm*: *tools* (over its telemetry, else `think`), and submit."""

    def __init__(self, storm: Storm, tools: CanCall, meter: Meter, recorder: AgentRecorder) -> None:
        super().__init__(tools, meter, recorder)
        self._storm, self._offered = storm, session_specs(with_telemetry=isinstance(tools, TelemetryToolbox))

    def own_specs(self) -> tuple[ToolSpec, ...]:
        """Return the tool specifications that the agent sees, submit last."""
        return self._offered

    def require(self, answer: Mapping[str, Any]) -> None:
        """Raise AnswerError when *answer* does not have the form that the task asks for."""
        read_sorted(self._storm, answer)


def session_specs(*, with_telemetry: bool) -> tuple[ToolSpec, ...]:
    """Return the tool specifications for an alert storm, submit last; without telemetry there is no SQL."""
    return (*(tool_specs() if with_telemetry else tool_specs(Notebook.tools)), SUBMIT_SPEC)


class StormEnvironment(FolderEnvironment[StormToolSession]):
    """The folder of a storm: its alerts as JSON and, if it is of one recording (*pack*), the telemetry."""

    def __init__(self, storm: Storm, pack: Datapack | None, run_dir: Path, meter: Meter) -> None:
        super().__init__(run_dir, meter)
        self._storm, self._pack = storm, pack

    def prepare(self) -> None:
        """Write alerts, calls and telemetry (without the incident's own alerts) into the agent's folder."""
        super().prepare()
        shown = self._storm.model_dump(mode="json", include={"alerts", "calls"})
        (self.view / ALERTS_FILE).write_text(json.dumps(shown, indent=1) + "\n", encoding="utf-8")
        if self._pack is not None:
            incident = self._pack.incident.model_copy(update={"alerts": (), "description": ""})
            copy_visible(self._pack, self.view, incident)

    def session(self) -> StormToolSession:
        """Return a session with the tools; its calls are logged in the run folder."""
        tools: CanCall = Notebook()
        if self._pack is not None:
            sql = LockedSql(Datapack.open(self.view), timeout_s=self.meter.limits.query_seconds, max_rows=MAX_ROWS)
            tools = TelemetryToolbox(self.stack.enter_context(sql))
        return StormToolSession(self._storm, tools, self.meter, AgentRecorder(self.run_dir))
