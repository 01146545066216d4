"""The environment of a task on cost data: tables in a folder, locked SQL over them, the declared detector, and submit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field

from opsassay.core.errors import NotFoundError, QueryError
from opsassay.core.schema.base import Written
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import ToolCall
from opsassay.evals.cost.focus.generate import write_tables
from opsassay.evals.cost.focus.schema import TABLES, described
from opsassay.evals.cost.insight.keys import Question
from opsassay.evals.cost.score import read_claims, read_object, read_rows
from opsassay.evals.cost.tasks import CostTask
from opsassay.evals.runner.generated_run import FolderEnvironment
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tool_sessions import SUBMIT, CountedToolSession
from opsassay.solvers.agents.tools import Status, TelemetryToolbox, Think, shown_rows, tool_specs
from opsassay.telemetry.sql import LockedSql, TableFolder

MAD_TO_SD = 1.4826
"""Median absolute deviations of a normal distribution times this are standard deviations."""


class DetectorSettings(Written):
    """Everything that moves what the detector finds."""

    method: Literal["robust_z", "isolation_forest"] = Field(default="robust_z", description="which of the two")
    threshold: float = Field(default=3.5, gt=0, description="robust_z: distance in scaled deviations beyond which")
    least_spread: float = Field(default=0.02, ge=0, description="robust_z: least deviation, as a share of the median")
    contamination: float = Field(default=0.02, gt=0, le=0.5, description="isolation_forest: share of points found")
    trees: int = Field(default=100, ge=10, le=500, description="isolation_forest: number of trees")
    random_state: int = Field(default=0, ge=0, description="isolation_forest: seed")


DEFAULTS = DetectorSettings()


def detect(
    rows: Sequence[tuple[datetime, str, float]], settings: DetectorSettings = DEFAULTS
) -> list[tuple[datetime, str]]:
    """Return the (time, slice) of *rows* of (time, slice, value) that *settings* call anomalous, by slice and time.

    *value* is in any unit. With m the median of values of the same weekday and hour (weekday alone for a daily series)
    in a slice, and MAD the median of |value - m| over the slice, ``robust_z`` finds

        |value - m| > threshold * max(1.4826 * MAD, least_spread * |m|)
    """
    if not rows:
        return []
    frame = pl.DataFrame(rows, schema=["time", "slice", "value"], orient="row").sort("slice", "time")
    finder = _robust_z if settings.method == "robust_z" else _isolation_forest
    return [point for _, of in frame.group_by("slice", maintain_order=True) for point in finder(of, settings)]


def _robust_z(of: pl.DataFrame, settings: DetectorSettings) -> list[Any]:
    daily = of["time"].dt.hour().n_unique() == 1
    keys = [pl.col("time").dt.weekday(), *(() if daily else (pl.col("time").dt.hour(),))]
    deviation = pl.col("value") - pl.col("value").median().over(keys)
    found = of.with_columns(deviation.alias("off"), pl.col("value").median().over(keys).abs().alias("usual"))
    spread = MAD_TO_SD * float(found["off"].abs().median() or 0.0)  # type: ignore[arg-type]
    least = pl.max_horizontal(pl.lit(spread), settings.least_spread * pl.col("usual"))
    return found.filter(pl.col("off").abs() > settings.threshold * least).select("time", "slice").rows()


def _isolation_forest(of: pl.DataFrame, settings: DetectorSettings) -> list[Any]:
    from sklearn.ensemble import IsolationForest

    features = np.column_stack([of["value"], of["time"].dt.hour(), of["time"].dt.weekday()]).astype(float)
    forest = IsolationForest(
        n_estimators=settings.trees, contamination=settings.contamination, random_state=settings.random_state, n_jobs=1
    )
    return of.filter(pl.Series(forest.fit_predict(features) == -1)).select("time", "slice").rows()


DIALECT = f"DuckDB {version('duckdb')}"
POINTS_MOST = 20_000
"""Rows that a statement may hand to the detector."""
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
    """The tools over the tables of one task; *misses* counts statements that name a column or a function there is not."""

    tools = COST_TOOLS

    def __init__(self, sql: LockedSql) -> None:
        super().__init__(sql)
        self.misses = 0

    def _run(self, asked: Written) -> tuple[str, Status]:
        if isinstance(asked, ListCostTables):
            return self._listed(), "ok"
        if isinstance(asked, GetCostSchema):
            if asked.table not in TABLES:
                raise NotFoundError("table", asked.table, TABLES)
            return described(asked.table), "ok"
        if isinstance(asked, DetectAnomalies):
            return self._detected(asked)
        if isinstance(asked, QueryCosts):
            return self._queried(asked.sql)
        return super()._run(asked)

    def _queried(self, sql: str) -> tuple[str, Status]:
        result = self._sql.query(sql)
        if result.status not in ("ok", "empty"):
            self.misses += any(word in result.message for word in ("Binder Error", "Catalog Error"))
            return f"Error: {result.status}: {result.message}", "error"
        return shown_rows(result.columns, result.rows, truncated=result.truncated), "ok"

    def _detected(self, asked: DetectAnomalies) -> tuple[str, Status]:
        result = self._sql.query(asked.sql)
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
        settings = DetectorSettings.model_validate(asked.model_dump(exclude={"sql"}))
        found = [(time.isoformat(), slice_) for time, slice_ in detect(rows, settings)]
        return shown_rows(("time", "slice"), tuple(found), truncated=False), "ok"


def problem_of(task: CostTask, given: Mapping[str, Any]) -> str | None:
    """Return in which way *given* breaks the contract of an answer to *task*, None when it keeps it."""
    try:
        require_answer(task, given)
    except AnswerError as error:
        return f"not an answer by the contract: {error}."
    return None


def require_answer(task: CostTask, given: Mapping[str, Any]) -> None:
    """Raise AnswerError for what is no answer to *task* by the contract."""
    body = task.body
    plain = read_object(json.dumps(dict(given), ensure_ascii=False))
    if isinstance(body, Question):
        read_rows(plain, body.template.fields)
    else:
        read_claims(plain, body.slices, ranked=body.ranked)


def submit_spec(task: CostTask) -> ToolSpec:
    """Return the tool by which an answer to *task* is handed in."""
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
    """Return the tools over cost data, without submit."""
    return tuple(
        spec.model_copy(update={"description": f"{spec.description} The dialect is {DIALECT}."})
        if "sql" in spec.parameters["properties"]
        else spec
        for spec in tool_specs(COST_TOOLS)
    )


class CostToolSession(CountedToolSession):
    """The tools of a task on cost data; the last *answer* that was submitted by the contract counts."""

    def __init__(self, task: CostTask, tools: CostToolbox, meter: Meter, recorder: AgentRecorder) -> None:
        super().__init__(tools, meter, recorder)
        self._task, self.tools = task, tools
        self.answer: dict[str, Any] | None = None

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools, submit the last."""
        return (*looking_specs(), submit_spec(self._task))

    def submitted(self, given: dict[str, Any]) -> ToolCall:
        """Take an answer by the contract."""
        problem = problem_of(self._task, given)
        if problem is not None:
            return ToolCall(tool=SUBMIT, arguments=given, output=f"Error: {problem}", status="error")
        self.answer = given
        return ToolCall(tool=SUBMIT, arguments=given, output="Taken.")


class CostTablesEnvironment(FolderEnvironment[CostToolSession]):
    """The tables of *task* as parquet, and their schema in words: no seed, no other question and no truth."""

    def __init__(self, task: CostTask, run_dir: Path, meter: Meter | None = None) -> None:
        super().__init__(run_dir, meter or Meter(Limits()))
        self._task = task

    def prepare(self) -> None:
        """Write the tables into the view."""
        super().prepare()
        write_tables(self._task.body.data, self.view)
        text = "\n\n".join(f"# {name}\n\n{described(name)}" for name in TABLES)
        (self.view / SCHEMA_FILE).write_text(f"{text}\n", encoding="utf-8")

    def session(self) -> CostToolSession:
        """Return the tools over the tables; calls are written into the run folder."""
        sql = LockedSql(TableFolder(self.view), timeout_s=self.meter.limits.query_seconds, max_rows=POINTS_MOST)
        toolbox = CostToolbox(self.stack.enter_context(sql))
        return CostToolSession(self._task, toolbox, self.meter, AgentRecorder(self.run_dir))
