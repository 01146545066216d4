"""The four tools of an RCA agent: list tables, schema, locked SQL and think; a failed call returns its error as output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, ValidationError

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.base import Written
from opsassay.core.schema.tool_session import FurtherTools, ToolSpec, joined_tools
from opsassay.core.schema.trajectory import ToolCall
from opsassay.core.schema.validation_errors import problem
from opsassay.core.text import json_text
from opsassay.telemetry.sql import LockedSql

Status = Literal["ok", "error"]
MAX_ROWS, MAX_CHARACTERS = 200, 20_000
"""Most rows and characters of a result that a tool outputs."""


class ListTables(Written):
    """List the tables of this incident with their numbers of rows and columns."""


class GetSchema(Written):
    """Tell the columns of a table with their SQL types."""

    table: str = Field(description="name of a table, as list_tables gives it")


class QuerySql(Written):
    """Run one SELECT statement (DuckDB) over the tables of this incident."""

    sql: str = Field(description="the statement")


class Think(Written):
    """Record what you have found and what you do next. Nothing is looked up."""

    thought: str = Field(description="summary and plan")


NOTED: tuple[str, Status] = ("Noted.", "ok")
"""The output and status of every call of `Think`."""
TOOLS: Mapping[str, type[Written]] = {
    "list_tables": ListTables,
    "get_schema": GetSchema,
    "query_sql": QuerySql,
    "think": Think,
}
"""Arguments of every tool by its name."""


def tool_specs(tools: Mapping[str, type[Written]] = TOOLS) -> tuple[ToolSpec, ...]:
    """Return the specifications for a model of *tools*, by name the pydantic model of the arguments."""
    return tuple(
        ToolSpec(name=n, description=model.__doc__ or "", parameters=_schema_of_arguments(model))
        for n, model in tools.items()
    )


class Toolbox(ABC):
    """Tools by their names: `call` validates the arguments and runs `_run_tool`; an error becomes the call's output."""

    tools: Mapping[str, type[Written]] = {}
    _joined: Mapping[str, tuple[ToolSpec, FurtherTools]] = {}

    def join(self, servers: Sequence[FurtherTools]) -> None:
        """Offer the tools of the MCP *servers* too; raises StartError for a name that is taken."""
        self._joined = joined_tools(servers, tool_specs(self.tools))

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of the tools, those of joined servers last."""
        return (*tool_specs(self.tools), *(spec for spec, _ in self._joined.values()))

    def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Validate *arguments* and call *tool*; return the call; a failure is a call with status "error"."""
        given = dict(arguments)
        if tool in self._joined:
            return self._joined[tool][1].call(tool, given)
        if tool not in self.tools:
            return _make_tool_call(
                tool, given, f"Error: unknown tool {tool!r}; there are {', '.join(self.tools)}.", "error"
            )
        try:
            asked = self.tools[tool].model_validate(given)
        except ValidationError as error:
            why = problem(error, "the arguments")
            return _make_tool_call(tool, given, f"Error: invalid arguments of {tool}: {why}.", "error")
        try:
            output, status = self._run_tool(asked)
        except OpsAssayError as error:
            output, status = f"Error: {error}", "error"
        return _make_tool_call(tool, given, output, status)

    @abstractmethod
    def _run_tool(self, request: Written) -> tuple[str, Status]:
        """Run the tool of the validated *request*; return its text output and "ok" or "error"; raises OpsAssayError."""


class TelemetryToolbox(Toolbox):
    """The tools over one incident, whose tables are in *sql*."""

    tools = TOOLS

    def __init__(self, sql: LockedSql) -> None:
        self._sql = sql
        self._tables: str | None = None

    def _run_tool(self, request: Written) -> tuple[str, Status]:
        """Run the tool of the validated *request*; return its text output and "ok" or "error"."""
        if isinstance(request, Think):
            return NOTED
        if isinstance(request, ListTables):
            return self._list_tables(), "ok"
        if isinstance(request, GetSchema):
            columns = self._sql.schema(request.table.removesuffix(".parquet"))
            return "\n".join(f"{name}: {type_}" for name, type_ in columns.items()), "ok"
        assert isinstance(request, QuerySql)
        result = self._sql.query(request.sql)
        if result.status not in ("ok", "empty"):
            return f"Error: {result.status}: {result.message}", "error"
        return shown_rows(result.columns, result.rows, truncated=result.truncated), "ok"

    def _list_tables(self) -> str:
        """Return one line of text per table: name, number of rows, columns; counted at the first call."""
        if self._tables is None:
            names = self._sql.tables()
            counted = " UNION ALL ".join(f"SELECT '{name}', (SELECT count(*) FROM \"{name}\")" for name in names)  # noqa: S608 - names are ours
            rows = {str(name): count for name, count in self._sql.query(counted).rows}
            lines = (f"{name}: {rows.get(name, '?')} rows, {len(self._sql.schema(name))} columns" for name in names)
            self._tables = "\n".join(lines)
        return self._tables


def shown_rows(columns: tuple[str, ...], rows: tuple[tuple[Any, ...], ...], *, truncated: bool) -> str:
    """Return *columns* and *rows* as JSON lines, cut to a readable length; *truncated*: the query had more rows."""
    lines = [json_text(columns)]
    size, shown = len(lines[0]), 0
    for row in rows[:MAX_ROWS]:
        line = json_text(row)
        if size + len(line) > MAX_CHARACTERS:
            if not shown:
                lines.append(line[:MAX_CHARACTERS] + "...")
            break
        lines.append(line)
        size, shown = size + len(line) + 1, shown + 1
    more = truncated or shown < len(rows)
    count = f"({shown} rows shown of {'more than ' if truncated else ''}{len(rows)}; aggregate or filter for the rest)"
    return "\n".join([*lines, count if more else f"({len(rows)} rows)"])


def _make_tool_call(tool: str, arguments: dict[str, Any], output: str, status: Status) -> ToolCall:
    """Return the record of a call of *tool* with *arguments*, its *output* and *status*."""
    return ToolCall(tool=tool, arguments=arguments, output=output, status=status)


def _schema_of_arguments(model: type[Written]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, without titles; it forbids unknown keys."""
    schema = model.model_json_schema()
    properties = {n: {k: v for k, v in p.items() if k != "title"} for n, p in schema.get("properties", {}).items()}
    required = schema.get("required", [])
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
