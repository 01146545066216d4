"""The environment of a task on cost data: tables in a folder, read-only SQL over them, the detector, and submit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import Field

from opsassay.core.errors import NotFoundError, QueryError
from opsassay.core.schema.base import Written
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.cost.anomaly.detector import DetectorSettings, detect
from opsassay.evals.cost.answers.contract import read_claims, read_rows
from opsassay.evals.cost.focus.generate import write_tables
from opsassay.evals.cost.focus.schema import describe_columns
from opsassay.evals.cost.insight.keys import Question
from opsassay.evals.cost.tasks import CostTask
from opsassay.evals.runner.generated_run import FolderEnvironment
from opsassay.evals.runner.json_answers import JsonToolSession
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tool_sessions import SUBMIT
from opsassay.solvers.agents.tools import Status, TelemetryToolbox, Think, shown_rows, tool_specs
from opsassay.telemetry.sql import LockedSql, TableFolder

DIALECT = f"DuckDB {version('duckdb')}"
POINTS_MOST = 20_000
"""Most rows of a statement for the detector."""
SCHEMA_FILE = "schema.md"


class ListCostTables(Written):
    """List the tables of cost data with their numbers of rows and columns."""


class GetCostSchema(Written):
    """Tell the columns of a table with their types and what they mean."""

    table: str = Field(description="name of a table, as list_tables gives it")


class QueryCosts(Written):
    """Run one SELECT statement over the tables of cost data; times are UTC."""

    sql: str = Field(description="the statement")


class DetectAnomalies(DetectorSettings):
    """Run a detector over the rows of a SELECT statement with the columns time, slice and value; times with UTC offset."""

    sql: str = Field(description="the statement; its columns are called time, slice and value")


COST_TOOLS: Mapping[str, type[Written]] = {
    "list_tables": ListCostTables,
    "get_schema": GetCostSchema,
    "query_sql": QueryCosts,
    "detect_anomalies": DetectAnomalies,
    "think": Think,
}


class CostToolbox(TelemetryToolbox):
    """The tools over the tables of one task; *misses* counts statements with unknown columns or functions."""

    tools = COST_TOOLS

    def __init__(self, sql: LockedSql, schemas: Mapping[str, pl.Schema]) -> None:
        super().__init__(sql)
        self._schemas, self.misses = schemas, 0

    def _run_tool(self, request: Written) -> tuple[str, Status]:
        """Run the tool of the validated *request*; return its output for the agent, and "ok" or "error"."""
        if isinstance(request, ListCostTables):
            return self._list_tables(), "ok"
        if isinstance(request, GetCostSchema):
            if request.table not in self._schemas:
                raise NotFoundError("table", request.table, self._schemas)
            return describe_columns(request.table, self._schemas[request.table]), "ok"
        if isinstance(request, DetectAnomalies):
            return self._run_detector(request)
        if isinstance(request, QueryCosts):
            return self._run_query(request.sql)
        return super()._run_tool(request)

    def _run_query(self, sql: str) -> tuple[str, Status]:
        """Run the agent's SQL; return its rows as text and "ok" or "error". Unknown names add to `misses`."""
        result = self._sql.query(sql)
        if result.status not in ("ok", "empty"):
            self.misses += any(word in result.message for word in ("Binder Error", "Catalog Error"))
            return f"Error: {result.status}: {result.message}", "error"
        return shown_rows(result.columns, result.rows, truncated=result.truncated), "ok"

    def _run_detector(self, request: DetectAnomalies) -> tuple[str, Status]:
        """Run the detector on the rows of the request's SQL; return the points it marks, and "ok" or "error"."""
        result = self._sql.query(request.sql)
        if result.status not in ("ok", "empty"):
            self.misses += any(word in result.message for word in ("Binder Error", "Catalog Error"))
            return f"Error: {result.status}: {result.message}", "error"
        if sorted(result.columns) != ["slice", "time", "value"] or result.truncated:
            problem = f"has more than {POINTS_MOST} rows" if result.truncated else f"has {', '.join(result.columns)}"
            raise QueryError(f"the statement {problem}; it has the columns time, slice and value, a row for each point")
        columns = [result.columns.index(name) for name in ("time", "slice", "value")]
        try:
            rows = [
                (datetime.fromisoformat(str(r[columns[0]])), str(r[columns[1]]), float(r[columns[2]]))
                for r in result.rows
            ]
        except (TypeError, ValueError) as error:
            raise QueryError(f"a row cannot be read ({error}); time is a TIMESTAMPTZ, value a number") from error
        settings = DetectorSettings.model_validate(request.model_dump(exclude={"sql"}))
        found = [(time.isoformat(), slice_) for time, slice_ in detect(rows, settings)]
        return shown_rows(("time", "slice"), tuple(found), truncated=False), "ok"


def require_answer(task: CostTask, answer: Mapping[str, Any]) -> None:
    """Raise AnswerError when *answer* lacks fields that *task* asks for, or has invalid values in them."""
    body = task.body
    if isinstance(body, Question):
        read_rows(answer, body.template.fields)
    else:
        read_claims(answer, body.slices, ranked=body.ranked)


def submit_spec(task: CostTask) -> ToolSpec:
    """Return the specification of the tool `submit` with the answer fields of *task*."""
    body = task.body
    key = "rows" if isinstance(body, Question) else "anomalies"
    parameters = {
        "type": "object",
        "properties": {key: {"type": "array", "items": {"type": "object"}}},
        "required": [key],
        "additionalProperties": False,
    }
    about = "Hand in the answer by the contract of the task. A later answer takes the place of an earlier one."
    return ToolSpec(name=SUBMIT, description=about, parameters=parameters)


def looking_specs() -> tuple[ToolSpec, ...]:
    """Return the specifications of the read-only tools on cost data; `submit` is not among them."""
    return tuple(
        spec.model_copy(update={"description": f"{spec.description} The dialect is {DIALECT}."})
        if "sql" in spec.parameters["properties"]
        else spec
        for spec in tool_specs(COST_TOOLS)
    )


class CostToolSession(JsonToolSession):
    """The agent's tools for a task on cost data, and submit."""

    def __init__(self, task: CostTask, tools: CostToolbox, meter: Meter, recorder: AgentRecorder) -> None:
        super().__init__(tools, meter, recorder)
        self._task, self.tools = task, tools

    def own_specs(self) -> tuple[ToolSpec, ...]:
        """Return the tool specifications that the agent sees, submit last."""
        return (*looking_specs(), submit_spec(self._task))

    def require(self, answer: Mapping[str, Any]) -> None:
        """Raise AnswerError when *answer* does not have the form that the task asks for."""
        require_answer(self._task, answer)


class CostTablesEnvironment(FolderEnvironment[CostToolSession]):
    """The folder of a task: its tables as Parquet and their schema as text, without seed and truth."""

    def __init__(self, task: CostTask, run_dir: Path, meter: Meter | None = None) -> None:
        super().__init__(run_dir, meter or Meter(Limits()))
        self._task = task
        self._schemas = {name: table.schema for name, table in task.body.data.tables.items()}

    def prepare(self) -> None:
        """Write the cost tables as Parquet files into the folder that the agent can read."""
        super().prepare()
        write_tables(self._task.body.data, self.view)
        text = "\n\n".join(f"# {name}\n\n{describe_columns(name, schema)}" for name, schema in self._schemas.items())
        (self.view / SCHEMA_FILE).write_text(f"{text}\n", encoding="utf-8")

    def session(self) -> CostToolSession:
        """Return a session with the tools over the tables; its calls are logged in the run folder."""
        sql = LockedSql(TableFolder(self.view), timeout_s=self.meter.limits.query_seconds, max_rows=POINTS_MOST)
        toolbox = CostToolbox(self.stack.enter_context(sql), self._schemas)
        return CostToolSession(self._task, toolbox, self.meter, AgentRecorder(self.run_dir))
